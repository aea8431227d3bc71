"""The server's bytes and our markers in one file: real pipes, real child processes, real files."""

import os
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path

import pytest

from agentload.clock import SystemClock
from agentload.errors import ArtifactError
from agentload.servers.pump import Pump
from tests.confined import UNCOMPILED
from tests.processes import WAIT_S


class CountingClock:
    """Each look at it is one nanosecond later than the last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = 0

    def now_ns(self) -> int:
        with self._lock:
            self._now += 1
            return self._now

    async def sleep_until(self, t_ns: int) -> None:
        raise NotImplementedError


class WatchedClock:
    """Tells when the pump has taken its first piece: it looks at the clock when one arrives, and when it is done."""

    def __init__(self, clock: CountingClock | SystemClock) -> None:
        self._clock = clock
        self._looks = 0
        self.any_taken = threading.Event()

    def now_ns(self) -> int:
        now = self._clock.now_ns()
        if threading.current_thread().name == "server-output":
            self._looks += 1
            if self._looks == 2:
                self.any_taken.set()
        return now

    async def sleep_until(self, t_ns: int) -> None:
        raise NotImplementedError


class Rig:
    """A pump on a pipe whose writing end the test holds."""

    def __init__(self, folder: Path, clock: CountingClock | SystemClock | None = None) -> None:
        watched = WatchedClock(clock or CountingClock())
        self.any_taken = watched.any_taken
        self.log, self.times = folder / "server.log", folder / "server.log.times"
        reading, self.writing = os.pipe()
        self.pump = Pump(reading, self.log, self.times, watched)
        self.pump.start()

    def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            view = memoryview(piece)
            while view:
                view = view[os.write(self.writing, view) :]

    def end(self) -> None:
        os.close(self.writing)
        assert self.pump.join(WAIT_S)

    def stamps(self) -> list[int]:
        return [int(line) for line in self.times.read_text().splitlines()]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def physical_lines(data: bytes) -> int:
    return data.count(b"\n") + (not data.endswith(b"\n") and data != b"")


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\n",
        b"\n\n\n",
        b"one\ntwo\n",
        b"no newline at the end",
        b"one\nand no newline at the end",
        b"carriage return\r\nlone \r in a line\n",
        b"\x00\x00 nul \x00\n",
        b"\x1b[31mred\x1b[0m\n",
        b"not UTF-8 \xff\xfe\xc3\n",
        b"a" * 1_000_000 + b"\n" + b"b" * 300_000,
        b"".join(b"%d\n" % number for number in range(100_000)),
    ],
    ids=lambda data: repr(data[:24]),
)
def test_a_servers_bytes_are_kept_and_each_line_has_one_stamp(rig: Rig, sent: bytes) -> None:
    rig.send(sent)
    rig.end()
    assert rig.log.read_bytes() == sent
    assert len(rig.stamps()) == physical_lines(sent)
    assert rig.pump.failure is None


def test_a_line_that_comes_in_pieces_is_one_line(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    program = (
        "import sys\n"
        "for number in range(3000):\n"
        "    for piece in (f'line {number} ', 'goes ', 'on\\n'):\n"
        "        sys.stdout.write(piece)\n"
        "        sys.stdout.flush()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=rig.writing) as child:
        assert rig.any_taken.wait(WAIT_S)
        offsets = [rig.pump.write_marker(b"MARK %d" % number) for number in range(200)]
    assert child.returncode == 0
    rig.end()
    log = rig.log.read_bytes()
    lines = log.splitlines()
    assert [line for line in lines if not line.startswith(b"MARK")] == [b"line %d goes on" % n for n in range(3000)]
    assert [line for line in lines if line.startswith(b"MARK")] == [b"MARK %d" % number for number in range(200)]
    for number, offset in enumerate(offsets):
        assert log[offset:].startswith(b"MARK %d\n" % number)


def test_a_marker_waits_for_no_line_and_is_inside_none(rig: Rig) -> None:
    rig.send(b"first\nha")  # less than PIPE_BUF: it arrives in one piece
    assert rig.any_taken.wait(WAIT_S)
    offset = rig.pump.write_marker(b"MARK")
    rig.send(b"lf\n")
    rig.end()
    assert rig.log.read_bytes() == b"first\nMARK\nhalf\n"
    assert offset == len(b"first\n")


def test_markers_of_several_threads_are_whole_while_the_server_floods(tmp_path: Path) -> None:
    rig = Rig(tmp_path, SystemClock())
    program = "for number in range(50_000): print('line', number, 'x' * (number % 97))"
    found: dict[bytes, int] = {}

    def mark(thread: int) -> None:
        for number in range(500):
            line = b"MARK %d.%d." % (thread, number)
            found[line] = rig.pump.write_marker(line)

    with subprocess.Popen([sys.executable, "-c", program], stdout=rig.writing) as child:
        assert rig.any_taken.wait(WAIT_S)
        threads = [threading.Thread(target=mark, args=(index,)) for index in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
    assert child.returncode == 0
    rig.end()
    log = rig.log.read_bytes()
    lines = log.splitlines()
    assert len(found) == 2000
    assert sorted(line for line in lines if line.startswith(b"MARK")) == sorted(found)
    assert [line for line in lines if not line.startswith(b"MARK")] == [
        f"line {number} {'x' * (number % 97)}".encode() for number in range(50_000)
    ]
    for line, offset in found.items():
        assert log[offset : offset + len(line) + 1] == line + b"\n"
        assert offset == 0 or log[offset - 1 : offset] == b"\n"
    stamps = rig.stamps()
    assert len(stamps) == 52_000
    assert all(before <= after for before, after in pairwise(stamps))


def test_a_marker_that_overtakes_a_stamped_piece_keeps_the_stamps_in_order(tmp_path: Path) -> None:
    stamped, marked = threading.Event(), threading.Event()

    class Overtaking(CountingClock):
        def now_ns(self) -> int:
            now = super().now_ns()
            if threading.current_thread().name == "server-output":
                stamped.set()
                assert marked.wait(WAIT_S)
            return now

    rig = Rig(tmp_path, Overtaking())
    rig.send(b"line\n")
    assert stamped.wait(WAIT_S)
    rig.pump.write_marker(b"MARK")  # stamped 2, before the line that was stamped 1
    marked.set()
    rig.end()
    assert rig.log.read_bytes() == b"MARK\nline\n"
    assert rig.stamps() == [2, 2]


def test_a_marker_after_the_servers_last_half_line_starts_a_line(rig: Rig) -> None:
    rig.send(b"line\nterminate called after")
    rig.end()
    first = rig.pump.write_marker(b"MARK 1")
    second = rig.pump.write_marker(b"MARK 2")
    log = rig.log.read_bytes()
    assert log == b"line\nterminate called after\nMARK 1\nMARK 2\n"
    assert (first, second) == (log.index(b"MARK 1"), log.index(b"MARK 2"))
    assert len(rig.stamps()) == 4


def test_a_server_that_never_writes_leaves_two_empty_files(rig: Rig) -> None:
    assert not rig.pump.join(0.0)
    rig.end()
    assert rig.log.read_bytes() == b""
    assert rig.stamps() == []
    assert rig.pump.tail() == ""


def test_after_close_the_output_is_drained_and_a_marker_refused(rig: Rig) -> None:
    rig.pump.close()
    rig.pump.close()
    rig.send(b"x" * 1_000_000)  # more than a pipe holds: it would block if nobody read
    rig.end()
    assert rig.log.read_bytes() == b""
    with pytest.raises(ArtifactError, match=r"server\.log: marker cannot be written: the log is closed"):
        rig.pump.write_marker(b"MARK")


def test_a_marker_never_goes_into_another_file_of_ours(rig: Rig, tmp_path: Path) -> None:
    """After the server's end its log's descriptor was closed, and its number soon another file's."""
    rig.send(b"line\n")
    rig.end()
    others = [(tmp_path / f"other{number}").open("wb") for number in range(8)]
    rig.pump.write_marker(b"MARK")
    for other in others:
        other.close()
    assert [Path(other.name).read_bytes() for other in others] == [b""] * 8
    assert rig.log.read_bytes() == b"line\nMARK\n"


def test_the_tail_has_the_last_lines_and_the_half_one(rig: Rig) -> None:
    rig.send(b"start\n" + b"".join(b"line %d\n" % number for number in range(1000)) + b"ha")
    rig.end()
    assert rig.pump.tail(20) == "line 998\nline 999\nha"


def test_the_worst_pause_is_from_a_pieces_arrival_to_its_end(rig: Rig) -> None:
    rig.send(b"line\n")
    rig.end()
    assert rig.pump.worst_pause_ns == 1  # the clock is read at both ends of a pause, and counts looks


@pytest.mark.parametrize("name", ["server.log", "server.log.times"])
def test_a_log_that_is_there_already_is_refused_and_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"of an earlier run\n")
    reading, writing = os.pipe()
    open_before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(ArtifactError, match=f"{name}: cannot be created: File exists"):
        Pump(reading, tmp_path / "server.log", tmp_path / "server.log.times", CountingClock())
    assert len(list(Path("/proc/self/fd").iterdir())) == open_before
    assert (tmp_path / name).read_bytes() == b"of an earlier run\n"
    os.close(reading)
    os.close(writing)


FULL_DISK = """
import os, resource, subprocess, sys
from pathlib import Path
from agentload.clock import SystemClock
from agentload.errors import ArtifactError
from agentload.servers.pump import Pump

resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
reading, writing = os.pipe()
pump = Pump(reading, Path("server.log"), Path("times"), SystemClock())
pump.start()
program = "import os\\nfor _ in range(20_000): os.write(1, b'0123456789' * 10 + b'\\\\n')"
program = sys.argv[1] if sys.argv[1:] else program
child = subprocess.Popen([sys.executable, "-B", "-c", program], stdout=writing)
os.close(writing)
print(child.wait(120), pump.join(120.0), os.strerror(pump.failure.errno))
try:
    pump.write_marker(b"MARK")
except ArtifactError as error:
    print(error)
"""


def test_a_full_disk_stops_no_server_and_is_recorded(tmp_path: Path) -> None:
    """The limit on a file's size fails a write as a full disk does, after a part of it."""
    done = subprocess.run(
        [*UNCOMPILED, "-c", FULL_DISK], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "0 True File too large",
        "server.log: marker cannot be written: File too large",
    ]
    log = (tmp_path / "server.log").read_bytes()
    assert len(log) == 10_000
    assert log == ((b"0123456789" * 10 + b"\n") * 100)[:10_000]


def test_stamps_that_cannot_be_written_are_named_as_what_could_not_be(tmp_path: Path) -> None:
    """A thousand empty lines: 1 kB of log, 20 kB of stamps."""
    done = subprocess.run(
        [*UNCOMPILED, "-c", FULL_DISK, "import os; os.write(1, b'\\n' * 1000)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["0 True File too large", "times: marker cannot be written: File too large"]


def test_a_long_line_that_comes_in_many_pieces_is_one_line_with_the_stamp_of_its_end(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.send(b"x" * 1_000_000, b"y" * 1_000_000, b"z\nlast")
    rig.end()
    assert rig.log.read_bytes() == b"x" * 1_000_000 + b"y" * 1_000_000 + b"z\nlast"
    assert len(rig.stamps()) == 2
    assert rig.pump.tail(7) == "yz\nlast"
    assert rig.pump.tail(4) == "last"
    rig.pump.close()
