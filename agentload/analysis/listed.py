"""What did each request of a log cost: of the few that cost the most, and which lines prove it?

Numbers of `core.records.LoggedRequest`, before rows of tables are made of them: a pass over four times and two counts,
whatever the log's size.
"""

import heapq
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from agentload.core.attribution import Group
from agentload.core.names import log_name
from agentload.core.packed import values
from agentload.core.records import LoggedRequest

MOST: Final = 20  # requests
_COST: Final = ("prefill_start", "prefill_end", "decode_start", "decode_end", "prefill_ms", "decode_ms")
_COUNTS: Final = ("prompt_tokens", "cached_tokens", "new_prefill_tokens", "decoded_tokens")
_NS_PER_MS: Final = 1_000_000

Name = tuple[int | None, str | None]  # boot and label of a request
_Cost = tuple[int, int]  # ns, then tokens


def listed(
    requests: Sequence[LoggedRequest], groups: Sequence[Group], among: Collection[Name] | None = None
) -> dict[str, Any]:
    """Return the `MOST` requests that cost the most, in order of their starts; `among`: these alone are looked at.

    What one costs is the time of its prefill and its decode added up; where no time is known, its computed and
    generated tokens. Times are ns on the log's timeline; what the log does not tell is None.
    """
    costs = (
        (_cost(*cost), -index)
        for index, (boot, label, *cost) in enumerate(
            values(requests, "boot", "label", *_COST, "new_prefill_tokens", "decoded_tokens")
        )
        if among is None or (boot, label) in among
    )
    chosen = heapq.nlargest(MOST, costs)
    group_of = {name: group.name for group in groups for name in group.requests}
    rows = sorted((_row(requests[index], group_of) for index in sorted(-place for _, place in chosen)), key=_in_order)
    by_time, by_tokens = (any(cost[which] for cost, _ in chosen) for which in (0, 1))
    return {
        "by": "time" if by_time else "tokens" if by_tokens else "order",
        "rows": rows,
        "left_out": (len(requests) if among is None else len(among)) - len(rows),
    }


def _cost(
    prefill_start: int | None,
    prefill_end: int | None,
    decode_start: int | None,
    decode_end: int | None,
    prefill_ms: float | None,
    decode_ms: float | None,
    new_tokens: int | None,
    decoded_tokens: int | None,
) -> _Cost:
    took = _took(prefill_start, prefill_end, prefill_ms) or 0
    return took + (_took(decode_start, decode_end, decode_ms) or 0), (new_tokens or 0) + (decoded_tokens or 0)


def _took(start: int | None, end: int | None, said_ms: float | None) -> int | None:
    """How long a phase took, ns: by its times, else as the log says it, without times or where they go backwards."""
    if start is not None and end is not None and start <= end:
        return end - start
    return None if said_ms is None else round(said_ms * _NS_PER_MS)


def _row(one: LoggedRequest, group_of: Mapping[str, str]) -> dict[str, Any]:
    lines = [proof.line for _, proof in one.proofs]
    name = log_name(one.boot, one.label)
    began = (one.prefill_start, one.t_slot, one.t_arrived)
    return {
        "request": name,
        "boot": one.boot,
        "group": group_of.get(name),
        "start": next((at for at in began if at is not None), None),
        **{count: getattr(one, count) for count in _COUNTS},
        "prefill_ns": _took(one.prefill_start, one.prefill_end, one.prefill_ms),
        "decode_ns": _took(one.decode_start, one.decode_end, one.decode_ms),
        "finish": one.finish,
        "first_line": min(lines, default=None),
        "last_line": max(lines, default=None),
    }


def _in_order(row: Mapping[str, Any]) -> tuple[int, bool, int, int]:
    return row["boot"], row["start"] is None, row["start"] or 0, row["first_line"] or 0
