"""Are the sums that somebody who waits is shown right, and is it known which requests the server is at?"""

import pytest

from agentload.core.records import ChatCall, Completion, Usage
from agentload.run.so_far import SoFar, Watched

S = 1_000_000_000


def done(
    name: str, sent: int, first: int | None, end: int, usage: Usage | None, error: str | None = None
) -> Completion:
    at = None if first is None else first * S
    return Completion(name, name, 0, sent * S, at, at, end * S, 200, usage=usage, error=error)


def test_sums_are_of_what_has_ended_and_of_what_the_answers_say() -> None:
    so_far = SoFar()
    assert (so_far.new_prefill_tokens, so_far.decode_tok_s, so_far.overlap) == (None, None, None)
    so_far.take(done("a0", 0, 10, 30, Usage(1_000, 40, 200)))
    so_far.take(done("a1", 5, 25, 35, Usage(500, 60, None)))  # cached tokens are not told: not 0
    so_far.take(done("a2", 0, None, 3, None, "HTTP 500"))
    assert (so_far.answered, so_far.failed) == (2, 1)
    assert so_far.new_prefill_tokens == 800
    # Decode: [10, 30) and [25, 35) are 25 s together, for 39 and 59 tokens after the first ones.
    assert so_far.decode_tok_s == pytest.approx(98 / 25)
    # Waiting: [0, 10) and [5, 25) are 25 s together; in [10, 25) the other one decodes: 15 s.
    assert so_far.overlap == pytest.approx(0.6)


def test_an_answer_without_usage_has_no_part_in_the_decode_speed() -> None:
    so_far = SoFar()
    so_far.take(done("a0", 0, 1, 11, None))
    assert so_far.decode_tok_s is None
    so_far.take(done("a0", 20, 21, 31, Usage(10, 50, 0)))
    assert so_far.decode_tok_s == pytest.approx(4.9)  # 49 tokens in the 10 s after the first one


class Clock:
    def now_ns(self) -> int:
        return 7

    async def sleep_until(self, t_ns: int) -> None:
        raise AssertionError


class Line:
    """A way to a server at which those named decode."""

    def __init__(self) -> None:
        self.decoding: set[str] = set()
        self.during: list[frozenset[str] | None] = []

    def decodes(self, request: str) -> bool:
        return request in self.decoding

    def tokens(self, request: str) -> int:
        return 3 if request in self.decoding else 0

    async def complete(self, call: ChatCall) -> Completion:
        return done(call.request, 0, 1, 2, Usage(10, 1, 0))


@pytest.mark.anyio
async def test_a_request_that_has_ended_is_summed_and_no_longer_open() -> None:
    so_far, line = SoFar(), Line()
    watched = Watched(line, Clock(), so_far)
    await watched.complete(ChatCall("a0-t0", "a0", 0, ()))
    assert so_far.answered == 1
    assert watched.open == {}


def test_of_those_without_a_token_the_log_tells_how_many_have_begun() -> None:
    line = Line()
    watched = Watched(line, Clock(), SoFar())
    watched.open = {"a0-t1": 1, "a1-t1": 2, "a2-t1": 3, "a3-t1": 4}
    line.decoding = {"a1-t1"}
    assert watched.prefilling(None) is None
    assert watched.prefilling(3) == frozenset({"a0-t1", "a2-t1"})  # one of the three decodes; a3 came last: it waits
    assert watched.prefilling(1) == frozenset()
    assert watched.prefilling(9) == frozenset({"a0-t1", "a2-t1", "a3-t1"})
    assert watched.tokens("a1-t1") == 3
