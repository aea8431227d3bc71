"""Whose turn is it when time is virtual, and what time is it then?

Members (the agents, and nobody else) take part in virtual time. While one of them works (a tool in a thread, Python
code) time stands. When all of them wait, for a time or for an answer, time goes to whatever comes first: a member's
time, or what the source (the simulated server) has to do next, which goes first at the same instant. Then one member is
woken, alone, and works until it waits again; of several that are due, the one with the lowest number. So the order of
all that happens follows from the times, and neither from this machine's speed nor from how its tasks are scheduled.

A member may let several jobs of its own run at once (the calls of one answer): each is a member beside it then, woken
after it and in the order of the jobs, and it waits for them to end.

There are two other kinds of sleepers. An alarm sleeps in a task that a member started (a deadline beside a tool): it is
woken in its turn, but time does not wait for it. A bystander (a line of progress now and then) is woken when its time
has passed, and must change nothing.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import anyio.lowlevel

from agentload.errors import ServerError

_STEPS: Final = 256  # of the source, until the event loop gets to see a signal
_ROUNDS: Final = 3  # of the event loop, until the failure of a driver has cancelled whoever it is to cancel


class Source(Protocol):
    """Something that happens by itself in virtual time."""

    def next_ns(self) -> int | None:
        """When something happens next; None: never, unless a member does something."""
        ...

    def advance(self, to_ns: int) -> None:
        """Let it happen, up to and with `to_ns`."""
        ...


@dataclass(slots=True, eq=False)
class _Wait:
    due_ns: int | None  # None: until something comes
    future: asyncio.Future[None]

    def wake(self) -> None:
        if not self.future.done():
            self.future.set_result(None)


@dataclass(slots=True, eq=False)
class _Member:
    number: tuple[int, ...]  # of a member's job its own number and the job's place
    task: asyncio.Task[Any] | None  # None: it is about to begin
    wait: _Wait | None = None  # None: it works
    alarms: list[_Wait] = field(default_factory=list)

    @property
    def works(self) -> bool:
        """A wait that is over, or cancelled, counts as work: its task is about to go on."""
        return self.wait is None or self.wait.future.done()


# The member in whose task we are, or in a task that it started.
_MEMBER: Final[ContextVar[_Member | None]] = ContextVar("agentload.twin.virtual_clock.MEMBER", default=None)


class Gate:
    """What a member waits at until something comes for it."""

    __slots__ = ("_opened", "_wait", "open_ns")

    def __init__(self, opened: Callable[[], None]) -> None:
        """`opened` is told when a wait has got its time."""
        self._opened = opened
        self._wait: _Wait | None = None
        self.open_ns: int | None = None

    def open(self, at_ns: int) -> None:
        """Say that it comes at `at_ns`; what is said first counts."""
        if self.open_ns is None:
            self.open_ns = at_ns
            if self._wait is not None:
                self.bound(self._wait)
                self._opened()

    def bound(self, wait: _Wait) -> None:
        """Let `wait` end when it comes, if that is sooner; for the clock."""
        self._wait = wait
        if self.open_ns is not None:
            wait.due_ns = self.open_ns if wait.due_ns is None else min(wait.due_ns, self.open_ns)


class VirtualClock:
    """core.ports.Clock of virtual time; belongs to one asyncio event loop."""

    def __init__(self, start_ns: int) -> None:
        self._start_ns = self._now = start_ns
        self._members: dict[tuple[int, ...], _Member] = {}
        self._joined = self._expected = 0
        self._bystanders: list[_Wait] = []
        self._changed = asyncio.Event()  # somebody began to wait, or left
        self._sooner = False  # a gate was opened
        self._over = False

    # ---- for who takes part ----------------------------------------------------------------------------------------

    def now_ns(self) -> int:
        """Return virtual time."""
        return self._now

    def describe(self) -> dict[str, int]:
        """Return what a manifest says of this clock, all in ns: it has no anchor but its own beginning."""
        return {
            "anchor_unix_ns": self._start_ns,
            "anchor_monotonic_ns": 0,
            "anchor_error_ns": 0,
            "wall_drift_ns": 0,
        }

    async def sleep_until(self, t_ns: int) -> None:
        """Return at `t_ns`. A member for whom that has passed lets those have their turn first that are due."""
        member, wait = _MEMBER.get(), self._wait(max(t_ns, self._now))
        if member is not None and member.task is asyncio.current_task():
            await self._stand(member, wait)
            return
        sleepers = self._bystanders if member is None else member.alarms
        sleepers.append(wait)
        try:
            await wait.future
        finally:
            sleepers.remove(wait)

    def gate(self) -> Gate:
        """Return a gate, closed."""
        return Gate(self._note)

    async def wait_at(self, gate: Gate, until_ns: int | None) -> bool:
        """Wait until what the member is waiting for comes, at most until `until_ns`; return whether it came by then.

        Raises:
            ValueError: this is no member's task.
        """
        member, wait = _MEMBER.get(), self._wait(None if until_ns is None else max(until_ns, self._now))
        if member is None or member.task is not asyncio.current_task():
            raise ValueError("expected the task of a member: only members wait at gates")
        gate.bound(wait)
        await self._stand(member, wait)
        return gate.open_ns is not None and gate.open_ns <= self._now

    @asynccontextmanager
    async def taking_part(self, number: int, of: int = 1) -> AsyncIterator[None]:
        """Be member `number` in the block; time stands until `of` of them are there, and then they go in turn.

        Raises:
            ValueError: there is a member of that number.
        """
        task = asyncio.current_task()
        assert task is not None
        if (number,) in self._members:
            raise ValueError(f"expected a number that no member has, {number} is taken")
        if not self._members:
            self._joined, self._expected = 0, of
        self._members[number,] = _Member((number,), task)
        self._joined += 1
        token = _MEMBER.set(self._members[number,])
        try:
            await self.sleep_until(self._now)
            yield
        finally:
            _MEMBER.reset(token)
            del self._members[number,]
            self._changed.set()

    async def together(self, jobs: Sequence[Callable[[], Coroutine[Any, Any, None]]]) -> None:
        """Let a member's jobs run at once, as members beside it, and wait until all have ended.

        Raises:
            ValueError: this is no member's task.
        """
        member, gate = _MEMBER.get(), self.gate()
        if member is None or member.task is not asyncio.current_task():
            raise ValueError("expected the task of a member: only members have jobs")
        if not jobs:
            return
        beside = [_Member((*member.number, place), None) for place in range(len(jobs))]
        self._members.update((one.number, one) for one in beside)  # from now on time stands until each has begun
        left = len(jobs)

        async def run(one: _Member, job: Callable[[], Coroutine[Any, Any, None]]) -> None:
            nonlocal left
            one.task = asyncio.current_task()
            token = _MEMBER.set(one)
            try:
                await self.sleep_until(self._now)
                await job()
            finally:
                _MEMBER.reset(token)
            # One that failed stays, at work, until all have gone: time stands meanwhile.
            del self._members[one.number]
            left -= 1
            if left == 0:
                gate.open(self._now)
            self._changed.set()

        try:
            async with anyio.create_task_group() as group:
                for one, job in zip(beside, jobs, strict=True):
                    group.start_soon(run, one, job)
                await self.wait_at(gate, None)
        except BaseExceptionGroup as errors:
            if len(errors.exceptions) > 1:
                raise
            raise errors.exceptions[0] from None
        finally:
            for one in beside:
                self._members.pop(one.number, None)
            self._changed.set()

    def _wait(self, due_ns: int | None) -> _Wait:
        return _Wait(due_ns, asyncio.get_running_loop().create_future())

    async def _stand(self, member: _Member, wait: _Wait) -> None:
        if not self._over:
            member.wait = wait
            self._changed.set()
            try:
                await wait.future
            finally:
                member.wait = None
        if self._over:
            for _ in range(_ROUNDS):
                await anyio.lowlevel.checkpoint()
            self._now = max(self._now, wait.due_ns or 0)
        # A wait that has just ended is no place where anyio cancels: woken again and again, a member would not notice.
        await anyio.lowlevel.checkpoint_if_cancelled()

    def _note(self) -> None:
        self._sooner = True

    # ---- for who lets time pass ------------------------------------------------------------------------------------

    async def drive(self, source: Source) -> None:
        """Let time pass, until cancelled. Afterwards no member waits for anything: time is what it wants it to be.

        Raises:
            ServerError: all members wait for something to come, and nothing is left to happen.
        """
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                await asyncio.sleep(0)  # the deadline beside a tool may be about to be set
                while self._members and self._joined >= self._expected and not self._works():
                    await self._step(source)
        finally:
            self._over = True
            for member in self._members.values():
                if member.wait is not None:
                    member.wait.wake()

    def advance(self, source: Source, to_ns: int) -> None:
        """Let time pass to `to_ns` where there are no members yet, or no longer."""
        while (due := source.next_ns()) is not None and due <= to_ns:
            source.advance(due)
        self._now = max(self._now, to_ns)

    def _works(self) -> bool:
        return any(member.works for member in self._members.values())

    async def _step(self, source: Source) -> None:
        """Let the source go on to where somebody is due, and wake that one."""
        first = self._first()
        for _ in range(_STEPS):
            due = source.next_ns()
            if due is None or (first is not None and due > first[0]):
                break
            self._now = max(self._now, due)
            source.advance(due)
            if self._sooner:
                self._sooner = False
                first = self._first()
        else:
            await asyncio.sleep(0)
            return
        if first is None:
            raise ServerError(
                f"the simulated server has nothing left to do, and {len(self._members)} agents wait for it"
            )
        self._now = max(self._now, first[0])
        first[1].wake()
        for one in self._bystanders:
            if one.due_ns is not None and one.due_ns <= self._now:
                one.wake()
        await asyncio.sleep(0)  # in which an alarm cancels what its member waits for

    def _first(self) -> tuple[int, _Wait] | None:
        """Return who is due first, and when; at the same time an alarm goes before its member: a deadline is one."""
        found: list[tuple[int, tuple[int, ...], int, _Wait]] = []
        for member in self._members.values():
            found += [
                (one.due_ns, member.number, 0, one)
                for one in member.alarms
                if one.due_ns is not None and not one.future.done()
            ]
            if member.wait is not None and member.wait.due_ns is not None:
                found.append((member.wait.due_ns, member.number, 1, member.wait))
        best = min(found, key=lambda one: one[:3], default=None)
        return None if best is None else (best[0], best[3])
