"""What does a probe say, on a terminal: of one run by load, and of a sweep by value?"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from agentload.analysis.probe_sweep import smallest_free
from agentload.core.probe import LEAST_GAPS
from agentload.report.page import NONE, Page, percent, shortened

_GIB: Final = 1 << 30


def run(page: Page, probe: Mapping[str, Any], segments: Sequence[Mapping[str, Any]]) -> None:
    """Add what the repeats say together, by load, and then each repeat in a line."""
    loads = probe["loads"]
    page.gap()
    page.table(
        "Probe: one cold prompt under each load, medians of the repeats (spread: their range / median)",
        ("load", "repeats", "tokens", "cached", "cold", "prefill tok/s", "spread", "of ceiling", "ttft s"),
        [
            (
                one["load"],
                str(one["repeats"]),
                _count(one["counted_tokens"]),
                _count(one["cached_tokens"]),
                _cold(one),
                _f(one["prefill_tok_s"], 1),
                percent(one["spread"]),
                percent(one["share_of_ceiling"]),
                _f(one["ttft_s"], 2),
            )
            for one in loads
        ],
    )
    if probe["ceiling_tok_s"] is not None:
        page.say(f"ceiling: {probe['ceiling_tok_s']:.1f} tok/s, the speed without load ({probe['ceiling_of']})")
    _sources(page, loads)
    beside = [one for one in loads if one["decoders"]]
    if beside:
        _neighbours(page, beside)
        _cost(page, beside)
    _together(page, loads)
    _repeats(page, [one["probe"] for one in segments if one.get("probe") is not None])
    free = smallest_free(one.get("memory") for one in segments)
    if free:
        said = ", ".join(f"{place} {_gib(size)} GiB" for place, size in free.items())
        page.say(f"smallest free memory while it was measured: {said}")


def _sources(page: Page, loads: Sequence[Mapping[str, Any]]) -> None:
    where = {
        "log": "the server's log",
        "usage": "the answers' timings",
        "client": "the client's clock: network and queue are in it",
    }
    told = dict.fromkeys(where.get(str(one["prefill_source"]), NONE) for one in loads)
    page.say(f"when a prompt was computed: by {'; '.join(told)}")


def _neighbours(page: Page, loads: Sequence[Mapping[str, Any]]) -> None:
    page.table(
        "Decoders while it was computed: gaps between tokens by the client's clock, medians of the repeats (gaps: the "
        "fewest, longest: of all repeats)",
        ("load", "gaps", "gap s", "p99 s", "longest s", "tokens", "tok/s", "alone tok/s", "used", "open"),
        [
            (
                one["load"],
                _count(one.get("gaps")),
                _f(one["gap_s"], 3),
                _f(one["gap_p99_s"], 3),
                _f(one["gap_longest_s"], 3),
                _f(one["neighbour_tokens"], 0),
                _f(one["neighbour_tok_s"], 2),
                _f(one["alone_tok_s"], 2),
                percent(one["utilisation"]),
                percent(one["covered"]),
            )
            for one in loads
        ],
    )
    page.say(
        "used: tok/s / alone tok/s; open: smallest part of the prefill time in which a decoder's answer was open: by "
        f"the logs of ds4-server and llama.cpp waiting for a token is in it; p99: of {LEAST_GAPS} gaps or more"
    )


def _cost(page: Page, loads: Sequence[Mapping[str, Any]]) -> None:
    page.table(
        "What it cost, and what time sharing alone would leave: ESTIMATES",
        ("load", "ms a token", "expected tok/s", "measured/expected", "exposure"),
        [
            (
                one["load"],
                _f(one["cost_ms_per_token"], 3),
                _f(one["expected_tok_s"], 1),
                _f(one["measured_to_expected"], 2),
                percent(one["exposure"]),
            )
            for one in loads
        ],
    )
    page.say(
        "ms a token: without decode steps; expected: ceiling x (1 - used); well below 1: prefill itself got slower; "
        "exposure: part of the prefill time in which some decoder's answer is open"
    )


def _together(page: Page, loads: Sequence[Mapping[str, Any]]) -> None:
    for one in loads:
        if one["prompts"] > 1 and one["ends_s"]:
            ends = ", ".join(f"{end:.1f}" for end in one["ends_s"])
            page.say(
                f"{one['load']}: {one['prompts']} cold prompts at once were computed after {ends} s; first to last "
                f"{_f(one['ends_spread_s'], 2)} s"
            )


def _repeats(page: Page, parts: Sequence[Mapping[str, Any]]) -> None:
    page.table(
        "Repeats, in the order in which they ran (derived/account.json has all of each)",
        ("", "tokens", "cached", "prefill s", "prefill tok/s", "ttft s", "gap s", "open"),
        [
            (
                f"{one['load']}-r{one['repeat']}",
                _count(one["counted_tokens"]),
                _count(one["cached_tokens"]),
                _f(one["prefill_s"], 2),
                _f(one["prefill_tok_s"], 1),
                _f(one["ttft_s"], 2),
                _f(one["gap_s"], 3),
                percent(one["covered"]),
            )
            for one in parts
        ],
    )


def sweep(page: Page, swept: Mapping[str, Any] | None) -> None:
    """Add the table of a sweep, a row for each value and load; nothing where there is none."""
    if swept is None:
        return
    rows = swept["rows"]
    page.gap()
    page.table(
        "Probe: cold prompts by value and load, medians of the runs (spread: over the runs, within one)",
        ("value", "load", "runs", "prefill tok/s", "of ceiling", "spread", "within", "ttft s", "cold"),
        [
            (
                _value(one),
                one["load"],
                str(one["runs"]),
                _f(one["prefill_tok_s"], 1),
                percent(one["share_of_ceiling"]),
                percent(one["spread_runs"]),
                percent(one["spread_repeats"]),
                _f(one["ttft_s"], 2),
                _cold(one),
            )
            for one in rows
        ],
    )
    if (of := swept["ceiling_of"]) is not None:
        page.say(
            f"ceiling: {swept['ceiling_tok_s']:.1f} tok/s, the fastest of the sweep with one prompt "
            f"({_value(of)}, load {of['load']})"
        )
    beside = [one for one in rows if one["decoders"]]
    if beside:
        page.table(
            "Decoders while it was computed, and what it cost (ms a token, expected: ESTIMATES)",
            (
                *("value", "load", "gaps", "gap s", "p99 s", "tokens", "used"),
                *("ms a token", "expected", "meas./exp.", "exposure"),
            ),
            [
                (
                    _value(one),
                    one["load"],
                    _count(one.get("gaps")),
                    _f(one["gap_s"], 3),
                    _f(one["gap_p99_s"], 3),
                    _f(one["neighbour_tokens"], 0),
                    percent(one["utilisation"]),
                    _f(one["cost_ms_per_token"], 3),
                    _f(one["expected_tok_s"], 1),
                    _f(one["measured_to_expected"], 2),
                    percent(one["exposure"]),
                )
                for one in beside
            ],
        )
        page.say(f"gaps: the fewest of a repeat; p99: of {LEAST_GAPS} gaps or more")
    places = list(dict.fromkeys(place for one in rows for place in one["smallest_free"]))
    if places:
        page.table(
            "Smallest free memory while it was measured, GiB",
            ("value", "load", *places),
            [(_value(one), one["load"], *(_gib(one["smallest_free"].get(place)) for place in places)) for one in rows],
        )


def _value(one: Mapping[str, Any]) -> str:
    """A variant with its value alone: A 2048 of mixed_prefill_quantum=2048."""
    name, label = str(one["variant"]), str(one["label"])
    return name if label == name else f"{name} {shortened(label.rpartition('=')[2])}"


def _count(value: int | None) -> str:
    return NONE if value is None else f"{value:,}"


def _f(value: float | None, digits: int) -> str:
    return NONE if value is None else f"{value:,.{digits}f}"


def _gib(value: int | None) -> str:
    return NONE if value is None else f"{value / _GIB:.2f}"


def _cold(one: Mapping[str, Any]) -> str:
    """Whether it was; behind a context that a cache has only the new part is."""
    if one["cold"] is None:
        return NONE
    return "NO" if not one["cold"] else "new part" if one.get("expected_cached_tokens") else "yes"
