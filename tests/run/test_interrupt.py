"""Does a signal end a block quietly, once, and is the first error of ours found among several?"""

import os
import signal

import anyio
import anyio.lowlevel
import pytest

from agentload.errors import InputError, ServerError
from agentload.run.interrupt import first_of_ours, interruptible

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_cancels_the_block_and_what_is_shielded_in_it_is_still_done(number: int) -> None:
    done = []
    async with interruptible() as interrupted:
        try:
            await anyio.lowlevel.checkpoint()  # the listener has started
            await anyio.lowlevel.checkpoint()
            os.kill(os.getpid(), number)
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
                done.append("end marker")
    assert interrupted.is_set()
    assert done == ["end marker"]


async def test_without_a_signal_the_block_just_ends_and_the_signals_are_pythons_again() -> None:
    before = signal.getsignal(signal.SIGINT)
    async with interruptible() as interrupted:
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
    assert not interrupted.is_set()
    assert signal.getsignal(signal.SIGINT) is before


async def test_an_error_in_the_block_comes_out_in_a_group_and_the_first_of_ours_is_found() -> None:
    with pytest.raises(BaseExceptionGroup) as caught:
        async with interruptible():
            raise ServerError("the server exited with 1")
    found = first_of_ours(caught.value)
    assert str(found) == "the server exited with 1"


async def test_errors_of_ours_are_found_at_any_depth_and_others_are_not_ours() -> None:
    ours = InputError("x")
    deep = BaseExceptionGroup("a", [ValueError(), BaseExceptionGroup("b", [KeyError(), ours])])
    assert first_of_ours(deep) is ours
    assert first_of_ours(BaseExceptionGroup("a", [ValueError()])) is None
