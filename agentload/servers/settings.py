"""Is what was asked for on the command line what the server says is in force?

Servers take the last of two equal flags, clamp values and ignore what they do not know, all without a word. So each
flag that was given is held against the line of the start-up log that states the value in force. A flag whose value no
line states is unproven, not applied.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from agentload.core.records import Applied, Setting, Verdict

Value = str | int | float | bool

# llama-server: each spelling of a flag that takes a value, its variable, and the name under which its log states it.
_LLAMA_NAMES: Final = (
    ("n_ctx", "LLAMA_ARG_CTX_SIZE", ("-c", "--ctx-size")),
    ("n_slots", "LLAMA_ARG_N_PARALLEL", ("-np", "--parallel")),
    ("n_batch", "LLAMA_ARG_BATCH", ("-b", "--batch-size")),
    ("n_ubatch", "LLAMA_ARG_UBATCH", ("-ub", "--ubatch-size")),
    ("n_threads", "LLAMA_ARG_THREADS", ("-t", "--threads")),
    ("n_threads_batch", None, ("-tb", "--threads-batch")),
    ("cache_type_k", "LLAMA_ARG_CACHE_TYPE_K", ("-ctk", "--cache-type-k")),
    ("cache_type_v", "LLAMA_ARG_CACHE_TYPE_V", ("-ctv", "--cache-type-v")),
    ("flash_attn", "LLAMA_ARG_FLASH_ATTN", ("-fa", "--flash-attn")),
    ("cache_ram_mib", "LLAMA_ARG_CACHE_RAM", ("-cram", "--cache-ram")),
    ("ctx_checkpoints", "LLAMA_ARG_CTX_CHECKPOINTS", ("-ctxcp", "--ctx-checkpoints", "--swa-checkpoints")),
    ("verbosity", "LLAMA_ARG_LOG_VERBOSITY", ("-lv", "--verbosity", "--log-verbosity")),
    # No line of its log states these: unproven, which is more than not to be mentioned.
    ("n_gpu_layers", "LLAMA_ARG_N_GPU_LAYERS", ("-ngl", "--gpu-layers", "--n-gpu-layers")),
    ("split_mode", "LLAMA_ARG_SPLIT_MODE", ("-sm", "--split-mode")),
    ("tensor_split", "LLAMA_ARG_TENSOR_SPLIT", ("-ts", "--tensor-split")),
    ("main_gpu", "LLAMA_ARG_MAIN_GPU", ("-mg", "--main-gpu")),
    ("device", "LLAMA_ARG_DEVICE", ("-dev", "--device")),
    ("n_cpu_moe", "LLAMA_ARG_N_CPU_MOE", ("-ncmoe", "--n-cpu-moe")),
    ("cache_reuse", "LLAMA_ARG_CACHE_REUSE", ("--cache-reuse",)),
)
_LLAMA: Final[Mapping[str, str]] = {flag: name for name, _, flags in _LLAMA_NAMES for flag in flags}
_LLAMA_VARIABLES: Final[Mapping[str, str]] = {
    variable: name for name, variable, _ in _LLAMA_NAMES if variable is not None
}
# Flags without a value; of these the log states only kv_unified (the others: verify by behaviour).
_LLAMA_SWITCHES: Final[Mapping[str, tuple[str, bool]]] = {
    "--no-cache-prompt": ("cache_prompt", False),
    "--cache-prompt": ("cache_prompt", True),
    **dict.fromkeys(("-kvu", "--kv-unified"), ("kv_unified", True)),
    **dict.fromkeys(("-no-kvu", "--no-kv-unified"), ("kv_unified", False)),
    **dict.fromkeys(("-nkvo", "--no-kv-offload"), ("kv_offload", False)),
    **dict.fromkeys(("-cb", "--cont-batching"), ("cont_batching", True)),
    **dict.fromkeys(("-nocb", "--no-cont-batching"), ("cont_batching", False)),
    "--swa-full": ("swa_full", True),
    "--no-mmap": ("mmap", False),
    "--mlock": ("mlock", True),
}
_SAME: Final[Mapping[str, str]] = {"on": "enabled", "off": "disabled"}
# Values that leave the choice to the server: nothing is asked for by them.
_ANY: Final = frozenset({("n_ctx", 0), *((name, -1) for name in ("n_slots", "n_threads", "n_threads_batch"))})
VARIABLES: Final = tuple(_LLAMA_VARIABLES)
"""Environment variables that ask for a setting where no flag does."""


def compare(
    log_format: str | None, argv: Sequence[str], stated: Sequence[Setting], env: Mapping[str, str] | None = None
) -> tuple[Applied, ...]:
    """Return every setting that was asked for or is stated, by name: requested, applied, and which line proves it.

    Of several starts in one log the last one counts. Only llama-server's flags are known so far: of other servers'
    settings the stated value is given, with nothing requested.

    Args:
        log_format: whose flags these are.
        argv: the server's command line.
        stated: what its log states.
        env: of its environment, `VARIABLES`; a flag wins over one.
    """
    in_force = {one.name: one for one in stated}
    asked: dict[str, list[Value]] = {}
    if log_format == "llamacpp":
        asked = {_LLAMA_VARIABLES[name]: [_value(value)] for name, value in (env or {}).items() if name in VARIABLES}
        asked |= _asked(argv)
        asked = {name: values for name, values in asked.items() if (name, values[-1]) not in _ANY}
    return tuple(_one(name, asked.get(name, []), in_force.get(name)) for name in sorted({*asked, *in_force}))


def _asked(argv: Sequence[str]) -> dict[str, list[Value]]:
    found: dict[str, list[Value]] = {}
    for word, following in zip(argv, [*argv[1:], ""], strict=False):
        flag, equals, attached = word.partition("=")
        if flag in _LLAMA:
            value = _value(attached if equals else following)
            if _LLAMA[flag] == "flash_attn" and str(value).startswith("-"):
                value = "on"  # older builds have it as a switch
            found.setdefault(_LLAMA[flag], []).append(value)
        elif flag in _LLAMA_SWITCHES:
            name, switched = _LLAMA_SWITCHES[flag]
            found.setdefault(name, []).append(switched)
    return found


def _value(text: str) -> Value:
    return int(text) if text.removeprefix("-").isdigit() else text


def _one(name: str, asked: Sequence[Value], stated: Setting | None) -> Applied:
    requested = asked[-1] if asked else None
    source = "" if stated is None else f"server.log:{stated.proof.line}"
    applied = None if stated is None else stated.value
    if len(asked) > 1:
        verdict = Verdict.DUPLICATE
    elif requested is None:
        verdict = Verdict.DEFAULTED
    elif applied is None:
        verdict = Verdict.UNPROVEN
    elif applied == _SAME.get(str(requested), requested):
        verdict = Verdict.APPLIED
    else:
        verdict = Verdict.MISMATCH
    return Applied(name, requested, applied, source, verdict)
