"""What in a run's requests shows that its numbers are not those of the variant alone?

State that was left over (tokens that the first prompts found in a cache), kernels that were compiled while requests
waited, and a first request that was far slower than equal ones after it (PROTOCOL sections 1 and 4).
"""

import json
import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from statistics import median
from typing import Any, Final

from agentload.analysis.proofs import lines_of, shortened
from agentload.artifacts import jsonlines, schemas
from agentload.artifacts.rundir import RunDir
from agentload.core.records import Doubt

Row = Mapping[str, Any]  # of requests.parquet

# What any two prompts share before their first own word: the template's opening, at most a default system prompt.
TEMPLATE_TOKENS: Final = 64
CHARS_A_TOKEN: Final = 8  # at most, in text and code: 3 to 5 are usual. So a text has at least chars / 8 tokens
COLD_TIMES: Final = 3.0  # report B: 3.51 s cold against 0.38 s warm, 9 times
COLD_LEAST_NS: Final = 200_000_000  # and so much more in all: a short prompt's first token hangs on the network
EQUAL_SIZE: Final = 2.0  # requests are equal whose new tokens differ by at most this factor
LEAST_EQUAL: Final = 2

_COMPILES: Final = re.compile(
    r"\bjit\b.*compil|compil\w* during inference|autotun\w* during inference|begins to compile|completes? to compile",
    re.IGNORECASE,
)


# ---- state that was left over ----------------------------------------------------------------------------------------


def inherited(run: RunDir, rows: Sequence[Row], *, before: bool) -> list[Doubt]:
    """Say which first requests found more in a cache than this run itself can have put there.

    Args:
        run: whose messages are read.
        rows: the requests of one segment.
        before: whether the same start of the server had requests before this segment (warm-up, other segments).
    """
    first = sorted((row for row in rows if row["turn"] == 0), key=_began)
    prompts = {row["request"]: prompt(run, row) for row in first}
    found = []
    for place, row in enumerate(first):
        cached, whole = row["cached_tokens"], row["prompt_tokens"]
        if not cached:
            continue
        allowed = TEMPLATE_TOKENS if before or place else 0
        others = [prompts[other["request"]] for other in first if other is not row]
        if place and whole is not None:
            allowed = max(allowed, _may_share(prompts[row["request"]], others, whole))
        if cached > allowed:
            found.append(
                Doubt(
                    "first-turn-cache-hit",
                    f"{row['request']} is the first request of its conversation and found {cached:,} of its "
                    f"{'?' if whole is None else format(whole, ',')} tokens in a cache, where this run can have put "
                    f"{'none' if not allowed else f'at most {allowed:,}'}{_proven(row)}",
                    "state was inherited: give each start an empty cache folder ({kv_dir}) and a fresh process",
                )
            )
    return found


def _began(row: Row) -> tuple[int, str]:
    at = row["prefill_start"] if row["prefill_start"] is not None else row["t_sent"]
    return (at or 0, row["request"])


def _may_share(mine: str | None, others: Sequence[str | None], tokens: int) -> int:
    """Most tokens of a prompt that can stand at the front of another one; `tokens` is all of it.

    Texts are measured in characters; what does not stand in them (tools, the template) may be shared as well.
    """
    if mine is None:
        return 0
    shared = max((_common(mine, other) for other in others if other is not None), default=0)
    return tokens - -(-(len(mine) - shared) // CHARS_A_TOKEN) if shared else 0


def _common(one: str, other: str) -> int:
    """Characters that both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def prompt(run: RunDir, row: Row) -> str | None:
    """Return the text of a conversation's first prompt, out of messages.jsonl; None where there is none."""
    names = (f"{row['segment']}-{row['agent']}", row["agent"])
    path = next((path for name in names if (path := run.messages_path(str(name))).is_file()), None)
    if path is None:
        return None
    parts = []
    for _, event in jsonlines.read(path, schemas.MESSAGES):
        if event.get("event") == "message":
            message = event["message"]
            if message.get("role") == "assistant":
                break
            content = message.get("content")
            parts.append(content if isinstance(content, str) else json.dumps(content, ensure_ascii=False))
    return "\n".join(parts)


def _proven(row: Row) -> str:
    line = row.get("prefill_start_proof_line") or row.get("prefill_proof_line")
    return f" (server.log:{line})" if line is not None else ""


# ---- compilation -----------------------------------------------------------------------------------------------------


def compilations(run: RunDir, rows: Sequence[Row], suspects: Sequence[Mapping[str, Any]]) -> list[Doubt]:
    """Say which lines of the log that tell of compilation came while one of `rows` was at work.

    A line's time is its receive stamp where agentload owned the log, else what the log's reader made of its own.
    """
    at_of = {one["line"]: one["t"] for one in suspects}
    stamps = _stamps(run)
    for number, line in lines_of(run.server_log):
        at = stamps[number - 1] if number <= len(stamps) else at_of.get(number)
        if at is None or _COMPILES.search(line) is None:
            continue
        hit = next((row for row in rows if _at_work(row, at)), None)
        if hit is not None:
            return [
                Doubt(
                    "compiled-while-serving",
                    f'server.log:{number}: "{shortened(line)}" came while {hit["request"]} was at work',
                    "warm up each concurrency and prompt length before the begin marker, so that kernels compile then",
                )
            ]
    return []


def _stamps(run: RunDir) -> list[int]:
    if not run.server_times.is_file():
        return []
    return [int(line) for line in run.server_times.read_bytes().split(b"\n")[:-1] if line.isdigit()]


def _at_work(row: Row, at_ns: int) -> bool:
    begins = [row[name] for name in ("t_sent", "prefill_start") if row[name] is not None]
    ends = [row[name] for name in ("t_done", "decode_end", "prefill_end") if row[name] is not None]
    return bool(begins) and bool(ends) and min(begins) <= at_ns <= max(ends)


# ---- the first request -----------------------------------------------------------------------------------------------


def cold_first(rows: Sequence[Row]) -> list[Doubt]:
    """Say when the first measured request waited far longer for each new token than equal ones after it did."""
    timed = sorted(
        (row["t_sent"], row["t_first_token"] - row["t_sent"], row["new_prefill_tokens"], row["request"])
        for row in rows
        if row["t_sent"] is not None and row["t_first_token"] is not None and row["new_prefill_tokens"]
    )
    if not timed:
        return []
    _, waited_ns, tokens, name = timed[0]
    equal = [
        later_ns / later for _, later_ns, later, _ in timed[1:] if tokens / EQUAL_SIZE <= later <= tokens * EQUAL_SIZE
    ]
    if len(equal) < LEAST_EQUAL:
        return []
    usual_ns = median(equal) * tokens
    if waited_ns <= COLD_TIMES * usual_ns or waited_ns - usual_ns <= COLD_LEAST_NS:
        return []
    return [
        Doubt(
            "cold-first-request",
            f"{name}, the first measured request, waited {waited_ns / 1e9:.2f} s for its first token; by {len(equal)} "
            f"later ones of about as many new tokens it would have been {usual_ns / 1e9:.2f} s",
            "warm up each concurrency and prompt length before the begin marker: [warmup]",
        )
    ]
