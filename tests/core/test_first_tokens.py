"""Is the wait for a first token the one that the client's stamps tell?"""

import pytest

from agentload.core.first_tokens import FirstTokens, first_tokens, tokens_of_first_piece
from tests.core.test_accounting import a_request


def test_the_median_and_the_worst_wait_are_told_with_the_request_that_waited() -> None:
    waits = ((0, 40), (100, 110), (200, 230), (300, 320))  # 40, 10, 30, 20
    requests = [a_request(f"q{i}", t_sent=sent, t_first_token=first) for i, (sent, first) in enumerate(waits)]
    assert first_tokens(requests) == FirstTokens(4, 25, 40, "q0")
    assert first_tokens(requests[1:]) == FirstTokens(3, 20, 30, "q2")


def test_requests_without_a_first_token_or_of_nobody_of_ours_do_not_count() -> None:
    silent = [a_request("q0", t_sent=5), a_request("log boot 0 slot 0"), a_request("q2", t_first_token=7)]
    assert first_tokens(silent) is None
    assert first_tokens([*silent, a_request("q3", t_sent=1, t_first_token=4)]) == FirstTokens(1, 3, 3, "q3")


@pytest.mark.parametrize(
    ("stamps_ns", "tokens", "first"),
    [
        ((10, 20, 30, 40), 4, 1),  # each by itself
        ((10, 20, 30, 40), 12, 3),  # three in each piece
        ((10, 10, 30, 40), 12, 6),  # two pieces came at once
        ((10, 20, 30, 40), 3, 1),  # a token in two pieces
        ((10,), 50, 50),  # all at once: none of them came later
        ((10, 20), 0, 1),
        ((), 50, 1),  # no stamps were kept
        ((10, 20), None, 1),
    ],
    ids=["each", "threes", "two-at-once", "halves", "one-piece", "none", "no-stamps", "not-told"],
)
def test_what_came_in_the_first_piece_is_not_of_the_time_after_it(
    stamps_ns: tuple[int, ...], tokens: int | None, first: int
) -> None:
    assert tokens_of_first_piece(stamps_ns, tokens) == first
