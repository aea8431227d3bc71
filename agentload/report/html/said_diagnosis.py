"""What does a page say of why runs went as they did: who stalled whom, what was prefilled again, what to try?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agentload.analysis.diagnose import diagnose
from agentload.errors import ArtifactError, InputError
from agentload.report.html.figure import Table
from agentload.report.html.said import Doubted, count, doubted
from agentload.report.page import NONE, percent

_PAIRS: Final = 12  # rows of a table; `agentload diagnose --json` has all
_LISTED: Final = 8


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """The diagnosis of one run, or of all runs of an experiment."""

    tables: Sequence[Table]
    again: Sequence[str]  # a sentence for each request that prefilled again, the worst ones
    tries: Sequence[str]
    doubts: Sequence[Doubted]
    how: Sequence[str]
    missing: Sequence[str]  # why there is none of a run


def of_runs(runs: Sequence[tuple[str, Path]]) -> Diagnosed | None:
    """Return what is found of runs, (name, directory) each; None where there is nothing to say."""
    found: dict[str, dict[str, Any]] = {}
    missing = []
    for name, path in runs:
        try:
            found[name] = diagnose(path)
        except (ArtifactError, InputError) as error:  # it reads raw files, which a page can do without
            missing.append(f"{name}: no diagnosis: {error}")
    if not found and not missing:
        return None
    one = next(iter(found.values())) if len(found) == 1 else None
    if one is not None:
        tables = [*_stalls(one["stalls"]), *_causes(one["again"])]
    else:
        tables = [_summary(found)] if found else []
        tables += [table for name, each in found.items() for table in _folded(name, each)]
    return Diagnosed(
        tables,
        [] if one is None else [_sentence(each) for each in one["again"]["listed"][:_LISTED]],
        _tries(found),
        doubted([doubt for each in found.values() for doubt in each["doubts"]]),
        list(dict.fromkeys(each[part]["how"] for each in found.values() for part in ("stalls", "again"))),
        missing,
    )


def _summary(found: Mapping[str, Mapping[str, Any]]) -> Table:
    rows = []
    for name, one in found.items():
        agents, again = one["stalls"]["agents"], one["again"]
        known = one["stalls"]["by"] is not None
        stalled = sum(each["stalled_s"] or 0.0 for each in agents)
        decode = sum(each["decode_s"] or 0.0 for each in agents)
        causes = ", ".join(each["title"] for each in again["causes"]) or NONE
        rows.append(
            (
                name,
                _s(stalled if known else None),
                percent(stalled / decode if known and decode else None),
                _s(max((each["longest_s"] or 0.0 for each in agents), default=None) if known else None, 2),
                count(again["again_tokens"] if again["requests"] > again["unknown_counts"] else None),
                count(again["new_prefill_tokens"]),
                causes,
            )
        )
    columns = ("run", "stalled s", "of decode", "longest s", "tokens again", "of new prefill", "why prefilled again")
    caption = "Decode time lost to others' prefills, a run's agents added up; tokens that were prefilled again"
    return Table(columns, tuple(rows), 1, caption)


def _folded(name: str, one: Mapping[str, Any]) -> list[Table]:
    return [
        Table(table.columns, table.rows, table.texts, f"{name}: {table.caption}", folded=True)
        for table in [*_stalls(one["stalls"])[1:2], *_causes(one["again"])]
    ]


def _stalls(stalls: Mapping[str, Any]) -> list[Table]:
    if stalls["by"] is None:
        return []
    waited = tuple(
        (
            str(one["agent"]),
            _s(one["decode_s"]),
            _s(one["beside_prefill_s"]),
            _s(one["stalled_s"]),
            percent(one["share"]),
            str(one["stalls"]),
            _s(one["longest_s"], 2),
        )
        for one in stalls["agents"]
    )
    pairs = tuple(
        (
            str(one["agent"]),
            one["by_agent"] or "(not ours)",
            _s(one["stalled_s"]),
            str(one["stalls"]),
            _s(one["longest_s"], 2),
            str(one["largest_request"]),
            count(one["largest_new_tokens"]),
            count(one["largest_context_start"]),
        )
        for one in stalls["pairs"][:_PAIRS]
    )
    columns = ("agent", "decode s", "beside prefill s", "stalled s", "of decode", "stalls", "longest s")
    by = ("agent", "waited for", "stalled s", "stalls", "longest s", "largest prefill", "new tokens", "at context")
    return [
        Table(columns, waited, 1, "Who waited: decode time, of it beside others' prefills, and lost to them"),
        Table(by, pairs, 2, "Who stalled whom, most first"),
    ]


def _causes(again: Mapping[str, Any]) -> list[Table]:
    rows = tuple(
        (one["title"], str(one["requests"]), count(one["again_tokens"]), _s(one["prefill_s"]))
        for one in again["causes"]
    )
    columns = ("cause", "requests", "tokens again", "prefill s of these requests")
    return [Table(columns, rows, 1, "Why contexts were prefilled again")] if rows else []


def _sentence(one: Mapping[str, Any]) -> str:
    proofs = "; ".join(f"{proof['file']}:{proof['line']}: {proof['text']}" for proof in one["proofs"])
    return (
        f"{one['request']}: {count(one['again_tokens'])} of {count(one['before_tokens'])} tokens again. "
        f"{one['title']}: {one['sentence']}{f' [{proofs}]' if proofs else ''}"
    )


def _tries(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Each flag once, with the runs for which it was said."""
    runs: dict[tuple[str, str], list[str]] = {}
    because: dict[tuple[str, str], str] = {}
    had: dict[tuple[str, str], dict[str, None]] = {}  # the flag's values in force, in the order of the runs
    for name, one in found.items():
        for each in one["advice"]:
            flag = "" if each["flag"] is None else f"{each['flag']}: "
            key = (each["grade"], f"{flag}{each['sentence']}")
            runs.setdefault(key, []).append(name)
            because.setdefault(key, each["because"])
            if each["now"] is not None:
                had.setdefault(key, {})[str(each["now"])] = None
    several = len(found) > 1
    return [
        f"{grade}: {said}, because {f'in {names[0]} ' if several else ''}{because[grade, said]}"
        + (f" (said of {', '.join(names)})" if several and len(names) > 1 else "")
        + _varied(had.get((grade, said), {}))
        for (grade, said), names in runs.items()
    ]


def _varied(had: Mapping[str, None]) -> str:
    """A flag whose values these very runs differ in needs no guess: the page has what came of it."""
    return f". These runs had it at {' and '.join(had)}: the table above has what each lost" if len(had) > 1 else ""


def _s(value: float | None, digits: int = 1) -> str:
    return NONE if value is None else f"{value:,.{digits}f}"
