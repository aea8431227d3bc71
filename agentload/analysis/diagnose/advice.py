"""What to try, by the name of the flag that this server has for it?

Never a fact: a judgement where the log shows the cause that the flag acts on, a hypothesis where the cause only fits
what is seen (PROTOCOL section 5). What it does on this machine, only a comparison tells.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from agentload.analysis.diagnose import causes
from agentload.analysis.diagnose.again import Found
from agentload.analysis.diagnose.inputs import Inputs
from agentload.core.evidence_grade import Grade

STALLS: Final = "stalls"
_WORTH: Final = 0.05  # of an agent's decode time: less waiting than that is not worth a flag

DS4: Final = "ds4"
LLAMACPP: Final = "llamacpp"
VLLM: Final = "vllm"
SGLANG: Final = "sglang"


@dataclass(frozen=True, slots=True)
class Flag:
    """One thing to try."""

    flag: str
    sentence: str
    settings: str = ""  # by whose values in force `now` is told: names, in the order of the flags
    if_set: tuple[Any, ...] = ()  # only with one of these values; (): whatever it is


_SESSIONS: Final = Flag(
    "--batched-session", "as many resident sessions as there are conversations at a time", "resident_sessions"
)
_TRY: Final[Mapping[tuple[str, str], tuple[Flag, ...]]] = {
    (STALLS, DS4): (
        Flag(
            "--mixed-prefill-quantum",
            "a smaller quantum makes each wait shorter and prefill slower, and all waits together may become longer",
            "mixed_prefill_quantum",
        ),
    ),
    (STALLS, LLAMACPP): (
        Flag(
            "-b, -ub",
            "smaller batches let a decoder have its next token sooner, and make prefill slower",
            "n_batch n_ubatch",
        ),
    ),
    (STALLS, VLLM): (
        Flag(
            "--enable-chunked-prefill",
            "without it a prompt is prefilled in one step",
            "enable_chunked_prefill",
            (False,),
        ),
        Flag(
            "--max-num-batched-tokens",
            "fewer tokens a step make each step beside a prefill shorter, and prefill slower",
            "max_num_batched_tokens",
        ),
        Flag(
            "--max-num-seqs",
            "fewer sequences at once leave fewer decoders to wait, and let requests queue",
            "max_num_seqs",
        ),
    ),
    (STALLS, SGLANG): (
        Flag(
            "--chunked-prefill-size",
            "a smaller chunk lets decoders have their turn more often, and makes prefill slower",
            "chunked_prefill_size",
        ),
        Flag("--enable-mixed-chunk", "lets one step hold a chunk of a prompt and decodes", "enable_mixed_chunk"),
    ),
    (causes.SLOT_TAKEN, DS4): (
        Flag(
            "--batched-session",
            "as many resident sessions as there are conversations at a time, or more: each needs context buffers",
            "resident_sessions",
        ),
        Flag("--kv-disk-dir", "keeps on disk what a slot held when another prompt takes it", "kv_disk_dir", (None,)),
    ),
    (causes.SLOT_TAKEN, LLAMACPP): (
        Flag("-np", "as many slots as there are conversations at a time; -c is shared among them", "n_slots"),
        Flag(
            "--slot-prompt-similarity (-sps)",
            "a greater one keeps a prompt that shares only its beginning from taking a slot as the most similar",
            "slot_prompt_similarity",
        ),
        Flag("--cache-ram", "more memory for prompts whose slot was taken", "cache_ram_mib"),
    ),
    (causes.OTHER_SLOT, LLAMACPP): (
        Flag(
            "--slot-prompt-similarity (-sps)",
            "a smaller one gives a prompt the slot with the most similar history sooner than the one unused longest",
            "slot_prompt_similarity",
        ),
    ),
    (causes.EVICTED, DS4): (
        Flag("--kv-disk-space-mb", "more room for what slots held", "kv_disk_space_mb"),
        _SESSIONS,
    ),
    (causes.DISK_MISS, DS4): (
        _SESSIONS,
        Flag("--kv-cache-min-tokens", "what is shorter is not kept on disk", "kv_cache_min_tokens"),
    ),
    (causes.HISTORY, LLAMACPP): (
        Flag("--cache-reuse", "lets chunks behind a changed place be reused by shifting them", "cache_reuse"),
    ),
    (causes.RERENDERED, LLAMACPP): (
        Flag("--cache-reuse", "lets chunks behind a changed place be reused by shifting them", "cache_reuse"),
    ),
    (causes.RERENDERED, DS4): (
        Flag(
            "--disable-exact-dsml-tool-replay",
            "leave it out: tool calls are then put back as they were sampled",
            "exact_dsml_tool_replay",
            (False,),
        ),
        Flag("--tool-memory-max-ids", "more calls are remembered as they were sampled", "tool_memory_max_ids"),
    ),
    (causes.REBUILD, DS4): (
        Flag(
            "--disable-exact-dsml-tool-replay",
            "leave it out: tool calls are then put back as they were sampled",
            "exact_dsml_tool_replay",
            (False,),
        ),
        Flag("--tool-memory-max-ids", "more calls are remembered as they were sampled", "tool_memory_max_ids"),
    ),
    (causes.UNUSABLE, LLAMACPP): (
        Flag("--swa-full", "keeps the whole cache of a model with a sliding window, at the cost of memory", "swa_full"),
        Flag("--ctx-checkpoints", "more places that a slot can go back to", "ctx_checkpoints"),
    ),
    (causes.CACHE_OFF, LLAMACPP): (Flag("--cache-prompt", "leave --no-cache-prompt out", "cache_prompt"),),
    (causes.CACHE_OFF, VLLM): (
        Flag("--enable-prefix-caching", "leave --no-enable-prefix-caching out", "enable_prefix_caching"),
    ),
    (causes.CACHE_OFF, SGLANG): (Flag("--disable-radix-cache", "leave it out", "disable_radix_cache"),),
    (causes.UNKNOWN, LLAMACPP): (
        Flag("-lv 4", "at this verbosity the log says which slot was chosen and what of it was kept", "verbosity"),
    ),
    (causes.UNKNOWN, VLLM): (
        Flag("--enable-prefix-caching", "see that it is on, and how full the cache is", "enable_prefix_caching"),
        Flag("--gpu-memory-utilization", "a larger cache drops fewer blocks", "gpu_memory_utilization"),
    ),
    (causes.UNKNOWN, SGLANG): (
        Flag("--mem-fraction-static", "a larger cache drops fewer prefixes", "mem_fraction_static"),
    ),
}

_CLIENT: Final[Mapping[str, str]] = {
    causes.HISTORY: "no flag: send the history as it was sent and as the server answered, reasoning and tool calls too",
    causes.RESTART: "no flag: see in the log why it ended, and what starts it again",
}


def advice(
    read: Inputs, stalls: Mapping[str, Any], found: Sequence[Found], again: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return what to try, what would save most first: for stalls, then for each cause."""
    given: list[dict[str, Any]] = []
    worst = max(stalls["agents"], key=lambda one: one["share"] or 0, default=None)
    if worst is not None and (worst["share"] or 0) >= _WORTH:
        because = (
            f"{worst['agent']} waited {worst['stalled_s']:.1f} s of {worst['decode_s']:.1f} s of its decode for the "
            "prefills of others"
        )
        # That they coincide is measured; that the flag would part them is not.
        given += _flags(read, STALLS, because, Grade.HYPOTHESIS)
    shown = {one.cause.code for one in found if one.cause.rests_on in {causes.LOG, causes.SETTINGS, causes.MESSAGES}}
    for one in again["causes"]:
        code = one["cause"]
        because = f"{one['again_tokens']:,} tokens in {_requests(one['requests'])}: {one['title']}"
        grade = Grade.JUDGEMENT if code in shown else Grade.HYPOTHESIS
        if code in _CLIENT:
            given.append(_entry(code, None, None, None, _CLIENT[code], because, grade))
        given += _flags(read, code, because, grade)
    return given


def _requests(number: int) -> str:
    return f"{number} request{'s' * (number != 1)}"


def _flags(read: Inputs, code: str, because: str, grade: Grade) -> list[dict[str, Any]]:
    given = []
    for one in _TRY.get((code, read.software or ""), ()):
        values = [read.setting(name) for name in one.settings.split()]
        now = values[0] if len(values) == 1 else None
        if len(values) > 1 and None not in values:
            now = ", ".join(map(str, values))
        if one.if_set and now not in one.if_set:
            continue
        given.append(_entry(code, one.flag, read.software, now, one.sentence, because, grade))
    return given


def _entry(
    code: str, flag: str | None, software: str | None, now: Any, sentence: str, because: str, grade: Grade
) -> dict[str, Any]:
    return asdict(_Advice(code, flag, software, now, sentence, because, grade.value))


@dataclass(frozen=True, slots=True)
class _Advice:
    code: str
    flag: str | None  # None: no flag of the server's
    software: str | None
    now: Any  # its value in force, where it is known
    sentence: str
    because: str
    grade: str
