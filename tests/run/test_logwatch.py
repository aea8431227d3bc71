"""Does the watch know how many requests a log shows as open, while the log grows?"""

from pathlib import Path

import pytest

from agentload.errors import InputError
from agentload.run.logwatch import LogWatch


def lines_of(task: int, *, released: bool) -> bytes:
    who = f"0.01.{task:03d}.000 I slot"
    begin = f"{who} launch_slot_: id  0 | task {task} | processing task, is_child = 0\n"
    end = f"{who}      release: id  0 | task {task} | stop processing: n_tokens = 30, truncated = 0\n"
    return (begin + (end if released else "")).encode()


def test_the_watch_counts_requests_that_began_and_did_not_end_as_the_log_grows(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(lines_of(0, released=False))
    watch = LogWatch(log, None)
    formats = [watch.log_format]
    assert watch.open_requests() == 1
    formats.append(watch.log_format)
    assert formats == [None, "llamacpp"]
    with log.open("ab") as file:
        file.write(lines_of(0, released=True).splitlines(keepends=True)[1][:40])
    assert watch.open_requests() == 1  # its last line is not whole yet
    with log.open("ab") as file:
        file.write(lines_of(0, released=True).splitlines(keepends=True)[1][40:])
    assert watch.open_requests() == 0


def test_the_watch_starts_at_its_offset_so_that_old_requests_are_not_waited_for(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    old = lines_of(0, released=False)
    log.write_bytes(old)
    watch = LogWatch(log, "llamacpp", len(old))
    assert watch.open_requests() == 0
    with log.open("ab") as file:
        file.write(lines_of(1, released=False))
    assert watch.open_requests() == 1


def test_the_watch_does_not_know_a_log_of_no_known_format_and_says_when_it_is_gone(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"hello\n")
    watch = LogWatch(log, None)
    assert watch.open_requests() is None
    log.unlink()
    with pytest.raises(InputError, match=r"server\.log: cannot be read: No such file"):
        watch.open_requests()
