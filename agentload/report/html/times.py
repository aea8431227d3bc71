"""When was the server at work, and when did which agent wait? Time lines of all runs, and lanes of agents."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from agentload.core.accounting import NS_PER_S
from agentload.core.intervals import Intervals
from agentload.report.html.figure import About, Figure, Legend, Table
from agentload.report.html.svg import FONT, Drawing, Scale, linear, text_width
from agentload.report.html.views import View

Pair = tuple[int, int]

_MINUTES: Final = 600  # from so many seconds on, an axis counts minutes
_JOINED: Final = 0.5  # pixels: a gap under this cannot be seen, and is drawn closed
_SHOWN_LANES: Final = 64

PHASES: Final = (
    Legend("bar prefill", "prefill"),
    Legend("bar decode", "decode"),
    Legend("bar overlap", "overlap: one request prefills while another decodes"),
)
LANES: Final = (
    Legend("bar queued", "queued: sent, prefill not begun"),
    Legend("bar prefill", "prefill"),
    Legend("bar decode", "decode"),
    Legend("bar tool", "tool"),
    Legend("bar waits", "waiting for its first token (what for is not known)"),
)


def of_phase(view: View, phase: str) -> Intervals:
    """When any request of the run was in the phase."""
    return Intervals.of(_pairs(view.phases, phase)).union()


def _pairs(phases: Iterable[Mapping[str, Any]], phase: str) -> list[Pair]:
    return [
        (row["start"], row["end"])
        for row in phases
        if row["phase"] == phase and row["end"] is not None and row["end"] >= row["start"]
    ]


def overlap(view: View) -> Intervals:
    """When one request prefilled while another decoded: a request's own phases do not overlap."""
    return of_phase(view, "prefill").intersection(of_phase(view, "decode"))


class _Clock:
    """The time axis of a drawing: seconds since each row's own zero."""

    def __init__(self, drawing: Drawing, left: float, longest_s: float) -> None:
        minutes = longest_s >= _MINUTES
        self.unit = "min" if minutes else "s"
        unit_s = 60.0 if minutes else 1.0
        low, high, ticks = linear([0, longest_s / unit_s], 8 if drawing.width > 500 else 4)
        self.ticks = ticks
        self.scale = Scale(low, high, left, drawing.width - 14.0)
        self.ns_per_unit = unit_s * NS_PER_S
        self.ns_per_pixel = (high - low) * self.ns_per_unit / (drawing.width - 14.0 - left)

    def boxes(self, spans: Iterable[Pair], zero: int) -> list[tuple[float, float]]:
        """Spans as pixels; those that no eye could tell apart become one."""
        joined: list[list[float]] = []
        for start, end in sorted(spans):
            x, to = (self.scale((one - zero) / self.ns_per_unit) for one in (start, end))
            if joined and x - joined[-1][1] < _JOINED:
                joined[-1][1] = max(joined[-1][1], to)
            else:
                joined.append([x, to])
        return [(x, to) for x, to in joined]

    def draw(self, drawing: Drawing, top: float, bottom: float, title: str) -> None:
        free = 0.0
        for tick in self.ticks:
            x = self.scale(tick)
            drawing.line(x, top, x, bottom, "grid")
            words = f"{tick:,.6g}"
            half = text_width(words) / 2
            if x - half >= free:
                drawing.text(min(x, drawing.width - half), bottom + 15, words, anchor="middle")
                free = x + half + 6
        drawing.text(drawing.width - 14, bottom + 32, f"{title}, {self.unit}", anchor="end")


def time_lines(about: About, views: Sequence[View]) -> Figure | None:
    """All runs on one axis: prefill above decode, where they overlap shaded."""
    known = [
        (view, begin, end)
        for view in views
        if view.phases and (begin := view.begin_ns) is not None and (end := view.end_ns) is not None and end > begin
    ]
    if not known:
        return None
    longest_s = max((end - begin) / NS_PER_S for _, begin, end in known)
    spans = [
        (view, begin, of_phase(view, "prefill"), of_phase(view, "decode"), overlap(view)) for view, begin, _ in known
    ]

    def draw(width: int) -> Drawing:
        row, top = 60, 16
        d = Drawing(width, top + row * len(known) + 40)
        clock = _Clock(d, 10.0, longest_s)
        clock.draw(d, top, top + row * len(known), "time since the run's first marker")
        for at, (view, begin, prefill, decode, both) in enumerate(spans):
            y = top + at * row
            shown = " ".join(filter(None, (view.name, view.label, "" if view.counts else "(does not count)")))
            d.text(10, y + FONT + 1, shown, kind="t name")
            d.bars(clock.boxes(both.pairs(), begin), y + 16, 36, "overlap")
            d.bars(clock.boxes(prefill.pairs(), begin), y + 21, 11, "prefill")
            d.bars(clock.boxes(decode.pairs(), begin), y + 36, 11, "decode")
        return d

    rows = tuple(
        (view.name, view.label, *(f"{one.measure_ns() / NS_PER_S:,.1f}" for one in (prefill, decode, both)))
        for view, _, prefill, decode, both in spans
    )
    alt = f"{len(known)} runs over {longest_s:,.0f} s; seconds of prefill, of decode, of both at once: "
    return about.figure(
        "time-lines",
        "Time lines: prefill above, decode below",
        alt + "; ".join(f"{name} {', '.join(told)}" for name, _, *told in rows),
        draw,
        words="A bar stands while any request is in the phase. Pauses too short to be seen at this width are drawn "
        "closed; the table is exact." + _waits(views, overlapping=any(len(both) for *_, both in spans)),
        legend=PHASES if any(len(both) for *_, both in spans) else PHASES[:2],
        table=Table(("run", "variant", "prefill busy s", "decode busy s", "both s"), rows, texts=2),
    )


def _waits(views: Sequence[View], *, overlapping: bool) -> str:
    formats = {view.account["lines"]["format"] for view in views}
    if overlapping and formats & {"llamacpp", "ds4"}:
        return " A decode interval of this server includes waiting while another request prefills."
    if None in formats:
        return " There is no server log: the times are the client's, network and queue in them."
    return ""


# ---- lanes -----------------------------------------------------------------------------------------------------------


def lanes(about: About, view: View) -> Figure | None:
    """One lane for each agent of a run: queued, prefill, decode, tool."""
    begin, end = view.begin_ns, view.end_ns
    agents = sorted({row["agent"] for row in view.phases if row["agent"] is not None}, key=_natural)
    if begin is None or end is None or end <= begin or not agents:
        return None
    kinds: dict[str, dict[str, list[Pair]]] = {agent: defaultdict(list) for agent in agents}
    for row in view.phases:
        if row["agent"] is not None and row["end"] is not None and row["end"] >= row["start"]:
            kinds[row["agent"]][row["phase"]].append((row["start"], row["end"]))
    for row in view.requests:
        if row["agent"] in kinds and (waited := _waited(row)) is not None:
            kinds[row["agent"]][waited[0]].append(waited[1:])
    shown = agents[:_SHOWN_LANES]
    longest_s = (end - begin) / NS_PER_S

    def draw(width: int) -> Drawing:
        many = len(shown) > 12
        row, top = (16, 18) if many else (26, 18)
        height = row - (4 if many else 8)
        d = Drawing(width, top + row * len(shown) + 40)
        left = min(max(text_width(agent) for agent in shown) + 12, width * 0.3)
        clock = _Clock(d, left, longest_s)
        clock.draw(d, top, top + row * len(shown), "time since the run's first marker")
        for at, agent in enumerate(shown):
            y = top + at * row
            d.text(left - 6, y + height / 2 + 4, agent, anchor="end")
            for kind, thin in (
                ("waits", True),
                ("queued", True),
                ("tool", True),
                ("prefill", False),
                ("decode", False),
            ):
                spans = Intervals.of(kinds[agent][kind]).union().pairs() if kinds[agent][kind] else []
                inset = height * 0.3 if thin else 0.0
                d.bars(clock.boxes(spans, begin), y + inset, height - 2 * inset, kind)
        return d

    rows = tuple(
        (agent, *(_seconds(kinds[agent][kind]) for kind in ("queued", "prefill", "decode", "tool"))) for agent in shown
    )
    words = "Thin: queued, and tools at work."
    if len(agents) > len(shown):
        words += f" {len(shown)} of {len(agents)} agents are drawn."
    used = {kind for agent in shown for kind, spans in kinds[agent].items() if spans}
    return about.figure(
        f"lanes-{anchor(view.name)}",
        f"What each agent was at: {' '.join(filter(None, (view.name, view.label)))}",
        f"lanes of {len(shown)} agents over {longest_s:,.0f} s; seconds queued, in prefill, decode, tools: "
        + "; ".join(f"{agent} {', '.join(told)}" for agent, *told in rows),
        draw,
        words=words,
        legend=[one for one in LANES if one.look.split()[1] in used],
        table=Table(("agent", "queued s", "prefill s", "decode s", "tool s"), rows),
    )


def anchor(text: str) -> str:
    """A name as part of an id."""
    return "".join(char if char.isascii() and char.isalnum() else "-" for char in text)


def _seconds(spans: Sequence[Pair]) -> str:
    return f"{Intervals.of(spans).measure_ns() / NS_PER_S:,.1f}" if spans else "-"


def _waited(row: Mapping[str, Any]) -> tuple[str, int, int] | None:
    """What a request waited for before its prefill began, or its first token came where the log does not tell."""
    sent, began, token = row["t_sent"], row["prefill_start"], row["t_first_token"]
    if sent is None:
        return None
    if began is not None and row["prefill_source"] != "client":
        return ("queued", sent, began) if began > sent else None
    if began is None and token is not None and token > sent:
        return ("waits", sent, token)
    return None


def _natural(name: str) -> list[tuple[int, int | str]]:
    """a2 before a10."""
    parts: list[tuple[int, int | str]] = []
    digits = ""
    for char in name + "\0":
        if char.isdecimal():
            digits += char
            continue
        if digits:
            parts.append((0, int(digits)))
            digits = ""
        parts.append((1, char))
    return parts
