"""Which server does this run use, why, and how do markers get to its log?

Three ways: the embedded server and a launched command are processes of ours, whose output we own; an endpoint is
somebody else's, and its log, where one is named, is attached to. Each is a `Served` while the run lasts.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import anyio
import httpx2
from anyio import to_thread

from agentload.agents.chat import NO_KEY, list_models
from agentload.artifacts.rundir import RunDir
from agentload.core.ports import Clock, EventSink
from agentload.core.records import Doubt
from agentload.errors import EndpointError, InputError, ServerError, UsageError
from agentload.run import launching, starting, tracing
from agentload.run.address import check_base_url, check_key
from agentload.run.logwatch import LogWatch
from agentload.run.scenario import Server
from agentload.serverlogs import formats
from agentload.servers import embedded, facts
from agentload.servers.attach import AttachedLog
from agentload.servers.commandline import environment_without_keys, without_keys
from agentload.servers.facts import Facts
from agentload.servers.metrics_sampling import Address
from agentload.servers.process import ServerProcess
from agentload.servers.profiles import profile_for
from agentload.servers.ready import SAY_EVERY_S, answers_plain_http, wait_ready
from agentload.servers.watchdog import Watchdog

_END_WAIT_NS: Final = 10_000_000_000  # for open requests in the log, before the end marker (PROTOCOL 1.8)
_END_POLL_NS: Final = 100_000_000
_DYING_S: Final = 5.0
_MOST_NAMED: Final = 20  # models in one message
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Session:
    """What every part of a run needs."""

    run: RunDir
    clock: Clock
    events: EventSink
    env: Mapping[str, str]
    say: Callable[[str], None]  # one line for the person at the terminal
    clock_facts: Callable[[], dict[str, Any]]  # what the manifest says of the clock
    watchdog: Watchdog | None = None  # None: `serve` has one of its own


class OwnedLog(Protocol):
    """A log that nobody else writes to: markers stand between whole lines."""

    log: Path
    worst_pause_ns: int  # a line may have waited so long for its stamp
    failure: OSError | None  # nothing was written after it; its `filename` is the file that could not be

    def write_marker(self, line: bytes) -> int:
        """Append `line` (no newline); return its byte offset."""
        ...


@dataclass(slots=True)
class Served:
    """A server that answers, and where its log is."""

    kind: str
    why: str  # one sentence for the user
    base_url: str
    model: str
    api_key: str
    argv: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)  # what of its environment asks for a setting; keys are hidden
    process: ServerProcess | None = None
    owned: OwnedLog | None = None
    attached: AttachedLog | None = None
    watch: LogWatch | None = None
    simulated: dict[str, Any] | None = None  # with what; None: a real server
    facts: Facts | None = None  # what was seen of it when it was ready
    kv_dir: Path | None = None  # the folder that was made for its KV cache

    def write_marker(self, line: bytes) -> tuple[str, int | None, int | None]:
        """Write a marker where it can go; return (log|sidecar, inode, offset in the server's log).

        A log that was rotated away or truncated in mid-run takes none: the marker stands in the sidecar alone, and the
        run goes on.
        """
        if self.owned is not None:
            offset = self.owned.write_marker(line)
            # An inode differs from run to run, which nothing of a simulated run may.
            return "log", None if self.simulated is not None else self.owned.log.stat().st_ino, offset
        if self.attached is not None and self.attached.changed() is None:
            inode, size = self.attached.place()
            if self.attached.refusal is not None:
                return "sidecar", inode, size
            if (written := self.attached.write_marker(line)) is not None:
                return "log", inode, written
        return "sidecar", None, None

    def describe(self) -> dict[str, Any]:
        """Return what the manifest says of the server."""
        return {
            "kind": self.kind,
            "why": self.why,
            "base_url": self.base_url,
            "model": self.model,
            "argv": self.argv,
            "env": self.env,
            **self._seen(),
            "log_format": self.watch.log_format if self.watch else None,
            "log_owned": self.owned is not None,
            "log_path": str(self.attached.path) if self.attached else None,
            "exit_code": self.process.exit_code() if self.process else None,
            "killed": self.process.killed if self.process else None,
            "markers": "sidecar" if self.owned is None and (not self.attached or self.attached.refusal) else "log",
            **({} if self.simulated is None else {"simulated": self.simulated}),
        }

    def _seen(self) -> dict[str, Any]:
        """What proves, beside its log, which server with which settings it was; nothing of a simulated one."""
        if self.facts is None:
            return {}
        return {**asdict(self.facts), "kv_dir": None if self.kv_dir is None else str(self.kv_dir)}


def choose(server: Server, env: Mapping[str, str]) -> tuple[Server, str]:
    """Return the server with its kind settled by what is given, and why, in one sentence."""
    url = env.get("OPENAI_BASE_URL")
    if server.kind == "twin":
        unused = "; OPENAI_BASE_URL is set, and not used" if url else ""
        return server, f"--server twin: everything is SIMULATED, no server runs{unused}"
    unused = "; OPENAI_BASE_URL is set too, and not used" if url and url != server.base_url else ""
    if server.launch is not None:
        at = "; --base-url is its address" if server.base_url is not None else ""
        return (
            server.model_copy(update={"kind": "launch"}),
            f"--launch names a command: it is started and owned{at}{unused}",
        )
    if server.base_url is not None:
        return (
            server.model_copy(update={"kind": "endpoint"}),
            f"a base URL is given: the server behind it is used{unused}",
        )
    if server.kind == "embedded" and url:
        return (
            server.model_copy(update={"kind": "endpoint", "base_url": url}),
            "OPENAI_BASE_URL is set: the server behind it is used",
        )
    return server, "nothing is configured: the embedded llama.cpp server with a small model is used"


def check(server: Server, env: Mapping[str, str]) -> None:
    """Refuse at once what could only fail after the preparations.

    Raises:
        UsageError: the base URL is none, the key cannot be sent, the launch command or the embedded server's flags
            cannot work, or there is no such log format.
        InputError: the server's log cannot be read.
    """
    if server.base_url is not None:
        check_base_url(server.base_url)
    check_key(env.get("OPENAI_API_KEY", ""))
    if server.launch is not None:
        launching.check(server, env)
    if server.otlp:
        tracing.check(server)
    if server.args and server.kind != "embedded":
        raise UsageError(
            f"--server-args are for the embedded server, which is not used here ({server.kind}): "
            f"put them into the command that starts yours"
        )
    embedded.check_args(server.args)
    if server.log_format is not None:
        formats.by_name(server.log_format)
    if server.log is not None:
        AttachedLog(Path(server.log)).close()


@asynccontextmanager
async def serve(server: Server, why: str, slots: int, session: Session) -> AsyncIterator[Served]:
    """Have the server answer, and leave nothing of ours running afterwards.

    Raises:
        ServerError, EndpointError, UsageError, InputError, FetchError: see the parts.
    """
    run, clock, events = session.run, session.clock, session.events
    given_key = session.env.get("OPENAI_API_KEY") or None
    key = given_key or NO_KEY
    if server.kind == "endpoint":
        yield await _attach(server, why, given_key, session)
        return
    with ExitStack() as stack:
        watchdog = session.watchdog or stack.enter_context(Watchdog(session.env))
        kv_dir = (
            stack.enter_context(starting.kv_folder(watchdog, session.say)) if launching.wants_kv_dir(server) else None
        )
        server = launching.exporting(server, run.exports)
        spans_to = stack.enter_context(tracing.receiving(run.spans_path, clock)) if server.otlp else None
        command = await starting.command(server, slots, session.env, clock, session.say, kv_dir, spans_to)
        base_url, keys = command.base_url, () if given_key is None else (given_key,)
        argv = without_keys(command.argv, keys)
        profile = profile_for(server.software, command.argv, command.log_format)
        starting.say_what_it_inherits(profile, command.argv, kv_dir, session.say)
        process = ServerProcess(
            command.argv,
            run.server_log,
            run.server_times,
            clock,
            env=command.env,
            watchdog=watchdog,
            grace_s=server.stop_s,
        )
        events.emit("server_started", process.t_started, pid=process.pid, argv=argv)
        try:
            await wait_ready(
                process, base_url, server.ready_s, api_key=given_key, health=profile.health, say=session.say
            )
            events.emit("server_ready", clock.now_ns(), pid=process.pid)
            model = server.model or (await _models(base_url, clock, key))[0]
            seen = await facts.of_process(
                process, base_url, software=server.software, log_format=command.log_format, api_key=given_key
            )
            env = environment_without_keys(command.asking, keys)
            served = Served(server.kind, why, base_url, model, key, argv, env, process, process.pump)
            served.facts, served.kv_dir = seen, kv_dir
            served.watch = LogWatch(run.server_log, command.log_format)
            yield served
        finally:
            with anyio.CancelScope(shield=True):
                await _stop(process, server.stop_s, session, profile.ending)


async def _stop(process: ServerProcess, stop_s: float, session: Session, ending: str) -> None:
    async def say_that_it_takes_long() -> None:
        while True:
            await anyio.sleep(SAY_EVERY_S)
            session.say(
                f"the server (pid {process.pid}) is still ending after SIGTERM: SIGKILL after {stop_s:g} s"
                + (f"; {ending}" if ending else "")
            )

    async with anyio.create_task_group() as group:
        group.start_soon(say_that_it_takes_long)
        code = await to_thread.run_sync(process.stop, stop_s)
        group.cancel_scope.cancel()
    if process.killed:
        session.say(f"the server (pid {process.pid}) did not end within {stop_s:g} s of SIGTERM: it was killed")
    session.events.emit("server_stopped", session.clock.now_ns(), pid=process.pid, exit_code=code)


async def _attach(server: Server, why: str, given_key: str | None, session: Session) -> Served:
    assert server.base_url is not None
    attached = AttachedLog(Path(server.log)) if server.log is not None else None
    base_url, key = server.base_url.rstrip("/"), given_key or NO_KEY
    models = await _models(base_url, session.clock, key)
    if server.model is not None and server.model not in models:
        raise UsageError(f"--model: expected one of {listed_models(models)}, got {server.model!r}")
    served = Served("endpoint", why, base_url, server.model or models[0], key, attached=attached)
    log_format = server.log_format
    if attached is not None:
        log_format = log_format or formats.detect(next(attached.pieces(0), b"")[: formats.HEAD_BYTES])
        served.watch = LogWatch(attached.path, log_format, attached.size_at_start, attached.pieces)
        if (unread := served.watch.why_unknown(attached=True)) is not None:
            session.say(f"{attached.path}: of no known format: {unread}")
    served.facts = await facts.of_endpoint(base_url, software=server.software, log_format=log_format, api_key=given_key)
    return served


def listed_models(models: Sequence[str]) -> str:
    """Name a server's models in a message; of thousands, as a gateway may list, the first ones."""
    more = len(models) - _MOST_NAMED
    return ", ".join(models[:_MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")


async def _models(base_url: str, clock: Clock, key: str) -> list[str]:
    https = urlsplit(base_url).scheme == "https"
    context = httpx2.create_ssl_context(trust_env=False) if https else None
    try:
        return await list_models(base_url, clock, api_key=key, ssl_context=context)
    except EndpointError:
        if https and await answers_plain_http(base_url):
            raise EndpointError(
                f"{base_url}: the server answers plain http: use http:// in place of https://"
            ) from None
        raise


# ---- while the agents work ------------------------------------------------------------------------------------------


def metrics_address(served: Served) -> Address:
    """Return where the counters of a server stand."""
    https = urlsplit(served.base_url).scheme == "https"
    key = None if served.api_key == NO_KEY else served.api_key
    return Address(served.base_url, key, httpx2.create_ssl_context(trust_env=False) if https else None)


def must_run(served: Served) -> None:
    """Raise ServerError when a server of ours has ended."""
    if served.process is not None and (ending := served.process.ending()) is not None:
        raise ServerError(ending)


async def watch_exit(served: Served) -> None:
    """Raise ServerError as soon as a server of ours has ended; return at once when it is not ours."""
    if served.process is not None:
        raise ServerError(await served.process.wait_exit())


@asynccontextmanager
async def while_it_runs(served: Served) -> AsyncIterator[None]:
    """Cancel the block when a server of ours ends: nothing in it can succeed any more.

    Raises:
        ServerError: how it ended, and its last lines; in a group of errors when the block was cancelled.
    """
    async with anyio.create_task_group() as group:
        group.start_soon(watch_exit, served)
        yield
        group.cancel_scope.cancel()
    # A dying process closes its sockets before its parent is told (measured: 0.1 ms, on a busy machine above 2 ms), and
    # agents that fail at once can be done before that: so it is asked whether anybody listens.
    if served.process is not None and not await _listens(served.base_url):
        with anyio.move_on_after(_DYING_S):
            await watch_exit(served)
        raise ServerError(
            f"nobody listens at {served.base_url} any more, though what was started (pid {served.process.pid}) runs; "
            f"{served.process.last_lines()}"
        )


async def time_to_die(served: Served) -> None:
    """Wait, inside `while_it_runs`, for the end of a server of ours that has just broken its connections, if it ends.

    Linux closes a killed process' files last opened first: its connections break before its listener is gone, and its
    parent is told after that. Measured on an idle machine: 36 of 150 killed servers still took a connection after the
    others had broken, for up to 3 ms.
    """
    if served.process is not None:
        await anyio.sleep(_DYING_S)


async def _listens(base_url: str) -> bool:
    parts = urlsplit(base_url)
    with anyio.move_on_after(_DYING_S):  # busy, but there
        try:
            await (await anyio.connect_tcp(parts.hostname or "", parts.port or _PORTS[parts.scheme])).aclose()
        except OSError:
            return False
    return True


async def wait_for_open_requests(served: Served, clock: Clock) -> Doubt | None:
    """Return when the log shows no open request; else, after 10 s or when nothing can end any more, why not."""
    if served.watch is None:
        return None
    give_up = clock.now_ns() + _END_WAIT_NS
    try:
        while True:
            if served.attached is not None and (why := await to_thread.run_sync(served.attached.gone)) is not None:
                raise InputError(why)
            ended = None
            if served.process is not None and served.process.exit_code() is not None:
                ended = await served.process.wait_exit()
            left = await to_thread.run_sync(served.watch.open_requests)
            if not left or ended is not None or clock.now_ns() >= give_up:
                break
            await clock.sleep_until(clock.now_ns() + _END_POLL_NS)
        attached = served.attached is not None
        unread = served.watch.why_unknown(attached=attached) if left is None else None
    except InputError as error:  # what the agents did is worth more than the wait
        return Doubt("log-gone", str(error), "keep the server's log in place while a run lasts")
    if left is None:
        return Doubt(
            "unknown-log",
            "the log's format is not known: open requests at the end were not waited for",
            unread or "name it with --log-format",
        )
    if left and ended is not None:
        return Doubt(
            "server-gone",
            f"the log shows {left} requests that were open when {ended}",
            "what they cost is in no log: run it again; signal 9 that nobody sent means that memory ran out",
        )
    if left:
        return Doubt(
            "open-requests",
            f"the log still showed {left} open requests 10 s after the agents had ended",
            "look for other clients of this server, or cancelled requests that it goes on computing",
        )
    return None
