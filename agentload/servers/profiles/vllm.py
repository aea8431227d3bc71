"""vLLM: which of its settings can be read while it runs?

Its log states what the engine was made with, in one line; `non-default args` there is the request, and proves nothing.
Of the API /server_info is complete, and only there with VLLM_SERVER_DEV_MODE=1 (bind to loopback then); without it
/v1/models and the labels of `vllm:cache_config_info` are left. max_num_seqs is in none of these but /server_info.

Flags are argparse's: the last of two wins silently, `_` stands for `-`, `--flag=value` passes, and so does an
unambiguous beginning of a flag, which is not seen here. Sizes may be written 32k (32,000) and 32K (32,768).
"""

from typing import Final

from agentload.servers.profiles.shape import Endpoint, Option, Profile, ProofKind, Warmup, off, on

_INFO: Final = "GET /server_info vllm_config"
_CACHE_METRIC: Final = "vllm:cache_config_info"
_CACHE: Final = f"GET /metrics {_CACHE_METRIC}"


def _api(name: str, *flags: str, fields: tuple[str, ...]) -> Option:
    return Option(name, flags, proof=ProofKind.API, fields=fields)


def _switched(
    name: str, flag: str, *, proof: ProofKind = ProofKind.LOG, fields: tuple[str, ...] = (), exposed: bool = False
) -> Option:
    return Option(name, switches=on(f"--{flag}") + off(f"--no-{flag}"), proof=proof, fields=fields, exposed=exposed)


def _logged(
    name: str, *flags: str, fields: tuple[str, ...] = (), words: tuple[tuple[str, str], ...] = (), auto: bool = False
) -> Option:
    return Option(name, flags, fields=fields, words=words, free=("auto",) if auto else ())


def _silent(name: str, *flags: str) -> Option:
    return Option(name, flags, proof=ProofKind.NONE)


SETTINGS: Final = (
    _api("max_num_seqs", "--max-num-seqs", fields=(f"{_INFO}.scheduler_config.max_num_seqs",)),
    _logged(
        "max_num_batched_tokens",
        "--max-num-batched-tokens",
        fields=(f"{_INFO}.scheduler_config.max_num_batched_tokens",),
    ),
    Option(
        "max_model_len",
        ("--max-model-len",),
        fields=("GET /v1/models data[0].max_model_len",),
        free=("auto", -1),
    ),
    _switched(
        "enable_chunked_prefill",
        "enable-chunked-prefill",
        fields=(f"{_INFO}.scheduler_config.enable_chunked_prefill",),
        exposed=True,
    ),
    _switched(
        "enable_prefix_caching",
        "enable-prefix-caching",
        fields=(f"{_CACHE} enable_prefix_caching", f"{_INFO}.cache_config.enable_prefix_caching"),
    ),
    _switched("async_scheduling", "async-scheduling", fields=(f"{_INFO}.scheduler_config.async_scheduling",)),
    _api("scheduling_policy", "--scheduling-policy", fields=(f"{_INFO}.scheduler_config.policy",)),
    _api("block_size", "--block-size", fields=(f"{_CACHE} block_size",)),
    _api(
        "gpu_memory_utilization",
        "--gpu-memory-utilization",
        fields=(f"{_CACHE} gpu_memory_utilization",),
    ),
    _api("num_gpu_blocks", "--num-gpu-blocks-override", fields=(f"{_CACHE} num_gpu_blocks",)),
    # The label cache_dtype is the request ("auto"), not what is in force.
    _logged("kv_cache_dtype", "--kv-cache-dtype", fields=(f"{_INFO}.cache_config.cache_dtype",), auto=True),
    _logged("tensor_parallel_size", "-tp", "--tensor-parallel-size"),
    _logged("pipeline_parallel_size", "-pp", "--pipeline-parallel-size"),
    _logged("data_parallel_size", "-dp", "--data-parallel-size"),
    _logged("quantization", "-q", "--quantization"),
    _logged("dtype", "--dtype", words=(("half", "float16"), ("float", "float32")), auto=True),
    _logged("seed", "--seed"),
    _logged("load_format", "--load-format", auto=True),
    _silent("speculative_config", "--speculative-config"),
    _silent("compilation_config", "-O", "--compilation-config"),
    _logged("attention_backend", "--attention-backend"),
    _silent("long_prefill_token_threshold", "--long-prefill-token-threshold"),
    _silent("max_num_partial_prefills", "--max-num-partial-prefills"),
    _silent("kv_transfer_config", "--kv-transfer-config"),
    _switched("enforce_eager", "enforce-eager"),
    _switched("enable_expert_parallel", "enable-expert-parallel", proof=ProofKind.NONE),
)

PROFILE: Final = Profile(
    name="vllm",
    title="vLLM",
    log_format="vllm",
    settings=SETTINGS,
    api=(
        Endpoint(("/version",), ("version",)),
        Endpoint(("/v1/models",), ("data[0].id", "data[0].root", "data[0].max_model_len")),
        Endpoint(
            ("/server_info?config_format=json",),
            tuple(
                field.removeprefix("GET /server_info ")
                for one in SETTINGS
                for field in one.fields
                if field.startswith(_INFO)
            ),
        ),
        Endpoint(
            ("/metrics",),
            (
                *("block_size", "enable_prefix_caching", "gpu_memory_utilization", "num_gpu_blocks"),
                *("kv_cache_size_tokens", "kv_cache_max_concurrency"),
            ),
            metric=_CACHE_METRIC,
        ),
    ),
    ready_line="Application startup complete.",
    stop_s=60.0,
    state="compiled kernels below VLLM_CACHE_ROOT, which make the second start quicker; KV only with a KV connector",
    # Kernels compile at the first request of a shape, and a spike may come at the second one.
    warmup=Warmup((1, 4), (350, 3000)),
    metrics="/metrics",
    underscores=True,
)
