"""Is a run's writer seen while it lives, and not a moment longer, however it ends?"""

import subprocess
import sys
from pathlib import Path

from agentload.artifacts import alive


def test_a_run_is_held_until_it_is_released(tmp_path: Path) -> None:
    assert not alive.is_held(tmp_path)
    hold = alive.Hold(tmp_path)
    assert alive.is_held(tmp_path)
    assert alive.is_held(tmp_path)  # looking at it takes nothing away
    hold.release()
    hold.release()
    assert not alive.is_held(tmp_path)


def test_a_writer_that_is_killed_holds_nothing_any_more(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from agentload.artifacts.alive import Hold\n"
        "hold = Hold(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "held\n"
        while_alive = alive.is_held(tmp_path)
        writer.kill()
        writer.wait()
    assert (while_alive, alive.is_held(tmp_path)) == (True, False)


def test_a_process_that_the_writer_starts_holds_nothing(tmp_path: Path) -> None:
    hold = alive.Hold(tmp_path)
    command = [sys.executable, "-c", "print('up', flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=False) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"  # Popen may return before exec has closed all
        hold.release()
        held = alive.is_held(tmp_path)
        child.communicate(b"\n")
    assert not held


def test_what_is_not_there_is_not_held_and_can_be_released(tmp_path: Path) -> None:
    alive.Hold(tmp_path / "none").release()
    assert not alive.is_held(tmp_path / "none")
