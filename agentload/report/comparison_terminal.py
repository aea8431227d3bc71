"""What does an experiment say, on a terminal? The answer first, then everything that it rests on, as plain text."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from agentload.analysis.headline import INVALID, number, span
from agentload.core.separation import Outcome
from agentload.report import memory_lines, probe_terminal
from agentload.report.comparison_tables import published, runs
from agentload.report.page import NONE, Page, percent, shortened

_ASKED_FOR: Final = frozenset(("applied", "mismatch", "unproven", "duplicate"))
_FEW_PAIRS: Final = 1
_PAIRS_IN_A_LINE: Final = 3
_DISTINGUISHED: Final = Outcome.DISTINGUISHED.value
_NO_VERDICT: Final = Outcome.NO_VERDICT.value
_NOT_EXERCISED: Final = "flag-not-exercised"


def render(found: dict[str, Any]) -> str:
    """Return the report of comparison.json's content as text."""
    page = Page()
    _head(page, found)
    runs(page, found)
    probe_terminal.sweep(page, found.get("probe_sweep"))
    if len(found["pairs"]) <= _FEW_PAIRS:
        for pair in found["pairs"]:
            _pair(page, found, pair)
    else:
        _sweep(page, found)
    _headroom(page, found)
    _settings(page, found)
    published(page, found["published"])
    _doubts(page, found)
    _forecast(page, found)
    return page.text()


def _head(page: Page, found: Mapping[str, Any]) -> None:
    answer = found["headline"]
    page.say(f"{'SIMULATED: ' if found['simulated'] else ''}{answer['sentence']}")
    if (work := answer.get("work")) is not None:
        page.say(work)
    for advice in answer["fix"] if answer["outcome"] == INVALID else ():
        page.say(f"to fix: {advice}")
    steps = found["steps"]
    variants = ", ".join(title(one) for one in found["variants"])
    unit = f"{found['repeat_unit']['name']}s"
    if found.get("by_hand"):
        page.say(f"runs made by hand: {found['factor']}, {variants}; of {steps['done']} {unit} {steps['valid']} count")
    else:
        page.say(
            f"experiment {found['experiment']}: {found['factor']}, {variants}; {steps['done']} of {steps['planned']} "
            f"{unit} of the plan have ended, {steps['valid']} count"
        )
    page.say(found["repeat_unit"]["sentence"])


def title(variant: Mapping[str, Any]) -> str:
    """A variant's name, with what it is."""
    name, label = variant["name"], variant["label"]
    return str(name) if label == name else f"{name} = {shortened(label)}"


# ---- two variants ----------------------------------------------------------------------------------------------------


def _pair(page: Page, found: Mapping[str, Any], pair: Mapping[str, Any]) -> None:
    first, second = pair["first"], pair["second"]
    if not any(row[side]["values"] for row in pair["metrics"] for side in ("first", "second")):
        return
    page.gap()
    page.table(
        f"{first} against {second}: pooled over the valid {found['repeat_unit']['name']}s, smallest to greatest",
        ("metric", first, second, f"{first}/{second}", "verdict", "grade"),
        [
            (
                row["metric"],
                _with_span(row["first"]),
                _with_span(row["second"]),
                _ratio(row["ratio"]),
                _outcome(row),
                row["grade"]["grade"],
            )
            for row in pair["metrics"]
            if row is pair["metrics"][0] or row["first"]["values"] or row["second"]["values"]
        ],
    )
    decides = pair["metrics"][0]
    _reasons(page, found, decides)
    used = [one for one in pair["buckets"] if one["first"] is not None or one["second"] is not None]
    if used:
        page.table(
            "By context: median prefill tok/s of the requests that begin there",
            ("context tokens", first, second, f"{first}/{second}"),
            [(one["name"], number(one["first"]), number(one["second"]), _ratio(one["ratio"])) for one in used],
        )
    _equal_work(page, pair)


def _with_span(side: Mapping[str, Any]) -> str:
    if not side["values"]:
        return "-"
    return f"{number(side['pooled'])} [{span(side)}]"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _reasons(page: Page, found: Mapping[str, Any], row: Mapping[str, Any]) -> None:
    """What the verdict on the deciding metric rests on."""
    metric = next(one for one in found["metrics"] if one["name"] == row["metric"])
    page.say(f"{row['metric']} decides: {metric['meaning']}; {row['grade']['grade']}: {row['grade']['reason']}")
    rule, told = rule_of(row), row["published_rule"]
    if rule is not None:
        agrees = "agrees" if told["agrees"] else "does not agree"
        page.say(f"rule: {rule}; the published rule (ranges apart or not) {agrees}: {told['outcome']}")
    if (claims := row["false_claims"]) is not None:
        others = [
            f"{name} {percent(claims[key])}"
            for key, name in (("heavy_tailed", "heavy tails"), ("slow_boots", "slow starts"))
            if claims[key] is not None
        ]
        page.say(
            f"equals would be called distinguished in {percent(claims['normal'])} of such experiments "
            f"({', '.join(others)}; by the published rule {percent(claims['published_rule'])})"
        )
    order, drift = row["order"], row["drift"]
    parts = []
    if order is not None and order["first_minus_second"] is not None:
        parts.append(f"running first in a block is worth {_signed(order['first_minus_second'])} {metric['unit']}")
    if drift is not None:
        parts.append(f"drift from the first run to the last {_signed(drift['over_all'])} {metric['unit']}")
    if parts:
        page.say(f"order: {'; '.join(parts)}")


def rule_of(row: Mapping[str, Any]) -> str | None:
    """How far apart the ranges are, and how far a claim needs; None without a verdict."""
    rule = row["rule"]
    if rule["gap"] is None or _single(row):
        return None
    if rule["no_spread"]:
        return f"gap {number(rule['gap'])}, neither side spreads"
    if rule["separation"] is None:
        ranks = "" if rule["rank_p"] is None else f"; rank test p = {rule['rank_p']:.3f}"
        return f"ranges overlap by {number(-rule['gap'])}{ranks}"
    return (
        f"gap {number(rule['gap'])} / wider range {number(rule['wider_range'])} = {rule['separation']:.1f}, a claim "
        f"needs {rule['needed']:g} at these counts"
    )


def _signed(value: float) -> str:
    return f"{'-' if value < 0 else '+'}{number(abs(value))}"


def _equal_work(page: Page, pair: Mapping[str, Any]) -> None:
    work = pair["equal_work"]
    if work is not None:
        page.say(
            "equal work at the pooled speeds, an ESTIMATE "
            f"({work['new_prefill_tokens']:,} new prefill + {work['decoded_tokens']:,} decoded "
            f"tokens, {work['assumption']}): {pair['first']} {number(work['first_s'])} s, {pair['second']} "
            f"{number(work['second_s'])} s, {pair['second']}/{pair['first']} {work['ratio']:.2f}"
        )


# ---- more than two ---------------------------------------------------------------------------------------------------


def _sweep(page: Page, found: Mapping[str, Any]) -> None:
    # The table of a probe's sweep has every value already: here stand the pairs that decide.
    names = [
        metric
        for metric in found["metrics"]
        if metric["higher_is_better"] is not None and (metric["deciding"] or not found.get("probe_sweep"))
    ]
    for metric in names:
        page.gap()
        page.table(
            f"{metric['name']} in {metric['unit']}: {metric['shown']}{', decides' if metric['deciding'] else ''}",
            ("", "variant", "valid", "pooled", "smallest to greatest"),
            [
                (
                    one["name"],
                    shortened(one["label"]),
                    str(len(values["values"])),
                    number(values["pooled"]),
                    span(values),
                )
                for one in found["variants"]
                for values in (one["metrics"][metric["name"]],)
            ],
        )
        _pairs(page, found, metric)
    if found.get("probe_sweep"):
        _others(page, found)


def _others(page: Page, found: Mapping[str, Any]) -> None:
    """Every metric that does not decide, in a line: what each value has, and which pairs are told apart."""
    names = [one["name"] for one in found["variants"]]
    rows = []
    for metric in found["metrics"]:
        values = [one["metrics"][metric["name"]] for one in found["variants"]]
        if metric["deciding"] or metric["higher_is_better"] is None or not any(one["values"] for one in values):
            continue
        judged = [(pair, row) for pair in found["pairs"] for row in pair["metrics"] if row["metric"] == metric["name"]]
        rows.append((metric["name"], *(number(one["pooled"]) for one in values), _told_apart(judged)))
    if rows:
        page.gap()
        page.table(
            "The other metrics: medians of the runs, and which one is better in each pair that is distinguished (?: a "
            "consistent direction only)",
            ("metric", *names, "verdict"),
            rows,
        )


def _told_apart(judged: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> str:
    if any(one["code"] == _NOT_EXERCISED for _, row in judged for one in row["refusals"]):
        return "no verdict: not exercised"
    sure = [(pair, row) for pair, row in judged if row["better"] is not None]
    if not sure:
        outcomes = {row["outcome"] for _, row in judged}
        return outcomes.pop() if len(outcomes) == 1 else "none distinguished"
    if len(judged) > _PAIRS_IN_A_LINE:
        return f"{sum(row['outcome'] == _DISTINGUISHED for _, row in sure)} of {len(judged)} pairs distinguished"
    return ", ".join(
        f"{pair['first']}/{pair['second']} {row['better']}{'' if row['outcome'] == _DISTINGUISHED else '?'}"
        for pair, row in sure
    )


def _pairs(page: Page, found: Mapping[str, Any], metric: Mapping[str, Any]) -> None:
    """All pairs on the deciding metric; on another one those of which something may be said."""
    rows = [(pair, row) for pair in found["pairs"] for row in pair["metrics"] if row["metric"] == metric["name"]]
    told = [one for one in rows if metric["deciding"] or one[1]["better"] is not None]
    if told:
        page.table(
            "pairs",
            ("", "ratio", "gap / range", "needed", "verdict", "grade"),
            [
                (
                    f"{pair['first']}/{pair['second']}",
                    _ratio(row["ratio"]),
                    _separation(row),
                    "-" if row["rule"]["needed"] is None else f"{row['rule']['needed']:g}",
                    _outcome(row) + (f": {row['better']} is better" if row["better"] else ""),
                    row["grade"]["grade"],
                )
                for pair, row in told
            ],
        )
        if metric["deciding"] and any(row["rule"]["separation"] is not None for _, row in told):
            page.say("gap / range: the distance between the ranges of two variants / the wider of these ranges")
    left = len(rows) - len(told)
    if left:
        page.say(f"{left} of {len(rows)} pairs: no direction may be named")


def _outcome(row: Mapping[str, Any]) -> str:
    """The verdict in a cell; of a setting that could not act, or of single runs, with that."""
    if row["outcome"] == _NO_VERDICT:
        if any(one["code"] == _NOT_EXERCISED for one in row["refusals"]):
            return f"{_NO_VERDICT}: not exercised"
        if _single(row):
            return f"one run a side: {_NO_VERDICT}"
    return str(row["outcome"])


def _single(row: Mapping[str, Any]) -> bool:
    """Whether a side has one run: it has a value and no range."""
    return min(len(row[side]["values"]) for side in ("first", "second")) == 1


def _separation(row: Mapping[str, Any]) -> str:
    rule = row["rule"]
    if _single(row):
        return NONE
    if rule["no_spread"]:
        return "no spread"
    return "overlap" if rule["separation"] is None else f"{rule['separation']:.2f}"


# ---- settings, doubts, what would help -------------------------------------------------------------------------------


def _settings(page: Page, found: Mapping[str, Any]) -> None:
    if not any(one["settings"] for one in found["variants"]):
        return
    page.gap()
    page.say("Settings, each with what proves it:")
    for variant in found["variants"]:
        asked = [one for one in variant["settings"] if one["under_test"] or one["verdict"] in _ASKED_FOR]
        for one in asked:
            page.say(f"{variant['name']}: {setting(one)}")
        left = len(variant["settings"]) - len(asked)
        if left:
            where = "--json" if found.get("by_hand") else "derived/comparison.json"
            page.say(f"{variant['name']}: {left} further settings by default; {where} has their proofs")


def setting(one: Mapping[str, Any]) -> str:
    """One setting, requested and in force, with the first proof word for word."""
    in_force = "-" if one["applied"] is None else shortened(one["applied"])
    requested = "-" if one["requested"] is None else shortened(one["requested"])
    said = f"{one['name']}{' (under test)' * one['under_test']}: requested {requested}, in force {in_force}: "
    proof = one["proofs"][0]
    where = f" by {proof['run']} {proof['source']}" if proof["source"] else f" in {proof['run']}"
    quote = f' "{proof["quote"]}"' if proof["quote"] is not None else ""
    others = len(one["proofs"]) - 1
    more = f", and in {others} more" if others else ""
    return f"{said}{one['verdict']}{where}{quote}{more}"


def _headroom(page: Page, found: Mapping[str, Any]) -> None:
    lines = memory_lines.of_variants(found["variants"])
    if lines:
        page.gap()
    for line in lines:
        page.say(line)


def _doubts(page: Page, found: Mapping[str, Any]) -> None:
    told: list[str] = []

    def tell(doubts: Sequence[Mapping[str, str]], where: str = "") -> None:
        for one in doubts:
            line = f"doubt ({one['code']}): {where}{one['message']}. {one['advice'].rstrip('.')}."
            if line not in told:
                told.append(line)

    tell(found["doubts"])
    many = len(found["pairs"]) > _FEW_PAIRS
    for pair in found["pairs"]:
        decides = pair["metrics"][0]
        where = f"{pair['first']}/{pair['second']}: " if many else ""
        tell(decides["refusals"], where)
        tell([one for one in decides["doubts"] if one["code"] != "invalid-runs" or not many], where)
    if told:
        page.gap()
    for line in told:
        page.say(line)


def _forecast(page: Page, found: Mapping[str, Any]) -> None:
    rows = [(pair, pair["metrics"][0]) for pair in found["pairs"] if pair["valid"]]
    many = len(found["pairs"]) > _FEW_PAIRS
    said = [
        f"{pair['first']}/{pair['second']}: {row['forecast']['sentence']}" if many else row["forecast"]["sentence"]
        for pair, row in rows
        if row["outcome"] != "distinguished"
    ]
    if said:
        page.gap()
        page.say("What would change the answer:")
    for line in said:
        page.say(f"- {line}")
