"""SGLang: which of its settings can be read while it runs?

Its log has no reader here yet. GET /server_info (older: /get_server_info) gives the arguments as resolved, which are
mostly the values in force; its `launch_command` is the request, may hold a key, and is not kept. GET /health generates
a token, and has 503 until the server's own warm-up is done: so it is asked while the server starts, never later.
"""

from typing import Final

from agentload.servers.profiles.shape import Endpoint, Option, Profile, ProofKind, Warmup, on

_INFO: Final = "GET /server_info"


def _api(name: str, *flags: str) -> Option:
    return Option(name, flags, proof=ProofKind.API, fields=(f"{_INFO} {name}",))


def _switch(name: str, flag: str, *, exposed: bool = False) -> Option:
    return Option(name, switches=on(flag), proof=ProofKind.API, fields=(f"{_INFO} {name}",), exposed=exposed)


SETTINGS: Final = (
    _api("context_length", "--context-length"),
    _api("max_running_requests", "--max-running-requests"),
    _api("chunked_prefill_size", "--chunked-prefill-size"),
    _api("max_prefill_tokens", "--max-prefill-tokens"),
    _api("max_total_tokens", "--max-total-tokens"),
    _api("mem_fraction_static", "--mem-fraction-static"),
    _api("schedule_policy", "--schedule-policy"),
    _api("schedule_conservativeness", "--schedule-conservativeness"),
    _api("page_size", "--page-size"),
    _api("tp_size", "--tp", "--tp-size", "--tensor-parallel-size"),
    _api("dp_size", "--dp", "--dp-size", "--data-parallel-size"),
    _api("ep_size", "--ep", "--ep-size", "--expert-parallel-size"),
    _api("pp_size", "--pp", "--pp-size", "--pipeline-parallel-size"),
    _api("kv_cache_dtype", "--kv-cache-dtype"),
    _api("quantization", "--quantization"),
    _api("dtype", "--dtype"),
    _api("attention_backend", "--attention-backend"),
    _api("sampling_backend", "--sampling-backend"),
    _api("speculative_algorithm", "--speculative-algorithm"),
    _api("speculative_num_steps", "--speculative-num-steps"),
    _api("speculative_eagle_topk", "--speculative-eagle-topk"),
    _api("speculative_num_draft_tokens", "--speculative-num-draft-tokens"),
    _api("cuda_graph_max_bs", "--cuda-graph-max-bs"),
    _api("stream_interval", "--stream-interval"),
    _switch("enable_mixed_chunk", "--enable-mixed-chunk", exposed=True),
    _switch("disable_radix_cache", "--disable-radix-cache"),
    _switch("disable_cuda_graph", "--disable-cuda-graph"),
    _switch("disable_overlap_schedule", "--disable-overlap-schedule"),
    _switch("enable_hierarchical_cache", "--enable-hierarchical-cache"),
    _switch("enable_torch_compile", "--enable-torch-compile"),
)

PROFILE: Final = Profile(
    name="sglang",
    title="SGLang",
    log_format=None,
    settings=SETTINGS,
    api=(
        Endpoint(("/server_info", "/get_server_info"), ("version", *(one.name for one in SETTINGS))),
        Endpoint(("/v1/models",), ("data[0].id", "data[0].max_model_len")),
    ),
    ready_line="The server is fired up and ready to roll!",
    stop_s=60.0,
    state="KV on disk only with a hierarchical cache that has a storage backend",
    warmup=Warmup((1, 4), (350, 3000)),
    metrics="/metrics",  # with --enable-metrics
)
