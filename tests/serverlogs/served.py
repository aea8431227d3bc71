"""What the tests of vLLM's and SGLang's readers share: how a log is read, and what holds whatever stands in it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from agentload.core.ports import LogFormat
from agentload.core.records import LogFacts, Timeline
from agentload.serverlogs import formats
from tests.serverlogs.edits import changed

Sums = Callable[[LogFacts], tuple[float, ...]]  # what must not change


def data_of(lines: list[str]) -> bytes:
    return "".join(f"{one}\n" for one in lines).encode()


def read_by(log_format: LogFormat, lines: list[str], stamps: list[int] | None = None) -> LogFacts:
    reader = log_format.reader(stamps)
    reader.feed(data_of(lines))
    return reader.close()


def counted(facts: LogFacts) -> tuple[int, int, int]:
    return facts.lines.understood, facts.lines.ignored, facts.lines.unknown


def settings(facts: LogFacts) -> dict[str, object]:
    return {one.name: one.value for one in facts.settings}


# ---- excerpts, with what a person reads out of them ------------------------------------------------------------------


def excerpt(log_format: LogFormat, folder: Path, name: str, piece: int = 1 << 20) -> tuple[LogFacts, dict[str, Any]]:
    """What the reader tells of NAME.log, fed in pieces, and what NAME.json says by hand."""
    data = (folder / f"{name}.log").read_bytes()
    reader = log_format.reader()
    for start in range(0, len(data), piece):
        reader.feed(data[start : start + piece])
    assert reader.open_requests() == 0
    return reader.close(), json.loads((folder / f"{name}.json").read_text())


def check_counts(facts: LogFacts, told: dict[str, Any], log: Path) -> None:
    """Every line is counted as what it is, and what is doubted or was said by several ranks is told."""
    assert list(counted(facts)) == told["counts"]
    assert facts.lines.total == log.read_bytes().count(b"\n")
    assert facts.timeline is Timeline.WALL
    assert [one.code for one in facts.doubts] == told["doubts"]
    assert facts.repeated == told["repeated"]


# ---- torn and foreign lines ------------------------------------------------------------------------------------------

Edits = list[tuple[int, str | int | None, bool]]


def put_into(log: list[str], foreign: st.SearchStrategy[str]) -> st.SearchStrategy[Edits]:
    """Up to six foreign lines, each at some place of the log."""
    return st.lists(st.tuples(st.integers(0, len(log)), foreign, st.just(value=False)), max_size=6)


def check_foreign(log_format: LogFormat, log: list[str], edits: Edits, sums: Sums, head: str) -> None:
    """Foreign lines are unknown and change no sum."""
    facts = read_by(log_format, changed(list(log), edits))
    assert sums(facts) == sums(read_by(log_format, log))
    # Those with our head and a text that is not ours are unknown, or chatter.
    ours = [edit for edit in edits if str(edit[1]).startswith(head)]
    assert len(edits) - len(ours) <= facts.lines.unknown <= len(edits)


def check_cut_off(log_format: LogFormat, log: list[str], index: int, data: st.DataObject, sums: Sums) -> None:
    """A line that was cut off is unknown, or says the same."""
    lines = list(log)
    lines[index] = lines[index][: data.draw(st.integers(1, len(lines[index]) - 1))]
    facts, whole = read_by(log_format, lines), read_by(log_format, log)
    assert facts.lines.total == len(lines)
    if sums(facts) != sums(whole):
        assert facts.lines.unknown == whole.lines.unknown + 1
        assert all(lost <= kept for lost, kept in zip(sums(facts), sums(whole), strict=True))


def check_detected(log_format: LogFormat, log: list[str], lines: int, others: list[bytes]) -> None:
    """The format is known by so many lines of the log, which no other format claims, and takes none of `others`."""
    found = formats.look(data_of(log))
    assert found.best == log_format.name
    assert {name: score for name, score in found.scores.items() if score} == {log_format.name: lines}
    assert log_format.looks_like(others) == 0
