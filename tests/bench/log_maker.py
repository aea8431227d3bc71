"""What would a log of any size look like? Made-up logs of two servers, each line as the server would write it.

All times are counted from the log's beginning; requests come in rounds of as many as there are slots, and overlap.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path

SLOTS = 6
_DAYS_IN = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_DATES = [f"{month:02d}{day + 1:02d}" for month, days in enumerate(_DAYS_IN, 1) for day in range(days)]
_ROWS = "prefill_chunk=4096, raw_kv_rows=4352, compressed_kv_rows=32770"
_QUANTA = "prefill_quantum=2048 mixed_prefill_quantum=2048 decode_coalesce_us=2000"
_START_UP = (
    f"context buffers 3301.15 MiB (ctx=131072, backend=metal, {_ROWS})",
    f"batched mode enabled resident_sessions={SLOTS} {_QUANTA}",
    "listening on http://127.0.0.1:8000",
)

Lines = list[tuple[int, str]]  # time and text


def _stamp(at_ms: int) -> str:
    second = at_ms // 1000
    day, hour, minute = second // 86_400, second // 3_600 % 24, second // 60 % 60
    return f"{_DATES[day % 365]} {hour:02d}:{minute:02d}:{second % 60:02d} ds4-server: "


def _ds4_round(start_ms: int, number: int) -> Lines:
    """Six requests of 8 to 13 thousand new tokens and 300 to 550 generated ones: 120 s, the next round 130 s later."""
    found = []
    for slot in range(SLOTS):
        cached = 1_024 * (number % 40)
        new = 8_000 + 900 * slot + number % 97
        prompt, gen = cached + new, 300 + 50 * slot + number % 47
        t0, ctx = start_ms + 137 * slot, f"{cached}..{prompt}:{new}"
        took = 0
        found.append((t0, f"chat ctx={ctx} TOOLS prompt start"))
        for done in [*range(0, new, 2_048), new]:
            took = done * 4 + 331 * slot
            text = f"prefill chunk {done}/{new} ({100 * done / new:.1f}%) chunk=483.63 t/s avg=139.48 t/s"
            found.append((t0 + took, f"chat ctx={ctx} TOOLS {text} {took / 1000:.3f}s"))
        found.append((t0 + took, f"chat ctx={ctx} TOOLS prompt done {took / 1000:.3f}s"))
        for end in [*range(50, gen, 50), gen]:
            count, spent = (end - 1) % 50 + 1, end * 120
            text = f"gen={end} TOOLS THINKING decoding chunk=8.33 t/s avg=8.33 t/s {spent / 1000:.3f}s"
            found.append((t0 + took + spent, f"chat ctx={prompt + end - count}..{prompt + end}:{count} {text}"))
        took += gen * 120 + 20
        found.append((t0 + took, f"chat ctx={ctx} gen={gen} TOOLS finish=stop {took / 1000:.3f}s"))
    return found


def _batches(start_ms: int, number: int) -> Lines:
    """Decode steps of a round, 100 ms each."""
    texts = (f"count={step % 6 + 1} elapsed={90 + (step * 7 + number) % 9}.417 ms" for step in range(1_200))
    return [(start_ms + 100 * step, f"decode batch {text} status=ok") for step, text in enumerate(texts)]


def ds4(*, batches: bool = False) -> Iterator[bytes]:
    """Lines of requests only, or beside decode steps that the server was told to log."""
    yield "".join(f"{_stamp(0)}{text}\n" for text in _START_UP).encode()
    for number in itertools.count():
        start_ms = 1_000 + 130_000 * number
        lines = _ds4_round(start_ms, number)
        if batches:
            lines += _batches(start_ms, number)
        lines.sort(key=lambda line: line[0])
        yield "".join(f"{_stamp(at)}{text}\n" for at, text in lines).encode()


def diluted(log: Iterator[bytes], other: str, times: int) -> Iterator[bytes]:
    """After each line of `log` so many lines like `other`, in which {n} is a number."""
    number = 0
    for block in log:
        out = []
        for line in block.decode().splitlines():
            out.append(line)
            out += [other.format(n=number + k) for k in range(times)]
            number += times
        yield ("\n".join(out) + "\n").encode()


ENGINE = "ds4: expert cache layer={n} hit=1 miss=0 pinned=12 bytes=4718592 staged in 0.118 ms"
FOREIGN = '127.0.0.1 - - [29/Nov/2026:13:12:04 +0000] "GET /v1/models HTTP/1.1" 200 {n} "-" "probe/1.0"'


def _at(us: int) -> str:
    return f"{us // 60_000_000}.{us // 1_000_000 % 60:02d}.{us // 1000 % 1000:03d}.{us % 1000:03d}"


def _verbose(start_us: int, who: str, cached: int, new: int) -> Lines:
    """What verbosity 4 adds."""
    sim = "- checking sim = 0.847 (795/939) > 0.100"
    prompt = f"new prompt, n_ctx_slot = 16384, n_keep = 0, task.n_tokens = {cached + new}"
    kept = [cached + 64 * k for k in range(new // 64 + 1)]
    return [
        (start_us - 500, "I srv  server_strea: conv_id= (empty=1)"),
        *((start_us - 490 + k, f"I slot get_availabl: id {k:2d} | task -1 |  {sim}") for k in range(SLOTS)),
        (start_us + 90, f"I slot   operator(): {who}{prompt}"),
        *(
            (start_us + 100 + k, f"I slot   operator(): {who}cached n_tokens = {at}, memory_seq_rm [{at}, end)")
            for k, at in enumerate(kept)
        ),
    ]


def _debug(start_us: int, middle: int, who: str, task: int, decoded: int) -> Lines:
    """What `-v` adds: prompts, over several lines, and a line a token."""
    text = "the quick brown fox reads a file and calls a tool " * 20
    return [
        (start_us + 300, f"D srv  operator(): prompt: {task} {text}\n{text}\nassistant\n"),
        *(
            (middle + 24_210 * k, f"D slot process_toke: {who}n_decoded = {k}, next token: {k + 1000} ' the'")
            for k in range(decoded)
        ),
    ]


def _llama_request(start_us: int, slot: int, task: int, level: int) -> Lines:
    new, decoded, cached = 400 + task % 301, 60 + task % 41, 100 * (task % 50)
    prefill_us, decode_us = new * 6_130, decoded * 24_210
    who = f"id {slot:2d} | task {task} | "
    middle = start_us + 300 + prefill_us
    end = middle + decode_us
    chosen = "selected slot by LCP similarity, f_sim_best = 0.830 (> 0.100 thold), f_keep = 1.000"
    ms, rate = prefill_us / 1000, new / prefill_us * 1e6
    prompt = f"{ms:10.2f} ms / {new:5d} tokens ({ms / new:8.2f} ms per token, {rate:8.2f} tokens per second)"
    decode = f"{decode_us / 1000:10.2f} ms / {decoded:5d} tokens (   24.21 ms per token,    41.31 tokens per second)"
    total = f"{ms + decode_us / 1000:10.2f} ms / {new + decoded:5d} tokens"
    timing = f"I slot print_timing: {who}"
    return [
        (start_us - 430, f"I slot get_availabl: id {slot:2d} | task -1 | {chosen}"),
        (start_us, f"I slot launch_slot_: {who}processing task, is_child = 0"),
        *(_verbose(start_us, who, cached, new) if level > 3 else ()),
        *(_debug(start_us, middle, who, task, decoded) if level > 4 else ()),
        (end - 150, f"{timing}prompt eval time = {prompt}"),
        (end, f"{timing}       eval time = {decode}"),
        (end + 9, f"{timing}      total time = {total}"),
        (end + 19, f"{timing}   graphs reused = {decoded:10d}"),
        (
            end + 400,
            f"I slot      release: {who}stop processing: n_tokens = {cached + new + decoded - 1}, truncated = 0",
        ),
    ]


def llama(level: int) -> Iterator[bytes]:
    """Verbosity 3 (every line of a request matters), 4 and 5 (few do)."""
    yield (
        b"0.00.074.120 I srv  llama_server: initializing ...\n"
        b"0.00.990.367 I srv    load_model: initializing, n_slots = 6, n_ctx_slot = 16384, kv_unified = 'false'\n"
        b"0.00.999.507 I srv  llama_server: listening on http://127.0.0.1:18080\n"
    )
    for number in itertools.count():
        lines = [
            line
            for slot in range(SLOTS)
            for line in _llama_request(1_500_000 + 7_000_000 * number + 70 * slot, slot, 10 * number + slot, level)
        ]
        lines.sort(key=lambda line: line[0])
        yield "".join(f"{_at(at)} {text}\n" for at, text in lines).encode()


def make(path: Path, size: int, log: Iterator[bytes]) -> None:
    """Write whole blocks until there are `size` bytes."""
    with path.open("wb", buffering=1 << 22) as file:
        written = 0
        for block in log:
            written += file.write(block)
            if written >= size:
                return
