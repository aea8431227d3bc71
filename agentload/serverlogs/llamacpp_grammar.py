"""What can stand in a line of llama.cpp's server log?

    0.39.902.006 I slot print_timing: id  0 | task 3 |        eval time =    9181.27 ms /    33 tokens (...)
    M.SS.mmm.uuu level component function: text

The time counts from process start. Function names are cut to 12 characters, come from C++ (`operator()`) and differ
between builds (`llama_server` here is `init` in the wheel), so no fact hangs on one: only on the text after it, and on
all of the text, because a model's output in a verbose log can hold anything.
"""

import re
from typing import Final

# Digits are bounded everywhere: a number beyond a count of 10^12 or 115 days in ms is damage, and its line unknown.
_NUMBER: Final = rb" *(\d{1,10}(?:\.\d+)?)"
_RATES: Final = rb" +\( *\S+ ms per token, +\S+ tokens per second\)"

_STAMP: Final = rb"\d{1,7}\.[0-5]\d\.\d{3}\.\d{3} "
PREFIX: Final = re.compile(rb"(\d{1,7})\.([0-5]\d)\.(\d{3})\.(\d{3}) ([A-Z]) ")
TORN_PREFIX: Final = re.compile(_STAMP + rb"(?:[A-Z] )?")

_PARTS: Final = rb"(?:srv|cmn|spec|que|res) +[^ |\n]+: +"
SLOT: Final = re.compile(rb"slot +[^ |]+: id +(\d{1,12}) \| task (-?\d{1,12}) \| +([^ ].*)", re.DOTALL)
OTHER: Final = re.compile(_PARTS + rb"([^ ].*)", re.DOTALL)
INNER_NAME: Final = re.compile(rb"[\w()]+: +(.*)", re.DOTALL)  # some texts begin with the function's name again
LIBRARY: Final = re.compile(rb"(\w+): +(.*)", re.DOTALL)  # llama_context: n_ctx = 4096

# ---- one request: texts of SLOT lines ------------------------------------------------------------------------------

# Older builds: no is_child; n_prompt_tokens; `kv cache rm [895, end)`, then `n_tokens = 895, memory_seq_rm [895, end)`.
LAUNCH: Final = re.compile(rb"processing task(?:, is_child = [01])?")
NEW_PROMPT: Final = re.compile(
    rb"new prompt, n_ctx_slot = \d+, n_keep = -?\d+, (?:task\.n_tokens|n_prompt_tokens) = (\d{1,12})"
)
CACHED: Final = re.compile(
    rb"(?:cached )?n_tokens = (\d{1,12}), memory_seq_rm \[\d+, end\)|kv cache rm \[(\d{1,12}), end\)"
)  # what is removed from there on was not reused
PROMPT_TIME: Final = re.compile(rb"prompt eval time =" + _NUMBER + rb" ms / +(\d{1,12}) tokens" + _RATES)
EVAL_TIME: Final = re.compile(rb"eval time =" + _NUMBER + rb" ms / +(\d{1,12}) tokens" + _RATES)
TOTAL_TIME: Final = re.compile(rb"total time =" + _NUMBER + rb" ms / +(\d{1,12}) tokens")
RELEASE: Final = re.compile(rb"stop processing: n_(?:tokens|past) = (\d{1,12}), truncated = ([01])")
SPECULATED: Final = re.compile(rb"draft acceptance(?: rate)? = .*")
# In builds older than `is_child` the timings are one entry: this line, and below it those of them without prefix.
TIMINGS_HEAD: Final = re.compile(rb"slot +print_timing: id +(\d{1,12}) \| task (-?\d{1,12}) \| *")
TIMINGS_WORDS: Final = frozenset(("prompt", "eval", "total", "draft"))
SHIFTED: Final = re.compile(rb"(?:slot context shift|input truncated), .*")

SLOT_NOISE: Final = re.compile(
    rb"selected slot by .*|- (?:skipping|checking)\b.*|saving idle slot to prompt cache|clearing (?:idle )?slot.*"
    rb"|init sampler, took .*|sampler (?:chain|params): .*|new slot,? n_ctx(?:_slot)? = \d+|graphs reused = +\d+"
    rb"|prompt (?:processing(?: done| progress)?|done), n_(?:tokens|past) = .*|n_(?:gen|decoded) = +\d+, tg = .*"
    rb"|n_past was set to \d+"
    rb"|need to evaluate at least 1 token for each active slot.*|acc per pos = .*|statistics .*"
    rb"|(?:created|restored|erased \w+|erasing \w+) context checkpoint.*|Checking checkpoint with .*"
    rb"|no cached prompt|trying to reuse chunks .*|reusing chunk .*|stopped by .*|prompt token.*"
)

# ---- everything else: texts of OTHER and LIBRARY lines -------------------------------------------------------------

BOOT: Final = re.compile(rb"initializing \.\.\.")
READY: Final = re.compile(rb"model loaded|(?:server is )?listening on \S+(?: - starting the main loop)?")
BUILD: Final = re.compile(rb"build: (\d+ \([0-9a-z]+\)) with .*")  # the first line of older builds
# A server that starts others (one a model) writes each one's port before its lines.
_TAG: Final = re.compile(rb"\[\d{2,5}\] ")
CANCEL: Final = re.compile(rb"cancel task, id_task = (\d{1,12})")
REFUSED: Final = re.compile(rb"task id = (\d{1,12}), error: (.*)")

# Lines that come before BOOT: of the same start of the server.
TWICE: Final = re.compile(
    rb"DEPRECATED: argument '([^' ]+)' specified multiple times, .*only last value will be used.*"
)
OVERWRITTEN: Final = re.compile(
    rb"(?:warn: )?(LLAMA_\w+) environment variable is set, but will be overwritten by command line argument (\S+)"
)
ROUNDED: Final = re.compile(rb"n_ctx is not divisible by n_seq_max - rounding down to (\d{1,12})")
SUSPECT: Final = re.compile(
    rb"(?:forcing full prompt re-processing|failed to find (?:free space|a memory slot)"
    rb"|server is (?:entering|exiting) sleeping state).*"
)

# (pattern, names of its groups): settings. Values become int or bool where they look like one.
SETTINGS: Final = (
    (
        re.compile(rb"initializing, n_slots = (\d{1,12}), n_ctx_slot = (\d{1,12}), kv_unified = '(true|false)'"),
        ("n_slots", "n_ctx_slot", "kv_unified"),
    ),
    (
        re.compile(rb"n_threads = (\d{1,12}) \(n_threads_batch = (\d{1,12})\) / \d+ \|.*"),
        ("n_threads", "n_threads_batch"),
    ),
    (re.compile(rb"n_threads = (\d{1,12})(?: / \d+ \|.*)?"), ("n_threads",)),
    (re.compile(rb"initializing slots, n_slots = (\d{1,12})"), ("n_slots",)),
    (re.compile(rb"llama threadpool init, n_threads = (\d{1,12})"), ("n_threads",)),
    (re.compile(rb"verbosity = (\d{1,12}) \(adjust with the .*"), ("verbosity",)),
    (re.compile(rb"build_info: (\S.*)"), ("build_info",)),
    (re.compile(rb"build[ :]+(\S.*)"), ("build",)),
    (re.compile(rb"loading model '(.*)'"), ("model",)),
    (re.compile(rb"local path '(.*)'"), ("model_path",)),
    (re.compile(rb"prompt cache is enabled, size limit: (\d{1,12}) MiB"), ("cache_ram_mib",)),
    (re.compile(rb"prompt cache is (disabled).*"), ("prompt_cache",)),
    (
        re.compile(rb"context checkpoints enabled, max = (\d{1,12}), min spacing = (\d{1,12})"),
        ("ctx_checkpoints", "ctx_checkpoint_spacing"),
    ),
    (re.compile(rb"adding speculative implementation '(.*)'"), ("speculative",)),
)
LIBRARY_SETTING: Final = re.compile(
    rb"(n_seq_max|n_ctx|n_ctx_seq|n_ctx_per_seq|n_batch|n_ubatch|flash_attn|kv_unified|n_rs_seq) += (\S+)"
)
KV_CACHE: Final = re.compile(rb"size = .* K \((\w+)\): .* V \((\w+)\): .*")
FLASH_ATTENTION: Final = re.compile(rb"Flash Attention (?:was )?(?:set to )?(enabled|disabled).*")

OTHER_NOISE: Final = re.compile(
    rb"all slots are idle|conv_id=.*|chat format: .*|Chat format: .*|updating prompt cache|prompt cache update took .*"
    rb"|- .*"
    rb"|saving prompt .*|device_info:|using \d+ threads for HTTP server|security: .*|loading model"
    rb"|fitting params to device memory.*|\(for bugs during this step .*|added .* logit bias = -inf"
    rb"|warming up the model .*|no implementations specified for speculative decoding|use `--cache-ram 0` .*"
    rb"|for more info see .*|idle slots will be saved to prompt cache .*"
    rb"|chat template, (?!example_format|chat_template).*"
    rb"|chat template: .*|preserve_reasoning kwarg: .*"
    rb"|cleaning up before exit\.\.\.|n_ctx_slot = .*|speculative decoding .*"
    rb"|done request: .*|request: .*|response: .*|The chat template .*|thinking = .*|params_from_.*"
    rb"|HTTP server is listening, .*|proxying request .*|reasoning-budget: .*|statistics .*"
    rb"|prompt is already in the cache, skipping|cors .*|CORS .*|start .*|main loop.*"
)
LIBRARY_HEAD: Final = re.compile(
    rb"(?:llama|ggml|gguf|common|clip|mtmd|load|print|sched|graph|resolve|set|init|build|create|warmup|done)\w*"
)

# Entries of several lines: what follows the first has no prefix.
CHAT_EXAMPLE: Final = re.compile(rb"chat template, example_format: '.*")
CHAT_EXAMPLE_END: Final = b"'"
SAMPLER_PARAMS: Final = re.compile(rb"\t(?:repeat_last_n|dry_multiplier|top_k|mirostat) = .*|\t\w+ = .*")
DEBUG_LEVEL: Final = b"D"

BARE_NOISE: Final = re.compile(
    rb"system info: n_threads = .*|system_info: n_threads = .*|request: [A-Z]+ /.*|reasoning-budget: .*|statistics .*"
)
CHAT_TEMPLATE: Final = re.compile(rb"chat template, chat_template: .*")


def stamp_ns(prefix: re.Match[bytes]) -> int:
    """Return the time of a PREFIX in ns since process start; it has a resolution of 1 us."""
    minutes, seconds, millis, micros = prefix.group(1, 2, 3, 4)
    return (int(minutes) * 60_000_000 + int(seconds + millis + micros)) * 1_000


def value(text: bytes) -> str | int | bool:
    """Return a setting's value as bool, int or text."""
    if text in (b"true", b"false"):
        return text == b"true"
    return int(text) if text.isdigit() and len(text) < 19 else text.decode("utf-8", "replace")


def parted(line: bytes) -> tuple[bytes, bytes]:
    """Return the tag of the server that a line is of, empty where it has none, and the line without it."""
    found = _TAG.match(line) if line.startswith(b"[") else None
    return (b"", line) if found is None else (found[0], line[found.end() :])


def begins_entry(line: bytes) -> bool:
    """Whether a line without prefix is one that the server's own parts begin with."""
    return SLOT.fullmatch(line) is not None or OTHER.fullmatch(line) is not None


def opens(body: bytes) -> bool:
    """Whether a line, without its prefix, is the first that a server writes of itself."""
    other = OTHER.fullmatch(body)
    return other is not None and BOOT.fullmatch(other[1]) is not None
