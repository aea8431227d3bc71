"""How do the statistics of a server's log stand on a terminal?"""

from typing import Any, Final

from agentload.report.page import NONE, Page, seconds

_MOST_ROWS: Final = 30


def say(page: Page, found: dict[str, Any] | None) -> None:
    """Add the statistics of an account; nothing when its log has none."""
    if found is None:
        return
    page.gap()
    repeated = found["repeated_by_ranks"]
    ranks = f"; {repeated:,} more are of other ranks, and are counted once" if repeated else ""
    page.say(f"statistics lines in the log: {found['lines']:,}{ranks}")
    for part in found["parts"]:
        _part(page, part)
    for one in found["steps"]:
        page.say(
            f"steps of the engine (server start {one['boot']}): {one['steps']:,} in {seconds(one['elapsed_ns'])} s; "
            f"computed {one['prompt_tokens']:,} prompt tokens, and decoded in {one['decode_steps']:,} steps of one "
            f"request each, {one['decode_tokens']:,} tokens with all drafts"
        )


def _part(page: Page, part: dict[str, Any]) -> None:
    where = "the whole log" if part["segment"] is None else f"segment {part['segment']}"
    rows = part["quantities"]
    if not rows:
        page.say(f"  in {where}: none")
        return
    page.table(
        f"Statistics of {where}, as the server wrote them",
        ("quantity", "unit", "lines", "least", "median", "most", "sum"),
        [
            (
                " ".join(filter(None, (one["source"], one["kind"], one["name"]))),
                one["unit"],
                f"{one['lines']:,}",
                _g(one["least"]),
                _g(one["median"]),
                _g(one["most"]),
                NONE if one["sum"] is None else _g(one["sum"]),
            )
            for one in rows[:_MOST_ROWS]
        ],
    )
    if len(rows) > _MOST_ROWS:
        page.say(f"  and {len(rows) - _MOST_ROWS:,} more, in --json")
    if part["speculation"] is not None:
        _speculation(page, part["speculation"])


def _speculation(page: Page, found: dict[str, Any]) -> None:
    effective, error = found["effective_length"], found["effective_error"]
    length = NONE if effective is None else f"{effective:.2f}" + (f" +- {error:.2f}" if error is not None else "")
    nominal = NONE if found["nominal_length"] is None else f"{found['nominal_length']:.2f}"
    page.say(
        f"speculation: effective length {length} (tokens emitted / decode steps), nominal {nominal} "
        "(1 + sum of acceptances)"
    )
    if found["drafts"] is not None:
        shares = ", ".join(f"{100 * one:.1f}" for one in found["acceptance_by_position"] or ())
        page.say(
            f"  {found['drafts']:,} drafts of {found['drafted_tokens']:,} tokens, {found['accepted_tokens']:,} "
            f"accepted; % of drafts accepted at each position: {shares or NONE}"
        )


def _g(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}".rstrip("0")
