"""How long did requests wait for their first token, and which tokens came with it?"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from agentload.core.records import Request


@dataclass(frozen=True, slots=True)
class FirstTokens:
    """How long requests waited for their first token, by the client's clock: network, queue and prefill."""

    requests: int  # those that got one
    median_ns: float
    worst_ns: int
    worst_request: str


def first_tokens(requests: Iterable[Request]) -> FirstTokens | None:
    """Return the median and the worst time to first token; None where no request of ours got one."""
    waits = sorted(
        (r.t_first_token - r.t_sent, r.request)
        for r in requests
        if r.t_sent is not None and r.t_first_token is not None
    )
    if not waits:
        return None
    worst_ns, worst = waits[-1]
    return FirstTokens(len(waits), median(wait for wait, _ in waits), worst_ns, worst)


def tokens_of_first_piece(stamps_ns: Sequence[int], tokens: int | None) -> int:
    """Return how many tokens of an answer were there when its first one was: no time from there on is theirs.

    The first one by itself where a server sends each as it comes. Where an answer came in fewer pieces than it has
    tokens, each piece stands for its part of them, as a decoder's in `core.probe.Turn`: of all that came in one piece
    nothing is known to have been decoded after that.

    Args:
        stamps_ns: of each piece that carries a token, in order; none where they were not kept.
        tokens: by the server's count; None: not told.
    """
    if tokens is None or not stamps_ns:
        return 1
    return max(1, round(tokens * bisect_right(stamps_ns, stamps_ns[0]) / len(stamps_ns)))
