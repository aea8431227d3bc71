"""Where do the agents of a run live: in this machine's time with a real server, or in virtual time with a twin?

The runner and the agents are the same in both; what is not is asked of a `World`.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

from agentload.agents.chat import OpenAITransport
from agentload.agents.together import Job, at_once
from agentload.artifacts import rundir
from agentload.artifacts.rundir import RunDir
from agentload.clock import SystemClock
from agentload.core.ports import Clock, Tool, Transport
from agentload.run.scenario import Scenario
from agentload.run.serving import Served, Session, serve
from agentload.run.waiting import said_if_slow_to_leave


class Line(Transport, Protocol):
    """The agents' way to the server, which can be looked at."""

    def decodes(self, request: str) -> bool:
        """Whether the answer to `request` is coming in; False when it is not open."""
        ...

    def tokens(self, request: str) -> int:
        """How many tokens of the answer to `request` have come, as far as can be seen; 0 when it is not open."""
        ...


class RunClock(Clock, Protocol):
    """A clock that a manifest can tell of."""

    def describe(self) -> dict[str, Any]:
        """Return what a manifest says of it."""
        ...


class World(Protocol):
    """What is real, or simulated, of a run."""

    progress_slower: int  # a line of progress is said so many times less often than was asked for

    @property
    def clock(self) -> RunClock:
        """The clock of all that happens in the run."""
        ...

    def directory(self, out: Path, exactly: Path | None = None) -> RunDir:
        """Make the run directory in the folder `out`, or `exactly` there.

        Raises:
            ArtifactError: it cannot be made, or there is one of its name.
            InputError: the name in `exactly` is not a plain file name.
        """
        ...

    def connect(self, why: str, session: Session) -> AbstractAsyncContextManager[tuple[Served, Line]]:
        """Have the server answer, and give the way to it; `why` is why it is this one."""
        ...

    def turn(self, number: int, of: int = 1) -> AbstractAsyncContextManager[None]:
        """Let the block be the work of the agent of that number, one `of` so many."""
        ...

    def tools(self, agent: str, tools: list[Tool]) -> list[Tool]:
        """Return the tools as the agent is to have them."""
        ...

    async def together(self, jobs: Sequence[Job]) -> None:
        """Run jobs of one agent at once, and return when all have ended."""
        ...


class RealWorld:
    """This machine's clock, and a server that answers over HTTP."""

    progress_slower = 1

    def __init__(self, scenario: Scenario, clock: RunClock | None = None) -> None:
        """`scenario` is resolved; `clock` is this machine's where none is given."""
        self._scenario = scenario
        self.clock: RunClock = clock if clock is not None else SystemClock()

    def directory(self, out: Path, exactly: Path | None = None) -> RunDir:
        """See `World`: its name has the time in it, and something that no other run has."""
        if exactly is not None:
            return rundir.create_at(exactly)
        return rundir.create(out, self._scenario.name, stamp(self.clock.now_ns()), uuid4().hex[:4])

    @asynccontextmanager
    async def connect(self, why: str, session: Session) -> AsyncIterator[tuple[Served, Line]]:
        """See `World`."""
        serving = serve(self._scenario.server, why, self._scenario.at_once, session)
        async with (
            said_if_slow_to_leave(serving, session.clock, session.say, "stopping the server") as served,
            OpenAITransport(served.base_url, served.model, session.clock, api_key=served.api_key) as transport,
        ):
            yield served, transport

    def turn(self, number: int, of: int = 1) -> AbstractAsyncContextManager[None]:  # noqa: ARG002 - the protocol
        """See `World`: all work at once."""
        return nullcontext()

    def tools(self, agent: str, tools: list[Tool]) -> list[Tool]:  # noqa: ARG002 - the protocol
        """See `World`: as they are."""
        return tools

    async def together(self, jobs: Sequence[Job]) -> None:
        """See `World`."""
        await at_once(jobs)


def stamp(at_ns: int) -> str:
    """Return a time as a run directory's name begins with it."""
    return datetime.fromtimestamp(at_ns / 1e9, UTC).strftime("%Y-%m-%dT%H%M%SZ")
