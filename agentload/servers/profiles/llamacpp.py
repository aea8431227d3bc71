"""llama-server (llama.cpp): which settings does its log state, and what is only seen in its behaviour?

Batch sizes, KV types and context sizes are stated at log verbosity 4 (`-lv 4`) only; at the default, and through the
API, the slots and the context of each. Two spellings of one flag overwrite each other without a word, two equal ones
with a warning; a flag wins over its variable. /v1/models may list a model that still loads: then /health has 503.
"""

from typing import Final

from agentload.servers.profiles.shape import Endpoint, Option, Profile, ProofKind, Warmup, off, on

_PROPS: Final = "GET /props"


def _silent(name: str, variable: str, *flags: str) -> Option:
    return Option(name, flags, variables=(variable,), proof=ProofKind.NONE)


SETTINGS: Final = (
    Option("n_ctx", ("-c", "--ctx-size"), variables=("LLAMA_ARG_CTX_SIZE",), aliases=("ctx_size",), free=(0,)),
    Option("n_ctx_slot", fields=(f"{_PROPS} default_generation_settings.n_ctx",)),
    Option(
        "n_slots",
        ("-np", "--parallel"),
        variables=("LLAMA_ARG_N_PARALLEL",),
        aliases=("parallel",),
        fields=(f"{_PROPS} total_slots",),
        free=(-1,),
    ),
    Option("n_batch", ("-b", "--batch-size"), variables=("LLAMA_ARG_BATCH",), aliases=("batch_size",)),
    Option("n_ubatch", ("-ub", "--ubatch-size"), variables=("LLAMA_ARG_UBATCH",), aliases=("ubatch_size",)),
    Option("n_threads", ("-t", "--threads"), variables=("LLAMA_ARG_THREADS",), free=(-1,)),
    Option("n_threads_batch", ("-tb", "--threads-batch"), free=(-1,)),
    Option("cache_type_k", ("-ctk", "--cache-type-k"), variables=("LLAMA_ARG_CACHE_TYPE_K",)),
    Option("cache_type_v", ("-ctv", "--cache-type-v"), variables=("LLAMA_ARG_CACHE_TYPE_V",)),
    Option(
        "flash_attn",
        ("-fa", "--flash-attn"),
        variables=("LLAMA_ARG_FLASH_ATTN",),
        words=(("on", "enabled"), ("off", "disabled")),
        bare="on",  # older builds have it as a switch
    ),
    Option("cache_ram_mib", ("-cram", "--cache-ram"), variables=("LLAMA_ARG_CACHE_RAM",)),
    Option(
        "ctx_checkpoints",
        ("-ctxcp", "--ctx-checkpoints", "--swa-checkpoints"),
        variables=("LLAMA_ARG_CTX_CHECKPOINTS",),
    ),
    Option("verbosity", ("-lv", "--verbosity", "--log-verbosity"), variables=("LLAMA_ARG_LOG_VERBOSITY",)),
    Option("kv_unified", switches=on("-kvu", "--kv-unified") + off("-no-kvu", "--no-kv-unified")),
    # No line and no field states these.
    Option(
        "cache_prompt",
        switches=on("--cache-prompt") + off("--no-cache-prompt"),
        proof=ProofKind.BEHAVIOUR,
        behaviour="cached tokens of later turns: all 0 without prompt caching, above 0 with it",
    ),
    _silent("n_gpu_layers", "LLAMA_ARG_N_GPU_LAYERS", "-ngl", "--gpu-layers", "--n-gpu-layers"),
    _silent("split_mode", "LLAMA_ARG_SPLIT_MODE", "-sm", "--split-mode"),
    _silent("tensor_split", "LLAMA_ARG_TENSOR_SPLIT", "-ts", "--tensor-split"),
    _silent("main_gpu", "LLAMA_ARG_MAIN_GPU", "-mg", "--main-gpu"),
    _silent("device", "LLAMA_ARG_DEVICE", "-dev", "--device"),
    _silent("n_cpu_moe", "LLAMA_ARG_N_CPU_MOE", "-ncmoe", "--n-cpu-moe"),
    _silent("cache_reuse", "LLAMA_ARG_CACHE_REUSE", "--cache-reuse"),
    Option("kv_offload", switches=off("-nkvo", "--no-kv-offload"), proof=ProofKind.NONE),
    Option(
        "cont_batching",
        switches=on("-cb", "--cont-batching") + off("-nocb", "--no-cont-batching"),
        proof=ProofKind.NONE,
    ),
    Option("swa_full", switches=on("--swa-full"), proof=ProofKind.NONE),
    Option("mmap", switches=off("--no-mmap"), proof=ProofKind.NONE),
    Option("mlock", switches=on("--mlock"), proof=ProofKind.NONE),
)

PROFILE: Final = Profile(
    name="llamacpp",
    title="llama-server",
    log_format="llamacpp",
    settings=SETTINGS,
    api=(
        Endpoint(
            ("/props",),
            ("total_slots", "default_generation_settings.n_ctx", "model_path", "model_ftype", "build_info"),
        ),
    ),
    ready_line="model loaded, then listening on http://HOST:PORT",
    stop_s=30.0,
    state_flags=("--slot-save-path",),
    state="nothing, unless a client has its slots saved",
    warmup=Warmup((1,), (350,)),
    metrics="/metrics",  # with --metrics
)
