"""Which requests does a log show, where there is no client to join them with?

The rows that `attribution.attribute` gives without answers, in its order and with its groups, of a log of any size:
what is kept of each request is where it stands, and its row is made whenever it is asked for.
"""

from array import array
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from agentload.core.attribution import Attribution, Group, log_row
from agentload.core.evidence import WORK_TIMES, worked
from agentload.core.names import counted, log_name
from agentload.core.packed import mapped, values
from agentload.core.records import LogFacts, LoggedRequest, Match, Request

_Ints = npt.NDArray[np.int64]
_Column = npt.NDArray[Any]
_PREFILL_START: Final = WORK_TIMES.index("prefill_start")


def attribute(run: str, facts: LogFacts, segment_of: Callable[[int], str | None] = lambda _: None) -> Attribution:
    """Make a row of `run` of each request in the log; those that it does not tell apart are ambiguous.

    `segment_of` gives the segment of the requests of a server start.
    """
    requests = facts.requests
    boots, firsts, starts = array("i"), array("q"), array("q")
    unknown = bytearray()  # whether its prefill's start is
    members: dict[str, list[int]] = {}
    for index, (boot, group, *times) in enumerate(values(requests, "boot", "group", *WORK_TIMES)):
        start = times[_PREFILL_START]
        boots.append(boot)
        firsts.append(min(worked(times), default=0))
        starts.append(start or 0)
        unknown.append(start is None)
        if group is not None:
            members.setdefault(group, []).append(index)
    names = values(requests, "boot", "label")
    logged = _sorted(
        np.arange(len(requests)), (_column(boots), _column(firsts)), lambda index: counted(names[index][1])
    )
    del boots, firsts  # of a million requests each column is 8 MB
    rank = _inverse(logged) if members else logged
    groups = sorted((sorted(each, key=rank.__getitem__) for each in members.values()), key=lambda each: rank[each[0]])
    grouped = np.array([index for each in groups for index in each], np.int64)
    rest = logged[np.isin(logged, grouped, invert=True)] if len(grouped) else logged
    order = _sorted(
        np.concatenate((grouped, rest)),
        (np.frombuffer(unknown, np.uint8), _column(starts)),
        lambda index: counted(log_name(*names[index])),
    )
    numbers = {requests[each[0]].group: f"g{number}" for number, each in enumerate(groups, start=1)}

    def make(one: LoggedRequest) -> Request:
        return log_row(run, one, None if one.group is None else numbers[one.group], segment_of(one.boot))

    rank = _inverse(order) if groups else rank
    return Attribution(
        requests=mapped(requests, make, array("q", order.tobytes())),
        counts=dict.fromkeys(Match, 0)
        | {Match.AMBIGUOUS: len(grouped), Match.SERVER_ONLY: len(requests) - len(grouped)},
        groups=tuple(
            Group(
                name=f"g{number}",
                requests=tuple(log_name(*names[index]) for index in sorted(each, key=rank.__getitem__)),
                sent=0,
                logged=len(each),
            )
            for number, each in enumerate(groups, start=1)
        ),
        doubts=(),
    )


def _column(values: "array[int]") -> _Column:
    return np.frombuffer(values, values.typecode)


def _inverse(order: _Ints) -> _Ints:
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank


def _sorted(places: _Ints, keys: Sequence[_Column], text: Callable[[int], tuple[str, str]]) -> _Ints:
    """Sort places by their keys, the first one first, and where all are equal by their text; what is equal stays."""
    order: _Ints = places[np.lexsort([key[places] for key in reversed(keys)])]
    same = np.ones(max(len(order) - 1, 0), np.bool_)
    for key in keys:
        same &= key[order[1:]] == key[order[:-1]]
    edges = np.flatnonzero(np.diff(same, prepend=False, append=False))
    for first, last in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        order[first : last + 1] = sorted(order[first : last + 1].tolist(), key=text)
    return order
