"""What can hold the agents' commands on this machine, and what exactly does it hold?

A command sees the system's programs and the checkout, both read-only, and a private scratch folder; no network, no
home, no other agent, no process but its own, and an environment that holds nothing of ours. Two sandboxes give that:

* bubblewrap, where it is installed;
* `sandbox_launcher`, which needs nothing but Linux 5.12 and user namespaces, and adds Landlock.

Which one is not asked of version numbers: `choose` tries each and believes only what it saw hold. An ordinary user
gets bubblewrap first. Root gets the launcher first: the kernel never counts root's processes against a limit, and a
command under bubblewrap stays the machine's root, so a fork bomb would run until the time limit (the launcher makes
it another user).
"""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Protocol

import anyio
import anyio.lowlevel
import anyio.to_thread

from agentload import folders
from agentload.agents.sandbox_run import Execution, Limits, Outcome
from agentload.errors import SandboxError

SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
AT_ONCE: Final = 4
_LAUNCHER: Final = Path(__file__).with_name("sandbox_launcher.py")
# A module is compiled once, a script at each start (5 ms). The folder comes last, so as not to hide a standard module.
_START: Final = "import sys; sys.path.append(sys.argv.pop(1)); __import__(sys.argv.pop(1)).main()"

# What programs need to run; no shadow, no host keys, no configuration that a tool would obey. Missing ones are skipped.
_READABLE: Final = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store"),
    *("/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/alternatives"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d"),
)
_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_DEVICE_LINKS: Final = (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2"))

# Limits that every sandbox sets in one way: by the shell that becomes the command's shell. $1 processes (0: no limit),
# $2 where to say that it starts, $3 the command; then -c -n -t -v -f.
_WRAPPER: Final = (
    "{ echo 1000 >/proc/self/oom_score_adj; } 2>/dev/null; "  # memory runs out: this first, not the server under test
    'ulimit -c 0 -n "$4" -t "$5" -v "$6" -f "$7" && { [ "$1" = 0 ] || ulimit -u "$1"; } && '
    'echo started >&"$2" && eval "exec $2>&-" && exec "$BASH" -c "$3"'
)
_SHARED_COUNT_HEADROOM: Final = 4096  # before Linux 5.14 all processes of the user count, not the sandbox's alone


@dataclass(frozen=True, slots=True)
class Place:
    """Where a command runs: `checkout` is its working directory and read-only, `scratch` its HOME and TMPDIR."""

    checkout: Path
    scratch: Path

    def resolved(self) -> "Place":
        """Return it with absolute paths without symbolic links: a mount point cannot be one.

        Raises:
            SandboxError: one of the two is not a folder.
        """
        for name, path in (("checkout", self.checkout), ("scratch", self.scratch)):
            if not path.is_dir():
                raise SandboxError(f"{name}: expected a folder, there is none at {path}")
        return Place(self.checkout.resolve(), self.scratch.resolve())


class Sandbox(Protocol):
    """A way to run a command."""

    def describe(self) -> str:
        """Return the line that is printed at a run's start and kept in its manifest."""
        ...

    def argv(self, command: str, place: Place, limits: Limits, status_fd: int) -> list[str]:
        """Return the command line that runs the shell command; `place` must be resolved, `status_fd` be inherited."""
        ...


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """bubblewrap's `bwrap`."""

    program: str
    version: str = ""
    counts_processes: bool = field(default_factory=lambda: os.geteuid() != 0)

    def describe(self) -> str:
        """Return its name and version."""
        gap = "" if self.counts_processes else " (as root: the number of processes is not limited)"
        return f"bubblewrap {self.version}{gap}"

    def argv(self, command: str, place: Place, limits: Limits, status_fd: int) -> list[str]:
        """See `Sandbox`."""
        mounts: list[tuple[str, list[str]]] = [("/tmp", ["--tmpfs", "/tmp"])]  # noqa: S108 - new and empty
        links, readable = _system()
        mounts += [(path, ["--ro-bind", path, path]) for path in (*readable, str(place.checkout))]
        mounts.append((str(place.scratch), ["--bind", str(place.scratch), str(place.scratch)]))
        # A mount point inside another mount must come after it.
        mounts.sort(key=lambda mount: mount[0].count("/"))
        # The process group must stay the one that agentload made, so no --new-session; there is no terminal anyway.
        options = ["--unshare-all", "--die-with-parent", "--cap-drop", "ALL"]
        if os.geteuid() == 0:
            options += ["--uid", "65534", "--gid", "65534"]
        options += [word for link in links for word in ("--symlink", *link)]
        options += [word for _, words in mounts for word in words]
        options += ["--proc", "/proc", "--dev", "/dev", "--remount-ro", "/", "--chdir", str(place.checkout), "--"]
        processes = _process_limit(limits) if self.counts_processes else 0
        return [self.program, *options, *_shell(command, limits, processes, status_fd)]


@dataclass(frozen=True, slots=True)
class Namespaces:
    """`sandbox_launcher`, run by `python`; the three facts are what the launcher said when it was tried."""

    python: str = sys.executable
    launcher: Path = _LAUNCHER
    landlock_abi: int = 0
    has_proc: bool = True
    counts_processes: bool = True
    before_bubblewrap: bool = False  # which is there too: root gets this one first

    def describe(self) -> str:
        """Return what holds, and what this kernel or container does not give."""
        parts = [f"namespaces + Landlock ABI {self.landlock_abi}" if self.landlock_abi else "namespaces"]
        gaps = [] if self.landlock_abi else ["this kernel has no Landlock: files are held by mounts alone"]
        gaps += [] if self.has_proc else ["no /proc inside"]
        gaps += [] if self.counts_processes else ["as root in a container: the number of processes is not limited"]
        if self.before_bubblewrap:
            gaps.append("bubblewrap is there, but under it a command of root's could start processes without limit")
        return " ".join(parts + ([f"({'; '.join(gaps)})"] if gaps else []))

    def argv(self, command: str, place: Place, limits: Limits, status_fd: int) -> list[str]:
        """See `Sandbox`."""
        links, readable = _system()
        words = [self.python, "-I", "-S", "-E", "-c", _START, str(self.launcher.parent), self.launcher.stem]
        words += ["--status", str(status_fd)]
        for path in (*readable, str(place.checkout)):
            words += ["--ro", path]
        for path in filter(os.path.exists, _DEVICES):
            words += ["--dev", path]
        for target, path in (*links, *((f"/proc/self/fd{end}", f"/dev/{name}") for name, end in _DEVICE_LINKS)):
            words += ["--link", target, path]
        scratch = str(place.scratch)
        words += ["--rw", scratch, "--stage", scratch, "--chdir", str(place.checkout), "--"]
        processes = _process_limit(limits) if self.counts_processes else 0
        return words + _shell(command, limits, processes, status_fd)


@dataclass(frozen=True, slots=True)
class Unsafe:
    """No sandbox: the user asked for it. Time, memory, file size and output are still limited."""

    def describe(self) -> str:
        """Return the warning."""
        return "NONE (unsafe): commands have your rights, files and network"

    def argv(self, command: str, place: Place, limits: Limits, status_fd: int) -> list[str]:  # noqa: ARG002 - protocol
        """See `Sandbox`. Processes are not limited: the user's own would count, and there may be more already."""
        return _shell(command, limits, 0, status_fd)


def environment(place: Place) -> dict[str, str]:
    """Return all of a command's environment: nothing of ours, and git told to read the checkout whoever owns it."""
    home = str(place.scratch)
    return {
        "PATH": SYSTEM_PATH,
        "HOME": home,
        "TMPDIR": home,
        "LC_ALL": "C",
        "TZ": "UTC",
        "TERM": "dumb",
        "PAGER": "cat",
        "GIT_PAGER": "cat",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_OPTIONAL_LOCKS": "0",  # or `git status` would try to write the index
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
    }


def execution(
    sandbox: Sandbox,
    command: str,
    place: Place,
    limits: Limits,
    keep_bytes: int,
    now_s: Callable[[], float] = time.monotonic,
) -> Execution:
    """Prepare one command; its `run` blocks. `now_s` tells the time of its wall limit.

    Raises:
        SandboxError: the checkout or the scratch folder is not there.
    """
    where = place.resolved()
    return Execution(
        lambda fd: sandbox.argv(command, where, limits, fd),
        environment(where),
        where.checkout,
        limits,
        keep_bytes,
        now_s,
    )


class Shell:
    """Runs commands in worker threads, at most `at_once` at a time; one is shared by all agents of a run."""

    def __init__(self, sandbox: Sandbox, at_once: int = AT_ONCE, now_s: Callable[[], float] = time.monotonic) -> None:
        self.sandbox = sandbox
        self._now_s = now_s
        self._limiter = anyio.CapacityLimiter(at_once)

    async def run(self, command: str, place: Place, limits: Limits, keep_bytes: int) -> Outcome:
        """Run one command. Cancelled, it has ended when this returns.

        Raises:
            SandboxError: the sandbox could not be set up.
        """
        job = execution(self.sandbox, command, place, limits, keep_bytes, self._now_s)
        finished: list[Outcome] = []
        failed: list[SandboxError] = []

        def work() -> None:
            try:
                finished.append(job.run())
            except SandboxError as error:  # kept apart, so that it does not arrive as a group of one
                failed.append(error)

        async def watch() -> None:
            try:
                await anyio.sleep_forever()
            finally:
                job.kill()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            # Not abandoned: a cancelled run waits here until `watch`, cancelled with it, has killed the command.
            await anyio.to_thread.run_sync(work, limiter=self._limiter)
            tasks.cancel_scope.cancel()
        await anyio.lowlevel.checkpoint_if_cancelled()  # or a cancelled call would return what was killed
        if failed:
            raise failed[0]
        return finished[0]


def choose(*, allow_unsafe: bool = False, candidates: Sequence[Sandbox] | None = None) -> Sandbox:
    """Return the first sandbox that works here and holds; it blocks for some 50 ms a candidate.

    `allow_unsafe` does not turn a working sandbox off: it says what to do where none works.

    Raises:
        SandboxError: none works; the line says what each one failed at.
    """
    tried: list[str] = []
    for candidate in available() if candidates is None else candidates:
        try:
            return prove(candidate)
        except SandboxError as error:
            tried.append(f"{type(candidate).__name__.lower()}: {error}")
    if allow_unsafe:
        return Unsafe()
    if not any(entry.startswith("bubblewrap") for entry in tried):
        tried.append("bubblewrap: not installed (package bubblewrap)")
    raise SandboxError(f"no sandbox works here ({'; '.join(tried)}); --unsafe-no-sandbox runs the agents without one")


def available() -> list[Sandbox]:
    """Return the sandboxes to try on this machine, best first."""
    if sys.platform != "linux":
        return []
    if program := shutil.which("bwrap", path=SYSTEM_PATH):
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout.split()
        bubblewrap = Bubblewrap(program, said[-1] if said else "?")
        return [Namespaces(before_bubblewrap=True), bubblewrap] if os.geteuid() == 0 else [bubblewrap, Namespaces()]
    return [Namespaces()]


def prove(sandbox: Sandbox) -> Sandbox:
    """Try the sandbox on folders, a secret and a listener made for it, and return it with what it learned of itself.

    Raises:
        SandboxError: it does not start, or something that it must hold got out.
        InputError: the folders cannot be made where TMPDIR says.
    """
    limits = Limits(wall_s=60.0)  # it takes 50 ms: a machine that stands still for seconds has a sandbox all the same
    with folders.temporary("agentload-trial-") as top, socket.create_server(("127.0.0.1", 0)) as lan:
        place = Place(top / "checkout", top / "scratch")
        place.checkout.mkdir()
        place.scratch.mkdir()
        secret = top / "secret"
        secret.write_text("agentload", encoding="ascii")
        port = lan.getsockname()[1]
        probe = (
            f"cat {secret} >/dev/null && echo leak: reads files outside; : >x && echo leak: writes the checkout; "
            f": </dev/tcp/127.0.0.1/{port} && echo leak: has a network; : >$HOME/x && echo writes scratch"
        )
        outcome = execution(sandbox, probe, place, limits, 4096).run()
        leaks = [line.removeprefix("leak: ") for line in outcome.output.splitlines() if line.startswith("leak: ")]
        if leaks:
            raise SandboxError(f"it does not hold: a command {', '.join(leaks)}")
        if outcome.exit_code != 0 or "writes scratch" not in outcome.output:
            raise SandboxError(f"a trial command failed: {' '.join(outcome.output.split())}")
    if isinstance(sandbox, Namespaces):
        said = outcome.status.split()
        facts = dict(zip(said[::2], said[1::2], strict=False))
        own_id = facts.get("own-id") == "1" or os.geteuid() != 0
        abi, has_proc = int(facts["landlock"]), facts["proc"] == "1"
        # Without an id of its own root is not limited here either: then there is nothing to say for it.
        first = sandbox.before_bubblewrap and own_id
        return replace(sandbox, landlock_abi=abi, has_proc=has_proc, counts_processes=own_id, before_bubblewrap=first)
    return sandbox


def _system() -> tuple[list[tuple[str, str]], list[str]]:
    """Return the system's links (target, path), as /bin -> usr/bin, and the paths to mount."""
    there = [path for path in map(Path, _READABLE) if path.exists()]
    links = [(str(path.readlink()), str(path)) for path in there if path.is_symlink() and path.parent == Path("/")]
    linked = {path for _, path in links}
    return links, [str(path) for path in there if str(path) not in linked]


def _shell(command: str, limits: Limits, processes: int, status_fd: int) -> list[str]:
    bash = shutil.which("bash", path=SYSTEM_PATH)
    if bash is None:
        raise SandboxError(f"expected bash in {SYSTEM_PATH}, there is none")
    numbers = (limits.open_files, limits.cpu_s, limits.memory_bytes // 1024, limits.file_bytes // 1024)
    # -c, never -l: a login shell costs 40 times more.
    return [bash, "-c", _WRAPPER, "sandbox", str(processes), str(status_fd), command, *map(str, numbers)]


def _process_limit(limits: Limits) -> int:
    major, minor = os.uname().release.split(".")[:2]
    per_namespace = (int(major), int("".join(filter(str.isdigit, minor)) or 0)) >= (5, 14)
    return limits.processes + (0 if per_namespace else _SHARED_COUNT_HEADROOM)
