"""How fast was each run, at which context, and at which value of the swept setting?"""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, Final

from agentload.analysis.headline import number
from agentload.core.accounting import BUCKETS, bucket_of, speed_tok_s
from agentload.report.html.figure import About, Figure, Legend, Table, variant_look
from agentload.report.html.svg import Axis, Drawing, Plot, linear, logarithmic, tick_text
from agentload.report.html.views import View

_HINTS: Final = 400  # points that tell their numbers under the pointer; more would only make the page heavy
_POINTS: Final = 1_200  # drawn at most: more hide each other
_ROOMY: Final = 250  # so many points may be as large as they like
_EDGES: Final = (0, 30_000, 60_000, 100_000)  # where context buckets begin, as core.accounting has them


def legend(views: Sequence[View]) -> list[Legend]:
    """One line for each variant; none where there is one run."""
    found = {view.variant: view.label for view in views}
    return [Legend(f"mark {variant_look(at)} s{at % 5}", label) for at, label in sorted(found.items()) if label]


# ---- by order --------------------------------------------------------------------------------------------------------


def by_order(about: About, found: Mapping[str, Any], views: Sequence[View]) -> Figure | None:
    """Each run's value of the deciding metric, in the order in which they ran; None where no run has one."""
    metric = next(one for one in found["metrics"] if one["deciding"])
    rows = [(view, run["values"].get(metric["name"])) for view, run in zip(views, found["runs"], strict=True)]
    known = [value for _, value in rows if value is not None]
    if not known:
        return None
    low, high, ticks = linear(known, 5, zero=False)
    positions = list(range(1, len(rows) + 1))
    pooled = [(at, one["metrics"][metric["name"]]["pooled"]) for at, one in enumerate(found["variants"])]

    def draw(width: int) -> Drawing:
        names = {float(at): view.name for at, (view, _) in zip(positions, rows, strict=True)}
        plot = Plot(
            width,
            260,
            Axis("run, in the order in which they ran", 0.4, len(rows) + 0.6, positions, names=lambda at: names[at]),
            Axis(f"{metric['shown']}, {metric['unit']}", low, high, ticks),
        )
        d = plot.drawing
        for variant, value in pooled:
            if value is not None and low <= value <= high:
                d.line(plot.left, plot.y(value), plot.right, plot.y(value), f"pooled {variant_look(variant)}")
        for at, (view, value) in zip(positions, rows, strict=True):
            if value is None:
                continue
            told = f"{view.name}, {view.label}: {number(value)} {metric['unit']}"
            x, y = plot.x(at), plot.y(value)
            if view.counts:
                d.mark(x, y, 6, view.variant, hint=told, kind=f"point {variant_look(view.variant)}")
            else:
                d.mark(
                    x, y, 6, view.variant, hint=f"{told}, does not count", kind=f"hollow {variant_look(view.variant)}"
                )
        return d

    words = _order_words(rows, low)
    alt = f"{metric['shown']} of {len(known)} runs in their order: " + ", ".join(
        f"{view.name} {number(value)}" for view, value in rows
    )
    return about.figure(
        "speed-by-order",
        "Speed of each run, in the order in which they ran",
        alt,
        draw,
        words=words,
        legend=legend(views),
        table=Table(
            ("run", "variant", "counts", f"{metric['shown']}, {metric['unit']}"),
            tuple((view.name, view.label, "yes" if view.counts else "NO", number(value)) for view, value in rows),
            texts=3,
        ),
    )


def _order_words(rows: Sequence[tuple[View, float | None]], low: float) -> str:
    words = "The dashed line is a variant's pooled value."
    if low:
        words += f" The axis begins at {tick_text(low)}, not at 0."
    if left := [view.name for view, value in rows if value is not None and not view.counts]:
        words += f" Hollow: does not count ({', '.join(left)})."
    if missing := [view.name for view, value in rows if value is None]:
        words += f" Without a value: {', '.join(missing)}."
    return words


# ---- by context ------------------------------------------------------------------------------------------------------


def by_context(about: About, views: Sequence[View]) -> Figure | None:
    """Each request's prefill speed by the context it began at, with the medians of the buckets."""
    points = [
        (view, row["context_start"], speed, row["new_prefill_tokens"], row["request"])
        for view in views
        if view.counts
        for row in view.requests
        if (speed := _speed(row)) and row["context_start"] is not None
    ]
    if len({context for _, context, *_ in points}) < 2:
        return None  # nothing to be seen by context
    medians: dict[tuple[int, str], list[float]] = {}
    for view, context, speed, _, _ in points:
        medians.setdefault((view.variant, bucket_of(context)), []).append(speed)
    most = max(tokens for *_, tokens, _ in points)
    x_low, x_high, x_ticks = linear([context for _, context, *_ in points], 6)
    y_low, y_high, y_ticks = linear([speed for _, _, speed, *_ in points], 5)
    drawn_wide = 0

    def draw(width: int) -> Drawing:
        nonlocal drawn_wide
        x = Axis("context before the prefill, tokens", x_low, x_high, x_ticks)
        plot = Plot(width, 320, x, Axis("prefill speed of the request, tok/s", y_low, y_high, y_ticks))
        d = plot.drawing
        placed = [
            (plot.x(context), plot.y(speed), view, tokens, f"{view.name} {name}: {number(speed)} tok/s, {tokens:,} new")
            for view, context, speed, tokens, name in points
        ]
        kept = thinned(placed)
        drawn_wide = max(drawn_wide, len(kept))
        largest = max(3.0, 9.0 * min(1.0, (_ROOMY / len(kept)) ** 0.5))  # many large points would be one blot
        for variant in sorted({one[2].variant for one in kept}):
            d.add(f'<g class="cloud {variant_look(variant)}">')
            for at_x, at_y, view, tokens, told in kept:
                if view.variant == variant:
                    size = 1.2 + (largest - 1.2) * (tokens / most) ** 0.5
                    d.mark(at_x, at_y, size, variant, hint=told if len(kept) <= _HINTS else "")
            d.add("</g>")
        for (variant, bucket), speeds in sorted(medians.items()):
            at = BUCKETS.index(bucket)
            begin, end = _EDGES[at], (*_EDGES[1:], x_high)[at]
            y = plot.y(median(speeds))
            right = plot.x(min(end, x_high))
            d.line(plot.x(begin), y, right, y, f"median {variant_look(variant)}")
        return d

    variants = sorted({variant for variant, _ in medians})
    labels = {view.variant: view.label or "all" for view in views}
    figure_rows = tuple(
        (
            bucket,
            *(str(len(medians.get((variant, bucket), ()))) for variant in variants),
            *(
                number(median(medians[variant, bucket]) if (variant, bucket) in medians else None)
                for variant in variants
            ),
        )
        for bucket in BUCKETS
        if any((variant, bucket) in medians for variant in variants)
    )
    alt = f"prefill speed of {len(points):,} requests by context; medians: " + "; ".join(
        f"{labels[variant]} {bucket} {number(median(speeds))} tok/s"
        for (variant, bucket), speeds in sorted(medians.items())
    )
    figure = about.figure(
        "speed-by-context",
        "Prefill speed by context",
        alt,
        draw,
        words=f"A point is a request; its area grows with its new prefill tokens (largest: {most:,}). Bars: the median "
        "of each context range.",
        legend=legend(views),
        table=Table(
            (
                "context tokens",
                *(f"requests, {labels[variant]}" for variant in variants),
                *(f"median tok/s, {labels[variant]}" for variant in variants),
            ),
            figure_rows,
        ),
    )
    return _with_left_out(figure, drawn_wide, len(points))


def _with_left_out(figure: Figure, drawn: int, there_are: int) -> Figure:
    if drawn == there_are:
        return figure
    said = (
        f" Drawn are {drawn:,} of {there_are:,} requests: of those that would hide each other, the one with the most "
    )
    return Figure(
        figure.name,
        figure.title,
        f"{figure.words}{said}new tokens. Medians and table are of all.",
        figure.wide,
        figure.narrow,
        figure.legend,
        figure.table,
    )


Placed = tuple[float, float, View, int, str]


def thinned(points: Sequence[Placed], most: int = _POINTS) -> list[Placed]:
    """Return at most about `most` points: one of each variant and cell of a grid, that with the most tokens.

    The grid gets coarser until they are few enough: the same points give the same picture.
    """
    kept = list(points)
    cell = 2.0
    while len(kept) > most:
        best: dict[tuple[int, int, int], Placed] = {}
        for one in kept:
            key = (one[2].variant, int(one[0] / cell), int(one[1] / cell))
            if key not in best or one[3] > best[key][3]:
                best[key] = one
        kept = list(best.values())
        cell *= 1.4
    return kept


def _speed(row: Mapping[str, Any]) -> float | None:
    start, end, tokens = row["prefill_start"], row["prefill_end"], row["new_prefill_tokens"]
    if None in (start, end, tokens) or end <= start:
        return None
    return speed_tok_s(tokens, end - start)


# ---- by the swept value ----------------------------------------------------------------------------------------------


def swept(about: About, found: Mapping[str, Any]) -> Figure | None:
    """Prefill speed against the value of the setting, on a log axis; None where the values are no numbers, or few."""
    lines, ceiling = _probe_lines(found) if found.get("probe_sweep") else (_agent_lines(found), None)
    values = sorted({value for points in lines.values() for value, *_ in points})
    if len(values) < (2 if found.get("probe_sweep") else 3):
        return None
    speeds = [speed for points in lines.values() for _, _, speed, _ in points]
    x_low, x_high, _ = logarithmic(values)
    y_low, y_high, y_ticks = linear([*speeds, *([] if ceiling is None else [ceiling])], 5)

    def draw(width: int) -> Drawing:
        plot = Plot(
            width,
            300,
            Axis(f"{found['factor']} (log)", x_low / 1.15, x_high * 1.15, values, log=True),
            Axis("prefill speed, tok/s", y_low, y_high, y_ticks),
        )
        d = plot.drawing
        if ceiling is not None:
            d.line(plot.left, plot.y(ceiling), plot.right, plot.y(ceiling), "ceiling")
            d.text(plot.right, plot.y(ceiling) - 5, f"ceiling {number(ceiling)} tok/s", anchor="end")
        for at, (name, points) in enumerate(lines.items()):
            look = variant_look(at)
            d.path([(plot.x(value), plot.y(speed)) for value, _, speed, _ in points], f"line {look}")
            for value, low, speed, high in points:
                d.line(plot.x(value), plot.y(low), plot.x(value), plot.y(high), f"range {look}")
                told = f"{name} at {value:g}: {number(speed)} tok/s ({number(low)} to {number(high)})"
                d.mark(plot.x(value), plot.y(speed), 4.5, at, hint=told, kind=f"point {look}")
        return d

    rows = tuple(
        (f"{value:g}", name, number(speed), number(low), number(high))
        for name, points in lines.items()
        for value, low, speed, high in points
    )
    alt = "prefill speed by value: " + "; ".join(
        f"{name} " + ", ".join(f"{value:g} {number(speed)}" for value, _, speed, _ in points)
        for name, points in lines.items()
    )
    return about.figure(
        "swept",
        f"Prefill speed by {found['factor']}",
        alt,
        draw,
        words="A vertical stroke reaches from the slowest to the fastest valid run."
        + ("" if ceiling is None else " Ceiling: the fastest speed of one prompt in the whole sweep."),
        legend=[Legend(f"mark {variant_look(at)} s{at % 5}", name) for at, name in enumerate(lines)],
        table=Table((found["factor"], "load", "tok/s", "slowest", "fastest"), rows, texts=0),
    )


Points = list[tuple[float, float, float, float]]  # value, slowest, pooled or median, fastest


def value_of(label: str) -> float | None:
    """The number that a variant's label ends with; None where it is none above 0: a log axis has no place for it."""
    try:
        value = float(label.rpartition("=")[2])
    except ValueError:
        return None
    return value if 0 < value < float("inf") else None


def _probe_lines(found: Mapping[str, Any]) -> tuple[dict[str, Points], float | None]:
    lines: dict[str, Points] = {}
    for row in found["probe_sweep"]["rows"]:
        value, speed = value_of(row["label"]), row["prefill_tok_s"]
        if value is not None and speed is not None:
            low, high = row["low_tok_s"], row["high_tok_s"]
            lines.setdefault(f"load {row['load']}", []).append(
                (value, speed if low is None else low, speed, speed if high is None else high)
            )
    return {name: sorted(points) for name, points in lines.items()}, found["probe_sweep"]["ceiling_tok_s"]


def _agent_lines(found: Mapping[str, Any]) -> dict[str, Points]:
    points = []
    for one in found["variants"]:
        told = one["metrics"].get("prefill_tok_s")
        value = value_of(one["label"])
        if value is not None and told is not None and told["pooled"] is not None:
            points.append((value, told["low"], told["pooled"], told["high"]))
    return {"pooled over valid runs": sorted(points)} if points else {}
