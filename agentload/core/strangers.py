"""Which requests of the log did none of our agents send, and of how many can that not be said?

A request of ours that broke off (a signal, the end of its agent's time) is joined only with what it alone fits. Where
several broke off at work, each may be each of theirs in the log, and none is joined: of 4 agents whose time was over,
all 4. Such a one is no stranger for that. So a logged request without a whole answer counts as perhaps ours while a
request of ours is left for it that broke off, was sent in the same segment before it began, and has no other trace in
the log. So does one that ended well when that request of ours had broken off; before, it is a stranger's.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from agentload.core import pairing
from agentload.core.evidence import may_be
from agentload.core.records import Completion, Doubt, LoggedRequest, Match, Request, Segment


@dataclass(frozen=True, slots=True)
class Strangers:
    """What is said of the requests that the log alone has."""

    perhaps_ours: dict[str | None, int]  # by segment: at most so many of its server-only rows are ours
    doubts: tuple[Doubt, ...]


def of(
    rows: Sequence[Request],
    segments: Sequence[Segment],
    broken: Iterable[Completion],
    unjoined: Mapping[str, LoggedRequest],
    error_ns: int | None,
) -> Strangers:
    """Tell the strangers among `rows` from those that may be ours.

    Args:
        rows: all, in their order.
        segments: the run's; where there are some, rows outside them are nobody's concern.
        broken: requests of ours without an answer that are joined with nothing.
        unjoined: by the names of their rows, the logged requests that are joined with none of ours.
        error_ns: of the log's clock beside the client's; None: it cannot be told who came first, so none is ours.
    """
    inside = [row for row in rows if row.t_sent is None and (row.segment is not None or not segments)]
    segment_of = {row.request: row.segment for row in rows if row.match is Match.CLIENT_ONLY}
    ours: dict[str | None, list[Completion]] = defaultdict(list)
    for one in broken:
        ours[segment_of[one.request]].append(one)
    theirs: dict[str | None, list[Request]] = defaultdict(list)
    for row in inside if error_ns is not None else ():
        if ours[row.segment]:
            theirs[row.segment].append(row)
    perhaps: dict[str | None, int] = {}
    may, explained, without = set(), 0, 0
    for segment, open_rows in theirs.items():
        fits = [_fits(one, open_rows, unjoined, error_ns or 0) for one in ours[segment]]
        alone = [[at for at in found if open_rows[at].match is Match.SERVER_ONLY] for found in fits]
        perhaps[segment] = _most(alone, len(open_rows))
        explained += _most(fits, len(open_rows))
        may |= {open_rows[at].request for found in fits for at in found}
        without += sum(bool(found) for found in fits)
    sure = [row for row in inside if row.request not in may]
    doubts = [_foreign(len(inside) - explained, sure, explained)] if len(inside) > explained else []
    if explained:
        doubts.append(_perhaps(explained, without, next(row.request for row in inside if row.request in may)))
    return Strangers({segment: count for segment, count in perhaps.items() if count}, tuple(doubts))


def _fits(sent: Completion, rows: Sequence[Request], unjoined: Mapping[str, LoggedRequest], error_ns: int) -> list[int]:
    return [at for at, row in enumerate(rows) if may_be(sent, unjoined[row.request], error_ns)]


def _most(fits: pairing.Fits, rights: int) -> int:
    """How many can be joined at the same time."""
    found = pairing.pair_up(fits, rights)
    return len(found.certain) + sum(len(group.pairs) for group in found.groups)


def _foreign(count: int, sure: Sequence[Request], perhaps: int) -> Doubt:
    """`count` of the rows are not ours: the `sure` ones, and of the others all but `perhaps`."""
    said = (
        f"{_requests(count)} in the log {_are(count)} not ours, the first is {sure[0].request}"
        if sure
        else f"{count} of {count + perhaps} requests in the log {_are(count)} not ours: only {perhaps} can be"
    )
    return Doubt("foreign-requests", said, "measure on a server that nobody else uses")


def _requests(count: int) -> str:
    return f"{count} request{'s' * (count != 1)}"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _perhaps(count: int, broken: int, first: str) -> Doubt:
    have = "requests of ours have" if broken > 1 else "request of ours has"
    return Doubt(
        "perhaps-ours",
        f"{_requests(count)} in the log {_are(count)} perhaps ours ({first}{' first' * (count > 1)}): "
        f"{broken} {have} neither an answer nor another trace there, and which is which it does not tell",
        "they count for their segment and for no agent; measure on a server that nobody else uses",
    )
