"""What did it cost the neighbours, how much came from the cache, what was accepted, how much memory was left?"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from agentload.analysis.headline import number
from agentload.core.accounting import NS_PER_S
from agentload.report.comparison_tables import short
from agentload.report.html.figure import About, Figure, Legend, Table, variant_look
from agentload.report.html.speed import legend
from agentload.report.html.svg import FONT, Axis, Drawing, Plot, Scale, linear, logarithmic, text_width
from agentload.report.html.views import View

_GIB: Final = 1 << 30
_TURN_BARS: Final = 40  # bars a picture holds at a phone's width
_PIXELS: Final = 300  # memory is drawn as its lowest value in each of so many parts

_GAPS: Final = (("gap_s", "median"), ("gap_p99_s", "p99"), ("gap_longest_s", "longest"))


def gaps(about: About, rows: Sequence[Mapping[str, Any]]) -> Figure | None:
    """How long nothing came from a decoder while the cold prompt was computed; None without decoders.

    Args:
        about: of the page.
        rows: of a sweep, or a run's loads.
    """
    told = [
        (_row_name(row), [row.get(key) for key, _ in _GAPS], row)
        for row in rows
        if row["decoders"] and row["gap_s"] is not None
    ]
    if not told:
        return None
    values = [value for _, found, _ in told for value in found if value]
    low, high, ticks = logarithmic(values)

    def draw(width: int) -> Drawing:
        row, top = 26, 24
        d = Drawing(width, top + row * len(told) + 40)
        left = min(max(text_width(name) for name, *_ in told) + 14, width * 0.42)
        x = Scale(low, high, left, width - 16.0, log=True)
        bottom = top + row * len(told)
        free = 0.0
        for tick in ticks:
            at, words = x(tick), f"{tick:,.6g}"
            d.line(at, top - 4, at, bottom, "grid")
            if at - text_width(words) / 2 > free:
                d.text(at, bottom + 16, words, anchor="middle")
                free = at + text_width(words) / 2 + 6
        d.text(width - 14, bottom + 33, "gap between two tokens, s (log)", anchor="end")
        for at, (name, found, _) in enumerate(told):
            y = top + at * row + row / 2
            d.text(left - 8, y + 4, name, anchor="end")
            known = [value for value in found if value]
            d.line(x(min(known)), y, x(max(known)), y, "range v0")
            for kind, value in enumerate(found):
                if value:
                    d.mark(
                        x(value),
                        y,
                        4.5,
                        kind,
                        hint=f"{name}: {_GAPS[kind][1]} {value:.3f} s",
                        kind=f"point {variant_look(kind)}",
                    )
        return d

    table = tuple((name, *("-" if value is None else f"{value:.3f}" for value in found)) for name, found, _ in told)
    return about.figure(
        "gaps",
        "Gaps of the decoders while a cold prompt was computed",
        "gaps in seconds, median, p99, longest: " + "; ".join(f"{name} {', '.join(found)}" for name, *found in table),
        draw,
        words="By the client's clock: how long no token came from an agent that was writing.",
        legend=[Legend(f"mark {variant_look(at)} s{at}", words) for at, (_, words) in enumerate(_GAPS)],
        table=Table(("", "median s", "p99 s", "longest s"), table),
    )


def _row_name(row: Mapping[str, Any]) -> str:
    """Of a sweep's row the variant before its load; of a run's the load."""
    if "variant" not in row:
        return str(row["load"])
    return f"{short({'name': row['variant'], 'label': row['label']})[:18]} {row['load']}"


def equal_work(about: About, variants: Sequence[Mapping[str, Any]]) -> Figure | None:
    """The estimate for one amount of work, prefill and decode end to end; None where no variant has it."""
    told = [(short(one)[:24], one["equal_work"]) for one in variants if one["equal_work"] is not None]
    if not told:
        return None
    first = told[0][1]
    low, high, _ = linear([one["total_s"] for _, one in told], 5)

    def draw(width: int) -> Drawing:
        row, top = 44, 4
        d = Drawing(width, top + row * len(told) + 4)
        x = Scale(low, high, 4.0, width - 70.0)
        for at, (name, one) in enumerate(told):
            y = top + at * row
            middle, end = x(one["prefill_s"]), x(one["total_s"])
            d.text(4, y + FONT + 1, name, kind="t name")
            d.box(4, y + 18, middle - 4, 18, "prefill", f"{name}: prefill {number(one['prefill_s'])} s")
            d.box(middle, y + 18, end - middle, 18, "decode", f"{name}: decode {number(one['decode_s'])} s")
            d.text(end + 6, y + 31, f"{number(one['total_s'])} s")
        return d

    rows = tuple(
        (name, number(one["prefill_s"]), number(one["decode_s"]), number(one["total_s"])) for name, one in told
    )
    return about.figure(
        "equal-work",
        "Equal work: an estimate",
        "estimated seconds for equal work: " + "; ".join(f"{name} {total}" for name, _, _, total in rows),
        draw,
        words=f"ESTIMATE: what {first['new_prefill_tokens']:,} new prefill and {first['decoded_tokens']:,} decoded "
        "tokens take at the pooled speeds, laid end to end: an upper bound on the time.",
        legend=[Legend("bar prefill", "prefill"), Legend("bar decode", "decode")],
        table=Table(("variant", "prefill s", "decode s", "total s"), rows),
    )


# ---- cached against new ----------------------------------------------------------------------------------------------


def cached_by_turn(about: About, views: Sequence[View]) -> Figure | None:
    """Of a prompt, tokens from the cache and new ones, by turn: means over the agents of all runs that count."""
    sums, unknown, there_are = _by_turn([view for view in views if view.counts])
    last = max((turn for turns in sums.values() for turn in turns), default=0)
    if last < 1:
        return None
    labels = {view.variant: view.label for view in views}
    step = -(-(last + 1) // _TURN_BARS)
    bars = {variant: _bars(turns, step) for variant, turns in sorted(sums.items())}
    most = max(cached + new for found in bars.values() for _, cached, new, _ in found)
    low, high, ticks = linear([most], 3)

    def draw(width: int) -> Drawing:
        panel, top = 150, 34
        d = Drawing(width, top + panel * len(bars) + 12)
        left = text_width(f"{high:,.0f}") + 10
        x = Scale(0, (last + 1), left, width - 10.0)
        d.text(2, 12, "tokens of a prompt, mean")
        for at, (variant, found) in enumerate(bars.items()):
            bottom = top + at * panel + panel - 40
            y = Scale(low, high, bottom, top + at * panel + 6.0)
            for tick in ticks:
                d.line(left, y(tick), width - 10, y(tick), "grid")
                d.text(left - 6, y(tick) + 4, f"{tick:,.0f}", anchor="end")
            d.text(left + 4, top + at * panel, labels[variant], kind="t name")
            for turn, cached, new, count in found:
                begin, end = x(turn) + 0.5, x(min(turn + step, last + 1)) - 0.5
                told = f"{_turns(turn, step, last)}: cached {cached:,.0f}, new {new:,.0f} ({count} requests)"
                d.box(begin, y(cached), end - begin, bottom - y(cached), "cached", told)
                d.box(begin, y(cached + new), end - begin, y(cached) - y(cached + new), "new", told)
            for turn in range(0, last + 1, max(step, -(-(last + 1) // (12 if width > 500 else 6)))):
                if x(turn) + text_width(str(turn)) + 2 <= width:
                    d.text(x(turn) + 2, bottom + 15, str(turn))
        d.text(width - 10, top + panel * len(bars) + 4, "turn of the agent, from 0", anchor="end")
        return d

    rows = tuple(
        (labels[variant] or "all", _turns(turn, step, last), f"{cached:,.0f}", f"{new:,.0f}", str(count))
        for variant, found in bars.items()
        for turn, cached, new, count in found
    )
    alt = "; ".join(
        f"{labels[variant] or 'all'}: {sum(c * n for _, c, _, n in found):,.0f} cached and "
        f"{sum(w * n for _, _, w, n in found):,.0f} new tokens"
        for variant, found in bars.items()
    )
    left_out = (
        f" {unknown:,} of {there_are:,} requests are left out: their cached tokens are not known." if unknown else ""
    )
    return about.figure(
        "cached-by-turn",
        "Cached against new tokens, by turn",
        f"mean tokens of a prompt by turn; {alt}",
        draw,
        words="A new bar that grows with the turns means that contexts are computed again." + left_out,
        legend=[Legend("bar cached", "cached"), Legend("bar new", "new prefill")],
        table=Table(("variant", "turn", "cached", "new", "requests"), rows, texts=1),
    )


def _by_turn(views: Sequence[View]) -> tuple[dict[int, dict[int, list[int]]], int, int]:
    """Return variant -> turn -> [cached, new, requests]; how many requests' counts are not known; and of how many."""
    sums: dict[int, dict[int, list[int]]] = {}
    unknown = there_are = 0
    for view in views:
        for row in view.requests:
            if row["turn"] is None:
                continue
            there_are += 1
            if row["cached_tokens"] is None or row["new_prefill_tokens"] is None:
                unknown += 1
                continue
            cell = sums.setdefault(view.variant, {}).setdefault(row["turn"], [0, 0, 0])
            cell[0] += row["cached_tokens"]
            cell[1] += row["new_prefill_tokens"]
            cell[2] += 1
    return sums, unknown, there_are


def _bars(turns: Mapping[int, Sequence[int]], step: int) -> list[tuple[int, float, float, int]]:
    """(first turn, mean cached, mean new, requests) of each bar."""
    found: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
    for turn, (cached, new, count) in turns.items():
        cell = found[turn // step * step]
        cell[0] += cached
        cell[1] += new
        cell[2] += count
    return [(turn, cached / count, new / count, count) for turn, (cached, new, count) in sorted(found.items())]


def _turns(turn: int, step: int, last: int) -> str:
    end = min(turn + step - 1, last)
    return str(turn) if end == turn else f"{turn}-{end}"


# ---- speculation, memory ---------------------------------------------------------------------------------------------


def acceptance(about: About, views: Sequence[View]) -> Figure | None:
    """How often the token at each position of a draft was accepted; None where no log tells."""
    told = [(view, found) for view in views if view.counts and (found := _acceptance(view))]
    if not told:
        return None
    places = max(len(found) for _, found in told)

    def draw(width: int) -> Drawing:
        plot = Plot(
            width,
            240,
            Axis("position in the draft, from 1", 0.5, places + 0.5, range(1, places + 1)),
            Axis("part that was accepted", 0, 1, (0, 0.25, 0.5, 0.75, 1)),
        )
        for view, found in told:
            look = variant_look(view.variant)
            points = [(plot.x(at), plot.y(part)) for at, part in enumerate(found, 1)]
            plot.drawing.path(points, f"line {look}")
            for at, (x, y) in enumerate(points, 1):
                hint = f"{view.name} position {at}: {found[at - 1]:.1%}"
                plot.drawing.mark(x, y, 4, view.variant, hint=hint, kind=f"point {look}")
        return plot.drawing

    rows = tuple((view.name, view.label, *(f"{part:.1%}" for part in found)) for view, found in told)
    return about.figure(
        "acceptance",
        "Speculative decoding: acceptance by position",
        "part of drafted tokens that was accepted, by position: "
        + "; ".join(f"{name} {', '.join(found)}" for name, _, *found in rows),
        draw,
        words="Of the server's statistics lines; weighted by drafts.",
        legend=legend([view for view, _ in told]),
        table=Table(("run", "variant", *(str(at) for at in range(1, places + 1))), rows, texts=2),
    )


def _acceptance(view: View) -> list[float] | None:
    found = view.account.get("statistics")
    parts = [] if found is None else found["parts"]
    mine = {one["segment"] for one in view.segments}
    of_segment = [one for one in parts if one["segment"] in mine and one["speculation"] is not None]
    whole = [one for one in parts if one["segment"] is None and one["speculation"] is not None]
    chosen = of_segment if len(of_segment) == 1 else whole
    return chosen[0]["speculation"]["acceptance_by_position"] if chosen else None


def memory(about: About, views: Sequence[View]) -> Figure | None:
    """Free memory of the machine and of its fullest device while each run lasted; None where nobody looked."""
    lines = []
    for view in views:
        begin = view.begin_ns
        for key, place in (("host_free_bytes", "machine"), ("device_free_bytes", "device")):
            points = [
                ((row["t"] - begin) / NS_PER_S, row[key] / _GIB)
                for row in view.samples
                if begin is not None and row.get(key) is not None
            ]
            if len(points) > 1:
                lines.append((view, place, sorted(points)))
    if not lines:
        return None
    longest_s = max(points[-1][0] for *_, points in lines)
    unit, per = ("min", 60.0) if longest_s >= 600 else ("s", 1.0)
    x_low, x_high, x_ticks = linear([0, longest_s / per], 6)
    y_low, y_high, y_ticks = linear([gib for *_, points in lines for _, gib in points], 4)

    def draw(width: int) -> Drawing:
        plot = Plot(
            width,
            240,
            Axis(f"time since the run's first marker, {unit}", x_low, x_high, x_ticks),
            Axis("free memory, GiB", y_low, y_high, y_ticks),
        )
        for view, place, points in lines:
            thin = [(plot.x(at / per), plot.y(gib)) for at, gib in _lowest(points, longest_s)]
            plot.drawing.path(thin, f"line {'dashed ' if place == 'device' else ''}{variant_look(view.variant)}")
        return plot.drawing

    rows = tuple(
        (view.name, view.label, place, f"{min(gib for _, gib in points):.2f}") for view, place, points in lines
    )
    devices = any(place == "device" for _, place, _ in lines)
    return about.figure(
        "memory",
        "Free memory",
        "smallest free memory in GiB: " + "; ".join(f"{name} {place} {gib}" for name, _, place, gib in rows),
        draw,
        words="What was available on the machine" + (", dashed: on its fullest device." if devices else "."),
        legend=legend(views),
        table=Table(("run", "variant", "of", "smallest free GiB"), rows, texts=3),
    )


def _lowest(points: Sequence[tuple[float, float]], longest: float) -> list[tuple[float, float]]:
    """The lowest point of each part of the time: what is thinned out was never lower."""
    best: dict[int, tuple[float, float]] = {}
    for at, value in points:
        cell = int(at / longest * _PIXELS) if longest else 0
        if cell not in best or value < best[cell][1]:
            best[cell] = (at, value)
    return list(best.values())
