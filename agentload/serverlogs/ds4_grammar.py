"""What can stand in a line of ds4-server's log?

    0817 14:01:07 ds4-server: chat ctx=171331..171381:50 gen=50 TOOLS decoding chunk=18.73 t/s avg=18.73 t/s 2.669s
    MMDD HH:MM:SS, local time    from..to:count

`A..B:N` is cached..prompt:new in lines of a request as a whole, and the interval in decode lines. Every pattern is for
a whole line: model output that a warning quotes may look like one anywhere else. Lines of the engine (`ds4: ...`) and a
few of the server have no stamp. Numbers are bounded, so that none of them is a bomb. Only single characters are
repeated possessively: Python before 3.11.5 gets it wrong for groups.
"""

import re
from typing import Final

_N: Final = rb"(\d{1,9}+)"
_SECONDS: Final = rb"(\d{1,9}+)\.(\d{3})s"
_CTX: Final = rb"(\d{1,9}+\.\.\d{1,9}+:\d{1,9}+)"
_FLAGS: Final = rb"(?: [A-Z_]+)*"  # RESPPROTO TOOLS THINKING DSML_START DSML_END; a new one is no surprise
_RATES: Final = rb"chunk=[\w.]++ t/s avg=[\w.]++ t/s "
_HEAD: Final = rb"((?!ds4: ).{13}) ds4-server: "  # the clock, if stamps count, sees to it that these 13 are one
_REQUEST: Final = rb"(?:chat|completion) ctx="

STAMP: Final = re.compile(rb"\d{4} \d\d:\d\d:\d\d")
STAMPED: Final = re.compile(rb"(\d{4} \d\d:\d\d:\d\d) (.*)", re.DOTALL)
OURS: Final = re.compile(rb"(?:(?:\d{4} )?\d\d:\d\d:\d\d )?ds4-server: |ds4: ")  # posters cut stamps
BATCH_OK: Final = frozenset((b"ok", b"0"))
SERVER: Final = b"ds4-server: "
ENGINE: Final = b"ds4: "

# ---- lines of one request, stamp included --------------------------------------------------------------------------

DECODE: Final = re.compile(
    _HEAD + _REQUEST + _N + rb"\.\." + _N + rb":" + _N + rb" gen=" + _N + _FLAGS
    + rb" decoding " + _RATES + _SECONDS
)  # fmt: skip
CHUNK: Final = re.compile(
    _HEAD + _REQUEST + _CTX + _FLAGS + rb" (prefill|tool checkpoint rebuild) chunk " + _N + rb"/" + _N
    + rb" \([\w.]++%\) " + _RATES + _SECONDS
)  # fmt: skip
BATCH_TEXT: Final = b"decode batch "
BATCH: Final = re.compile(
    rb".{13} ds4-server: "
    rb"decode batch count=" + _N + rb" elapsed=(\d{1,9})\.(\d{3}) ms status=(\S+)"
)

# ---- texts after the stamp and `ds4-server: ` ----------------------------------------------------------------------

START: Final = re.compile(_REQUEST + _CTX + _FLAGS + rb" prompt start")
DONE: Final = re.compile(_REQUEST + _CTX + _FLAGS + rb" prompt done " + _SECONDS)
FINISH: Final = re.compile(
    _REQUEST
    + _CTX
    + rb" gen="
    + _N
    + _FLAGS
    + rb" finish=(stop|length|tool_calls|error)(?: error=\"(.*)\")? "
    + _SECONDS
)
TOOLS: Final = re.compile(
    rb"tool calls ctx=" + _CTX + _FLAGS + rb" n=\d{1,9} raw_(?:dsml|tool_text)=\d{1,9} ids=\[(.*)\] names=\[.*\]"
)
REBUILD_NEEDED: Final = re.compile(
    rb"tool checkpoint canonicalization needs " + _N + rb" tokens rebuild ctx=" + _CTX + rb" request_ctx=" + _CTX
    + rb" reason=.*"
)  # fmt: skip
REBUILD_DONE: Final = re.compile(
    rb"tool checkpoint rebuild done ctx=" + _CTX + rb" request_ctx=" + _CTX + rb" source=\S+ cached=\d{1,9} replay="
    + _N + rb" target=\d{1,9} " + _SECONDS
)  # fmt: skip
APPENDED: Final = re.compile(rb"(?:.*: )?tool-error continuation appended " + _N + rb" tokens.*")
GONE: Final = re.compile(
    rb"(?:(?:chat|completion) )?(?:ctx=" + _CTX + _FLAGS + rb" )?((?:stream closed during prefill|sse headers failed"
    rb"|openai role chunk failed|final stream failed|prefill failed after stream closed|prefill SSE error failed"
    rb"|client disconnected).*)"
)  # fmt: skip
SNIPPET: Final = b"_snippet: "  # what follows is raw model output, over several lines perhaps
TEXT_LENGTH: Final = re.compile(rb"text_len=(\d{1,9})\b")
SNIPPET_BYTES: Final = 500  # of raw model output: at most so much is quoted

# ---- the caches ----------------------------------------------------------------------------------------------------

MISS: Final = re.compile(
    rb"live kv cache miss(?: RESPPROTO)? live=\d{1,9} prompt=\d{1,9} common="
    + _N + rb"(?: vision=\w+)? reason=([\w-]+)"
)  # fmt: skip
LIVE: Final = re.compile(
    rb"(?:(?:responses|anthropic|thinking) live continuation|multimodal live kv hit|responses replay)(?: .*)? cached="
    + _N + rb" prompt=\d{1,9}(?: .*)?"
)  # fmt: skip
STORE: Final = re.compile(
    rb"kv cache (stored|hit|evicted|skipped|store failed|load failed|discarded|replaced incompatible file)\b(.*)"
)
TOKENS: Final = re.compile(rb" tokens=" + _N + rb"\b")
REASON: Final = re.compile(rb" reason=([\w-]+)")
TOOK: Final = re.compile(rb" (?:save|load)=(\d{1,9}\.\d) ms")

# ---- start, stop and trouble ---------------------------------------------------------------------------------------

CONTEXT: Final = re.compile(rb"context buffers (\d{1,9}\.\d\d) MiB \((ctx=.*)\)")
RESIDENT: Final = re.compile(rb"\d{1,9} resident sessions request at least (\d{1,9}\.\d\d) GiB of context buffers")
BATCHED: Final = re.compile(rb"batched mode enabled ((?:\w+=\d+ ?)+)")
KV_DISK: Final = re.compile(rb"KV disk cache (.*) \((budget=.*)\)")
KV_DISK_FAILED: Final = re.compile(rb"failed to create KV cache directory (.*)")
REPLAY_OFF: Final = re.compile(rb"exact DSML tool replay disabled; .*")
MTP_OFF: Final = re.compile(rb"MTP speculative decoding is disabled while native session batching is active")
TRACE: Final = re.compile(rb"tracing session to (.*)")
READY: Final = re.compile(rb"listening on (http://\S+)")
PAIR: Final = re.compile(rb"([\w-]+)=([^ ,)]+)(?: MiB)?")
KV_DISK_NAMES: Final = {
    "budget": "kv_disk_space_mb",
    "cross-quant": "kv_cache_cross_quant",
    "min": "kv_cache_min_tokens",
    "cold_max": "kv_cache_cold_max_tokens",
    "continued": "kv_cache_continued_interval_tokens",
    "trim": "kv_cache_boundary_trim_tokens",
    "align": "kv_cache_boundary_align_tokens",
    "hit_half_life": "kv_cache_hit_half_life_s",
}  # as the options are called, where one sets the value

TROUBLE: Final = re.compile(rb"(?:out of memory|failed to listen on .*|prefill failed.*)")
QUIET: Final = re.compile(
    rb"(?:ignored orphan tool-call end marker|tool call inside unclosed <think>|recovered a complete tool call"
    rb"|repaired unterminated tool call|unterminated tool call; continuing|invalid tool call|incomplete \S+ tool call:"
    rb"|tool checkpoint canonicalized|thinking live checkpoint remembered|rewound GLM live prefix"
    rb"|thinking not closed, ignoring DSML in reasoning|shutdown requested, draining requests"
    rb"|persisting resident KV cache before shutdown).*",
    re.DOTALL,
)
UNSTAMPED: Final = re.compile(rb"ds4-server: (?:thinking not closed, ignoring DSML in reasoning|out of memory)")

# ---- the engine ----------------------------------------------------------------------------------------------------

DEVICE: Final = re.compile(
    rb"ds4: (?:Metal device (.+), \d+\.\d\d GiB RAM|\w+ backend initialized on (.+?)(?: dev=\d+)?)"
)
ENGINE_OPENS: Final = re.compile(rb"ds4: (?:Metal device .+|\w+ backend initialized on .+|Linux \S+ backend set .+)")
MANAGED_KV: Final = re.compile(rb"ds4: \w+ using managed KV cache for ctx=\d+ .*")
ENGINE_TROUBLE: Final = re.compile(
    rb"ds4: (?:another ds4 process is already running .*|.*\b(?:failed|out of memory)\b.*)"
)


def span(ctx: bytes) -> tuple[int, int, int] | None:
    """Return (A, B, N) of `A..B:N`; None when N is not what the other two make it."""
    start, _, rest = ctx.partition(b"..")
    end, _, count = rest.partition(b":")
    cached, prompt, new = int(start), int(end), int(count)
    return (cached, prompt, new) if new == max(prompt - cached, 0) else None


def value(text: bytes) -> str | int:
    """Return a setting's value as an int where it is one."""
    return int(text) if text.isdigit() and len(text) < 19 else text.decode("utf-8", "replace")
