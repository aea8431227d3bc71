"""Who stalled whom? For each agent, the time its tokens waited for other requests' prefills, and for which ones."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from agentload.analysis.diagnose.inputs import Inputs, Row
from agentload.core.records import Source
from agentload.core.stalls import LEAST_GAPS, LEAST_NS, TIMES, Prefill, Prefills, Stall, Stream, stalls_of

_NS: Final = 1_000_000_000
_WORST: Final = 10
_LISTED: Final = 20  # prefills
_ON_SERVER: Final = (Source.LOG.value, Source.SPANS.value)

_HOW: Final = (
    f"a stall is a gap between two tokens of a stream of at least {TIMES} times the usual gap and "
    f"{LEAST_NS // 1_000_000} ms more, during which another request prefilled; the usual gap is the median of the "
    f"stream's gaps beside no prefill (of its agent's other streams where it has fewer than {LEAST_GAPS} of them); "
    "what counts is the gap beyond the usual one, at most the time of those prefills, shared evenly where several ran. "
    "The gaps are of the client's stamps, the prefills of "
)
_PREFILLS_BY: Final = {
    True: "the server's log",
    False: "what the answers or the client's clock tell: queueing may count as prefill",
}
_PHASES: Final = (
    "the client has no stamp of each token, or its clock is not the log's, so stalls are not known; the decode time "
    "during which others prefilled is an upper bound on what it waited"
)


@dataclass(slots=True)
class _Pair:
    """What one agent waited for another."""

    stalled_ns: int = 0
    beside_ns: int = 0
    stalls: int = 0
    longest: tuple[int, str, str] = (0, "", "")  # ns, its request, the other's
    prefills: set[int] = field(default_factory=set)


def who_stalled_whom(read: Inputs) -> dict[str, Any]:
    """Return the part `stalls` of a diagnosis."""
    rows = {str(row["request"]): row for row in read.rows}
    prefilled = timed_prefills(read.rows)
    prefills = Prefills(
        [Prefill(row["request"], row["agent"], row["prefill_start"], row["prefill_end"]) for row in prefilled]
    )
    streams = [
        Stream(str(row["request"]), row["agent"], read.stamps[row["request"]], _begins(row))
        for row in read.rows
        if row["agent"] is not None and len(read.stamps.get(row["request"], ())) > 1
    ]
    on_server = all(row["prefill_source"] in _ON_SERVER for row in prefilled)
    # Stamps of one clock beside times of another say nothing.
    one_clock = read.account["clock"]["error_ns"] is not None or not any(
        row["prefill_source"] in _ON_SERVER for row in prefilled
    )
    known = bool(streams) and bool(prefilled) and one_clock
    stalls = stalls_of(streams, prefills) if known else []
    pairs: dict[tuple[str, str | None], _Pair] = defaultdict(_Pair)
    beside = _beside(read.rows, prefills, pairs)
    for stall in stalls:
        _add(stall, streams[stall.stream], prefills, pairs)
    begin = min((one["begin_ns"] for one in read.account["segments"]), default=None)
    by = "token stamps" if known else "phases" if beside else None
    return {
        "how": _PHASES if not known else _HOW + _PREFILLS_BY[on_server],
        "by": by,
        "agents": _agents(read.rows, streams, stalls, beside, known=known),
        "pairs": [_pair(key, one, prefilled, known=known) for key, one in _most_first(pairs)],
        "prefills": _prefills(stalls, streams, prefilled),
        "worst": [
            _worst(one, streams[one.stream], rows, prefilled, begin)
            for one in sorted(stalls, key=lambda one: (-one.stalled_ns, one.begin))[:_WORST]
        ],
    }


def timed_prefills(rows: Sequence[Row]) -> list[Row]:
    """Return the requests whose prefill has times: the client's, which hold queueing too, only where all are so."""
    known = [row for row in rows if None not in (row["prefill_start"], row["prefill_end"])]
    told = [row for row in known if row["prefill_source"] != Source.CLIENT.value]
    return told or known


def _begins(row: Row) -> int | None:
    """Where its decode begins, of the server's own telling only: the client's is its first token."""
    return row["decode_start"] if row["decode_source"] in _ON_SERVER else None


def _beside(
    rows: Sequence[Row], prefills: Prefills, pairs: dict[tuple[str, str | None], _Pair]
) -> dict[str, tuple[int, int]]:
    """Return by agent (decode ns, of it beside others' prefills), and add the latter to the pairs."""
    sums: dict[str, tuple[int, int]] = {}
    for row in rows:
        agent, start, end = row["agent"], row["decode_start"], row["decode_end"]
        if agent is None or start is None or end is None:
            continue
        by_agent: dict[str | None, list[int]] = defaultdict(list)
        for at in prefills.beside(str(row["request"]), start, end):
            by_agent[prefills.all[at].agent].append(at)
        for other, indices in by_agent.items():
            pair = pairs[agent, other]
            pair.beside_ns += _covered_ns([prefills.all[at] for at in indices], start, end)
            pair.prefills.update(indices)
        every = [at for indices in by_agent.values() for at in indices]
        beside_ns = _covered_ns([prefills.all[at] for at in every], start, end)
        decode_ns, before_ns = sums.get(agent, (0, 0))
        sums[agent] = decode_ns + end - start, before_ns + beside_ns
    return sums


def _covered_ns(prefills: Sequence[Prefill], begin: int, end: int) -> int:
    """How much of [begin, end) the union of a few prefills covers; numpy takes 20 times as long for three of them."""
    covered, until = 0, begin
    for one in sorted(prefills, key=lambda one: one.start):
        start, stop = max(one.start, until), min(one.end, end)
        if start < stop:
            covered += stop - start
            until = stop
    return covered


def _add(stall: Stall, stream: Stream, prefills: Prefills, pairs: dict[tuple[str, str | None], _Pair]) -> None:
    shares: dict[str | None, list[tuple[int, int]]] = defaultdict(list)
    for at, took in stall.by:
        shares[prefills.all[at].agent].append((took, at))
    for other, each in shares.items():
        pair = pairs[str(stream.agent), other]
        took = sum(part for part, _ in each)
        pair.stalled_ns += took
        pair.stalls += 1
        pair.prefills.update(at for _, at in each)
        pair.longest = max(pair.longest, (took, stream.request, prefills.all[max(each)[1]].request))


def _most_first(pairs: dict[tuple[str, str | None], _Pair]) -> list[tuple[tuple[str, str | None], _Pair]]:
    return sorted(
        ((key, one) for key, one in pairs.items() if one.beside_ns or one.stalled_ns),
        key=lambda item: (-item[1].stalled_ns, -item[1].beside_ns, item[0][0], str(item[0][1])),
    )


def _s(value_ns: int) -> float:
    return value_ns / _NS


def _pair(key: tuple[str, str | None], one: _Pair, prefilled: Sequence[Row], *, known: bool) -> dict[str, Any]:
    largest = max((prefilled[at] for at in one.prefills), key=lambda row: row["new_prefill_tokens"] or 0)
    return {
        "agent": key[0],
        "by_agent": key[1],
        "stalled_s": _s(one.stalled_ns) if known else None,
        "beside_prefill_s": _s(one.beside_ns),
        "stalls": one.stalls,
        "prefills": len(one.prefills),
        "longest_s": _s(one.longest[0]) if known else None,
        "longest_request": one.longest[1] or None,
        "longest_by_request": one.longest[2] or None,
        "largest_request": largest["request"],
        "largest_new_tokens": largest["new_prefill_tokens"],
        "largest_context_start": largest["context_start"],
    }


def _agents(
    rows: Sequence[Row],
    streams: Sequence[Stream],
    stalls: Sequence[Stall],
    beside: dict[str, tuple[int, int]],
    *,
    known: bool,
) -> list[dict[str, Any]]:
    names = sorted({str(row["agent"]) for row in rows if row["agent"] is not None})
    mine: dict[str, list[Stall]] = defaultdict(list)
    for one in stalls:
        mine[str(streams[one.stream].agent)].append(one)
    found = []
    for name in names:
        decode_ns, beside_ns = beside.get(name, (0, 0))
        stalled_ns = sum(one.stalled_ns for one in mine[name])
        found.append(
            {
                "agent": name,
                "streams": sum(stream.agent == name for stream in streams),
                "decode_s": _s(decode_ns),
                "beside_prefill_s": _s(beside_ns),
                "stalled_s": _s(stalled_ns) if known else None,
                "share": stalled_ns / decode_ns if known and decode_ns else None,
                "stalls": len(mine[name]),
                "longest_s": _s(max((one.stalled_ns for one in mine[name]), default=0)) if known else None,
            }
        )
    return found


def _prefills(stalls: Sequence[Stall], streams: Sequence[Stream], prefilled: Sequence[Row]) -> list[dict[str, Any]]:
    """The prefills for which most was waited."""
    victims: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for one in stalls:
        for at, took in one.by:
            victims[at][str(streams[one.stream].agent)] += took
    worst = sorted(victims, key=lambda at: (-sum(victims[at].values()), at))[:_LISTED]
    return [
        {
            **_who(prefilled[at]),
            "prefill_s": _s(prefilled[at]["prefill_end"] - prefilled[at]["prefill_start"]),
            "start_ns": prefilled[at]["prefill_start"],
            "end_ns": prefilled[at]["prefill_end"],
            "stalled_s": _s(sum(victims[at].values())),
            "victims": [
                {"agent": agent, "stalled_s": _s(took)}
                for agent, took in sorted(victims[at].items(), key=lambda item: (-item[1], item[0]))
            ],
        }
        for at in worst
    ]


def _who(row: Row) -> dict[str, Any]:
    return {
        "agent": row["agent"],
        "request": row["request"],
        "new_prefill_tokens": row["new_prefill_tokens"],
        "context_start": row["context_start"],
        "line": row.get("prefill_start_proof_line"),
    }


def _worst(
    one: Stall, stream: Stream, rows: dict[str, Row], prefilled: Sequence[Row], begin_ns: int | None
) -> dict[str, Any]:
    return {
        "agent": stream.agent,
        "request": stream.request,
        "turn": rows[stream.request]["turn"],
        "begin_ns": one.begin,
        "end_ns": one.end,
        "at_s": None if begin_ns is None else _s(one.begin - begin_ns),
        "gap_s": _s(one.end - one.begin),
        "usual_gap_s": _s(one.usual_ns),
        "stalled_s": _s(one.stalled_ns),
        "by": [{**_who(prefilled[at]), "stalled_s": _s(took)} for at, took in one.by],
    }
