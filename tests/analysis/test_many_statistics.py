"""Are the sums of a log that has more statistics lines, or events of a cache, than are kept those of all of them?"""

import io
from typing import Any

from agentload.analysis import logfile
from agentload.core import markers
from agentload.core.packed_statistics import FEW
from agentload.serverlogs import doubts
from tests.serverlogs.test_sglang_oddities import DECODE

LINES = 120_000
AT_NS = 1_791_284_400_000_000_000
BEGIN, END = (f"{markers.render(what, 's1', 'r1', 'a', AT_NS).decode()}\n" for what in ("begin", "end"))


def account(text: str) -> dict[str, Any]:
    return logfile.read_stream(io.BytesIO(text.encode()), "server.log").found


def batches(first: int, after: int) -> str:
    """Three lines a second; each computes 100 tokens, reuses its number modulo 7, and no two near ones are equal."""
    return "".join(
        f"[2026-10-06 {n // 10800:02d}:{n // 180 % 60:02d}:{n // 3 % 60:02d}] Prefill batch, #new-seq: 1, "
        f"#new-token: 100, #cached-token: {n % 7}, token usage: 0.01, #running-req: 0, #queue-req: {n},\n"
        for n in range(first, after)
    )


def quantities(part: dict[str, Any]) -> dict[str, tuple[object, ...]]:
    return {
        one["name"]: tuple(one[key] for key in ("lines", "least", "median", "most", "sum"))
        for one in part["quantities"]
    }


def test_every_statistics_line_is_in_the_sums_and_in_the_median() -> None:
    found = account(batches(0, LINES))
    (part,) = found["statistics"]["parts"]
    told = quantities(part)
    assert (found["statistics"]["lines"], part["lines"], found["lines"]["understood"]) == (LINES, LINES, LINES)
    assert told["new_tokens"] == (LINES, 100, 100, 100, 12_000_000)
    # 120,000 = 17,142 * 7 + 6: so many times 0 + 1 + .. + 6 = 21, and the last six lines have 0 + 1 + .. + 5 = 15.
    assert told["cached_tokens"] == (LINES, 0, 3, 6, 17_142 * 21 + 15)
    assert told["waiting"] == (LINES, 0, 59_999.5, 119_999, None)  # the middle of 0 .. 119,999
    assert "left-out" not in [one["code"] for one in found["doubts"]]


def test_of_segments_each_has_its_own_of_very_many_lines() -> None:
    first, after = FEW + 1, 2 * FEW + 2  # the segment's lines
    found = account(batches(0, first) + BEGIN + batches(first, after) + END + batches(after, 2 * after))
    (part,) = found["statistics"]["parts"]
    assert (part["segment"], part["lines"], found["statistics"]["lines"]) == ("s1", FEW + 1, 4 * FEW + 4)
    # The middle of 20,001 .. 40,001 is 30,001.
    assert quantities(part)["waiting"] == (20_001, 20_001, 30_001, 40_001, None)


def test_speculation_is_the_mean_over_very_many_decode_lines() -> None:
    # Three of four lines tell of 2.74 tokens a step, the fourth of 1.74: 2.49 where all have four requests.
    lines = [
        f"[2026-10-06 {n // 3600:02d}:{n // 60 % 60:02d}:{n % 60:02d}] "
        + DECODE.replace("2.74", "1.74" if n % 4 == 3 else "2.74").replace("#token: 3121", f"#token: {n}")
        for n in range(2 * FEW)
    ]
    (part,) = account("\n".join(lines) + "\n")["statistics"]["parts"]
    assert (part["speculation"]["lines"], round(part["speculation"]["effective_length"], 9)) == (2 * FEW, 2.49)


def test_events_of_a_cache_beyond_those_kept_are_in_the_sums_and_how_many_they_are_is_said() -> None:
    count = doubts.MOST_EVENTS + 5
    stored = "".join(
        f"0914 {12 + n // 36000:02d}:{n // 600 % 60:02d}:{n // 10 % 60:02d} ds4-server: kv cache stored tokens=100 "
        "trimmed=0 reason=continued key=token-text size=1.00 MiB save=1.0 ms\n"
        for n in range(count)
    )
    found = account("0914 12:00:00 ds4-server: listening on http://127.0.0.1:8000\n" + stored)
    assert found["cache_events"] == [{"kind": "stored", "reason": "continued", "events": 100_005, "tokens": 10_000_500}]
    (said,) = [one for one in found["doubts"] if one["code"] == "left-out"]
    # The first line is that of the start: the first event that is not kept stands in line 100,002.
    assert said["message"] == (
        "line 100002: after the first 100,000 cache events there are 5 more, which are counted here and not listed"
    )


def test_each_kind_that_is_left_out_has_a_doubt_with_its_own_number() -> None:
    found = doubts.Doubts()
    for line in (7, 8, 9):
        found.left_out(line, "suspect lines", 6)
    found.left_out(9, "cache events", 8)
    assert [one.message.split(",")[0] for one in found.all()] == [
        "line 7: after the first 6 suspect lines there are 3 more",
        "line 9: after the first 8 cache events there are 1 more",
    ]
