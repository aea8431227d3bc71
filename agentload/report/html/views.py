"""Which runs does a page show, and what do the derived files of each hold?"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agentload.analysis import account as accounts
from agentload.analysis.headline import named
from agentload.analysis.steps import table
from agentload.artifacts import rundir
from agentload.report.comparison_tables import short

Row = Mapping[str, Any]

_LONGEST_LABEL: Final = 24


@dataclass(frozen=True, slots=True)
class View:
    """One run, or one segment of a run, as a page shows it."""

    name: str
    variant: int  # index of its variant; 0 where there is one run
    label: str  # of its variant
    counts: bool
    account: Mapping[str, Any]
    segments: Sequence[Mapping[str, Any]]  # its own, of account.json
    requests: Sequence[Row]  # of its segments
    phases: Sequence[Row]
    samples: Sequence[Row]

    @property
    def begin_ns(self) -> int | None:
        """The first begin marker."""
        return min((one["begin_ns"] for one in self.segments), default=None)

    @property
    def end_ns(self) -> int | None:
        """The last thing that is known of it: its end marker, or the end of a phase."""
        ends = [one["end_ns"] for one in self.segments if one["end_ns"] is not None]
        ends += [one["end"] for one in self.phases if one["end"] is not None]
        return max(ends, default=None)


def of_run(path: Path, account: Mapping[str, Any]) -> View:
    """Return the only view of a run's page.

    Raises:
        InputError, ArtifactError: a table cannot be read.
    """
    return _view(path, account, name=str(account["run"]), segment=None, variant=0, label="", counts=True)


def of_experiment(found: Mapping[str, Any], where: Callable[[str], Path]) -> list[View]:
    """Return the runs of comparison.json in the order in which they ran.

    Raises:
        InputError, ArtifactError: a run or a table of it cannot be read.
    """
    index = {one["name"]: at for at, one in enumerate(found["variants"])}
    labels = {one["name"]: short(one) for one in found["variants"]}
    accounted: dict[str, dict[str, Any]] = {}
    views = []
    for run in found["runs"]:
        path = where(run["run"])
        if run["run"] not in accounted:
            accounted[run["run"]] = accounts.load(path)
        label = labels[run["variant"]]
        views.append(
            _view(
                path,
                accounted[run["run"]],
                name=named(run),
                segment=run["segment"],
                variant=index[run["variant"]],
                label=label if len(label) <= _LONGEST_LABEL else run["variant"],
                counts=bool(run["valid"]),
            )
        )
    return views


def _view(
    path: Path, account: Mapping[str, Any], *, name: str, segment: str | None, variant: int, label: str, counts: bool
) -> View:
    run = rundir.find(path)
    segments = [one for one in account["segments"] if segment in (None, one["segment"])]
    mine = {one["segment"] for one in segments}
    begin = min((one["begin_ns"] for one in segments), default=None)
    end = max((one["end_ns"] for one in segments if one["end_ns"] is not None), default=None)
    return View(
        name,
        variant,
        label,
        counts,
        account,
        segments,
        [row for row in table(run, "requests").to_dicts() if row["segment"] in mine],
        [row for row in table(run, "phases").to_dicts() if row["segment"] in mine],
        [
            row
            for row in table(run, "samples").to_dicts()
            if begin is not None and begin <= row["t"] and (end is None or row["t"] <= end)
        ],
    )
