"""Does a run that is killed leave nothing behind? A real process of ours is killed by the signal nobody catches."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from agentload.clock import SystemClock
from agentload.servers.process import ServerProcess
from agentload.servers.watchdog import Watchdog
from tests.processes import WAIT_S, gone, still_there

# Starts a server as a run does, says the process ids, and does what stands in the third argument.
OWNER = """
import os, sys, threading
from pathlib import Path
from agentload.clock import SystemClock
from agentload.servers.process import ServerProcess
from agentload.servers.watchdog import Watchdog

folder, grace_s, then, *argv = sys.argv[1:]
with Watchdog(os.environ) as watchdog:
    watchdog.remove_on_death(Path(folder))
    log = Path(folder).parent / "server.log"

    def start():
        global server
        server = ServerProcess(
            argv, log, log.with_suffix(".times"), SystemClock(),
            env=os.environ, watchdog=watchdog, grace_s=float(grace_s),
        )

    thread = threading.Thread(target=start)  # its end must not be taken for ours, as PR_SET_PDEATHSIG does
    thread.start()
    thread.join()
    while b"up" not in log.read_bytes():
        pass
    if then == "wrapper ends":
        server._process.wait()
    print(watchdog.pid, server.pid, flush=True)
    sys.stdin.readline()
    if then == "stop":
        server.stop(60.0)
    elif then == "raise":
        raise SystemExit(7)
"""

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(1000)"
SLEEPER = "import time; print('up', flush=True); time.sleep(1000)"
# Ends in its own way, which takes a moment and is seen from a file.
POLITE = """
import os, signal, sys, time
def at_term(*_):
    time.sleep(0.5)
    open(sys.argv[1], "w").close()
    os._exit(0)
signal.signal(signal.SIGTERM, at_term)
print("up", flush=True)
time.sleep(1000)
"""


@dataclass
class Owner:
    """The process that owns the watchdog and the server."""

    child: "subprocess.Popen[bytes]"
    watchdog: psutil.Process
    family: list[psutil.Process]  # the server's, what was started first

    @property
    def server(self) -> psutil.Process:
        return self.family[0]

    def kill(self) -> None:
        self.child.kill()
        assert self.child.wait(WAIT_S) == -signal.SIGKILL

    def leave(self) -> int:
        """Let it go on to its own end."""
        assert self.child.stdin is not None
        self.child.stdin.write(b"\n")
        self.child.stdin.flush()
        return self.child.wait(WAIT_S)


@contextmanager
def owner(folder: Path, *argv: str, grace_s: float = WAIT_S, then: str = "stop") -> Iterator[Owner]:
    folder.mkdir()
    (folder / "file").write_text("text")
    command = [sys.executable, "-c", OWNER, str(folder), str(grace_s), then, *argv]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        watchdog, session = [int(word) for word in child.stdout.readline().split()]
        family = sorted((one for one in psutil.process_iter() if _is_in(one, session)), key=lambda one: one.pid)
        made = Owner(child, psutil.Process(watchdog), family)
        try:
            yield made
        finally:
            child.kill()
            for one in (made.watchdog, *family):
                with suppress(psutil.NoSuchProcess):
                    one.kill()


def test_a_killed_run_leaves_no_server_and_no_folder(tmp_path: Path) -> None:
    folder = tmp_path / "agentload-x"
    with owner(folder, sys.executable, "-c", SLEEPER) as run:
        # What a model's command or git may leave: folders that may not be written or looked into.
        (folder / "deep" / "er").mkdir(parents=True)
        (folder / "deep" / "er").chmod(0o000)
        (folder / "deep").chmod(0o500)
        (folder / "link").symlink_to(tmp_path)
        run.kill()
        assert gone(run.server, run.watchdog)
    assert not folder.exists()
    assert tmp_path.is_dir()


def test_a_killed_runs_server_has_its_time_to_end(tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    with owner(tmp_path / "x", sys.executable, "-c", POLITE, str(saved)) as run:
        run.kill()
        assert gone(run.server, run.watchdog)
    assert saved.exists()


def test_a_killed_runs_server_that_ignores_sigterm_is_killed_after_its_grace(tmp_path: Path) -> None:
    with owner(tmp_path / "x", sys.executable, "-c", DEAF, grace_s=0.2) as run:
        run.kill()
        assert gone(run.server, run.watchdog)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(("then", "running"), [("wrapper stays", 2), ("wrapper ends", 1)])
def test_a_killed_runs_server_behind_a_wrapper_ends_too(tmp_path: Path, then: str, running: int) -> None:
    script = '"$@" & ' + ("wait" if then == "wrapper stays" else "")
    with owner(tmp_path / "x", "sh", "-c", script, "sh", sys.executable, "-c", SLEEPER, then=then) as run:
        assert len(run.family) == running
        run.kill()
        assert gone(*run.family, run.watchdog)


def _is_in(process: psutil.Process, session: int) -> bool:
    try:
        return os.getsid(process.pid) == session
    except OSError:
        return False


@pytest.mark.parametrize(("then", "code"), [("stop", 0), ("raise", 7)])
def test_a_run_that_ends_itself_has_the_watchdog_do_nothing(tmp_path: Path, then: str, code: int) -> None:
    """The runner removes its own folder; a server that was not stopped is not the watchdog's either then."""
    with owner(tmp_path / "x", sys.executable, "-c", SLEEPER, then=then) as run:
        assert run.leave() == code
        assert gone(run.watchdog)
        assert run.server.is_running() == (then == "raise")
    assert (tmp_path / "x" / "file").exists()


def test_signals_of_a_terminal_and_of_a_stop_do_not_end_the_watchdog(tmp_path: Path) -> None:
    with owner(tmp_path / "x", sys.executable, "-c", SLEEPER) as run:
        assert os.getsid(run.watchdog.pid) == run.watchdog.pid != os.getsid(run.child.pid)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            run.watchdog.send_signal(number)
        run.kill()
        assert gone(run.server, run.watchdog)
    assert not (tmp_path / "x").exists()


def test_a_run_goes_on_when_somebody_killed_its_watchdog(tmp_path: Path) -> None:
    with owner(tmp_path / "x", sys.executable, "-c", SLEEPER) as run:
        run.watchdog.kill()
        assert run.leave() == 0
        assert gone(run.server)


def test_the_watchdog_holds_no_output_of_ours_or_of_the_servers(tmp_path: Path) -> None:
    """A shell that reads our output to its end would wait for the watchdog, and the pump for the server's."""
    log = tmp_path / "server.log"
    server = ServerProcess(["sleep", "1000"], log, tmp_path / "times", SystemClock(), env=os.environ)
    with Watchdog(os.environ) as watchdog:
        os.kill(server.pid, signal.SIGKILL)
        assert server.pump.join(WAIT_S)
        assert psutil.Process(watchdog.pid).is_running()
    server.stop(0.0)
    program = (
        "import os, sys\n"
        "from agentload.servers.watchdog import Watchdog\n"
        "watchdog = Watchdog(os.environ)\n"
        "print(watchdog.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)"
    )
    # `run` returns when the last holder of the pipes has closed them.
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=WAIT_S)
    assert (done.returncode, done.stderr) == (-signal.SIGKILL, "")
    assert gone(*still_there([int(done.stdout)]))
