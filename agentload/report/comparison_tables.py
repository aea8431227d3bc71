"""The wide tables of a comparison: what each run did, and simulated beside published numbers."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from agentload.analysis.headline import named, number
from agentload.report.page import Page, percent, shortened

_OFF_DIGITS: Final = 1


def runs(page: Page, found: Mapping[str, Any]) -> None:
    """Add the table of runs, in the order in which they ran, and why some do not count."""
    listed = found["runs"]
    if not listed:
        return
    labels = {one["name"]: short(one) for one in found["variants"]}
    page.gap()
    page.table(
        "Runs, in the order in which they ran: work",
        ("run", "variant", "counts", "tool calls", "requests", "new prefill", "longest context", "wall s"),
        [
            (
                named(one),
                labels[one["variant"]],
                "yes" if one["valid"] else "NO",
                str(one["tool_calls"]),
                _count(one["requests"]),
                _count(one["new_prefill_tokens"]),
                _count(one["longest_context_tokens"]),
                number(one["wall_s"]),
            )
            for one in listed
        ],
    )
    if found["workload"] == "fixed":
        _at_each_concurrency(page, found)
    elif found["workload"] == "probe":
        _under_each_load(page, found)
    else:
        page.table(
            "Runs: speed",
            (
                *("run", "prefill busy s", "prefill tok/s", "decode tok/s", "prefill share", "decode share"),
                *("overlap", "server CPU s"),
            ),
            [
                (
                    named(one),
                    number(one["prefill_busy_s"]),
                    number(one["prefill_tok_s"]),
                    number(one["decode_tok_s"]),
                    percent(one["prefill_share"]),
                    percent(one["decode_share"]),
                    percent(one["overlap"]),
                    number(one["server_cpu_s"]),
                )
                for one in listed
            ],
        )
    for one in listed:
        for reason in one["reasons"]:
            page.say(
                f"{named(one)} does not count ({reason['code']}): {reason['message']}. {reason['advice'].rstrip('.')}."
            )


def short(variant: Mapping[str, Any]) -> str:
    """A variant's name with its value alone: A 2048 of mixed_prefill_quantum=2048."""
    name, label = str(variant["name"]), str(variant["label"])
    return name if label == name else f"{name} {shortened(label.rpartition('=')[2])}"


def _at_each_concurrency(page: Page, found: Mapping[str, Any]) -> None:
    names = [one["name"] for one in found["metrics"]]
    for start in range(0, len(names), 3):
        some = names[start : start + 3]
        page.table(
            "Runs: median of the rounds at each concurrency",
            ("run", *some),
            [(named(one), *(number(one["values"][name]) for name in some)) for one in found["runs"]],
        )


_HEADINGS: Final = {
    "prefill_tok_s": "prefill tok/s",
    "ttft_s": "ttft s",
    "decoder_gap_s": "gap s",
    "decoder_gap_p99_s": "p99 s",
    "neighbour_tok_s": "neighbours tok/s",
    "cost_ms_per_token": "ms a token",
    "ends_spread_s": "ends s",
}


def _under_each_load(page: Page, found: Mapping[str, Any]) -> None:
    for load in dict.fromkeys(one["load"] for one in found["metrics"]):
        mine = [one["name"] for one in found["metrics"] if one["load"] == load]
        page.table(
            f"Runs: median of the repeats under load {load}",
            ("run", *(_HEADINGS.get(name.removesuffix(f"_{load}"), name) for name in mine)),
            [(named(one), *(number(one["values"][name]) for name in mine)) for one in found["runs"]],
        )


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def published(page: Page, beside: Mapping[str, Any] | None) -> None:
    """Add published beside simulated numbers, and what does not fit; nothing where there are none."""
    if beside is None:
        return
    page.gap()
    page.table(
        f"SIMULATED (profile {beside['profile']}) beside published, {beside['source']}; {_note(beside)}",
        ("table", "quantity", "published", "simulated", "off", "evidence"),
        [
            (
                row["table"],
                row["quantity"],
                _shown(row["published"]),
                _shown(row["simulated"]),
                "" if row["off"] is None else f"{row['off']:+.{_OFF_DIGITS}%}",
                row["evidence"],
            )
            for row in beside["rows"]
        ],
    )
    for one in beside["misfits"]:
        page.say(
            f"misfit (table {one['table']}): {one['quantity']}: published {one['published']}, simulated "
            f"{one['simulated']}: {one['why']}"
        )


def _note(beside: Mapping[str, Any]) -> str:
    fitted = (
        "; fitted: the profile was fitted to it" if any(row["evidence"] == "fitted" for row in beside["rows"]) else ""
    )
    return str(beside.get("note", "the agents did other work")) + fitted


def _shown(value: float | Sequence[float] | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, (list, tuple)):
        return " to ".join(_shown(one) for one in value)
    return f"{value:,}" if isinstance(value, int) else number(float(str(value)))
