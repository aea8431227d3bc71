"""ds4-server: which settings does it echo, how does it end, and what does its disk cache leave to the next run?

Its start-up lines state the values that its scheduler uses, after clamping (GLM floors the mixed quantum at 1024).
Without the line `batched mode enabled` it takes one request at a time, and the quanta do nothing. There is no version
and no /health; /v1/models answers once the socket is bound, which is after the model is loaded. Two equal flags: the
last wins silently. `--flag=value` is refused. Only one ds4 process may run on a host.
"""

from typing import Final

from agentload.servers.profiles.shape import Endpoint, Option, Profile, ProofKind, Warmup, off, on

_MODELS: Final = "GET /v1/models"


def _echoed(name: str, flag: str, *, aliases: tuple[str, ...] = (), exposed: bool = False) -> Option:
    return Option(name, (flag,), aliases=aliases, exposed=exposed)


def _silent(name: str, *flags: str) -> Option:
    return Option(name, flags, proof=ProofKind.NONE)


def _silent_switch(name: str, *flags: str) -> Option:
    return Option(name, switches=on(*flags), proof=ProofKind.NONE)


SETTINGS: Final = (
    Option("ctx", ("-c", "--ctx"), fields=(f"{_MODELS} data[0].context_length",)),
    _echoed("resident_sessions", "--batched-session", aliases=("batched_session",)),
    _echoed("mixed_prefill_quantum", "--mixed-prefill-quantum", exposed=True),
    _echoed("prefill_chunk", "--prefill-chunk"),
    # Not set by a flag; stated in the line of the batched mode.
    Option("prefill_quantum"),
    Option("decode_coalesce_us"),
    Option("backend", ("--backend",), tuple((f"--{name}", name) for name in ("metal", "cuda", "rocm", "cpu"))),
    _echoed("kv_disk_dir", "--kv-disk-dir"),
    _echoed("kv_disk_space_mb", "--kv-disk-space-mb"),
    _echoed("kv_cache_min_tokens", "--kv-cache-min-tokens"),
    _echoed("kv_cache_cold_max_tokens", "--kv-cache-cold-max-tokens"),
    _echoed("kv_cache_continued_interval_tokens", "--kv-cache-continued-interval-tokens"),
    _echoed("kv_cache_boundary_trim_tokens", "--kv-cache-boundary-trim-tokens"),
    _echoed("kv_cache_boundary_align_tokens", "--kv-cache-boundary-align-tokens"),
    Option(
        "kv_cache_cross_quant",
        switches=(("--kv-cache-reject-different-quant", "reject"),),
        aliases=("kv_cache_reject_different_quant",),
        words=(("True", "reject"), ("False", "accept")),
    ),
    Option("exact_dsml_tool_replay", switches=off("--disable-exact-dsml-tool-replay")),
    Option("trace", ("--trace",)),
    Option(
        "max_tokens",
        ("-n", "--tokens"),
        proof=ProofKind.API,
        fields=(f"{_MODELS} data[0].top_provider.max_completion_tokens",),
    ),
    Option(
        "batch_log",
        variables=("DS4_SERVER_BATCH_LOG",),
        proof=ProofKind.BEHAVIOUR,
        behaviour="a line of the log for each decode step",
    ),
    _silent("threads", "-t", "--threads"),
    _silent("power", "--power"),
    _silent("tool_memory_max_ids", "--tool-memory-max-ids"),
    _silent("mtp_model", "--mtp-model"),
    _silent("mtp_draft", "--mtp-draft"),
    _silent("mtp_margin", "--mtp-margin"),
    _silent("dspark_confidence", "--dspark-confidence"),
    _silent("gpu_vram", "--gpu-vram"),
    _silent("gpu_devices", "--gpu-devices"),
    _silent_switch("quality", "--quality"),
    _silent_switch("warm_weights", "--warm-weights"),
    _silent_switch("dspark", "--dspark"),
    _silent_switch("dspark_strict", "--dspark-strict"),
    _silent_switch("mtp_exact_sampling", "--mtp-exact-sampling"),
    _silent_switch("ssd_streaming", "--ssd-streaming"),
    _silent_switch("cuda_tensor_parallel", "--cuda-tensor-parallel"),
)

PROFILE: Final = Profile(
    name="ds4",
    title="ds4-server",
    log_format="ds4",
    settings=SETTINGS,
    api=(
        Endpoint(
            ("/v1/models",),
            ("data[0].id", "data[0].context_length", "data[0].top_provider.max_completion_tokens"),
        ),
    ),
    health=None,
    ready_line="listening on http://HOST:PORT",
    stop_s=600.0,
    ending="ds4-server stores the KV of each slot before it ends, which may take minutes",
    state_flags=("--kv-disk-dir",),
    state="the disk cache: prefixes that a later server on the same folder loads, and its tool ids",
    warmup=Warmup((1,), (350, 3000)),  # one call of the engine, and one that more than fills a quantum of 2048
    equals=False,
)
