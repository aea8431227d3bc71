"""Is the accounting of a simulated run what the simulated server knows to be true?

Held against the ground truth are two accounts: the run's own (its log with receive stamps, joined with the client),
and one of the log's bytes alone. Of each request: the tokens, which must be equal; whose lines of the log they are; and
each boundary of its prefill and decode, which may be off by 1 % of that phase, or by the resolution of the times it
rests on where that is more. Of each segment: tokens, busy times and overlap.

Busy times are added up here by themselves, not by `core.intervals`: a mistake there must not stand on both sides.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import polars as pl

from agentload.analysis import account as accounts
from agentload.analysis import evidence as raw
from agentload.analysis import logfile, tables
from agentload.artifacts import rundir
from agentload.artifacts.rundir import RunDir
from agentload.core.records import Match
from agentload.errors import InputError
from agentload.twin import truth as truths
from agentload.twin.events import Request
from agentload.twin.face import answer_id

TRUTH: Final = "truth.jsonl"  # in a run's directory
_SHARE: Final = 0.01
_LEAST_RESOLUTION_NS: Final = 1_000_000  # durations in the log have three decimals
_DAY_NS: Final = 86_400_000_000_000
_WHOLE: Final = frozenset(("stop", "length", "tool_calls"))
_TOKENS: Final = ("prompt_tokens", "cached_tokens", "new_prefill_tokens", "decoded_tokens")
# A column of a row, the truth's name of it, and the phase that it bounds.
_BOUNDARIES: Final = (
    ("prefill_start", "prefill_start_ns", "prefill"),
    ("prefill_end", "prefill_end_ns", "prefill"),
    ("decode_start", "prefill_end_ns", "decode"),
    ("decode_end", "decode_end_ns", "decode"),
)

Row = Mapping[str, Any]
Span = tuple[int, int]


@dataclass(slots=True)
class Boundary:
    """How far one boundary was off, over all requests."""

    name: str
    compared: int = 0
    worst_ns: int = 0
    over_share: int = 0  # off by more than 1 % of the phase, yet within the resolution
    wrong: int = 0  # off by more than both
    missing: int = 0  # the truth has it, the account does not


@dataclass(frozen=True, slots=True)
class Sum:
    """A quantity of a segment: what it is in truth, and what was found."""

    segment: str
    name: str
    truth: float
    found: float | None
    allowed: float

    @property
    def holds(self) -> bool:
        """Whether the difference is allowed."""
        return self.found is not None and abs(self.found - self.truth) <= self.allowed


@dataclass(slots=True)
class View:
    """One account, compared."""

    name: str
    resolution_ns: int
    requests: int = 0  # that the account has with lines of the log
    compared: int = 0
    ambiguous: int = 0  # told apart by nothing: only sums over them are sure
    broken_off: int = 0  # cancelled or failed: no end in the log, so only A and B are compared
    attribution_errors: list[str] = field(default_factory=list)
    token_errors: list[str] = field(default_factory=list)
    boundaries: dict[str, Boundary] = field(default_factory=dict)
    sums: list[Sum] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether all of it is as it should be."""
        off = any(one.wrong or one.missing for one in self.boundaries.values())
        return not (self.attribution_errors or self.token_errors or off) and all(one.holds for one in self.sums)


@dataclass(frozen=True, slots=True)
class Check:
    """A run's accounts against its ground truth."""

    run: str
    profile: str
    seed: int
    requests: int  # that began
    views: tuple[View, ...]

    @property
    def holds(self) -> bool:
        """Whether both accounts hold."""
        return all(view.holds for view in self.views)


def check(path: Path, truth_file: Path | None = None) -> Check:
    """Account for the run at `path` anew and compare it with its ground truth (RUN/truth.jsonl, or `truth_file`).

    Raises:
        InputError: it is no run, has no log, or there is no ground truth.
        ArtifactError: a raw file does not follow its schema, or derived/ cannot be written.
    """
    run = rundir.find(path)
    first, requests = _read(truth_file or run.path / TRUTH)
    if not run.server_log.is_file():
        raise InputError(f"{run.path}: expected server.log beside the ground truth, there is none")
    began = {one.request: one for one in requests if one.prefill_start_ns is not None}
    joined = _joined(run, began, int(first["seed"]), int(first["boot"]))
    return Check(run.name, str(first["profile"]), int(first["seed"]), len(began), (joined, _log_alone(run, began)))


def _read(path: Path) -> tuple[dict[str, Any], list[Request]]:
    try:
        with path.open(encoding="utf-8") as file:
            first, events = truths.read(file)
    except OSError as error:
        raise InputError(f"{path}: expected the ground truth of a simulated run: {error.strerror}") from error
    return first, [one for one in events if isinstance(one, Request)]


# ---- log and client ------------------------------------------------------------------------------------------------


def _joined(run: RunDir, began: Mapping[str, Request], seed: int, boot: int) -> View:
    found = accounts.account(run.path)
    view = View("log + client", max(_LEAST_RESOLUTION_NS, found["clock"]["error_ns"] or 0))
    by_id = {answer_id(seed, boot, name): name for name in began}
    answers = {one.request: one.server_id for one in raw.read(run).completions}
    owners: dict[str, Request] = {}
    unsure: list[Row] = []
    rows = pl.read_parquet(run.derived / "requests.parquet").to_dicts()
    for row in rows:
        name = str(row["request"])
        sent = began.get(name) or began.get(by_id.get(str(answers.get(name)), ""))
        if row["label"] is None:
            if sent is not None:
                view.attribution_errors.append(f"{name}: the log has it, the account does not")
            continue
        view.requests += 1
        if row["match"] == Match.AMBIGUOUS:
            unsure.append(row)
            continue
        logged = _nearest(row, began.values())
        if logged is None:
            view.attribution_errors.append(f"{name}: no request has these tokens: {_integers(row)}")
        elif sent is not None and not _fits_as_well(sent, row, logged, view.resolution_ns):
            view.attribution_errors.append(f"{name}: has lines of {logged.request}, not of {sent.request}")
        else:
            owners[name] = sent or logged
            _compare(view, row, owners[name])
    taken = {one.request for one in owners.values()}
    _claim(view, unsure, {name: one for name, one in began.items() if name not in taken}, owners)
    _add_sums(view, found["segments"], rows, owners)
    return view


def _fits_as_well(sent: Request, row: Row, logged: Request, resolution_ns: int) -> bool:
    """Whether a row may as well be of the request that was sent: the same tokens, and as near as can be told."""
    start = int(row["prefill_start"] or 0)
    apart, least = (abs((one.prefill_start_ns or 0) - start) for one in (sent, logged))
    return _nearest(row, (sent,)) is sent and apart <= max(least, resolution_ns)


# ---- the log alone -------------------------------------------------------------------------------------------------


def _log_alone(run: RunDir, began: Mapping[str, Request]) -> View:
    made = logfile.read_file(run.server_log, "ds4")
    resolution_ns = made.found["clock"]["log_resolution_ns"]
    view = View("log alone", max(_LEAST_RESOLUTION_NS, resolution_ns))
    rows = [one for one in _rows(made) if one["prefill_start"] is not None]
    shift_ns = _days_between(rows, began.values())
    left = dict(began)
    owners: dict[str, Request] = {}
    unsure: list[Row] = []
    for row in sorted(rows, key=lambda one: int(one["prefill_start"])):
        view.requests += 1
        on_clock = {**row, **{name: _moved(row[name], shift_ns) for name, _, _ in _BOUNDARIES}}
        if row["match"] == Match.AMBIGUOUS:
            unsure.append(on_clock)
            continue
        owner = _nearest(on_clock, left.values())
        if owner is None:
            view.attribution_errors.append(f"{row['label']}: no request has these tokens: {_integers(row)}")
            continue
        del left[owner.request]
        owners[str(row["request"])] = owner
        _compare(view, on_clock, owner)
    _claim(view, unsure, left, owners)
    view.attribution_errors += [f"{name}: the log's account does not have it" for name in sorted(left)]
    _add_sums(view, made.found["segments"], rows, owners)
    return view


def _rows(made: logfile.LogAccount) -> list[dict[str, Any]]:
    return tables.requests_table(made.requests).to_dicts()


def _days_between(rows: Sequence[Row], began: Iterable[Request]) -> int:
    """The log's stamps have no year: how many whole days its first request lies before the truth's, ns."""
    starts = [one.prefill_start_ns for one in began if one.prefill_start_ns is not None]
    if not rows or not starts:
        return 0
    apart = min(starts) - min(int(row["prefill_start"]) for row in rows)
    return (apart + _DAY_NS // 2) // _DAY_NS * _DAY_NS


def _moved(at_ns: int | None, by_ns: int) -> int | None:
    return None if at_ns is None else at_ns + by_ns


# ---- one request ---------------------------------------------------------------------------------------------------


def _integers(row: Row) -> str:
    return f"{row['cached_tokens']}..{row['prompt_tokens']}, {row['decoded_tokens']} decoded"


def _nearest(row: Row, among: Iterable[Request]) -> Request | None:
    """The request with a row's tokens that began nearest to it; of one that was broken off, by its prompt alone."""
    fitting = [
        one
        for one in among
        if (one.prompt_tokens, one.cached_tokens) == (row["prompt_tokens"], row["cached_tokens"])
        and (one.finish not in _WHOLE or one.decoded_tokens == row["decoded_tokens"])
    ]
    start = int(row["prefill_start"] or 0)
    return min(fitting, key=lambda one: abs((one.prefill_start_ns or 0) - start), default=None)


def _claim(view: View, unsure: Sequence[Row], left: dict[str, Request], owners: dict[str, Request]) -> None:
    """Give members of groups, which are not told apart, requests with their prompt: any of them, for the sums alone."""
    for row in unsure:
        view.ambiguous += 1
        prompt = (row["prompt_tokens"], row["cached_tokens"])
        fitting = [one for one in left.values() if (one.prompt_tokens, one.cached_tokens) == prompt]
        start = int(row["prefill_start"] or 0)
        owner = min(fitting, key=lambda one: abs((one.prefill_start_ns or 0) - start), default=None)
        if owner is None:
            view.attribution_errors.append(f"{row['request']}: no request is left with this prompt: {_integers(row)}")
        else:
            owners[str(row["request"])] = left.pop(owner.request)


def _compare(view: View, row: Row, truth: Request) -> None:
    view.compared += 1
    whole = truth.finish in _WHOLE
    view.broken_off += not whole
    wrong = [name for name in _TOKENS if row[name] != getattr(truth, name)] if whole else []
    view.token_errors += [f"{row['request']}: {name} {row[name]}, in truth {getattr(truth, name)}" for name in wrong]
    for name, of_truth, phase in _BOUNDARIES:
        at_ns, expected = row[name], getattr(truth, of_truth)
        if expected is None or (at_ns is None and not whole):
            continue
        boundary = view.boundaries.setdefault(name, Boundary(name))
        if at_ns is None:
            boundary.missing += 1
            continue
        span = _spans(truth)[phase]
        off_ns, one_percent = abs(at_ns - expected), 0.0 if span is None else _SHARE * (span[1] - span[0])
        boundary.compared += 1
        boundary.worst_ns = max(boundary.worst_ns, off_ns)
        boundary.over_share += one_percent < off_ns <= view.resolution_ns
        boundary.wrong += off_ns > max(one_percent, view.resolution_ns)


def _spans(one: Request) -> dict[str, Span | None]:
    start, middle, end = one.prefill_start_ns, one.prefill_end_ns, one.decode_end_ns
    return {
        "prefill": None if start is None or middle is None else (start, middle),
        "decode": None if middle is None or end is None else (middle, end),
    }


# ---- a segment -----------------------------------------------------------------------------------------------------


def _add_sums(view: View, segments: Sequence[Mapping[str, Any]], rows: Sequence[Row], owners: Row) -> None:
    """Compare the segments' totals, where each request of a segment has its truth."""
    for segment in segments:
        name, whole = str(segment["segment"]), segment["whole"]
        inside = [row for row in rows if row["segment"] == name and row["label"] is not None]
        if any(str(row["request"]) not in owners for row in inside):
            continue
        mine: list[Request] = [owners[str(row["request"])] for row in inside]
        if all(one.finish in _WHOLE for one in mine):
            view.sums += [
                Sum(name, counted, sum(getattr(one, counted) for one in mine), whole[counted], 0) for counted in _TOKENS
            ]
        prefill, decode = (
            list(_merged(span for one in mine if (span := _spans(one)[phase]))) for phase in ("prefill", "decode")
        )
        for phase, merged in (("prefill", prefill), ("decode", decode)):
            busy = _length(merged)
            allowed = max(_SHARE * busy, view.resolution_ns)
            view.sums.append(Sum(name, f"{phase}_union_ns", busy, whole[f"{phase}_union_ns"], allowed))
        if busy := _length(prefill):
            share = _length(_common(prefill, decode)) / busy
            view.sums.append(Sum(name, "overlap", share, whole["overlap"], max(_SHARE, view.resolution_ns / busy)))


def _merged(spans: Iterable[Span]) -> Iterator[Span]:
    """Yield the union's pieces, in order."""
    begin = end = None
    for start, stop in sorted(spans):
        if begin is None or end is None:
            begin, end = start, stop
        elif start > end:
            yield begin, end
            begin, end = start, stop
        else:
            end = max(end, stop)
    if begin is not None and end is not None:
        yield begin, end


def _common(some: Sequence[Span], others: Sequence[Span]) -> Iterator[Span]:
    for start, stop in some:
        for begin, end in others:
            if max(start, begin) < min(stop, end):
                yield max(start, begin), min(stop, end)


def _length(spans: Iterable[Span]) -> int:
    return sum(stop - start for start, stop in spans)
