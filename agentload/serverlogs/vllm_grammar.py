"""What can stand in a line of vLLM's log?

    (EngineCore pid=28475) INFO 11-29 14:01:30 [kv_cache_utils.py:2327] GPU KV cache size: 2,493,464 tokens, ...

Process names came with 0.10; file names and numbers change with each version, so that no fact hangs on one: only on
the text after them, and on all of it. uvicorn's lines have no stamp. Lines of several parts repeat the prefix.
"""

import re
from typing import Final

# Process, its number, level, stamp, text. At DEBUG the file may have folders before it; of old it had no `[`.
PREFIX: Final = re.compile(
    rb"(?:\(([A-Za-z][\w-]*) pid=(\d{1,10})\) )?(DEBUG|INFO|WARNING|ERROR|CRITICAL) "
    rb"(\d\d-\d\d \d\d:\d\d:\d\d) \[?[\w./<>-]+:\d{1,6}\](?: (.*))?",
    re.DOTALL,
)
PROCESS: Final = re.compile(rb"\([A-Za-z][\w-]* pid=\d{1,10}\) ")
UVICORN: Final = re.compile(rb"(?:INFO|WARNING|ERROR): {4,5}(\S.*)", re.DOTALL)
UVICORN_READY: Final = b"Application startup complete."
ACCESS: Final = re.compile(rb'\S+ - "[A-Z]+ \S+ HTTP/[\d.]+" (\d{3})(?: .*)?')

# ---- start-up ------------------------------------------------------------------------------------------------------

_COUNT: Final = rb"(\d{1,3}(?:,\d{3}){0,5}|\d{1,15})"
BANNER: Final = re.compile(rb".*\S +version (\d\S*)|vLLM API server version (\S+)")
_ART: Final = re.compile(rb"[ \xe2\x80-\x9f]*")  # a class, not a group: that keeps 120 bytes of each round it made
_BLOCKS: Final = " " + "".join(map(chr, range(0x2580, 0x25A0)))
BANNER_MODEL: Final = re.compile(rb".*\xe2\x96\x88.* model +(\S.*)")
ASKED: Final = re.compile(rb"non-default args: (\{.*\})", re.DOTALL)
ENGINE: Final = re.compile(rb"Initializing a V\d LLM engine \(v(\S+)\) with config: (.*)", re.DOTALL)
# (pattern, names of its groups, whether only the first one of a start counts: later ones are of a draft model)
SETTINGS: Final = (
    (re.compile(rb"Using max model len (\d{1,12})"), ("max_model_len",)),
    (
        re.compile(rb"Chunked prefill is enabled with max_num_batched_tokens=(\d{1,12})\."),
        ("max_num_batched_tokens",),
    ),
    (
        re.compile(
            rb"(?:\w+ )?KV cache size: "
            + _COUNT
            + rb" tokens, Maximum concurrency for [\d,]+ tokens per request: ([\d.]{1,12})x"
        ),
        ("kv_cache_size_tokens", "kv_cache_max_concurrency"),
    ),
    (re.compile(rb"(?:\w+ )?KV cache size: " + _COUNT + rb" tokens"), ("kv_cache_size_tokens",)),
    (
        re.compile(rb"Maximum concurrency for [\d,]+ tokens per request: ([\d.]{1,12})x"),
        ("kv_cache_max_concurrency",),
    ),
    (
        re.compile(rb"max_num_scheduled_tokens is set to (\d{1,12}) based on the speculative decoding settings.*"),
        ("max_num_scheduled_tokens",),
    ),
    (re.compile(rb"Using (?:AttentionBackendEnum\.)?(\w+) (?:attention )?backend\.?"), ("attention_backend",)),
    (
        re.compile(rb"Using (?:AttentionBackendEnum\.)?(\w+) attention backend out of potential backends: .*"),
        ("attention_backend",),
    ),
    (re.compile(rb"Using '(\w+)' (?:\w+ )?MoE backend.*"), ("moe_backend",)),
    (re.compile(rb"Setting kv cache block size to (\d{1,6}) for .*"), ("block_size",)),
)
CHUNKED: Final = b"Chunked prefill is enabled "
SWITCHES: Final = (
    (re.compile(rb"Asynchronous scheduling is enabled\."), "async_scheduling", True),
    (re.compile(rb"Asynchronous scheduling is disabled\."), "async_scheduling", False),
    (re.compile(rb"Async scheduling not supported .* will be disabled\."), "async_scheduling", False),
    (re.compile(rb"Enforce eager set, disabling .*"), "enforce_eager", True),
    (re.compile(rb"Kernel JIT monitor activated.*"), "jit_monitor", True),
)
# Names in the engine's configuration -> that of the setting; what is None there is not in force.
ENGINE_NAMES: Final = {
    "model": "model",
    "dtype": "dtype",
    "max_seq_len": "max_model_len",
    "load_format": "load_format",
    "tensor_parallel_size": "tensor_parallel_size",
    "pipeline_parallel_size": "pipeline_parallel_size",
    "data_parallel_size": "data_parallel_size",
    "decode_context_parallel_size": "decode_context_parallel_size",
    "quantization": "quantization",
    "enforce_eager": "enforce_eager",
    "kv_cache_dtype": "kv_cache_dtype",
    "device_config": "device",
    "seed": "seed",
    "enable_prefix_caching": "enable_prefix_caching",
    "enable_chunked_prefill": "enable_chunked_prefill",
}
OVERRIDDEN: Final = re.compile(
    rb"Overriding (?:cudagraph_mode from|max_num_active_seqs from|draft model max model len)"
    rb"|Raising max_num_batched_tokens from"
    rb"|.*reducing max_model_len to|Disabling (?:prefix caching|chunked prefill|num_speculative_tokens_per_batch_size)"
    rb"|.*falling back to static num_speculative_tokens|.*using the V1 model runner instead"
    rb"|Truncating max_cudagraph_capture_size|--block-size \d+ precluded|(?:Cast|Downcast|Upcast)ing \S+ to "
    rb"|.*is deprecated and replaced with mtp|max_num_scheduled_tokens is set to|Async scheduling not supported"
)
SAMPLING: Final = re.compile(
    rb"Default vLLM sampling parameters have been overridden by the model's generation_config\.json: .*"
)

# ---- while it serves -----------------------------------------------------------------------------------------------

ENGINE_LINE: Final = b"Engine "
STATS: Final = re.compile(rb"(Engine \d{1,4}|\d{1,4} Engines Aggregated): (Avg prompt throughput: .*)", re.DOTALL)
_RATE: Final = re.compile(rb"(\d{1,12}\.\d) tokens/s")
_REQUESTS: Final = re.compile(rb"(\d{1,9}) reqs")
_SHARE: Final = re.compile(rb"(\d{1,3}\.\d)%")
CACHE_USAGE: Final = b"KV cache usage"  # behind the word for the device
STATS_KEYS: Final = {
    b"Avg prompt throughput": (_RATE, "prompt_rate"),
    b"Avg generation throughput": (_RATE, "generation_rate"),
    b"Running": (_REQUESTS, "running"),
    b"Waiting": (_REQUESTS, "waiting"),
    b"Deferred": (_REQUESTS, "deferred"),
    b"Preemptions": (re.compile(rb"(\d{1,9})(?: reqs)?"), "preemptions"),
    CACHE_USAGE: (_SHARE, "kv_usage"),
    b"Prefix cache hit rate": (_SHARE, "prefix_hit_rate"),
    b"External prefix cache hit rate": (_SHARE, "external_hit_rate"),
    b"MM cache hit rate": (_SHARE, "mm_hit_rate"),
}
STATS_NEEDED: Final = frozenset(("prompt_rate", "generation_rate", "running", "waiting", "kv_usage"))
STATS_OTHER: Final = re.compile(rb"[A-Z][\w ]{1,40}: [^:]*")  # a field of another version: passed over
SPECULATION: Final = re.compile(
    rb"SpecDecoding metrics: (?:Draft acceptance rate: .*, )?Mean acceptance length: (\d{1,4}\.\d\d), "
    rb"Accepted throughput: (\d{1,9}\.\d\d) tokens/s, Drafted throughput: (\d{1,9}\.\d\d) tokens/s, "
    rb"Accepted: (\d{1,12}) tokens, Drafted: (\d{1,12}) tokens, "
    rb"Per-position acceptance rate: ((?:\d\.\d{3}, ){0,63}\d\.\d{3}), Avg Draft acceptance rate: (\d{1,3}\.\d)%"
)
ITERATION: Final = re.compile(
    rb"Engine (\d{1,4}): Iteration\(\d{1,15}\): (\d{1,9}) context requests, (\d{1,12}) context tokens, "
    rb"(\d{1,9}) generation requests, (\d{1,12}) generation tokens, "
    rb"iteration elapsed time: (\d{1,9})\.(\d\d) ms(?:, (?:\w+ )?KV cache usage: \d{1,3}\.\d%)?"
)
JIT: Final = re.compile(rb"(?:compilation|autotun\w*) during inference")  # somewhere in the text
COMPILES: Final = re.compile(rb"begins to compile kernel|completes to compile kernel|Compiling a graph for|JIT compil")
TILELANG: Final = re.compile(
    rb"(?:\(([A-Za-z][\w-]*) pid=(\d{1,10})\) )?(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) +\[TileLang:[^\]]*\] \([^)]*\): (.*)",
    re.DOTALL,
)

REQUEST_LINES: Final = (
    b"Received request ",
    b"Added request ",
    b"Generated response ",
    b"Aborted request",
    b"Request ",
)
_ID: Final = rb"([^\s,]{1,200})"
RECEIVED: Final = re.compile(rb"Received request " + _ID + rb": .*params: .*", re.DOTALL)
ADDED: Final = re.compile(rb"Added request " + _ID + rb"\.")
INTERNAL: Final = re.compile(rb"(.+)-[0-9a-f]{8}")  # the engine's name of a request that the server calls group 1
GENERATED: Final = re.compile(
    rb"Generated response " + _ID + rb"(?: \(streaming (?:delta|complete)\))?: output: .*, finish_reason: (\w+)",
    re.DOTALL,
)
NOT_FINISHED: Final = frozenset((b"None", b"streaming_complete"))
ABORTED: Final = re.compile(rb"Aborted request\(s\) (\S.*)\.")
ABORTED_ONE: Final = re.compile(rb"Request " + _ID + rb" (aborted|failed)\b.*", re.DOTALL)

# What begins like a line we use, and is none: it is unknown, whenever it comes.
OURS: Final = re.compile(
    rb"(?:Engine \d+|\d+ Engines Aggregated):|SpecDecoding metrics:|Received request |Added request "
    rb"|Generated response |Aborted request|Request \S+ (?:aborted|failed)|Initializing a V\d LLM engine"
    rb"|non-default args:|Using max model len |(?:\w+ )?KV cache size:|Chunked prefill is enabled"
)
# While it serves, what else is known and carries nothing.
NOISE: Final = re.compile(
    rb"The following fields were present in the request but ignored.*|.*is deprecated.*"
    rb"|Successfully reset prefix cache.*"
    rb"|Shutting down.*|.*[Ss]hutdown.*|Reset(?:ting)? .* cache.*|Using supplied chat template.*|Profil.*"
    rb"|Overriding .*|Supported tasks: .*|.*tool choice.*|Detected the chat template .*|Route: .*|Available routes .*"
    rb"|Starting vLLM .*|Setting max_.*|Automatic.* cache.*|OpenAI-compatible.*|Kernel JIT monitor .*",
    re.DOTALL,
)
# Lines of other programs beside the server's own.
FOREIGN_NOISE: Final = re.compile(
    rb"[IW]\d{4} \d\d:\d\d:\d\d\.\d+ .*|\[[IW]\d{4} \d\d:\d\d:\d\d\.\d+ .*"  # torch
    rb"|.*: +\d{1,3}%.*\d+/\d+ \[.*"  # a bar that progresses
    rb"|\S+\.py:\d+: \w*Warning: .*",
    re.DOTALL,
)
WARNED: Final = re.compile(rb"\S+\.py:\d+: \w*Warning: .*", re.DOTALL)  # its source follows, two blanks before it


def is_art(text: bytes) -> bool:
    """Whether it is spaces and block elements, U+2580 to U+259F, or nothing."""
    return _ART.fullmatch(text) is not None and not text.strip(b" ").decode("utf-8", "replace").strip(_BLOCKS)


def number(text: bytes) -> int:
    """Return a count with or without commas between its digits."""
    return int(text.replace(b",", b""))
