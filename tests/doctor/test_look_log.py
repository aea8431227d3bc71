"""Is a log of a running server read for what a night needs: our requests, others' requests, its clock, its settings?"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agentload import plugins
from agentload.core.records import Completion, Timeline, Usage
from agentload.errors import InputError
from agentload.run.doctor.look_log import SilentLog
from agentload.servers.attach import AttachedLog

pytestmark = pytest.mark.anyio
SECOND = 1_000_000_000
NOON_NS = int(datetime(2026, 11, 30, 12, 0, 5, tzinfo=UTC).timestamp()) * SECOND
START = (
    "1130 12:00:00 ds4-server: context buffers 6016.64 MiB (ctx=32768, backend=metal, prefill_chunk=4096, "
    "raw_kv_rows=4352, compressed_kv_rows=65538)\n"
    "1130 12:00:00 ds4-server: batched mode enabled resident_sessions=2 prefill_quantum=2048 "
    "mixed_prefill_quantum=128 decode_coalesce_us=2000\n"
    "1130 12:00:00 ds4-server: listening on http://127.0.0.1:8000\n"
)


def request(prompt: int, decoded: int, stamp: str = "1130 12:00:05") -> str:
    """A cold request, as ds4-server logs it."""
    head, place = f"{stamp} ds4-server: chat ctx=", f"0..{prompt}:{prompt}"
    return (
        f"{head}{place} prompt start\n"
        f"{head}{place} prompt done 0.400s\n"
        f"{head}{prompt}..{prompt + decoded}:{decoded} gen={decoded} decoding chunk=90.00 t/s avg=90.00 t/s 0.300s\n"
        f"{head}{place} gen={decoded} finish=length 0.700s\n"
    )


def answered(prompt: int, decoded: int) -> Completion:
    """One that was sent 0.8 s before 12:00:05.5 and whole then."""
    done = NOON_NS + SECOND // 2
    usage = Usage(prompt, decoded, 0)
    return Completion("r", "a", 0, done - 800_000_000, None, done - 300_000_000, done, 200, usage=usage)


@dataclass
class Clock:
    """Its time passes only when somebody sleeps; then something else may happen first."""

    meanwhile: list[Callable[[], object]] = field(default_factory=list)
    at: int = NOON_NS

    def now_ns(self) -> int:
        return self.at

    async def sleep_until(self, t_ns: int) -> None:
        self.at = max(self.at, t_ns)
        if self.meanwhile:
            self.meanwhile.pop(0)()


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def rotate(path: Path) -> None:
    path.rename(path.with_suffix(".1"))
    path.write_text(START)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "server.log"
    path.write_text(START)
    return path


async def test_our_requests_are_found_by_their_counts_and_others_are_counted(log: Path) -> None:
    silent = SilentLog(AttachedLog(log), None)
    append(log, request(350, 48) + request(7000, 90))
    said = await silent.settle([answered(350, 48)], Clock())
    assert (said.format, said.ours, said.found, said.others) == ("ds4", 1, 1, 1)
    assert said.grew_bytes == len(request(350, 48) + request(7000, 90))
    assert said.settings["resident_sessions"] == 2
    assert said.settings["ctx"] == 32_768


async def test_what_was_in_the_log_before_is_nobodys(log: Path) -> None:
    append(log, request(7000, 90))
    silent = SilentLog(AttachedLog(log), None)
    append(log, request(350, 48))
    assert (await silent.settle([answered(350, 48)], Clock())).others == 0


async def test_growth_while_nothing_is_asked_is_seen(log: Path) -> None:
    silent, foreign = SilentLog(AttachedLog(log), None), request(7000, 90)
    await silent.be_silent(Clock([lambda: append(log, foreign)]), 1.0)
    append(log, request(350, 48))
    said = await silent.settle([answered(350, 48)], Clock())
    assert (said.grew_silent_bytes, said.silent_s) == (len(foreign), 1.0)
    assert (said.found, said.others) == (1, 0)


async def test_a_server_that_writes_its_last_lines_late_is_waited_for(log: Path) -> None:
    silent = SilentLog(AttachedLog(log), None)
    said = await silent.settle([answered(350, 48)], Clock([lambda: None, lambda: append(log, request(350, 48))]))
    assert said.found == 1


async def test_a_log_that_never_shows_a_request_is_not_waited_for_longer_than_three_seconds(log: Path) -> None:
    clock = Clock()
    said = await SilentLog(AttachedLog(log), None).settle([answered(350, 48)], clock)
    assert (said.found, said.grew_bytes) == (0, 0)
    assert clock.at - NOON_NS == pytest.approx(3 * SECOND, abs=SECOND // 10)


@pytest.mark.parametrize(
    ("stamp", "least_s"),
    [("1130 12:00:05", -0.5), ("1130 14:00:05", 7199.5), ("1130 12:00:25", 19.5), ("1130 01:00:05", -39600.5)],
)
async def test_stamps_are_held_against_the_end_of_our_own_answer(log: Path, stamp: str, least_s: float) -> None:
    """It ended at 12:00:05.5 UTC; a stamp holds for all of its second."""
    silent = SilentLog(AttachedLog(log), None)
    append(log, request(350, 48, stamp))
    said = await silent.settle([answered(350, 48)], Clock())
    assert said.timeline is Timeline.WALL
    assert said.wall_ahead_s is not None
    assert least_s <= said.wall_ahead_s <= least_s + 1


async def test_ds4_server_without_slots_takes_one_request_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text("".join(line for line in START.splitlines(keepends=True) if "batched" not in line))
    said = await SilentLog(AttachedLog(path), None).settle([], Clock())
    assert said.settings["resident_sessions"] == 1


async def test_of_a_long_log_the_beginning_and_the_end_are_read(log: Path) -> None:
    line = "1130 12:00:01 ds4-server: something that nobody knows\n"
    append(log, line * (8_000_000 // len(line)))
    silent = SilentLog(AttachedLog(log), None)
    append(log, request(350, 48))
    said = await silent.settle([answered(350, 48)], Clock())
    assert (said.found, said.settings["resident_sessions"]) == (1, 2)
    read = (1 << 21) + (1 << 22)
    assert said.lines.total == pytest.approx(read / len(line), rel=0.01)


async def test_a_log_that_was_rotated_meanwhile_is_said_to_be_gone(log: Path) -> None:
    silent = SilentLog(AttachedLog(log), None)
    rotate(log)
    with pytest.raises(InputError, match="rotated"):
        await silent.settle([], Clock())


async def test_a_log_of_no_known_format_has_none_of_our_requests(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text("hello\n")
    silent = SilentLog(AttachedLog(path), None)
    append(path, "world\n")
    said = await silent.settle([answered(350, 48)], Clock())
    assert (said.format, said.known, said.ours, said.found) == (None, plugins.names(plugins.SERVERLOGS), 1, 0)
    assert said.lines.total == 2


@pytest.mark.parametrize("named", [None, "vllm"])
async def test_of_a_log_behind_a_prefix_it_is_said_what_stands_in_front(named: str | None, tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text("".join(f"server-1  | 1130 12:00:0{n} ds4-server: {n} slots are free\n" for n in range(5)))
    append(path, "server-1  | 1130 12:00:05 ds4-server: listening on http://127.0.0.1:8000\n")
    said = await SilentLog(AttachedLog(path), named).settle([], Clock())
    assert said.why_unknown is not None
    assert "behind what docker compose logs puts in front: let `tail -n +1 -F " in said.why_unknown


async def test_of_a_log_of_a_known_format_nothing_is_said_to_stand_in_front(log: Path) -> None:
    assert (await SilentLog(AttachedLog(log), None).settle([], Clock())).why_unknown is None
