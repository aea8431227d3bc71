"""SGLang: which of its settings can be read while it runs?

Its log states the arguments as resolved, which are mostly the values in force, and after them what the memory allows.
GET /server_info (older: /get_server_info) gives the same arguments; its `launch_command` is the request, may hold a
key, and is not kept. GET /health generates a token, and has 503 until the server's own warm-up is done: so it is asked
while the server starts, never later.
"""

from typing import Final

from agentload.servers.profiles.shape import Endpoint, Option, Profile, Warmup, on

_INFO: Final = "GET /server_info"


def _stated(name: str, *flags: str) -> Option:
    return Option(name, flags, fields=(f"{_INFO} {name}",))


def _switch(name: str, flag: str, *, exposed: bool = False) -> Option:
    return Option(name, switches=on(flag), fields=(f"{_INFO} {name}",), exposed=exposed)


SETTINGS: Final = (
    _stated("context_length", "--context-length"),
    _stated("max_running_requests", "--max-running-requests"),
    _stated("chunked_prefill_size", "--chunked-prefill-size"),
    _stated("max_prefill_tokens", "--max-prefill-tokens"),
    _stated("max_total_tokens", "--max-total-tokens"),
    _stated("mem_fraction_static", "--mem-fraction-static"),
    _stated("schedule_policy", "--schedule-policy"),
    _stated("schedule_conservativeness", "--schedule-conservativeness"),
    _stated("page_size", "--page-size"),
    _stated("tp_size", "--tp", "--tp-size", "--tensor-parallel-size"),
    _stated("dp_size", "--dp", "--dp-size", "--data-parallel-size"),
    _stated("ep_size", "--ep", "--ep-size", "--expert-parallel-size"),
    _stated("pp_size", "--pp", "--pp-size", "--pipeline-parallel-size"),
    _stated("kv_cache_dtype", "--kv-cache-dtype"),
    _stated("quantization", "--quantization"),
    _stated("dtype", "--dtype"),
    _stated("attention_backend", "--attention-backend"),
    _stated("sampling_backend", "--sampling-backend"),
    _stated("speculative_algorithm", "--speculative-algorithm"),
    _stated("speculative_num_steps", "--speculative-num-steps"),
    _stated("speculative_eagle_topk", "--speculative-eagle-topk"),
    _stated("speculative_num_draft_tokens", "--speculative-num-draft-tokens"),
    _stated("cuda_graph_max_bs", "--cuda-graph-max-bs"),
    _stated("stream_interval", "--stream-interval"),
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
    log_format="sglang",
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
