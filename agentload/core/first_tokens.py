"""How long did requests wait for their first token?"""

from collections.abc import Iterable
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
