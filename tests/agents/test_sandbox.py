"""Does a sandbox hold what it says, for root and for an ordinary user, and does nothing outlive a command?"""

import itertools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import anyio.to_thread
import psutil
import pytest

from agentload.agents import sandbox_launcher
from agentload.agents.sandbox import (
    SYSTEM_PATH,
    Bubblewrap,
    Namespaces,
    Place,
    Sandbox,
    Shell,
    Unsafe,
    available,
    choose,
    environment,
    execution,
    prove,
)
from agentload.agents.sandbox_run import Limits, Outcome
from agentload.errors import SandboxError
from tests.confined import FULL, without

LAUNCHER = Path(sandbox_launcher.__file__)
SETPRIV = shutil.which("setpriv", path=SYSTEM_PATH)
SYSTEM_PYTHON = shutil.which("python3", path=SYSTEM_PATH)  # the one that runs the tests may lie in root's home
BWRAP = shutil.which("bwrap", path=SYSTEM_PATH)
NOBODY = 65534


@dataclass(frozen=True, slots=True)
class AsNobody:
    """Another sandbox, started by root's test as an ordinary user would start it."""

    inner: Sandbox

    def describe(self) -> str:
        return f"{self.inner.describe()} as an ordinary user"

    def argv(self, command: str, place: Place, limits: Limits, status_fd: int) -> list[str]:
        assert SETPRIV is not None
        drop = [SETPRIV, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"]
        return drop + self.inner.argv(command, place, limits, status_fd)


def kinds() -> list[str]:
    found = ["namespaces"] + (["bubblewrap"] if BWRAP else [])
    if os.geteuid() == 0 and SETPRIV:
        found += ["namespaces-as-user"] if SYSTEM_PYTHON else []
        found += ["bubblewrap-as-user"] if BWRAP else []
    return found


@pytest.fixture
def top() -> Iterator[Path]:
    """A folder that an ordinary user can reach, which pytest's own is not; beside the sandbox's there are a secret
    and another agent's scratch folder."""
    with tempfile.TemporaryDirectory(prefix="agentload-test-") as made:
        folder = Path(made).resolve()
        folder.chmod(0o755)
        (folder / "checkout").mkdir()
        (folder / "checkout" / "file.txt").write_text("content\n")
        (folder / "scratch").mkdir()
        (folder / "other-agent").mkdir()
        (folder / "other-agent" / "secret").write_text("s3cret\n")
        (folder / "secret").write_text("s3cret\n")
        yield folder


@pytest.fixture
def place(top: Path) -> Place:
    return Place(top / "checkout", top / "scratch")


def build(kind: str, top: Path, place: Place) -> Sandbox:
    if kind == "unsafe":
        return Unsafe()
    if kind == "namespaces":
        return Namespaces()
    assert BWRAP is not None or "bubblewrap" not in kind
    if kind == "bubblewrap":
        return Bubblewrap(str(BWRAP))
    for path in (place.checkout, place.scratch):
        os.chown(path, NOBODY, NOBODY)
    if kind == "namespaces-as-user":
        return AsNobody(Namespaces(str(SYSTEM_PYTHON), Path(shutil.copy(LAUNCHER, top / "launcher.py"))))
    return AsNobody(Bubblewrap(str(BWRAP), counts_processes=True))


@pytest.fixture(params=kinds())
def sandbox(request: pytest.FixtureRequest, top: Path, place: Place) -> Sandbox:
    return build(request.param, top, place)


@pytest.fixture(params=[*kinds(), "unsafe"])
def any_way(request: pytest.FixtureRequest, top: Path, place: Place) -> Sandbox:
    """The sandboxes, and no sandbox: how a command ends must not depend on it."""
    return build(request.param, top, place)


PATIENT = Limits(wall_s=120)


def run(sandbox: Sandbox, place: Place, command: str, limits: Limits = PATIENT, keep: int = 50_000) -> Outcome:
    return execution(sandbox, command, place, limits, keep).run()


def run_until(
    there: Callable[[], bool], sandbox: Sandbox, place: Place, command: str, limits: Limits = PATIENT
) -> Outcome:
    """The same with a time limit that comes as soon as `there` is true, however long that takes."""
    looks = itertools.count()  # the first look is for when the time begins: a quick command may be there by then

    def now_s() -> float:
        return limits.wall_s if next(looks) and there() else 0.0

    return execution(sandbox, command, place, limits, 50_000, now_s).run()


def assert_gone(marker: str) -> None:
    """No process whose command line holds `marker` is left, or each is at its end already."""
    left = []
    for process in psutil.process_iter():
        try:
            if marker in " ".join(process.cmdline()):
                left.append(process)
        except psutil.Error:
            continue
    assert psutil.wait_procs(left, timeout=60)[1] == []


def test_at_least_the_sandbox_that_needs_no_installation_works_on_this_machine() -> None:
    proved = prove(Namespaces())
    assert isinstance(proved, Namespaces)
    assert proved.describe().startswith("namespaces")
    assert proved.counts_processes


def test_the_best_sandbox_is_chosen_by_trying_it() -> None:
    best = "bubblewrap" if BWRAP and os.geteuid() != 0 else "namespaces"
    assert choose().describe().startswith(best)


@pytest.mark.skipif(not BWRAP or os.geteuid() != 0, reason="says why root gets the other one where there is bubblewrap")
def test_root_is_told_why_bubblewrap_is_not_the_first() -> None:
    assert "bubblewrap is there, but under it a command of root's" in choose().describe()
    assert "bubblewrap" not in prove(Namespaces()).describe()


def test_every_sandbox_that_is_offered_here_holds() -> None:
    assert [type(prove(offered)) for offered in available()] == [type(offered) for offered in available()]


def test_a_listener_on_this_machine_cannot_be_reached(sandbox: Sandbox, place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        port = listener.getsockname()[1]
        connect = f"exec 2>/dev/null; : </dev/tcp/127.0.0.1/{port} && echo connected || echo refused"
        assert run(Unsafe(), place, connect).output == "connected\n"
        listener.accept()[0].close()
        assert run(sandbox, place, connect).output == "refused\n"
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_the_checkout_cannot_be_changed(sandbox: Sandbox, place: Place) -> None:
    tries = "echo x >file.txt; echo x >new; rm -f file.txt; chmod 777 file.txt; mv file.txt $HOME; touch file.txt"
    remount = 'unshare -Urm bash -c "mount -o remount,bind,rw $PWD && echo x >new"; mount -o remount,bind,rw "$PWD"'
    before = (place.checkout / "file.txt").stat()
    run(sandbox, place, f"exec 2>/dev/null; {tries}; {remount}; echo x >new")
    assert list(place.checkout.iterdir()) == [place.checkout / "file.txt"]
    assert (place.checkout / "file.txt").read_text() == "content\n"
    assert (place.checkout / "file.txt").stat().st_mode == before.st_mode
    assert (place.checkout / "file.txt").stat().st_mtime_ns == before.st_mtime_ns


def test_scratch_is_home_and_is_kept_between_commands(sandbox: Sandbox, place: Place) -> None:
    assert run(sandbox, place, 'mkdir "$TMPDIR/d" && echo kept >"$HOME/d/note"').exit_code == 0
    assert (
        run(sandbox, place, 'cat ~/d/note && rm -r ~/d && pwd && ls -A "$HOME"').output == f"kept\n{place.checkout}\n"
    )


def test_nothing_outside_can_be_read(sandbox: Sandbox, place: Place, top: Path) -> None:
    files = f"{top}/secret {top}/other-agent/secret {Path(__file__)} /etc/shadow /proc/*/root{top}/secret"
    folders = f"{Path.home()} {Path(__file__).parent} /root /home /sys /var /run"
    outcome = run(sandbox, place, f"exec 2>/dev/null; cat {files}; ls -d {folders}; ls {top}; cat file.txt")
    assert outcome.output == "checkout\nscratch\ncontent\n"


def test_only_its_own_processes_can_be_seen(sandbox: Sandbox, place: Place) -> None:
    seen = run(sandbox, place, "for p in /proc/[0-9]*; do echo ${p#/proc/}; done").output.split()
    assert "1" in seen
    assert len(seen) <= 4
    assert str(os.getpid()) not in set(seen) - {"1", "2", "3", "4"}


def test_the_environment_holds_nothing_of_ours(sandbox: Sandbox, place: Place) -> None:
    names = {line.split("=")[0] for line in run(sandbox, place, "env").output.splitlines()}
    assert names - {"PWD", "OLDPWD", "SHLVL", "_"} == set(environment(place))
    assert environment(place)["HOME"] == str(place.scratch)


def test_a_command_is_never_the_machines_root(sandbox: Sandbox, place: Place) -> None:
    assert run(sandbox, place, "grep NoNewPrivs /proc/self/status").output == "NoNewPrivs:\t1\n"
    assert run(sandbox, place, "id -u").output != "0\n"


def test_git_reads_a_checkout_that_another_user_owns(sandbox: Sandbox, place: Place) -> None:
    clean = {"PATH": SYSTEM_PATH, "HOME": str(place.scratch), "GIT_CONFIG_NOSYSTEM": "1"}
    who = ["-c", "user.name=n", "-c", "user.email=e", "-c", f"safe.directory={place.checkout}"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "the first"]):
        subprocess.run(["git", *who, *words], cwd=place.checkout, env=clean, check=True)
    outcome = run(sandbox, place, "git log --format=%s && git status --porcelain && git grep -n content")
    assert outcome.output == "the first\nfile.txt:1:content\n"


def test_process_substitution_and_devices_work(sandbox: Sandbox, place: Place) -> None:
    command = "cat <(echo one); head -c 3 /dev/urandom | wc -c; echo gone >/dev/null; "
    # The test's pipe is root's, which another user may not open again.
    command += "echo two >&2" if isinstance(sandbox, AsNobody) else "echo two >/dev/stderr"
    assert run(sandbox, place, command).output == "one\n3\ntwo\n"


def test_processes_are_counted(sandbox: Sandbox, place: Place) -> None:
    if isinstance(sandbox, Bubblewrap) and not sandbox.counts_processes:
        assert "not limited" in sandbox.describe()
        return
    said = place.scratch / "said"
    said.touch()
    said.chmod(0o666)
    fork = 'exec 2>>"$HOME/said"; for i in {1..200}; do (echo alive >&2; exec sleep 1000) & done; wait'

    def refused() -> bool:
        return "fork: " in said.read_text() and said.read_text().count("alive\n") >= 20

    assert run_until(refused, sandbox, place, fork, Limits(wall_s=120, processes=40)).ended == "timeout"
    assert 20 <= said.read_text().count("alive\n") <= 40


def test_a_fork_bomb_ends_with_its_command(sandbox: Sandbox, place: Place, top: Path) -> None:
    if isinstance(sandbox, Bubblewrap) and not sandbox.counts_processes:
        pytest.skip("root's processes are not counted under bubblewrap: choose() prefers the other one")
    said = place.scratch / "said"
    said.touch()
    said.chmod(0o666)
    bomb = f'exec 2>>"$HOME/said"; b() {{ b | b & }}; b; sleep 1000 # {top}'
    outcome = run_until(lambda: "fork: " in said.read_text(), sandbox, place, bomb, Limits(wall_s=120, processes=40))
    assert outcome.ended == "timeout"
    assert outcome.exit_code is None
    assert_gone(str(top))


def test_memory_and_file_size_are_limited(any_way: Sandbox, place: Place) -> None:
    limits = Limits(wall_s=120, memory_bytes=256 << 20, file_bytes=1 << 20)
    outcome = run(any_way, place, "head -c 600M /dev/zero | tail -n 1 | wc -c", limits)
    assert "tail: memory exhausted" in outcome.output
    outcome = run(any_way, place, 'head -c 2M /dev/zero >"$HOME/big"; wc -c <"$HOME/big"', limits)
    assert outcome.output.endswith("1048576\n")


def test_an_endless_printer_is_cut_and_killed(any_way: Sandbox, place: Place) -> None:
    outcome = run(any_way, place, "echo first; yes", Limits(wall_s=120, flood_bytes=3_000_000), keep=1_000)
    assert outcome.ended == "flood"
    assert outcome.bytes_out > 3_000_000
    assert outcome.truncated
    assert outcome.output.startswith("first\ny\ny\n")
    assert outcome.output.endswith("y\ny\n")
    assert len(outcome.output) <= 1_000


@pytest.mark.parametrize("background", ["sleep 1000 &", "setsid sleep 1000 &", "nohup bash -c 'sleep 1000' &"])
def test_a_process_left_behind_does_not_hold_the_tool(any_way: Sandbox, place: Place, background: str) -> None:
    if isinstance(any_way, Unsafe) and "setsid" in background:
        background = background.replace("1000", "1")  # without a sandbox it can leave the group, and would live on
    outcome = run(any_way, place, f"{background} echo done")
    assert (outcome.ended, outcome.exit_code) == ("exit", 0)
    assert outcome.output.splitlines()[-1] == "done"


def test_time_out_kills_what_ignores_signals_and_what_left_the_group(sandbox: Sandbox, place: Place, top: Path) -> None:
    stubborn = "trap '' TERM HUP INT; : >>~/{}; while :; do sleep 1000; done"
    left = f'setsid bash -c "{stubborn.format("left")} # {top}"'
    command = f"echo begun; {left} & {stubborn.format('stayed')} # {top}"
    there = [place.scratch / name for name in ("left", "stayed")]
    outcome = run_until(lambda: all(path.exists() for path in there), sandbox, place, command)
    assert (outcome.ended, outcome.exit_code, outcome.output) == ("timeout", None, "begun\n")
    assert_gone(str(top))


def test_time_out_comes_also_when_the_output_was_closed(any_way: Sandbox, place: Place) -> None:
    closed = place.scratch / "closed"
    command = "echo begun; exec >&- 2>&-; : >~/closed; sleep 1000"
    outcome = run_until(closed.exists, any_way, place, command, Limits(wall_s=1))
    assert (outcome.ended, outcome.output) == ("timeout", "begun\n")


def test_exit_codes_come_through(any_way: Sandbox, place: Place) -> None:
    assert run(any_way, place, "exit 7").exit_code == 7
    assert run(any_way, place, "kill -KILL $$").exit_code == 137
    assert run(any_way, place, "no-such-program").exit_code == 127
    assert run(any_way, place, "while :; do :; done", Limits(wall_s=120, cpu_s=1)).exit_code == 137  # SIGKILL


def test_a_command_is_passed_as_it_is(any_way: Sandbox, place: Place) -> None:
    command = "printf '%s|' \"a  b\" 'it''s $HOME' --status -- ü; printf '\\377'"
    assert run(any_way, place, command).output == "a  b|its $HOME|--status|--|ü|?"


def test_the_scratch_folder_may_lie_inside_the_checkout(sandbox: Sandbox, place: Place) -> None:
    (place.checkout / "scratch").mkdir()
    (place.checkout / "scratch").chmod(0o777)
    inside = Place(place.checkout, place.checkout / "scratch")
    outcome = run(sandbox, inside, "exec 2>/dev/null; echo x >scratch/x; echo x >y; ls; cat scratch/x")
    assert outcome.output == "file.txt\nscratch\nx\n"


@pytest.mark.parametrize("abi", [0, 1, 2, 3, 4, 5, 6])
def test_an_older_kernels_landlock_still_holds(abi: int, place: Place, top: Path) -> None:
    source = LAUNCHER.read_text()
    asked = "abi = int(_libc.syscall("
    assert source.count(asked) == 1
    older = top / "older.py"
    older.write_text(source.replace(asked, f"abi = min({abi}, 7) + 0 * int(_libc.syscall("))
    proved = prove(Namespaces(launcher=older))
    assert isinstance(proved, Namespaces)
    assert proved.landlock_abi == abi
    assert ("no Landlock" in proved.describe()) == (abi == 0)
    assert run(proved, place, "cat file.txt; mkdir $HOME/a; mv $HOME/a $HOME/b; ls $HOME").output == "content\nb\n"


def test_where_none_works_the_error_says_what_was_tried_and_the_way_out() -> None:
    broken: list[Sandbox] = [Namespaces(python="/bin/false"), Bubblewrap("/nonexistent/bwrap")]
    with pytest.raises(SandboxError) as caught:
        choose(candidates=broken)
    text = str(caught.value)
    assert "namespaces: the sandbox could not be set up: exit code 1" in text
    assert "bubblewrap: cannot start /nonexistent/bwrap: No such file or directory" in text
    assert "--unsafe-no-sandbox" in text
    assert "\n" not in text


def test_running_without_a_sandbox_must_be_allowed_and_says_so() -> None:
    assert choose(allow_unsafe=True, candidates=[]).describe().startswith("NONE (unsafe)")
    assert not isinstance(choose(allow_unsafe=True), Unsafe)  # one that works is used all the same


def test_what_does_not_hold_is_not_believed() -> None:
    with pytest.raises(SandboxError, match="reads files outside, writes the checkout, has a network"):
        prove(Unsafe())


def test_a_launcher_that_cannot_set_up_is_an_error_and_never_a_result(place: Place) -> None:
    with pytest.raises(SandboxError, match=r"open_tree /\S+/none: No such file"):
        run(Misplaced(Namespaces()), place, "true")


@dataclass(frozen=True, slots=True)
class Misplaced:
    """The launcher, told to mount a folder that is not there."""

    inner: Namespaces

    def describe(self) -> str:
        return "misplaced"

    def argv(self, command: str, place: Place, limits: Limits, status_fd: int) -> list[str]:
        return self.inner.argv(command, replace(place, checkout=place.checkout.with_name("none")), limits, status_fd)


def test_a_missing_checkout_is_one_clear_line(place: Place) -> None:
    missing = place.checkout.with_name("none")
    with pytest.raises(SandboxError, match=f"checkout: expected a folder, there is none at {missing}"):
        run(Namespaces(), replace(place, checkout=missing), "true")


@pytest.mark.anyio
async def test_a_cancelled_command_is_dead_when_the_call_returns(any_way: Sandbox, place: Place, top: Path) -> None:
    os.mkfifo(place.scratch / "ready")
    (place.scratch / "ready").chmod(0o666)
    outcomes: list[Outcome] = []

    async def call() -> None:
        outcomes.append(await Shell(any_way).run(f"echo begun >$HOME/ready; sleep 1000 # {top}", place, PATIENT, 1000))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        assert await anyio.to_thread.run_sync((place.scratch / "ready").read_text) == "begun\n"
        tasks.cancel_scope.cancel()
    assert outcomes == []  # a cancelled call has no result
    assert_gone(f"sleep 1000 # {top}")


def test_a_program_whose_reader_has_gone_ends_without_a_word(any_way: Sandbox, place: Place) -> None:
    """Python ignores SIGPIPE, and so would what it starts: a writer tells of a broken pipe then, or not, by luck."""
    outcome = run(any_way, place, "seq 1 1000000 | head -n 1; kill -l ${PIPESTATUS[0]}")
    assert (outcome.output, outcome.exit_code) == ("1\nPIPE\n", 0)


@pytest.mark.anyio
async def test_no_more_commands_run_at_once_than_allowed(place: Place) -> None:
    shell = Shell(Namespaces(), at_once=2)
    seen: list[int] = []

    async def one(number: int) -> None:
        command = f"cd; : >run.{number}; set -- run.*; echo $#; rm run.{number}"
        outcome = await shell.run(command, place, PATIENT, 1000)
        seen.append(int(outcome.output))

    async with anyio.create_task_group() as tasks:
        for number in range(8):
            tasks.start_soon(one, number)
    assert len(seen) == 8
    assert max(seen) <= 2


@pytest.mark.anyio
async def test_a_sandbox_that_fails_raises_its_own_error(place: Place) -> None:
    with pytest.raises(SandboxError, match="could not be set up"):
        await Shell(Namespaces(python="/bin/false")).run("true", place, PATIENT, 1000)


CHOOSE = """
from agentload.agents import sandbox
from agentload.errors import InputError
try:
    sandbox.choose()
except InputError as error:
    print(error)
"""


def test_no_room_in_tmpdir_for_the_trial_is_told_and_not_taken_for_a_sandbox_that_fails(tmp_path: Path) -> None:
    """Four inodes: the disk's own, the trial's folder and two in it, so that the secret finds no room."""
    done = without(FULL, [sys.executable, "-c", CHOOSE], tmp_path, 8, 4, env={"TMPDIR": str(tmp_path)})
    assert done.stdout.startswith(f"no space is left on the disk (or in the quota) of {tmp_path}: make room there")
