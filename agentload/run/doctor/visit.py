"""What is there to say of a server and this machine, from the first look to the last line?

The machine is looked at first, whatever becomes of the server. What the server does not allow to be asked is left out
after the one line that says why. Nothing takes longer than it is given; a launched server may take its time to load.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import anyio

from agentload import folders
from agentload.agents.chat import NO_KEY, OpenAITransport, list_models
from agentload.artifacts import rundir
from agentload.clock import SystemClock
from agentload.core.ports import Clock
from agentload.core.records import Completion
from agentload.errors import AgentloadError, EndpointError, InputError
from agentload.run.doctor import answers, ask_http, look_machine, servers
from agentload.run.doctor.ask_model import EOS_TOKENS, Asker
from agentload.run.doctor.facts import LogSays, ServerSays
from agentload.run.doctor.finding import Finding, Level
from agentload.run.doctor.look_log import OwnedLog, SilentLog
from agentload.run.interrupt import first_of_ours
from agentload.run.scenario import Scenario
from agentload.run.serving import Session, listed_models, serve, while_it_runs
from agentload.run.twinned import TwinWorld
from agentload.run.world import Line, RunClock
from agentload.serverlogs import formats
from agentload.servers.attach import AttachedLog
from agentload.servers.here import is_here
from agentload.servers.profiles import UNKNOWN, profile_for
from agentload.servers.watchdog import Watchdog

_SILENT_S: Final = 1.0
_STEP_S: Final = 10.0  # of a question that is none to the model
_ANSWER_TOKENS: Final = 512  # where a scenario has no limits


@dataclass(frozen=True, slots=True)
class Visit:
    """What is visited."""

    scenario: Scenario  # resolved
    why: str  # this server
    out: Path
    env: Mapping[str, str]
    timeout_s: float  # of all questions to a server that is ready
    say: Callable[[str], None]

    @property
    def key(self) -> str | None:
        """The bearer token, where there is one."""
        return self.env.get("OPENAI_API_KEY") or None


@dataclass(frozen=True, slots=True)
class Report:
    """All that was found."""

    server: list[Finding]
    machine: list[Finding]
    elsewhere: str | None = None  # the host of a server that is not on this machine

    @property
    def wasted(self) -> bool:
        """Whether a night would be wasted."""
        return any(one.level is Level.FAIL for one in (*self.server, *self.machine))


class _NoEvents:
    """What happens here is no run."""

    def emit(self, kind: str, t_ns: int, **fields: Any) -> None:
        """Write nothing down."""


async def report(visit: Visit) -> Report:
    """Look at everything: at the machine first, while no server of ours keeps it busy."""
    machine = await look_machine.look(visit.scenario, visit.out, visit.env)
    kind, base_url = visit.scenario.server.kind, visit.scenario.server.base_url
    elsewhere = None if base_url is None or is_here(base_url) else urlsplit(base_url).hostname
    look = {"endpoint": _endpoint, "twin": _twin}.get(kind, _owned)
    try:
        return Report(await look(visit), machine, elsewhere)
    except AgentloadError as error:
        return Report([_no_server(error)], machine, elsewhere)
    except BaseExceptionGroup as group:
        ours = first_of_ours(group)
        if ours is None:
            raise
        return Report([_no_server(ours)], machine, elsewhere)


def _no_server(error: AgentloadError) -> Finding:
    return Finding("endpoint", Level.FAIL, str(error), "start the same command by hand, and read what it says")


# ---- which server ---------------------------------------------------------------------------------------------------


async def _endpoint(visit: Visit) -> list[Finding]:
    server, clock = visit.scenario.server, SystemClock()
    assert server.base_url is not None
    base_url = server.base_url.rstrip("/")
    step_s = min(visit.timeout_s, _STEP_S)
    models: list[str] = []
    with anyio.move_on_after(2 * step_s):  # the other limit is of each read
        try:
            models = await list_models(base_url, clock, api_key=visit.key or NO_KEY, timeout_s=step_s)
        except EndpointError as error:
            return [Finding("endpoint", Level.FAIL, str(error), _what_helps(str(error), base_url))]
    if not models:
        slow = f"{base_url}/models: its answer had not ended after {2 * step_s:g} s"
        return [Finding("endpoint", Level.FAIL, slow, _what_helps("stall", base_url))]
    model = server.model or models[0]
    if model not in models:
        listed = f"{base_url}/models lists {listed_models(models)}"
        return [Finding("endpoint", Level.FAIL, f"model {model!r} is not there: {listed}", f"--model {models[0]}")]
    found = [
        Finding(
            "endpoint", Level.OK, f"{base_url}, model {model}" + (f", one of {len(models)}" if len(models) > 1 else "")
        )
    ]
    attached = AttachedLog(Path(server.log)) if server.log is not None else None
    log, log_format = None, server.log_format
    if attached is not None:
        log_format = log_format or _detected(attached.path)
        log = SilentLog(attached, log_format)
        await log.be_silent(clock, _SILENT_S)
    known = profile_for(server.software, (), log_format)
    says = await ask_http.ask(
        base_url,
        model,
        clock,
        api_key=visit.key,
        software=None if known is UNKNOWN else known.name,
        by="as it was named" if server.software is not None else "by its log",
    )
    async with OpenAITransport(base_url, model, clock, api_key=visit.key or NO_KEY) as transport:
        asker = _asker(visit, transport, clock)
        settle = None if log is None else partial(log.settle, asker.answers, clock)
        return found + await _server(visit, says, asker, settle)


async def _owned(visit: Visit) -> list[Finding]:
    """One that is started for the visit: what it writes goes into a folder that is removed."""
    scenario, clock = visit.scenario, SystemClock()
    with Watchdog(visit.env) as watchdog, folders.temporary("agentload-doctor-") as folder:
        watchdog.remove_on_death(folder)
        run = rundir.create_at(folder / "doctor")
        session = _session(visit, run, clock, watchdog)
        async with serve(scenario.server, visit.why, scenario.at_once, session) as served, while_it_runs(served):
            found = [Finding("endpoint", Level.OK, f"{served.base_url}, model {served.model}: {visit.why}")]
            software = served.facts.software if served.facts is not None else scenario.server.software
            says = await ask_http.ask(
                served.base_url, served.model, clock, api_key=visit.key, software=software, by="as it was started"
            )
            log = OwnedLog(run.server_log, run.server_times, served.watch.log_format if served.watch else None)
            async with OpenAITransport(served.base_url, served.model, clock, api_key=served.api_key) as transport:
                asker = _asker(visit, transport, clock)
                return found + await _server(visit, says, asker, partial(log.settle, asker.answers, clock))


async def _twin(visit: Visit) -> list[Finding]:
    """Virtual time: nothing of it waits."""
    world = TwinWorld(visit.scenario)
    with folders.temporary("agentload-doctor-") as folder:
        run = rundir.create_at(folder / "doctor")
        async with world.connect(visit.why, _session(visit, run, world.clock)) as (served, line):
            asker = _asker(visit, line, world.clock, partial(world.turn, 0))
            found = [Finding("endpoint", Level.OK, f"{served.base_url}, model {served.model}: {visit.why}")]
            told = served.simulated or {}
            options = told.get("options", {})
            says = ServerSays(
                software="twin",
                by="--server twin",
                simulated=True,
                slots=options.get("batched_session"),
                slots_by="its options",
                context_tokens=options.get("ctx"),
                context_by="its options",
            )
            log = OwnedLog(run.server_log, run.server_times, "ds4")
            return found + await _server(visit, says, asker, partial(log.settle, asker.answers, SystemClock()))


def _session(visit: Visit, run: rundir.RunDir, clock: RunClock, watchdog: Watchdog | None = None) -> Session:
    return Session(run, clock, _NoEvents(), visit.env, visit.say, clock.describe, watchdog)


def _detected(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return formats.detect(file.read(formats.HEAD_BYTES))
    except OSError as error:
        raise InputError(f"--server-log: {path} cannot be read: {error.strerror}") from error


def _what_helps(error: str, base_url: str) -> str:
    """What to do about an endpoint that gave no list of models."""
    if "did you mean" in error:
        return f"--base-url {base_url}/v1"
    if "connection failed" in error:
        return "start the server, or correct --base-url (host, port, http or https)"
    if "HTTP 401" in error or "HTTP 403" in error:
        return "set OPENAI_API_KEY to the key that the server was started with"
    if "HTTP 5" in error or "stall" in error:
        return "it still loads its model, or is stuck: see its log, and try again"
    return "this is no OpenAI-compatible server: correct the host, port and path of --base-url"


# ---- the server's lines -------------------------------------------------------------------------------------------


def _asker(
    visit: Visit,
    transport: Line,
    clock: Clock,
    turn: Callable[[], AbstractAsyncContextManager[None]] | None = None,
) -> Asker:
    now_ns = clock.now_ns()
    scenario = visit.scenario
    return Asker(
        transport,
        clock,
        now_ns + int(visit.timeout_s * 1e9),
        str(now_ns),
        temperature=scenario.temperature,
        extra=dict(scenario.request),
        turn=turn,
    )


async def _server(
    visit: Visit, says: ServerSays, asker: Asker, settle: Callable[[], Awaitable[LogSays]] | None
) -> list[Finding]:
    """All that requests, API and log show."""
    scenario, software = visit.scenario, says.software
    first, again = await asker.same_prompt_twice()
    tools: Finding | None = None
    onward: Completion | None = None
    pairs: tuple[Completion, Completion] | None = None
    if first.error is None:
        tools, onward = await _tools(scenario, asker, software)  # before what matters less, should time be short
        pairs = await asker.with_and_without_eos()
    log: LogSays | None = None
    gone: Finding | None = None
    try:
        log = await settle() if settle is not None else None
    except InputError as error:
        gone = Finding("log", Level.FAIL, str(error), "keep the log in place for the night: no rotation, no truncation")
    log_tells = log is not None and log.counts and log.found > 0
    found = [servers.software(says), answers.chat(first)]
    if pairs is not None and tools is not None:
        found += [
            answers.usage(first, software, log_tells=log_tells),
            answers.cached(first, again, software, log_tells=log_tells, onward=onward),
            answers.streaming(first, again, *reversed(pairs)),
            answers.speed(first),
            tools,
            answers.ignore_eos(*pairs, EOS_TOKENS),
        ]
    found.append(gone or servers.log_format(log))
    if log is not None:
        found += [servers.log_follows(log), servers.markers(log)]
    needed = scenario.limits.context_tokens if scenario.limits is not None else 0
    found += [servers.clock(log, says), servers.busy(says, log), servers.slots(says, log, scenario.at_once)]
    return [*found, servers.context(says, log, needed)]


async def _tools(scenario: Scenario, asker: Asker, software: str | None) -> tuple[Finding, Completion | None]:
    """Whether tool calls work, and the second turn after one."""
    most = scenario.limits.answer_tokens if scenario.limits is not None else _ANSWER_TOKENS
    if scenario.protocol == "json":
        return answers.json_actions(*await asker.json_action(most)), None
    known_paths = bool(scenario.known_paths)
    tries = await asker.tool_call(most, known_paths=known_paths)
    found = answers.tool_calls(tries, ("read",), software)
    _, last = tries[-1]
    if last.error is not None:
        return found, None
    return found, await asker.second_turn(last, known_paths=known_paths)
