"""How does a run end early: at a signal, at a second one, and at the first error of several tasks?"""

import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio

from agentload.errors import AgentloadError

INTERRUPTED = "interrupted: stopping; again to stop at once"
AT_ONCE = "interrupted again: stopping at once"
_NOHUP = (signal.SIGHUP, signal.SIG_IGN)


def first_of_ours(group: BaseExceptionGroup[BaseException]) -> AgentloadError | None:
    """Return the first error of our own tree in a task group's errors; None when there is none."""
    for error in group.exceptions:
        if isinstance(error, AgentloadError):
            return error
        if isinstance(error, BaseExceptionGroup) and (found := first_of_ours(error)) is not None:
            return found
    return None


def first_leaf(error: BaseException) -> BaseException:
    """Return the first error in a group that is none itself; any other error as it is."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class Interruption:
    """What signals have asked for so far."""

    def __init__(self) -> None:
        self.asked = False  # to stop
        self.hurried = False  # to stop at once
        self._hurries: list[Callable[[], None]] = []

    def on_hurry(self, act: Callable[[], None]) -> None:
        """Have `act` called at the second signal; now, when it has come."""
        if self.hurried:
            act()
        else:
            self._hurries.append(act)

    def hurry(self) -> None:
        """The second signal."""
        self.hurried = True
        acts, self._hurries = self._hurries, []
        for act in acts:
            act()


@asynccontextmanager
async def interruptible(say: Callable[[str], None]) -> AsyncIterator[Interruption]:
    """Cancel the block, quietly, at the first SIGINT, SIGTERM or SIGHUP (a closed terminal); one line is said.

    At the second one, what `Interruption.on_hurry` was given is called. Further ones change nothing: what is left to do
    then is to write down how the run ended. A SIGHUP that is ignored (nohup) stays so. What handled SIGTERM and SIGHUP
    before does so again afterwards, where the event loop would leave the system's own.
    """
    found = Interruption()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    heard = [signal.SIGINT, *(number for number in before if (number, before[number]) != _NOHUP)]

    async def listen(scope: anyio.CancelScope) -> None:
        try:
            with anyio.open_signal_receiver(*heard) as signals:
                listening.set()
                async for _ in signals:
                    if not found.asked:
                        found.asked = True
                        scope.cancel()
                        say(INTERRUPTED)
                    elif not found.hurried:
                        found.hurry()
                        say(AT_ONCE)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    listening = anyio.Event()
    try:
        async with anyio.create_task_group() as group:
            with anyio.CancelScope() as scope:
                group.start_soon(listen, scope)
                await listening.wait()
                yield found
            group.cancel_scope.cancel()
    except BaseExceptionGroup as errors:  # those of the block, since the listener has none
        if len(errors.exceptions) > 1:
            raise
        raise errors.exceptions[0] from None
