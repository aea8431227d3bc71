"""What does the page of an experiment say: the answer, what was compared, requested against in force, every verdict?"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from agentload.analysis.headline import INVALID, named, number, span
from agentload.report.comparison_tables import short
from agentload.report.comparison_terminal import rule_of
from agentload.report.html.figure import Table
from agentload.report.html.said import MANY, Doubted, Said, count, doubted, setting_value, tone
from agentload.report.page import NONE, percent, shortened

_DISTINGUISHED: Final = "distinguished"
_BEST_TWO: Final = {
    "distinguished": "best two distinguished",
    "consistent direction": "best two: a direction, not distinguished",
    "not distinguished": "best two not distinguished",
    "no verdict": "best two: no verdict",
}
_SHOWN: Final = frozenset(("applied", "mismatch", "unproven", "duplicate"))


def of_experiment(found: Mapping[str, Any]) -> Said:
    """Return what the page of comparison.json says."""
    answer, steps, unit = found["headline"], found["steps"], found["repeat_unit"]
    incomplete = answer["outcome"] == INVALID and answer["sentence"].startswith("INCOMPLETE")
    decides = [pair["metrics"][0] for pair in found["pairs"]]
    pairs = found["pairs"]
    one = decides[0] if len(decides) == 1 else None
    outcome = "incomplete" if incomplete else str(answer["outcome"])
    badges = [outcome]
    if one is not None and answer["outcome"] != INVALID:
        badges.append(f"evidence: {one['grade']['grade']}")
    # A sweep's outcome is "distinguished" when any pair is; its sentence claims the best of all values.
    best_two = answer.get("best_two") if outcome == _DISTINGUISHED else None
    if best_two is not None:
        apart = sum(row["outcome"] == _DISTINGUISHED for row in decides)
        badges = [_BEST_TWO[best_two], f"{apart} of {len(decides)} pairs distinguished"]
    return Said(
        title=f"{found['experiment']}: {badges[0] if best_two is not None else answer['outcome']}",
        what=f"experiment {found['experiment']}",
        outcome=outcome,
        badges=badges,
        tone=tone(best_two or outcome),
        sentence=answer["sentence"],
        below=_below(found, one),
        compared_title="What was compared",
        compared=[
            f"{found['factor']}: " + ", ".join(_variant(each) for each in found["variants"]),
            f"{steps['done']} of {steps['planned']} {unit['name']}s of the plan have ended, {steps['valid']} count",
            unit["sentence"],
            f"workload {found['workload']}, seed {found['seed']}; {found['metric']} decides",
        ],
        fixes=answer["fix"] if answer["outcome"] == INVALID else [],
        doubts=_doubts(found),
        settings=_settings(found),
        settings_left=_settings_left(found),
        tables=[*_verdicts(found), *_buckets(pairs), *_runs(found), *_published(found)],
        notes=[
            f"{named(run)} does not count ({reason['code']}): {reason['message']}. {reason['advice'].rstrip('.')}."
            for run in found["runs"]
            for reason in run["reasons"]
        ],
        forecast=[
            f"{pair['first']}/{pair['second']}: {row['forecast']['sentence']}"
            for pair, row in zip(pairs, decides, strict=True)
            if pair["valid"] and row["outcome"] != _DISTINGUISHED
        ],
    )


def _variant(one: Mapping[str, Any]) -> str:
    return str(one["name"]) if one["name"] == one["label"] else f"{one['name']} is {one['label']}"


def _below(found: Mapping[str, Any], decides: Mapping[str, Any] | None) -> list[str]:
    if decides is None or found["headline"]["outcome"] == INVALID:
        return []
    metric = next(one for one in found["metrics"] if one["name"] == decides["metric"])
    work = found["headline"].get("work")
    told = [] if work is None else [f"{work[0].upper()}{work[1:]}."]
    told.append(f"{decides['grade']['grade']}: {decides['grade']['reason']}. {metric['shown']}: {metric['meaning']}.")
    rule, published = rule_of(decides), decides["published_rule"]
    if rule is not None:
        agrees = "agrees" if published["agrees"] else "does not agree"
        told.append(f"Rule: {rule}; the published rule (ranges apart or not) {agrees}: {published['outcome']}.")
    order, drift = decides["order"], decides["drift"]
    if order is not None and order["first_minus_second"] is not None:
        worth = f"Running first in a block is worth {order['first_minus_second']:+.3g} {metric['unit']}"
        told.append(
            worth
            + (
                "."
                if drift is None
                else f"; drift from the first run to the last {drift['over_all']:+.3g} {metric['unit']}."
            )
        )
    return told


def _doubts(found: Mapping[str, Any]) -> list[Doubted]:
    told = doubted(found["doubts"])
    many = len(found["pairs"]) > 1
    for pair in found["pairs"]:
        decides = pair["metrics"][0]
        where = f"{pair['first']}/{pair['second']}: " if many else ""
        told += doubted(decides["refusals"], where)
        told += doubted([one for one in decides["doubts"] if one["code"] != "invalid-runs" or not many], where)
    return list(dict.fromkeys(told))


def _settings(found: Mapping[str, Any]) -> Table | None:
    rows = []
    for variant in found["variants"]:
        for one in variant["settings"]:
            if not one["under_test"] and one["verdict"] not in _SHOWN:
                continue
            proof = one["proofs"][0]
            quote = "" if proof["quote"] is None else f": {shortened_to(proof['quote'], 160)}"
            rows.append(
                (
                    variant["name"],
                    one["name"] + " (under test)" * one["under_test"],
                    setting_value(one["requested"]),
                    setting_value(one["applied"]),
                    one["verdict"],
                    f"{proof['run']} {proof['source'] or ''}{quote}",
                )
            )
    columns = ("variant", "setting", "requested", "in force", "verdict", "what proves it")
    return Table(columns, tuple(rows[:MANY]), texts=6, caption="Settings that were asked for") if rows else None


def _settings_left(found: Mapping[str, Any]) -> str:
    left = {
        one["name"]: sum(1 for each in one["settings"] if not each["under_test"] and each["verdict"] not in _SHOWN)
        for one in found["variants"]
    }
    told = ", ".join(f"{name} {count}" for name, count in left.items() if count)
    return f"By default, with their proofs in derived/comparison.json: {told}." if told else ""


def shortened_to(text: str, most: int) -> str:
    """The beginning of a long line."""
    return text if len(text) <= most else text[: most - 1] + "\u2026"


def _verdicts(found: Mapping[str, Any]) -> list[Table]:
    if len(found["pairs"]) == 1:
        return [_pair(found, found["pairs"][0])] if found["pairs"][0]["valid"] else []
    tables = []
    for metric in found["metrics"]:
        if not metric["deciding"]:
            continue
        rows = [
            (one["name"], shortened(one["label"]), str(len(m["values"])), number(m["pooled"]), span(m))
            for one in found["variants"]
            for m in (one["metrics"][metric["name"]],)
        ]
        caption = f"{metric['shown']}, {metric['unit']}: decides"
        tables.append(Table(("", "variant", "valid", "pooled", "smallest to greatest"), tuple(rows), 2, caption))
        pairs = [
            (
                f"{pair['first']}/{pair['second']}",
                NONE if row["ratio"] is None else f"{row['ratio']:.2f}",
                row["outcome"] + (f": {row['better']} is better" if row["better"] else ""),
                row["grade"]["grade"],
            )
            for pair in found["pairs"]
            for row in pair["metrics"]
            if row["metric"] == metric["name"]
        ]
        caption = f"Pairs on {metric['shown']}" + (f" (the first {MANY} of {len(pairs)})" if len(pairs) > MANY else "")
        tables.append(Table(("pair", "ratio", "verdict", "grade"), tuple(pairs[:MANY]), 1, caption))
    return tables


def _pair(found: Mapping[str, Any], pair: Mapping[str, Any]) -> Table:
    units = {one["name"]: one["unit"] for one in found["metrics"]}
    first, second = pair["first"], pair["second"]
    rows = tuple(
        (
            f"{row['metric']}{' (decides)' if row is pair['metrics'][0] else ''}",
            units[row["metric"]],
            row["outcome"],
            row["grade"]["grade"],
            *(number(row[side]["pooled"]) if row[side]["values"] else NONE for side in ("first", "second")),
            NONE if row["ratio"] is None else f"{row['ratio']:.2f}",
            *(span(row[side]) for side in ("first", "second")),
        )
        for row in pair["metrics"]
        if row is pair["metrics"][0] or row["first"]["values"] or row["second"]["values"]
    )
    columns = (
        "metric",
        "unit",
        "verdict",
        "grade",
        first,
        second,
        f"{first}/{second}",
        f"{first} range",
        f"{second} range",
    )
    return Table(columns, rows, 4, f"{first} against {second}: pooled over the valid {found['repeat_unit']['name']}s")


def _buckets(pairs: Sequence[Mapping[str, Any]]) -> list[Table]:
    if len(pairs) != 1:
        return []
    pair = pairs[0]
    rows = tuple(
        (
            one["name"],
            number(one["first"]),
            number(one["second"]),
            NONE if one["ratio"] is None else f"{one['ratio']:.2f}",
        )
        for one in pair["buckets"]
        if one["first"] is not None or one["second"] is not None
    )
    columns = ("context tokens", pair["first"], pair["second"], f"{pair['first']}/{pair['second']}")
    return [Table(columns, rows, 1, "Median prefill tok/s of the requests that begin there")] if rows else []


def _runs(found: Mapping[str, Any]) -> list[Table]:
    labels = {one["name"]: short(one) for one in found["variants"]}
    rows = tuple(
        (
            named(one),
            labels[one["variant"]],
            "yes" if one["valid"] else "NO",
            count(one["requests"]),
            count(one["tool_calls"]),
            count(one["new_prefill_tokens"]),
            number(one["prefill_busy_s"]),
            number(one["prefill_tok_s"]),
            number(one["decode_tok_s"]),
            percent(one["prefill_share"]),
            percent(one["decode_share"]),
            percent(one["overlap"]),
            count(one["longest_context_tokens"]),
            number(one["server_cpu_s"]),
            number(one["wall_s"]),
        )
        for one in found["runs"]
    )
    columns = (
        *("run", "variant", "counts", "requests", "tool calls", "new prefill", "prefill busy s", "prefill tok/s"),
        *("decode tok/s", "prefill share", "decode share", "overlap", "longest context", "server CPU s", "wall s"),
    )
    return [Table(columns, rows, 3, "Runs, in the order in which they ran")] if rows else []


def _published(found: Mapping[str, Any]) -> list[Table]:
    beside = found["published"]
    if beside is None:
        return []
    rows = tuple(
        (
            row["table"],
            row["quantity"],
            row["evidence"],
            _shown(row["published"]),
            _shown(row["simulated"]),
            "" if row["off"] is None else f"{row['off']:+.1%}",
        )
        for row in beside["rows"]
    )
    columns = ("table", "quantity", "evidence", "published", "simulated", "off")
    note = beside.get("note", "the agents did other work")
    caption = f"(profile {beside['profile']}) beside published, {beside['source']}; {note}"
    return [Table(columns, rows, 3, caption, folded=True)]


def _shown(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return " to ".join(_shown(one) for one in value)
    return f"{value:,}" if isinstance(value, int) else number(value)
