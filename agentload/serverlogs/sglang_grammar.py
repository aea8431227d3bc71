"""What can stand in a line of SGLang's log?

    [2026-10-06 11:00:38 TP0 EP0] Prefill batch, #new-seq: 1, #new-token: 4061, #cached-token: 1000, ...

Milliseconds come with SGLANG_LOG_MS=1; the words behind the time are ranks. Lines of batches are lists of `name: value`
that grew over the years: older ones have a full stop after the first words and a comma at the end. Lines that --log-
requests writes are Python's own words for an object, a request's or the server's, or JSON (`sglang_json`).
"""

import re
from typing import Final

PREFIX: Final = re.compile(
    rb"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.(\d{3}))?((?: [A-Z_]{2,10}\d{1,5}){0,16})\] "
    rb"(?:(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) [\w.]+:\d{1,6}: )?(.*)",
    re.DOTALL,
)
DATA_RANK: Final = re.compile(rb"DP\d+")  # a scheduler with requests of its own; all other ranks share the work of one
UVICORN: Final = re.compile(rb"(?:INFO|WARNING|ERROR): {4,5}(\S.*)", re.DOTALL)
ACCESS: Final = re.compile(rb'\S+ - "[A-Z]+ \S+ HTTP/[\d.]+" (\d{3})(?: .*)?')

# ---- start-up ------------------------------------------------------------------------------------------------------

ARGUMENTS: Final = re.compile(rb"server_args=(?:ServerArgs\((.*)\)|(\{.*\}))", re.DOTALL)
KEPT: Final = frozenset(
    (
        *("model_path", "served_model_name", "device", "load_format", "version", "revision", "tokenizer_path"),
        *("context_length", "max_running_requests", "chunked_prefill_size", "max_prefill_tokens", "max_total_tokens"),
        *("mem_fraction_static", "schedule_policy", "schedule_conservativeness", "page_size", "stream_interval"),
        *("tp_size", "dp_size", "ep_size", "pp_size", "enable_dp_attention", "kv_cache_dtype", "quantization", "dtype"),
        *("attention_backend", "prefill_attention_backend", "decode_attention_backend", "sampling_backend"),
        *("moe_runner_backend", "grammar_backend", "reasoning_parser", "tool_call_parser", "random_seed"),
        *("speculative_algorithm", "speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens"),
        *("speculative_draft_model_path", "cuda_graph_max_bs", "decode_log_interval", "disable_cuda_graph"),
        *("enable_mixed_chunk", "disable_radix_cache", "disable_overlap_schedule", "enable_hierarchical_cache"),
        *("enable_torch_compile", "enable_metrics", "log_requests", "log_requests_level", "enable_cache_report"),
        *("disaggregation_mode", "num_continuous_decode_steps", "enable_metrics_for_all_schedulers"),
    )
)
"""Settings of the 250 and more that change what is measured, or what can be seen of it."""
CAPACITY: Final = re.compile(rb"max_total_num_tokens=\d{1,15}(?:, \w+=[^,=]+){1,64}")
CAPACITY_NAMES: Final = {
    b"max_total_num_tokens": "max_total_num_tokens",
    b"chunked_prefill_size": "chunked_prefill_size",
    b"max_prefill_tokens": "max_prefill_tokens",
    b"max_running_requests": "max_running_requests",
    b"context_len": "context_length",
}
ITEM: Final = re.compile(rb"(\w+)=(-?\d{1,15})(?:\.\d+)?(?: GB)?")
READY: Final = re.compile(rb"The server is fired up and ready to roll!")
START_NOISE: Final = re.compile(
    rb"Load weight .*|Init torch distributed .*|.*avail mem=.*|Memory pool end.*|Capture .*|Capturing .*"
    rb"|KV Cache is allocated.*"
    rb"|DSV4 pool sizes: .*|Using .*|Attention backend .*|Ignore import error .*|.*backend.*|Tensorizer.*|Beginning .*"
    rb"|Loading .*|Multi-thread loading .*|Setting .*|Tree cache .*|Reasoning parser .*|Chat template .*"
    rb"|Detected .*|Automatically .*|Registering .*|Registered .*|Rank \d+ .*|DeepGEMM .*",
    re.DOTALL,
)

# ---- batches -------------------------------------------------------------------------------------------------------

BATCH: Final = re.compile(rb"(Prefill|Decode) batch(?: \[\d{1,15}\])?[,.] (#.*)", re.DOTALL)
_COUNT: Final = re.compile(rb"(\d{1,12})")
_SHARE: Final = re.compile(rb"(\d{1,3}\.\d\d)")
_RATE: Final = re.compile(rb"(\d{1,12}\.\d\d)")
BATCH_KEYS: Final = {
    b"#new-seq": (_COUNT, "new_sequences"),
    b"#new-token": (_COUNT, "new_tokens"),
    b"#cached-token": (_COUNT, "cached_tokens"),
    b"#running-req": (_COUNT, "running"),
    b"#queue-req": (_COUNT, "waiting"),
    b"#pending-token": (_COUNT, "pending_tokens"),
    b"#token": (_COUNT, "held_tokens"),
    b"#full token": (_COUNT, "held_tokens"),
    b"token usage": (_SHARE, "kv_usage"),
    b"full token usage": (_SHARE, "kv_usage"),
    b"swa token usage": (_SHARE, "swa_usage"),
    b"mamba usage": (_SHARE, "mamba_usage"),
    b"cache hit rate": (re.compile(rb"(\d{1,3}\.\d\d)%"), "prefix_hit_rate"),
    b"accept len": (re.compile(rb"(\d{1,4}\.\d\d)"), "accepted_length"),
    b"accept rate": (_SHARE, "acceptance"),
    b"input throughput (token/s)": (_RATE, "input_rate"),
    b"gen throughput (token/s)": (_RATE, "generation_rate"),
}
SHARES: Final = frozenset(("kv_usage", "swa_usage", "mamba_usage", "acceptance"))  # from 0 to 1 there
RATES: Final = frozenset(("input_rate", "generation_rate"))  # each rank measures them for itself
BATCH_OTHER: Final = re.compile(rb"#?[A-Za-z][\w /()#-]{1,40}: [^:,]+")  # a field of another version: passed over
NEEDED: Final = {
    b"Prefill": frozenset(("new_sequences", "new_tokens", "cached_tokens", "kv_usage", "running", "waiting")),
    b"Decode": frozenset(("running", "held_tokens", "kv_usage", "generation_rate")),
}

# ---- requests ------------------------------------------------------------------------------------------------------

# A request, or a batch of them. Its name leads (0.5.6 to 0.5.23): what looks like one behind it is the prompt's. A
# batch is looked for in front alone: a prompt may begin one in a million places.
RECEIVE: Final = re.compile(
    rb"Receive: obj=\w+\((?:rid=\[('[^']{1,200}'(?:, '[^']{1,200}'){0,4095})\]|(?:.*?, )??rid='([^']{1,200})')[,)].*",
    re.DOTALL,
)
LISTED: Final = re.compile(rb"'([^']+)'")
RECEIVE_OPENAI: Final = re.compile(rb"Receive OpenAI: obj=[{\w].*[})]", re.DOTALL)  # it names no request
FINISH: Final = re.compile(rb"Finish: obj=\w+\((.*)", re.DOTALL)
RID: Final = re.compile(rb"(?:.*?, )??rid='([^']{1,200})'[,)]", re.DOTALL)
OUT: Final = b", out={"
# At level 2 the middle of a long text or list is left out; without these words it is Python's again.
CUT: Final = b" ... "
CUT_TEXT: Final = re.compile(rb"""(?<=['"]) \.\.\. (?=['"])""")
CUT_LIST: Final = b"] ... ["
TIMES: Final = re.compile(
    rb"Req(?:uest)?TimeStats\(rid=([^,\s]{1,200}), (.*)\): queue_duration=([\d.]{1,20})ms, "
    rb"forward_duration=([\d.]{1,20})ms(?:, .*)?",
    re.DOTALL,
)
TIMES_ITEM: Final = re.compile(rb"(\w+)=(\d{1,12})")

JIT: Final = re.compile(  # somewhere in the text
    rb"\bJIT\b.{0,200}?[Cc]ompil|[Cc]ompil\w* during inference|begins to compile|completes to compile", re.DOTALL
)
TROUBLE: Final = re.compile(
    rb"Scheduler hit an exception.*|Traceback \(most recent call last\):|KV cache pool is full.*|.*out of memory.*"
    rb"|Watchdog .*|Detected errors? .*|Retract requests.*|Decode out of memory.*",
    re.DOTALL,
)
NOISE: Final = re.compile(
    rb"Cache flushed .*|Endpoint '.*|Health check.*|Gracefully exiting.*|SIGTERM received.*|.*[Ss]hutdown.*"
    rb"|Abort(?:ed)? .*request.*|.*is deprecated.*|Start of .* warmup.*",
    re.DOTALL,
)
OURS: Final = re.compile(
    rb"Prefill batch|Decode batch|Receive(?: OpenAI)?: obj=|Finish: obj=|Req\w*TimeStats\(|server_args="
    rb"|max_total_num_tokens="
)
OTHER_NOISE: Final = re.compile(
    rb"[IW]\d{4} \d\d:\d\d:\d\d\.\d+ .*|\[[IW]\d{4} \d\d:\d\d:\d\d\.\d+ .*"  # torch
    rb"|.*: +\d{1,3}%.*\d+/\d+ \[.*"  # a bar that progresses
    rb"|\S+\.py:\d+: \w*Warning: .*",
    re.DOTALL,
)
