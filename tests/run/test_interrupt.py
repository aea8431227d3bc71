"""Does a signal end a block quietly, a second one hurry it, and is the first error of ours found among several?"""

import os
import signal

import anyio
import anyio.lowlevel
import pytest

from agentload.errors import InputError, ServerError
from agentload.run.interrupt import AT_ONCE, INTERRUPTED, first_leaf, first_of_ours, interruptible

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_cancels_the_block_and_what_is_shielded_in_it_is_still_done(number: int) -> None:
    done: list[str] = []
    said: list[str] = []
    async with interruptible(said.append) as interruption:
        try:
            os.kill(os.getpid(), number)
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
                done.append("end marker")
    assert (interruption.asked, interruption.hurried) == (True, False)
    assert (done, said) == (["end marker"], [INTERRUPTED])


async def test_a_second_signal_hurries_what_is_shielded_and_a_third_changes_nothing() -> None:
    said: list[str] = []
    hurried: list[str] = []
    async with interruptible(said.append) as interruption:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True) as wait:
                interruption.on_hurry(wait.cancel)
                interruption.on_hurry(lambda: hurried.append("killed"))
                os.kill(os.getpid(), signal.SIGINT)
                await anyio.sleep_forever()
            with anyio.CancelScope(shield=True):
                os.kill(os.getpid(), signal.SIGINT)
                await anyio.wait_all_tasks_blocked()
    assert (said, hurried) == ([INTERRUPTED, AT_ONCE], ["killed"])
    # Whoever comes too late is hurried at once.
    interruption.on_hurry(lambda: hurried.append("late"))
    assert hurried == ["killed", "late"]


async def test_without_a_signal_the_block_just_ends_and_the_signals_are_pythons_again() -> None:
    before = signal.getsignal(signal.SIGINT)
    said: list[str] = []
    async with interruptible(said.append) as interruption:
        await anyio.lowlevel.checkpoint()
        assert signal.getsignal(signal.SIGINT) is not before
    assert (interruption.asked, said) == (False, [])
    assert signal.getsignal(signal.SIGINT) is before


async def test_what_handled_the_signals_before_does_so_again_and_an_ignored_hangup_stays_ignored() -> None:
    def stop(number: int, frame: object) -> None:
        raise AssertionError((number, frame))

    before = signal.signal(signal.SIGTERM, stop), signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        async with interruptible(lambda _: None) as interruption:
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # as nohup has it
            os.kill(os.getpid(), signal.SIGTERM)
            await anyio.sleep_forever()
        assert interruption.asked
        assert signal.getsignal(signal.SIGTERM) is stop
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGHUP, before[1])


async def test_an_error_in_the_block_comes_out_as_itself() -> None:
    with pytest.raises(ServerError, match="the server exited with 1"):
        async with interruptible(lambda _: None):
            raise ServerError("the server exited with 1")


async def test_errors_of_ours_are_found_at_any_depth_and_others_are_not_ours() -> None:
    ours, other = InputError("x"), KeyError()
    deep = BaseExceptionGroup("a", [BaseExceptionGroup("b", [other, ours]), ValueError()])
    assert first_of_ours(deep) is ours
    assert first_of_ours(BaseExceptionGroup("a", [ValueError()])) is None
    assert first_leaf(deep) is other
    assert first_leaf(ours) is ours
