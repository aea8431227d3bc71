"""What is the answer, in one sentence?"""

from collections.abc import Mapping, Sequence
from math import log
from typing import Any, Final

from agentload.analysis.pairs import UNITS, WORTH_NAMING
from agentload.artifacts.design import Design
from agentload.core.metrics import Metric
from agentload.core.separation import Outcome

INVALID: Final = "invalid"
_BROKEN_OFF: Final = frozenset(("run-cancelled", "run-not-ended"))
_EQUAL_WORK: Final = "equal_work_s"
_TIMES: Final = frozenset(("ttft_s", _EQUAL_WORK))
_PRICES: Final = 2  # that the sentence names
_NAMED: Final = 3  # reasons and pairs that the sentence names; the report has all


def headline(design: Design, metric: Metric, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return {outcome, sentence, fix}: the deciding metric's answer, and what to mend where there is none.

    `work` says what it amounts to for an agent's work as a whole, of two variants; None where that is not known.
    Of a sweep `best_two` is the outcome between the best value and the next one, which that of the whole does not say:
    it is "distinguished" when any pair is.
    """
    if not any(pair["valid"] for pair in found["pairs"]):
        return _invalid(found)
    rows = [(pair, next(row for row in pair["metrics"] if row["metric"] == metric.name)) for pair in found["pairs"]]
    best_two: str | None = None
    if len(rows) == 1:
        outcome, sentence = rows[0][1]["outcome"], _of_pair(design, metric, *rows[0])
        winner = rows[0][1]["better"]
    else:
        outcome, sentence, winner = _of_sweep(design, metric, rows, found)
        best_two = _best_two(metric, rows, found)
    worse = [] if winner is None else _price(metric, winner, found)
    if worse:
        left = len(worse) - _PRICES
        more = f"; {left} more metric{'s are' if left > 1 else ' is'} worse, distinguished" if left > 0 else ""
        sentence += f"; the price: {'; '.join(worse[:_PRICES])}{more}"
    work = _work(metric, *rows[0]) if len(rows) == 1 else None
    fixes = _fixes(found)
    return {
        "outcome": outcome, "sentence": sentence, "fix": fixes, "price": worse, "best_two": best_two, "work": work
    }  # fmt: skip


def _work(metric: Metric, pair: Mapping[str, Any], decides: Mapping[str, Any]) -> str | None:
    """How long equal work takes on both sides: the speed of prefill alone is not that of an agent's work."""
    row = next((one for one in pair["metrics"] if one["metric"] == _EQUAL_WORK), None)
    work = pair["equal_work"]
    if metric.plain == _EQUAL_WORK or decides["outcome"] == Outcome.NO_VERDICT.value or row is None or work is None:
        return None
    first, second = row["first"]["pooled"], row["second"]["pooled"]
    if not first or not second:
        return None
    said = row["outcome"]
    if row["better"] is not None and row["outcome"] == Outcome.DISTINGUISHED.value:
        said = f"{row['better']} is {max(first, second) / min(first, second):.2f}x as fast, distinguished"
    tokens = f"{work['new_prefill_tokens']:,} new prefill and {work['decoded_tokens']:,} decoded tokens"
    return (
        f"the work as a whole, an estimate ({tokens} at the measured speeds, laid end to end): {pair['first']} "
        f"{number(first)} s, {pair['second']} {number(second)} s; {said}"
    )


def _price(metric: Metric, winner: str, found: Mapping[str, Any]) -> list[str]:
    """What of the winner is worse, distinguished, than of another variant: those under the deciding load first.

    Of each metric the variant from which it is furthest; a difference that is of no use to anybody is no price.
    """
    told = []
    for about in found["metrics"]:
        rows = [
            (pair, row)
            for pair in found["pairs"]
            for row in pair["metrics"]
            if row["metric"] == about["name"] != metric.name
            and winner in {pair["first"], pair["second"]}
            and row["outcome"] == Outcome.DISTINGUISHED.value
            and row["better"] not in {winner, None}
            and (row["ratio"] is None or abs(row["ratio"] - 1) >= WORTH_NAMING)
        ]
        if not rows:
            continue
        pair, row = max(rows, key=lambda one: abs(log(one[1]["ratio"])) if one[1]["ratio"] else 0.0)
        mine, theirs = ("first", "second") if pair["first"] == winner else ("second", "first")
        ours, other = (number(row[side]["pooled"]) for side in (mine, theirs))
        elsewhere = (about["load"], about["concurrency"]) != (metric.load, metric.concurrency)
        said = f"{about['shown']} is {ours} against {other} {about['unit']} of {pair[theirs]}, distinguished"
        told.append((elsewhere, said))
    return [said for _, said in sorted(told, key=lambda one: one[0])]


def _fixes(found: Mapping[str, Any]) -> list[str]:
    """What to mend so that runs count: each advice once, in the order of the runs."""
    return list(dict.fromkeys(reason["advice"] for run in found["runs"] for reason in run["reasons"]))


def _invalid(found: Mapping[str, Any]) -> dict[str, Any]:
    reasons: dict[tuple[str, str], list[str]] = {}
    messages: dict[tuple[str, str], str] = {}
    for run in found["runs"]:
        for reason in run["reasons"]:
            key = (reason["code"], reason["message"].partition(" (")[0])  # what proves it differs from run to run
            reasons.setdefault(key, []).append(named(run))
            messages.setdefault(key, reason["message"])
    if not reasons:
        said = "no valid pair: " + ("nothing was run yet" if not found["runs"] else "one side has no run yet")
        return {"outcome": INVALID, "sentence": f"INCOMPLETE: {said}", "fix": ["`agentload ab DIR` goes on with it"]}
    parts = [f"{messages[key]} [{', '.join(runs)}]" for key, runs in reasons.items()]
    more = f"; and {len(parts) - _NAMED} more" if len(parts) > _NAMED else ""
    broken_off = {code for code, _ in reasons} <= _BROKEN_OFF
    sentence = f"{'INCOMPLETE' if broken_off else 'INVALID'}: no valid pair: {'; '.join(parts[:_NAMED])}{more}"
    return {"outcome": INVALID, "sentence": sentence, "fix": _fixes(found)}


def named(run: Mapping[str, Any]) -> str:
    """A run, or a segment of one."""
    return str(run["run"]) if run["segment"] is None else f"{run['run']}/{run['segment']}"


def _title(design: Design, name: str) -> str:
    label = design.variant(name).label
    return name if label == name else f"{name} ({label})"


def _repeats(design: Design, row: Mapping[str, Any]) -> str:
    first, second = (len(row[side]["values"]) for side in ("first", "second"))
    unit = UNITS[design.kind]
    if first == second:
        return f"{first} {unit}{'s' * (first != 1)} a side"
    return f"{first} against {second} {unit}s"


def number(value: float | None) -> str:
    """Three or four digits that a reader compares."""
    if value is None:
        return "-"
    size = abs(value)
    return f"{value:,.0f}" if size >= 1000 else f"{value:.1f}" if size >= 10 else f"{value:.3f}"


def span(side: Mapping[str, Any]) -> str:
    """The range of a side's values; a dash where there is none."""
    if side["low"] is None:
        return "-"
    low, high = number(side["low"]), number(side["high"])
    return low if low == high else f"{low} to {high}"


def _of_pair(design: Design, metric: Metric, pair: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    ranges = f"{pair['first']} {span(row['first'])}, {pair['second']} {span(row['second'])} {metric.unit}"
    repeats = _repeats(design, row)
    if row["outcome"] == Outcome.NO_VERDICT.value:
        why = [one["message"] for one in (*row["refusals"], *row["doubts"])]
        return f"no verdict on {metric.shown}: {'; '.join(why[:_NAMED])} ({ranges})"
    if row["outcome"] == Outcome.NOT_DISTINGUISHED.value:
        both = f"{_title(design, pair['first'])} and {_title(design, pair['second'])}"
        return f"not distinguished: {metric.shown} of {both} at {repeats} ({ranges}); {row['forecast']['sentence']}"
    winner, other, times = _lead(design, metric, pair, row)
    if row["outcome"] == Outcome.CONSISTENT_DIRECTION.value:
        seen = f"{winner} had {times} of {other}, at {repeats} ({ranges}; {_of_equals(row)})"
        return f"not distinguished, but a consistent direction: {seen}"
    faster = metric.unit in {"tok/s", "tok/CPU-s"} or metric.plain in _TIMES  # a shorter gap makes nothing faster
    word = "greater" if row["better"] is None else "faster" if faster else "better"
    chance = f"equals are called distinguished in {row['false_claims']['normal'] * 100:.1f} % of such experiments"
    return f"{winner} is {word}: {times} of {other}, distinguished at {repeats} ({ranges}; {chance})"


def _of_equals(row: Mapping[str, Any]) -> str:
    """How often equals look like a consistent direction: their ranges apart, or their ranks."""
    if row["rule"]["rank_p"] is not None:
        return f"of equals {row['rule']['rank_p'] * 100:.1f} % are as far apart in their ranks"
    return f"ranges of equals are apart in {row['false_claims']['published_rule'] * 100:.1f} % of such experiments"


def _lead(design: Design, metric: Metric, pair: Mapping[str, Any], row: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return who leads, whom, and by how much: B (q=128), A (q=2048), 1.85x the prefill speed."""
    winner = row["better"] or row["greater"]
    other = pair["second"] if winner == pair["first"] else pair["first"]
    mine, theirs = (row["first" if name == pair["first"] else "second"]["pooled"] for name in (winner, other))
    times = (
        f"{mine / theirs:.2f}x the {metric.shown}" if mine and theirs else f"{number(mine)} {metric.shown} beside that"
    )
    return _title(design, winner), _title(design, other), times


def _best_first(metric: Metric, found: Mapping[str, Any]) -> list[tuple[float, str]]:
    """The pooled value and the name of each variant that has one."""
    values = [(one["metrics"][metric.name]["pooled"], one["name"]) for one in found["variants"]]
    return sorted(
        ((value, name) for value, name in values if value is not None), reverse=metric.higher_is_better is not False
    )


def _best_two(
    metric: Metric, rows: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]], found: Mapping[str, Any]
) -> str | None:
    """The outcome between the best variant and the next one; None where fewer than two have a value."""
    best = {name for _, name in _best_first(metric, found)[:2]}
    return next((row["outcome"] for pair, row in rows if {pair["first"], pair["second"]} == best), None)


def _of_sweep(
    design: Design,
    metric: Metric,
    rows: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]],
    found: Mapping[str, Any],
) -> tuple[str, str, str | None]:
    """The outcome, what is said, and the best variant where a pair is distinguished."""
    claimed = [(pair, row) for pair, row in rows if row["outcome"] == Outcome.DISTINGUISHED.value]
    known = _best_first(metric, found)
    order = ", ".join(f"{_title(design, name)} {number(value)}" for value, name in known)
    if not claimed:
        outcome = next(
            (
                one.value
                for one in (Outcome.CONSISTENT_DIRECTION, Outcome.NOT_DISTINGUISHED)
                if any(row["outcome"] == one.value for _, row in rows)
            ),
            Outcome.NO_VERDICT.value,
        )
        said = "no verdict" if outcome == Outcome.NO_VERDICT.value else "not distinguished"
        return outcome, f"{said}: none of {len(rows)} pairs on {metric.shown}; {order} {metric.unit}", None
    best = known[0][1]
    beaten = [
        pair["second"] if pair["first"] == best else pair["first"]
        for pair, row in claimed
        if best in {pair["first"], pair["second"]} and row["better"] in {best, None}
    ]
    lead = f"{_title(design, best)} is best"
    lead += f", distinguished from {', '.join(beaten)}" if beaten else ", distinguished from none"
    apart = f"{len(claimed)} of {len(rows)} pairs are distinguished on {metric.shown}"
    return Outcome.DISTINGUISHED.value, f"{apart}; {lead}; {order} {metric.unit}", best
