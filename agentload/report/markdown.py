"""How does a report stand in an issue or a pull request? As Markdown in which nothing but our own words is markup."""

from typing import Final

from agentload.report.html.figure import SIMULATED, Table
from agentload.report.html.said import Said
from agentload.report.html.svg import plain

_SPECIAL: Final = str.maketrans(
    {char: f"\\{char}" for char in "\\`*_[]|#~"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;", "@": "&#64;"}
)


def text(words: str) -> str:
    """Words that appear as they are: no HTML, no emphasis, no link, nobody mentioned."""
    return plain(words).translate(_SPECIAL)


def render(told: Said, *, simulated: bool) -> str:
    """Return the Markdown (GitHub's kind: with tables) of what a page says, without its figures."""
    label = f"**{SIMULATED}** " if simulated else ""
    lines = [f"### {label}{text(told.outcome)}", "", f"{label}**{text(told.sentence)}**", ""]
    lines += [f"{text(one)}<br>" for one in told.below]
    lines += ["", f"**{text(told.compared_title)}** ({text(told.what)})", ""]
    lines += [f"- {text(one)}" for one in told.compared]
    for title, items in (
        ("To mend", [text(one) for one in told.fixes]),
        ("Doubts", [f"**{text(one.code)}**: {text(one.message)}. *{text(one.advice)}.*" for one in told.doubts]),
        ("What would change the answer", [text(one) for one in told.forecast]),
    ):
        if items:
            lines += ["", f"**{title}**", "", *(f"- {one}" for one in items)]
    tables = [one for one in (told.settings, *told.tables) if one is not None]
    for one in tables:
        shown = _table(one)
        title = f"{label}{text(one.caption)}"
        summary = f"<details><summary>{label.replace('*', '')}{text(one.caption)}</summary>"
        lines += ["", *([summary, "", *shown, "", "</details>"] if one.folded else [title, "", *shown])]
    lines += ["", *(f"- {text(one)}" for one in told.notes)] if told.notes else []
    return "\n".join(lines) + "\n"


def _table(one: Table) -> list[str]:
    marks = [":--" if at < max(one.texts, 1) else "--:" for at in range(len(one.columns))]
    rows = [[text(cell) for cell in row] for row in (one.columns, *one.rows)]
    return [f"| {' | '.join(cells)} |" for cells in (rows[0], marks, *rows[1:])]
