"""Does a schedule of concurrent requests, written as ds4-server would, come back as it was?"""

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime

from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentload.core.records import LogFacts, LoggedRequest
from agentload.serverlogs.ds4 import Reader

START_S = 1_798_761_500  # 31 December 2026, 23:58:20 UTC: midnight and New Year are in most schedules
MS = 1_000_000
SERVER = "ds4-server: "
ROWS = "prefill_chunk=4096, raw_kv_rows=4352, compressed_kv_rows=2050"
QUANTA = "prefill_quantum=2048 mixed_prefill_quantum=128 decode_coalesce_us=2000"
START_UP = (
    f"{SERVER}context buffers 10.00 MiB (ctx=999999, backend=metal, {ROWS})",
    f"{SERVER}batched mode enabled resident_sessions=64 {QUANTA}",
    f"{SERVER}listening on http://127.0.0.1:8000",
)


@dataclass(frozen=True)
class Planned:
    start_ms: int
    cached: int
    new: int
    prefill_ms: int
    gen: int
    decode_ms: int
    close_ms: int
    finish: str

    @property
    def prompt(self) -> int:
        return self.cached + self.new

    def lines(self, name: int) -> list[tuple[int, str]]:
        """(ms after START_S, text) of each line, as the formats of the server's source give them."""
        ctx = f"{self.cached}..{self.prompt}:{self.new}"
        head = f"ds4-server: chat ctx={ctx} TOOLS "
        out = [(self.start_ms, head + "prompt start")]
        for done in range(0, self.new + 1, max(self.new // 3, 1)):
            took = self.prefill_ms * done // max(self.new, 1)
            rest = f"chunk={0:.2f} t/s avg={0:.2f} t/s {took / 1000:.3f}s"
            share = 100 * done / max(self.new, 1)
            out.append((self.start_ms + took, head + f"prefill chunk {done}/{self.new} ({share:.1f}%) {rest}"))
        decode = self.start_ms + self.prefill_ms
        out.append((decode, head + f"prompt done {self.prefill_ms / 1000:.3f}s"))
        for end in [*range(50, self.gen, 50), *([self.gen] if self.gen else [])]:
            count = (end - 1) % 50 + 1
            took = self.decode_ms * end // self.gen
            span = f"{self.prompt + end - count}..{self.prompt + end}:{count}"
            rest = f"decoding chunk=5.00 t/s avg=5.00 t/s {took / 1000:.3f}s"
            out.append((decode + took, f"ds4-server: chat ctx={span} gen={end} TOOLS {rest}"))
        took = self.prefill_ms + self.decode_ms + self.close_ms
        if self.finish == "tool_calls":
            ids = f"ids=[call_{name:032x}] names=[bash]"
            out.append((self.start_ms + took, f"ds4-server: tool calls ctx={ctx} n=1 raw_tool_text=1 {ids}"))
        last = f"ds4-server: chat ctx={ctx} gen={self.gen} TOOLS finish={self.finish} {took / 1000:.3f}s"
        out.append((self.start_ms + took, last))
        return out


def _planned(cached: st.SearchStrategy[int], new: st.SearchStrategy[int]) -> st.SearchStrategy[Planned]:
    return st.builds(
        Planned,
        start_ms=st.integers(0, 120_000),
        cached=cached,
        new=new,
        prefill_ms=st.integers(0, 90_000),
        gen=st.integers(0, 180),
        decode_ms=st.integers(1, 90_000),
        close_ms=st.integers(0, 3_000),
        finish=st.sampled_from(["stop", "length", "tool_calls"]),
    )


# Prompts that differ in length: by more than any of them decodes, so that no position is two requests' own.
SCHEDULES = st.lists(
    _planned(st.integers(0, 500).map(lambda k: k * 100), st.integers(0, 9_000)),
    min_size=1,
    max_size=12,
    unique_by=lambda one: one.prompt,
)
CROWDED = st.lists(_planned(st.sampled_from([0, 1, 40]), st.sampled_from([59, 60])), min_size=2, max_size=8)


def _stamp(at_ms: int) -> str:
    return datetime.fromtimestamp(START_S + at_ms // 1000, UTC).strftime("%m%d %H:%M:%S")


def _written(plan: list[Planned]) -> list[tuple[int, int, str]]:
    """(ms, request or -1, text) of every line, in order of time."""
    out = [(0, -1, text) for text in START_UP]
    for name, one in enumerate(plan):
        out.extend((at, name, text) for at, text in one.lines(name))
    return sorted(out, key=lambda line: line[0])


def _read(lines: list[str], stamps: list[int] | None = None) -> LogFacts:
    reader = Reader(stamps, year=2026)
    reader.feed("".join(line + "\n" for line in lines).encode())
    facts = reader.close()
    for one in facts.requests:  # whatever was lost
        times = (one.prefill_start, one.prefill_end, one.decode_start, one.decode_end, one.t_end)
        known = [time for time in times if time is not None]
        assert known == sorted(known)
    return facts


def _plan_of(one: LoggedRequest) -> tuple[object, ...]:
    return (
        one.cached_tokens,
        one.prompt_tokens,
        one.new_prefill_tokens,
        one.decoded_tokens,
        one.finish,
        one.tool_call_ids,
    )


def _told(name: int, one: Planned) -> tuple[object, ...]:
    ids = (f"call_{name:032x}",) if one.finish == "tool_calls" else ()
    return (one.cached, one.prompt, one.new, one.gen, one.finish, ids)


def _check_times(one: LoggedRequest, plan: Planned, within_ns: int) -> None:
    start = (START_S * 1000 + plan.start_ms) * MS
    end = start + (plan.prefill_ms + plan.decode_ms) * MS
    for found, true in (
        (one.prefill_start, start),
        (one.prefill_end, start + plan.prefill_ms * MS),
        (one.decode_start, start + plan.prefill_ms * MS),
        (one.decode_end, end if plan.gen else start + plan.prefill_ms * MS),
        (one.t_end, end + plan.close_ms * MS),
    ):
        assert found is not None
        assert abs(found - true) <= within_ns


@settings(max_examples=50)
@given(SCHEDULES)
def test_a_schedule_of_concurrent_requests_comes_back_as_it_was(plan: list[Planned]) -> None:
    facts = _read([f"{_stamp(at)} {text}" for at, _, text in _written(plan)])
    assert (facts.lines.unknown, facts.doubts) == (0, ())
    assert Counter(map(_plan_of, facts.requests)) == Counter(_told(name, one) for name, one in enumerate(plan))
    by_prompt = {one.prompt: one for one in plan}
    for one in facts.requests:
        _check_times(one, by_prompt[one.prompt_tokens or 0], 1_000 * MS)


@settings(max_examples=40)
@given(SCHEDULES, st.integers(0, 20))
def test_with_receive_stamps_times_come_back_to_the_delay_of_the_best_line(plan: list[Planned], late_ms: int) -> None:
    lines = _written(plan)
    stamps = [(START_S * 1000 + at + late_ms) * MS for at, _, _ in lines]
    facts = _read([f"{_stamp(at)} {text}" for at, _, text in lines], stamps)
    assert (facts.lines.unknown, facts.doubts) == (0, ())
    by_prompt = {one.prompt: one for one in plan}
    for one in facts.requests:
        _check_times(one, by_prompt[one.prompt_tokens or 0], (late_ms + 1) * MS)


@given(CROWDED)
@example(
    [Planned(0, 0, 59, took_ms, 0, 1, 0, "stop") for took_ms in (0, 0, 0, 8292)]
    + [Planned(1899, 0, 59, 101, 0, 1, 0, "stop"), Planned(4765, 0, 59, 3527, 0, 1, 0, "stop")]
)  # a member of a group goes on while one that is of none prefills
def test_equal_prompts_keep_their_sums_and_only_a_group_may_mix_its_members(plan: list[Planned]) -> None:
    facts = _read([f"{_stamp(at)} {text}" for at, _, text in _written(plan)])
    assert facts.lines.unknown == 0
    assert len(facts.requests) == len(plan)
    assert sum(one.prompt_tokens or 0 for one in facts.requests) == sum(one.prompt for one in plan)
    assert sum(one.new_prefill_tokens or 0 for one in facts.requests) == sum(one.new for one in plan)
    assert sum(one.decoded_tokens or 0 for one in facts.requests) == sum(one.gen for one in plan)
    told = Counter(_told(name, one) for name, one in enumerate(plan))
    for one in facts.requests:
        if one.group is None:
            assert told[_plan_of(one)] > 0, "not in the schedule, and not said to be a guess"


@settings(max_examples=40)
@given(SCHEDULES, st.data())
def test_lines_torn_by_the_engine_and_foreign_lines_change_nothing(plan: list[Planned], data: st.DataObject) -> None:
    lines, foreign = [], 0
    for at, _, text in _written(plan):
        how = data.draw(st.sampled_from(["whole", "whole", "after stamp", "before newline", "foreign", "colour"]))
        if how == "after stamp":
            lines += [f"{_stamp(at)} ds4: CUDA did something", text]
        elif how == "before newline":
            lines += [f"{_stamp(at)} {text}ds4: CUDA did something", ""]
        elif how == "foreign":
            foreign += 1
            lines += ["GET /v1/models 200", f"{_stamp(at)} {text}"]
        elif how == "colour":
            lines.append(f"{_stamp(at)} \x1b[36m{text}\x1b[0m")
        else:
            lines.append(f"{_stamp(at)} {text}")
    facts = _read(lines)
    assert facts.lines.unknown == foreign
    assert facts.lines.total == len(lines)
    assert Counter(map(_plan_of, facts.requests)) == Counter(_told(name, one) for name, one in enumerate(plan))


@settings(max_examples=60)
@given(SCHEDULES, st.data())
def test_what_is_lost_is_counted_and_every_request_that_lost_something_is_doubted(
    plan: list[Planned], data: st.DataObject
) -> None:
    lines, hurt, lost = [], set(), 0
    for at, name, text in _written(plan):
        whole = f"{_stamp(at)} {text}"
        how = data.draw(st.sampled_from(["whole", "whole", "whole", "cut", "overwritten"])) if name >= 0 else "whole"
        if how == "cut":  # in two, anywhere
            cut = data.draw(st.integers(1, len(whole) - 1))
            lines += [whole[:cut], whole[cut:]]
        elif how == "overwritten":
            lines.append(whole + "foreign text")
        else:
            lines.append(whole)
            continue
        hurt.add(name)
        lost += 1
    facts = _read(lines)
    assert facts.lines.total == len(lines)
    told = {one.prompt: _told(name, one) for name, one in enumerate(plan)}
    found = {one.prompt_tokens: one for one in facts.requests}
    for name, one in enumerate(plan):
        if name not in hurt:
            assert _plan_of(found[one.prompt]) == told[one.prompt]
    assert sum(one.decoded_tokens or 0 for one in facts.requests) <= sum(one.gen for one in plan)
    assert sum(one.new_prefill_tokens or 0 for one in facts.requests) <= sum(one.new for one in plan)
    assert len(facts.requests) <= len(plan)
    same = {prompt: _plan_of(one) for prompt, one in found.items()} == told
    if not same:
        assert facts.lines.unknown > 0
        assert facts.doubts != () or len(facts.requests) < len(plan)
