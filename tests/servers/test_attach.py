"""Markers in the log of a server that somebody else started: real writers, real /proc."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from agentload.errors import InputError
from agentload.servers.attach import AttachedLog, Copied, Writer, writers

pytestmark = pytest.mark.skipif(not Path("/proc/self/fdinfo").is_dir(), reason="how a file was opened is told by /proc")

# Writes to its stdout what it is told to, byte for byte, or opens its log anew, and says when that is done.
WRITER = """
import os, sys
for line in sys.stdin:
    if line.startswith("reopen "):
        os.dup2(os.open(line[7:-1], os.O_WRONLY | os.O_APPEND | os.O_CREAT), 1)
        os.closerange(3, 20)
    else:
        os.write(1, bytes.fromhex(line))
    os.write(2, b"done\\n")
"""

# Has its log on a high descriptor, as one that opened it itself, and opens and closes lower ones all the time.
BUSY_WRITER = """
import os, sys, threading
os.dup2(1, 500)
os.close(1)
def churn():
    while True:
        fds = [os.open("/dev/null", os.O_RDONLY) for _ in range(400)]
        for fd in fds:
            os.close(fd)
threading.Thread(target=churn, daemon=True).start()
os.write(2, b"done\\n")
sys.stdin.read()
"""


class Server:
    """A process with its stdout on the log."""

    def __init__(self, child: "subprocess.Popen[bytes]") -> None:
        assert child.stdin is not None
        assert child.stderr is not None
        self.pid = child.pid
        self._told: IO[bytes] = child.stdin
        self._done: IO[bytes] = child.stderr

    def write(self, data: bytes) -> None:
        self._told.write(data.hex().encode() + b"\n")
        self._told.flush()
        self.wait_done()

    def reopen(self, log: Path) -> None:
        self._told.write(f"reopen {log}\n".encode())
        self._told.flush()
        self.wait_done()

    def wait_done(self) -> None:
        assert self._done.readline() == b"done\n"


@contextmanager
def server_on(log: Path, *, appends: bool, program: str = WRITER) -> Iterator[Server]:
    with (
        log.open("ab" if appends else "wb") as file,
        subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=file, stderr=subprocess.PIPE
        ) as child,
    ):
        file.close()  # only the server has it open, as after a shell's redirection
        yield Server(child)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "server.log"


def test_a_log_that_its_server_appends_to_takes_markers(log: Path) -> None:
    with server_on(log, appends=True) as server:
        server.write(b"before\n")
        attached = AttachedLog(log)
        assert attached.refusal is None
        assert attached.writers == [Writer(server.pid, 1, appends=True)]
        assert attached.size_at_start == len(b"before\n")
        offset = attached.write_marker(b"MARK")
        server.write(b"after\n")
    assert log.read_bytes() == b"before\n\nMARK\nafter\n"
    assert offset == len(b"before\n\n")


def test_a_marker_starts_a_line_also_inside_a_line_of_the_server(log: Path) -> None:
    with server_on(log, appends=True) as server:
        server.write(b"slot 0: promp")
        offset = AttachedLog(log).write_marker(b"MARK")
        server.write(b"t done\n")
    assert log.read_bytes() == b"slot 0: promp\nMARK\nt done\n"
    assert offset == len(b"slot 0: promp\n")


def test_each_markers_offset_is_its_own_while_the_server_writes_between(log: Path) -> None:
    with server_on(log, appends=True) as server:
        server.write(b"start\n")
        attached = AttachedLog(log)
        offsets = []
        for number in range(50):
            offsets.append(attached.write_marker(b"MARK %d" % number))
            server.write(b"line\npar")
    data = log.read_bytes()
    for number, offset in enumerate(offsets):
        assert offset is not None
        assert data[offset - 1 :].startswith(b"\nMARK %d\n" % number)
    assert data.count(b"line\npar") == 50


def test_a_server_that_does_not_append_is_named_with_what_to_do(log: Path) -> None:
    with server_on(log, appends=False) as server:
        server.write(b"before\n")
        attached = AttachedLog(log)
        assert attached.writers == [Writer(server.pid, 1, appends=False)]
    assert attached.refusal is not None
    for part in (f"process {server.pid} ", str(log), "O_APPEND", "`>>`"):
        assert part in attached.refusal
    assert len(attached.refusal.splitlines()) == 1


@pytest.mark.parametrize(("redirection", "kept"), [(">", False), (">>", True)])
def test_what_a_shell_redirects_is_seen_as_it_is_and_markers_are_kept_where_that_says_so(
    log: Path, redirection: str, kept: bool
) -> None:
    """The whole of it with a real shell: what would happen to a marker that is written all the same."""
    argv = ["sh", "-c", f'exec "$@" {redirection} "$0"', str(log), sys.executable, "-c", WRITER]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        server = Server(child)
        server.write(b"before\n")
        attached = AttachedLog(log)
        assert attached.writers == [Writer(child.pid, 1, appends=kept)]
        assert (attached.refusal is None) == kept
        attached.write_marker(b"MARK")
        server.write(b"after, a longer line\n")
    assert (b"MARK" in log.read_bytes()) == kept


def test_one_writer_that_does_not_append_is_enough_to_refuse(log: Path) -> None:
    with server_on(log, appends=False) as careless, server_on(log, appends=True) as careful:
        careless.write(b"a\n")
        careful.write(b"b\n")
        attached = AttachedLog(log)
        assert {one.pid: one.appends for one in attached.writers} == {careless.pid: False, careful.pid: True}
        assert attached.refusal is not None
        assert f"process {careless.pid} " in attached.refusal


def test_a_log_that_nobody_writes_takes_no_markers(log: Path) -> None:
    log.write_bytes(b"of yesterday\n")
    with log.open("rb"):  # a reader is no writer
        attached = AttachedLog(log)
    assert attached.writers == []
    assert attached.refusal == f"no process that we may look into has {log} open for writing"


def test_a_server_that_opens_and_closes_other_files_is_still_seen(log: Path) -> None:
    """One descriptor that was closed during the look once hid all others of its process."""
    with server_on(log, appends=True, program=BUSY_WRITER) as server:
        server.wait_done()
        assert [writers(log) for _ in range(100)] == [[Writer(server.pid, 500, appends=True)]] * 100


def test_a_log_by_another_name_is_the_same_log(log: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.log"
    link.symlink_to(log)
    with server_on(log, appends=True) as server:
        server.write(b"line\n")
        attached = AttachedLog(link)
        assert attached.refusal is None
        assert attached.inode == log.stat().st_ino


def test_a_missing_log_is_named(log: Path) -> None:
    with pytest.raises(InputError, match=rf"--server-log: {log} cannot be read: No such file or directory"):
        AttachedLog(log)


def test_a_directory_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"expected a log file, {tmp_path} is a directory"):
        AttachedLog(tmp_path)


def test_a_pipe_is_no_log_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(InputError, match=r"expected a regular file, .*fifo is none"):
        AttachedLog(tmp_path / "fifo")


UNREADABLE = """
import os
from pathlib import Path
from agentload.errors import InputError
from agentload.servers.attach import AttachedLog

if os.geteuid() == 0:  # root reads everything
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    AttachedLog(Path("server.log"))
except InputError as error:
    print(error)
"""


def test_an_unreadable_log_is_named(log: Path) -> None:
    log.write_bytes(b"secret\n")
    log.chmod(0)
    log.parent.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", UNREADABLE], cwd=log.parent, capture_output=True, text=True, check=False
    )
    assert done.stdout == "--server-log: server.log cannot be read: Permission denied\n", done.stderr


READ_ONLY = UNREADABLE.replace('AttachedLog(Path("server.log"))', 'print(AttachedLog(Path("server.log")).refusal)')


def test_a_log_that_may_only_be_read_takes_no_markers(log: Path) -> None:
    """Whether its writer is another user's, which cannot be looked into, or our own."""
    with server_on(log, appends=True) as server:
        server.write(b"line\n")
        log.chmod(0o444)
        log.parent.chmod(0o755)
        done = subprocess.run(
            [sys.executable, "-c", READ_ONLY], cwd=log.parent, capture_output=True, text=True, check=False
        )
    assert done.stdout in (
        "no process that we may look into has server.log open for writing\n",
        "server.log may not be written by this user\n",
    ), done.stderr


def test_the_copy_has_the_log_from_its_first_byte(log: Path, tmp_path: Path) -> None:
    with server_on(log, appends=True) as server:
        server.write(b"n_ctx = 8192\n")
        attached = AttachedLog(log)
        server.write(b"later\r\n\x00\xff")
        assert attached.copy_to(tmp_path / "copy.log") == Copied(own=22, followed=0, missing=0, rotated=None)
    assert (tmp_path / "copy.log").read_bytes() == b"n_ctx = 8192\nlater\r\n\x00\xff"


def test_the_place_is_the_logs_inode_and_present_size(log: Path) -> None:
    log.write_bytes(b"12345")
    attached = AttachedLog(log)
    with log.open("ab") as file:
        file.write(b"678")
    assert attached.place() == (log.stat().st_ino, 8)


def test_a_log_that_was_rotated_away_is_still_there_and_takes_no_marker(log: Path, tmp_path: Path) -> None:
    log.write_bytes(b"line\n")
    attached = AttachedLog(log)
    log.rename(tmp_path / "server.log.1")
    assert attached.place() == (attached.inode, 5)
    said = f"{log} was rotated: no file that can be looked at has its name now"
    assert attached.news() == f"{said}: the old one is read on"
    assert attached.news() is None  # it was said
    assert attached.copy_to(tmp_path / "copy") == Copied(own=5, followed=0, missing=0, rotated=said)
    assert (tmp_path / "copy").read_bytes() == b"line\n"
    with pytest.raises(InputError, match=r"server\.log: marker cannot be written: No such file"):
        attached.write_marker(b"MARK")


def test_a_log_is_copied_whole_when_it_was_rotated_and_removed(log: Path, tmp_path: Path) -> None:
    with server_on(log, appends=True) as server:
        server.write(b"before\n")
        attached = AttachedLog(log)
        log.unlink()
        server.write(b"after\n")
        assert attached.copy_to(tmp_path / "copy").own == 13
    assert (tmp_path / "copy").read_bytes() == b"before\nafter\n"


def test_a_server_that_is_seen_to_write_the_old_file_on_has_nothing_in_the_new_one(log: Path, tmp_path: Path) -> None:
    """As `create` of logrotate does when nobody tells the server; the new file's line is somebody else's."""
    with server_on(log, appends=True) as server:
        server.write(b"before\n")
        attached = AttachedLog(log)
        log.rename(tmp_path / "server.log.1")
        log.write_bytes(b"of another\n")
        server.write(b"after\n")
        said = f"{log} was rotated: another file has its name now"
        assert attached.write_marker(b"MARK") is None
        assert attached.gone() is None
        assert attached.copy_to(tmp_path / "copy") == Copied(own=13, followed=0, missing=0, rotated=said)
    assert (tmp_path / "copy").read_bytes() == b"before\nafter\n"
    assert log.read_bytes() == b"of another\n"


def test_a_server_that_is_seen_to_have_moved_to_the_new_file_is_followed_there(log: Path, tmp_path: Path) -> None:
    with server_on(log, appends=True) as server:
        server.write(b"before\n")
        attached = AttachedLog(log)
        log.rename(tmp_path / "server.log.1")
        server.write(b"rest\n")
        server.reopen(log)
        server.write(b"new\n")
        said = f"{log} was rotated: another file has its name now"
        assert attached.news() == f"{said}: the server goes on there, both are read"
        assert b"".join(attached.pieces(3)) == b"ore\nrest\nnew\n"
        log.rename(tmp_path / "server.log.2")  # once more, seen in time
        server.reopen(log)
        server.write(b"newest\n")
        assert attached.gone() is None
        assert b"".join(attached.pieces(14)) == b"w\nnewest\n"
        assert attached.copy_to(tmp_path / "copy") == Copied(own=12, followed=11, missing=0, rotated=said)
    assert (tmp_path / "copy").read_bytes() == b"before\nrest\nnew\nnewest\n"


def test_a_new_file_is_not_taken_when_another_one_came_between(log: Path, tmp_path: Path) -> None:
    with server_on(log, appends=True) as server:
        server.write(b"before\n")
        attached = AttachedLog(log)
        log.rename(tmp_path / "server.log.2")
        server.reopen(log)
        server.write(b"nobody looked\n")
        log.rename(tmp_path / "server.log.1")
        server.reopen(log)
        server.write(b"new\n")
        said = f"{log} was rotated: another file has its name now"
        assert attached.gone() == said
        assert (
            attached.news()
            == f"{said}: the old one is read on; whether the server goes on in the new one cannot be seen"
        )
        assert attached.copy_to(tmp_path / "copy") == Copied(own=7, followed=0, missing=4, rotated=said)
    assert (tmp_path / "copy").read_bytes() == b"before\n"


def test_a_new_file_is_not_taken_when_it_cannot_be_seen_who_writes(log: Path, tmp_path: Path) -> None:
    log.write_bytes(b"before\n")
    attached = AttachedLog(log)
    assert attached.writers == []
    log.rename(tmp_path / "server.log.1")
    log.touch()
    assert attached.gone() is None  # nothing is in it
    log.write_bytes(b"new\n")
    assert attached.copy_to(tmp_path / "copy").missing == 4
    assert (tmp_path / "copy").read_bytes() == b"before\n"


def test_a_rotated_log_that_is_truncated_too_has_lost_bytes(log: Path, tmp_path: Path) -> None:
    log.write_bytes(b"before\n")
    attached = AttachedLog(log)
    log.rename(tmp_path / "server.log.1")
    os.truncate(tmp_path / "server.log.1", 0)
    said = f"{log} was truncated: the bytes from 0 on are gone or others"
    assert attached.news() == f"{said}: this run's server log is lost"
    with pytest.raises(InputError, match=r"--server-log cannot be copied: .* was truncated: "):
        attached.copy_to(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_log_that_is_closed_is_held_open_no_more(log: Path) -> None:
    def held() -> int:
        return sum(os.path.realpath(one) == str(log) for one in Path("/proc/self/fd").iterdir())

    log.write_bytes(b"line\n")
    attached = AttachedLog(log)
    assert held() == 1
    attached.close()
    attached.close()
    assert held() == 0


@pytest.mark.parametrize("appends", [True, False])
@pytest.mark.parametrize("then", [b"", b"new lines, and more of them than there were before\n" * 9], ids=["", "grown"])
def test_a_log_that_is_truncated_while_it_is_attached_to_is_noticed(
    log: Path, tmp_path: Path, appends: bool, then: bytes
) -> None:
    """As `copytruncate` of logrotate does. Without O_APPEND its server writes on behind a hole."""
    with server_on(log, appends=appends) as server:
        server.write(b"n_ctx = 8192\n" * 9)
        attached = AttachedLog(log)
        assert attached.changed() is None
        if attached.refusal is None:
            attached.write_marker(b"MARK")
        server.write(b"more\n")
        assert attached.changed() is None  # growing is no change
        os.truncate(log, 0)
        if then:
            server.write(then)
        changed = attached.changed()
        assert changed is not None
        assert changed.startswith(f"{log} was truncated: the bytes from ")
        with pytest.raises(InputError, match=r"--server-log cannot be copied: .*server\.log was truncated"):
            attached.copy_to(tmp_path / "copy.log")


def test_a_log_whose_name_another_file_has_now_is_noticed(log: Path, tmp_path: Path) -> None:
    """As `create` of logrotate does."""
    with server_on(log, appends=True) as server:
        server.write(b"line\n")
        attached = AttachedLog(log)
        log.rename(tmp_path / "server.log.1")
        log.write_bytes(b"line\nof the next day\n")
        assert attached.changed() == f"{log} was rotated: another file has its name now"


def test_an_empty_log_that_is_attached_to_may_grow(log: Path) -> None:
    with server_on(log, appends=True) as server:
        attached = AttachedLog(log)
        server.write(b"line\n")
        assert attached.changed() is None
