"""Which server does this run use, why, and how do markers get to its log?

Three ways: the embedded server and a launched command are processes of ours, whose output we own; an endpoint is
somebody else's, and its log, where one is named, is attached to. Each is a `Served` while the run lasts.
"""

import os
import re
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
from anyio import to_thread

from agentload.agents.chat import NO_KEY, list_models
from agentload.artifacts.rundir import RunDir
from agentload.core.ports import Clock, EventSink
from agentload.errors import ServerError, UsageError
from agentload.registry import IndexSettings, default_cache_dir, fetch
from agentload.run.logwatch import LogWatch
from agentload.run.scenario import Server
from agentload.serverlogs import formats
from agentload.servers import embedded
from agentload.servers.attach import AttachedLog
from agentload.servers.process import ServerProcess, free_port, split_command

_PORT: Final = re.compile(r"--port[= ](\d{1,5})(?!\S)")


@dataclass(frozen=True, slots=True)
class Session:
    """What every part of a run needs."""

    run: RunDir
    clock: Clock
    events: EventSink
    env: Mapping[str, str]
    say: Callable[[str], None]  # one line for the person at the terminal
    clock_facts: Callable[[], dict[str, Any]]  # what the manifest says of the clock


@dataclass(slots=True)
class Served:
    """A server that answers, and where its log is."""

    kind: str
    why: str  # one sentence for the user
    base_url: str
    model: str
    api_key: str
    argv: list[str] = field(default_factory=list)
    process: ServerProcess | None = None
    attached: AttachedLog | None = None
    watch: LogWatch | None = None
    context_tokens: int | None = None

    def write_marker(self, line: bytes) -> tuple[str, int | None, int | None]:
        """Write a marker where it can go; return (log|sidecar, inode, offset in the server's log).

        A log that was rotated away in mid-run takes none: the marker stands in the sidecar alone, and the run goes on.
        """
        if self.process is not None:
            offset = self.process.pump.write_marker(line)
            return "log", self.process.pump.log.stat().st_ino, offset
        if self.attached is not None and self.attached.path.is_file():
            inode, size = self.attached.place()
            if self.attached.refusal is None:
                return "log", inode, self.attached.write_marker(line)
            return "sidecar", inode, size
        return "sidecar", None, None

    def describe(self) -> dict[str, Any]:
        """Return what the manifest says of the server."""
        return {
            "kind": self.kind,
            "why": self.why,
            "base_url": self.base_url,
            "model": self.model,
            "argv": self.argv,
            "log_format": self.watch.log_format if self.watch else None,
            "log_owned": self.process is not None,
            "log_path": str(self.attached.path) if self.attached else None,
            "markers": "sidecar" if self.process is None and (not self.attached or self.attached.refusal) else "log",
        }


def choose(server: Server, env: Mapping[str, str]) -> tuple[Server, str]:
    """Return the server with its kind settled by what is given, and why, in one sentence."""
    if server.launch is not None:
        return server.model_copy(update={"kind": "launch"}), "--launch names a command: it is started and owned"
    if server.base_url is not None:
        return server.model_copy(update={"kind": "endpoint"}), "a base URL is given: the server behind it is used"
    if server.kind == "embedded" and (url := env.get("OPENAI_BASE_URL")):
        return (
            server.model_copy(update={"kind": "endpoint", "base_url": url}),
            "OPENAI_BASE_URL is set: the server behind it is used",
        )
    return server, "nothing is configured: the embedded llama.cpp server with a small model is used"


def check(server: Server, env: Mapping[str, str]) -> None:
    """Refuse at once what could only fail after the preparations.

    Raises:
        UsageError: the base URL is none, the key cannot be sent, or there is no such log format.
        InputError: the server's log cannot be read.
    """
    if server.base_url is not None:
        try:
            parts = urlsplit(server.base_url)
            good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # a port that is no number or above 65535, or a bracket that is not closed
            good = False
        if not good or not server.base_url.isascii() or " " in server.base_url:
            raise UsageError(
                f"--base-url or OPENAI_BASE_URL: expected a base URL such as http://127.0.0.1:8080/v1, "
                f"got {server.base_url!r}"
            )
    if not env.get("OPENAI_API_KEY", "").isascii():
        raise UsageError("OPENAI_API_KEY: expected ASCII characters, as an HTTP header takes them")
    if server.log_format is not None:
        formats.by_name(server.log_format)
    if server.log is not None:
        AttachedLog(Path(server.log))


def must_be_free(port: int) -> None:
    """Otherwise the agents would work against whatever answers there, while ours still loads its model."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError) as error:
            raise UsageError(f"--launch: expected a free port, {port} cannot be used: {error}") from error


@asynccontextmanager
async def serve(server: Server, why: str, slots: int, session: Session) -> AsyncIterator[Served]:
    """Have the server answer, and leave nothing of ours running afterwards.

    Raises:
        ServerError, EndpointError, UsageError, InputError, FetchError: see the parts.
    """
    run, clock, events = session.run, session.clock, session.events
    key = session.env.get("OPENAI_API_KEY") or NO_KEY
    if server.kind == "endpoint":
        yield await _attach(server, why, key, clock)
        return
    argv, base_url, child_env = await _command(server, slots, session.env, session.say)
    process = ServerProcess(argv, run.server_log, run.server_times, clock, env=child_env)
    events.emit("server_started", process.t_started, pid=process.pid, argv=argv)
    try:
        await process.wait_ready(base_url, server.ready_s)
        events.emit("server_ready", clock.now_ns(), pid=process.pid)
        model = server.model or (await list_models(base_url, clock, api_key=key))[0]
        served = Served(server.kind, why, base_url, model, key, argv, process)
        served.watch = LogWatch(
            run.server_log, server.log_format or ("llamacpp" if server.kind == "embedded" else None)
        )
        yield served
    finally:
        with anyio.CancelScope(shield=True):
            code = await to_thread.run_sync(process.stop, server.stop_s)
            events.emit("server_stopped", clock.now_ns(), pid=process.pid, exit_code=code)


async def _command(
    server: Server, slots: int, env: Mapping[str, str], say: Callable[[str], None]
) -> tuple[list[str], str, dict[str, str]]:
    child_env = {name: value for name, value in env.items() if name != "OPENAI_API_KEY"}
    if server.kind == "embedded":
        embedded.require()
        model = await to_thread.run_sync(_embedded_model, env, say, abandon_on_cancel=True)
        port = free_port()
        slots = min(slots, embedded.MOST_SLOTS)
        # The launcher must find this very package, also from another working directory.
        child_env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_package_parent()), env.get("PYTHONPATH"))))
        return embedded.argv(model, port, slots, server.args), f"http://127.0.0.1:{port}/v1", child_env
    assert server.launch is not None
    command = server.launch
    port_given = _PORT.search(command)
    if "{port}" in command:
        port = free_port()
        command = command.replace("{port}", str(port))
    elif port_given:
        port = int(port_given[1])
        must_be_free(port)
    elif server.base_url is None:
        raise UsageError(
            f"--launch: expected the server's address: put {{port}} or --port N into the command, or give --base-url; "
            f"there is only {command!r}"
        )
    else:
        port = 0
    unknown = re.findall(r"(?<![{$])\{[a-z_]+\}", command)
    if unknown:
        raise UsageError(f"--launch: unknown placeholder {unknown[0]}: there is {{port}}")
    return split_command(command), server.base_url or f"http://127.0.0.1:{port}/v1", child_env


def _package_parent() -> Path:
    return Path(__file__).resolve().parents[2]


def _embedded_model(env: Mapping[str, str], say: Callable[[str], None]) -> Path:
    shown = 0

    def progress(done: int, total: int | None) -> None:
        nonlocal shown
        if total and done * 10 // total > shown:
            shown = done * 10 // total
            say(f"model: {done / 1e6:.0f} of {total / 1e6:.0f} MB")

    return fetch(embedded.MODEL, default_cache_dir(env), IndexSettings.from_environment(env), progress=progress)


async def _attach(server: Server, why: str, key: str, clock: Clock) -> Served:
    assert server.base_url is not None
    attached = AttachedLog(Path(server.log)) if server.log is not None else None
    base_url = server.base_url.rstrip("/")
    models = await list_models(base_url, clock, api_key=key)
    if server.model is not None and server.model not in models:
        raise UsageError(f"--model: expected one of {', '.join(models)}, got {server.model!r}")
    served = Served("endpoint", why, base_url, server.model or models[0], key, [], None, attached)
    if attached is not None:
        with attached.path.open("rb") as file:
            log_format = server.log_format or formats.detect(file.read(formats.HEAD_BYTES))
        served.watch = LogWatch(attached.path, log_format, attached.size_at_start)
    return served


def must_run(served: Served) -> None:
    """Raise ServerError when a server of ours has exited."""
    if served.process is not None and (code := served.process.exit_code()) is not None:
        raise ServerError(f"the server exited with {code} during the run; see {served.process.pump.log}")
