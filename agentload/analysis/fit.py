"""Which profile of the twin would give a real run's times, how well, and what does the run not tell?

Least squares of relative errors over single engine calls and decode steps (`costlines`). An engine call of n tokens
behind s others takes n * (f(n) + c * (s + n/2)) ms, f linear in log2 n between knots, and, where others decode, a step
of a + b * rows ms before it. Decode steps while nobody prefills take a' + b' * rows. What has too few points, or cannot
be told from the rest, is not fitted: the base profile's value stays, and it is said.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import tomli_w

from agentload.analysis import costlines
from agentload.analysis import evidence as raw
from agentload.analysis.costlines import Call, CostLines, Step
from agentload.artifacts import rundir
from agentload.core.records import LogFacts
from agentload.errors import InputError
from agentload.twin.costs import Costs
from agentload.twin.profile import Profile

_KNOTS: Final = (64, 128, 256, 512, 1024, 2048, 4096)
_POINTS: Final = 5.0  # a knot is fitted when calls of so much weight lie around it
_SPREAD: Final = 4_000  # tokens of context between the calls: with less, its cost cannot be told
_LEAST_GAIN: Final = 1e-3  # of the smallest singular value to the largest, of columns of length 1
_SETTINGS: Final = ("prefill_quantum", "mixed_prefill_quantum", "prefill_chunk")

_Vector = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Fitted:
    """A value that was fitted, with its standard error."""

    name: str
    value: float
    error: float
    base: float | None  # what the base profile has
    points: int


@dataclass(frozen=True, slots=True)
class Residuals:
    """How far single points of one kind are from the fit, relative to what was measured."""

    name: str
    points: int
    rms: float
    p50: float  # of the absolute relative error
    p95: float
    bias: float  # mean of (fit - measured) / measured


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted profile, and how good it is."""

    profile: Profile
    fitted: tuple[Fitted, ...]
    residuals: tuple[Residuals, ...]
    kept: tuple[str, ...]  # what was not fitted, and why
    left_out: tuple[tuple[str, int], ...]  # lines that told nothing, and why

    def toml(self) -> str:
        """Return the profile's file."""
        return tomli_w.dumps(self.profile.model_dump(mode="json", by_alias=True))


def fit(path: Path, base: Profile, name: str) -> Fit:
    """Fit a profile called `name` to the run at `path`; what it does not tell stays as in `base`.

    Raises:
        InputError: it is no run of a ds4-server in batched mode, or tells of no engine call and no decode step.
        ArtifactError: a raw file does not follow its schema.
    """
    run = rundir.find(path)
    if not run.server_log.is_file():
        raise InputError(f"{run.path}: expected server.log, there is none")
    manifest = run.read_manifest()
    facts = raw.read_log(run.server_log, run.server_times, manifest.server.get("log_format"))
    source = f"the SIMULATED run {run.name}" if manifest.simulated else run.name
    return of_log(run.server_log, facts, base, name, source)


def of_log(log: Path, facts: LogFacts, base: Profile, name: str, source: str) -> Fit:
    """Fit to a log that has been read; `source` is what the profile says it was fitted to.

    Raises:
        InputError: as `fit`.
    """
    stated = {one.name: one.value for one in facts.settings}
    missing = [one for one in _SETTINGS if not isinstance(stated.get(one), int)]
    if facts.format != "ds4" or missing:
        raise InputError(
            f"{log}: expected the log of a ds4-server in batched mode, got one of format {facts.format} "
            f"without {', '.join(missing) or 'its settings'}"
        )
    with log.open("rb") as file:
        found = costlines.read((line.rstrip(b"\n") for line in file), facts, *(int(stated[one]) for one in _SETTINGS))
    if not found.calls and not found.steps and not found.batches:
        raise InputError(f"{log}: expected engine calls or decode steps that can be told apart, there is none")
    return of_costs(found, base, name, source)


def of_costs(found: CostLines, base: Profile, name: str, source: str) -> Fit:
    """Fit to what a log told."""
    made = _Making(base, source)
    made.decode_steps(found)
    made.engine_calls(found)
    made.kept += [
        "prefill.switch_s: calls while two prompts or more prefill are left out",
        "decode.reacquire_p, host, disk, memory, noise.boot_sd, noise.drift_per_hour: one run's lines do not tell them",
    ]
    left_out = tuple(sorted(found.left_out.items()))
    about = f"fitted to {source}; what was not fitted is as in {base.name}"
    profile = Profile.model_validate({**made.fields, "name": name, "about": about})
    return Fit(profile, tuple(made.fitted), tuple(made.residuals), tuple(made.kept), left_out)


@dataclass(frozen=True, slots=True)
class _Solved:
    values: _Vector
    errors: _Vector
    predicted: _Vector  # without what the weights do


def _solve(columns: _Vector, measured: _Vector, weights: _Vector | None = None) -> _Solved | None:
    """Least squares of the relative error; None where columns cannot be told apart or nothing is left to explain."""
    if len(measured) == 0 or measured.min() <= 0:
        return None
    weights = np.ones_like(measured) if weights is None else weights
    scaled = columns * (weights / measured)[:, None]
    lengths = np.linalg.norm(scaled, axis=0)
    if len(measured) < columns.shape[1] or not lengths.all():
        return None
    left, singular, right = np.linalg.svd(scaled / lengths, full_matrices=False)
    if singular[-1] < _LEAST_GAIN * singular[0]:
        return None
    values = (right.T @ ((left.T @ weights) / singular)) / lengths
    off = weights * (1 - columns @ values / measured)
    freedom = max(1, len(measured) - columns.shape[1])
    spread = float(off @ off) / freedom
    errors = np.sqrt(spread * np.sum((right.T / singular) ** 2, axis=1)) / lengths
    return _Solved(values, errors, columns @ values)


class _Making:
    """A profile in the making."""

    def __init__(self, base: Profile, source: str) -> None:
        self._base, self._source = base, source
        self.fields: dict[str, Any] = base.model_dump(by_alias=True)
        self.fitted: list[Fitted] = []
        self.residuals: list[Residuals] = []
        self.kept: list[str] = []

    def _note(self, part: str, name: str, value: float, error: float, points: int) -> None:
        base = float(getattr(getattr(self._base, part), name).value)
        said = f"{self._source}: least squares over {points} points, standard error {error:.2g}"
        self.fields[part][name] = {"value": value, "kind": "fitted", "source": said}
        self.fitted.append(Fitted(f"{part}.{name}", value, error, base, points))

    def _rest(self, name: str, measured: _Vector, predicted: _Vector, weights: _Vector | None = None) -> float:
        off = predicted / measured - 1
        weights = np.ones_like(off) if weights is None else weights
        rms = float(np.sqrt(np.average(off**2, weights=weights)))
        size = np.abs(off)
        p50, p95 = (float(np.quantile(size, at)) for at in (0.5, 0.95))
        self.residuals.append(Residuals(name, len(off), rms, p50, p95, float(np.average(off, weights=weights))))
        return rms

    # ---- decode ----------------------------------------------------------------------------------------------------

    def decode_steps(self, found: CostLines) -> None:
        """Steps while nobody prefills, and, where each step has a line, those right after a quantum."""
        token_ms = self._base.host.token_ms.value
        idle = [one for one in found.batches if not one.after_quantum]
        # A decode line's interval holds the server's own work on each token, too; a batch line does not.
        beside_ms = 0.0 if idle else token_ms
        self._of_steps(idle or found.steps, "idle", beside_ms, "decode steps while nobody prefills")
        after = [one for one in found.batches if one.after_quantum]
        if after:
            self._of_steps(after, "after_quantum", 0.0, "decode steps right after a quantum")

    def _of_steps(self, steps: Sequence[Step], name: str, beside_ms: float, what: str) -> None:
        names = (f"{name}_s", f"{name}_row_s")
        measured = np.array([max(one.ms - beside_ms, 1e-6) for one in steps])
        weights = np.sqrt(np.array([float(one.steps) for one in steps]))
        rows = np.array([float(one.rows) for one in steps])
        if len(set(rows.tolist())) < 2:
            seen = f"all {len(steps)} points have {rows[0]:g} rows" if steps else "there is no point"
            self.kept.append(f"decode.{names[0]}, decode.{names[1]}: two numbers of rows are needed, {seen}")
            return
        solved = _solve(np.column_stack([np.ones_like(rows), rows]), measured, weights)
        assert solved is not None  # two rows of two lengths
        for at, one in enumerate(names):
            self._note("decode", one, float(solved.values[at]) / 1e3, float(solved.errors[at]) / 1e3, len(steps))
        self._rest(what, measured, solved.predicted, weights**2)

    # ---- prefill ---------------------------------------------------------------------------------------------------

    def engine_calls(self, found: CostLines) -> None:
        """The curve over the size of a call, what context costs, and the step before a call where others decode.

        Of these as much as can be told; a cost that is not above 0 cannot. Least of all: how many times as slow as the
        base profile.
        """
        knots = _knots(found.calls)
        seen = [one for one in found.calls if len(knots) > 1 and knots[0] / 2 <= one.tokens <= knots[-1]]
        if not seen:
            self._scale(found)
            return
        calls = _Calls.of(seen, knots)
        spread = float(np.ptp(calls.context)) >= _SPREAD
        steps = not found.batches and bool(calls.stepped.any())
        for with_context, with_steps in ((True, True), (False, True), (True, False), (False, False)):
            if with_context > spread or with_steps > steps:
                continue
            known = self._known(calls, with_context=with_context, with_steps=with_steps)
            solved = _solve(calls.columns(with_context=with_context, with_steps=with_steps), calls.measured - known)
            if solved is not None and _is_cost(solved, len(knots), with_context=with_context):
                break
        else:
            self._scale(found)
            return
        if len(seen) < len(found.calls):
            found.left_out["calls of a size that too few have"] += len(found.calls) - len(seen)
        if not with_context:
            self.kept.append(
                "prefill.context_ms_per_token2: the calls, whose contexts span "
                f"{np.ptp(calls.context):.0f} tokens, do not tell it"
            )
        if not with_steps and not found.batches:
            self._keep_steps(stepped=steps)
        self._put_calls(solved, knots, len(seen), with_context=with_context, fit_steps=with_steps)
        self._rest_of_calls(calls.rows, calls.measured, solved.predicted + known)

    def _known(self, calls: "_Calls", *, with_context: bool, with_steps: bool) -> _Vector:
        """What of the measured times is taken as known, ms."""
        known = np.zeros_like(calls.measured)
        if not with_context:
            old = self._base.prefill
            known += calls.tokens * calls.context * old.scale.value * old.context_ms_per_token2.value
        return known if with_steps else known + self._step_ms(calls.rows)

    def _step_ms(self, rows: _Vector) -> _Vector:
        """What the step before a call takes, as far as is known by now."""
        part = self.fields["decode"]
        step_ms, row_ms = (1e3 * part[one]["value"] for one in ("after_quantum_s", "after_quantum_row_s"))
        return np.where(rows > 0, step_ms + row_ms * rows, 0.0)

    def _keep_steps(self, *, stepped: bool) -> None:
        why = "they cannot be told from the calls that follow" if stepped else "nobody decoded meanwhile"
        self.kept.append(f"decode.after_quantum_s, decode.after_quantum_row_s: {why}")

    def _scale(self, found: CostLines) -> None:
        """Too few calls for a curve: fit how many times as slow as the base they are."""
        rows = np.array([float(one.rows) for one in found.calls])
        measured = np.array([one.ms for one in found.calls])
        costs = Costs(self._base, 0, 0, noise=False)
        by_base = np.array([costs.engine_call_ns(one.position_tokens, one.tokens, 0) / 1e6 for one in found.calls])
        if not found.batches:
            self._keep_steps(stepped=bool(rows.any()))
        solved = _solve(by_base[:, None], measured - self._step_ms(rows)) if len(measured) >= _POINTS else None
        if solved is None or solved.values[0] <= 0:
            self.kept.append(f"prefill: {len(measured)} engine calls are too few, or do not fit the base's at all")
            return
        scale = self._base.prefill.scale.value
        self._note("prefill", "scale", scale * float(solved.values[0]), scale * float(solved.errors[0]), len(measured))
        self.kept.append("prefill.per_token_ms, context_ms_per_token2: the calls are too few for a curve of their own")
        self._rest_of_calls(rows, measured, solved.predicted + self._step_ms(rows))

    def _rest_of_calls(self, rows: _Vector, measured: _Vector, predicted: _Vector) -> None:
        alone = rows == 0
        if alone.any():
            rms = self._rest("engine calls, nothing before them", measured[alone], predicted[alone])
            said = f"{self._source}: relative residuals of {int(alone.sum())} engine calls"
            self.fields["noise"]["call_sd"] = {"value": rms, "kind": "fitted", "source": said}
        if not alone.all():
            self._rest("engine calls after a decode step", measured[~alone], predicted[~alone])

    def _put_calls(
        self, solved: _Solved, knots: Sequence[int], points: int, *, with_context: bool, fit_steps: bool
    ) -> None:
        values, errors = solved.values.tolist(), solved.errors.tolist()
        said = f"{self._source}: least squares over {points} engine calls"
        curve = dict(zip(knots, values, strict=False))
        outside = [at for at in self._base.prefill.per_token_ms.at_tokens if not knots[0] <= at <= knots[-1]]
        for at in outside:
            nearest = knots[0] if at < knots[0] else knots[-1]
            curve[at] = self._base_ms(at) * curve[nearest] / self._base_ms(nearest)
        if outside:
            sizes = ", ".join(str(at) for at in outside)
            self.kept.append(f"prefill.per_token_ms at {sizes}: too few calls; the base's, scaled to meet the fit")
        at_tokens = sorted(curve)
        self.fields["prefill"]["per_token_ms"] = {
            "at_tokens": at_tokens,
            "value": [curve[at] for at in at_tokens],
            "kind": "fitted",
            "source": said,
        }
        for number, knot in enumerate(knots):
            self.fitted.append(
                Fitted(f"prefill.per_token_ms at {knot}", values[number], errors[number], self._base_ms(knot), points)
            )
        for name, value in (("scale", 1.0), ("context_zero_tokens", 0.0)):
            self.fields["prefill"][name] = {"value": value, "kind": "fitted", "source": f"{said}: in the curve"}
        number = len(knots)
        if with_context:
            self._note("prefill", "context_ms_per_token2", values[number], errors[number], points)
            number += 1
        else:
            old = self._base.prefill
            self.fields["prefill"]["context_ms_per_token2"] |= {
                "value": old.scale.value * old.context_ms_per_token2.value
            }
        if fit_steps:
            self._note("decode", "after_quantum_s", values[number] / 1e3, errors[number] / 1e3, points)
            self._note("decode", "after_quantum_row_s", values[number + 1] / 1e3, errors[number + 1] / 1e3, points)

    def _base_ms(self, knot: int) -> float:
        """What the base profile has at a knot, in the fitted curve's terms: at no context."""
        old = self._base.prefill
        curve = old.per_token_ms
        logs = [log2(at) for at in curve.at_tokens]
        here = float(np.interp(log2(knot), logs, curve.value))
        return old.scale.value * (here - old.context_ms_per_token2.value * old.context_zero_tokens.value)


@dataclass(frozen=True, slots=True)
class _Calls:
    """Engine calls as columns, one value a call."""

    tokens: _Vector
    context: _Vector  # at their middle
    rows: _Vector
    measured: _Vector  # ms
    sizes: _Vector  # (calls, knots): tokens, shared out over the knots

    @classmethod
    def of(cls, calls: Sequence[Call], knots: Sequence[int]) -> "_Calls":
        table = np.array([(one.tokens, one.position_tokens + one.tokens / 2, one.rows, one.ms) for one in calls])
        sizes = np.array([one.tokens * _hat(knots, one.tokens) for one in calls])
        return cls(table[:, 0], table[:, 1], table[:, 2], table[:, 3], sizes)

    @property
    def stepped(self) -> _Vector:
        """1 where a decode step stands before it."""
        return (self.rows > 0).astype(np.float64)

    def columns(self, *, with_context: bool, with_steps: bool) -> _Vector:
        """Return what the times are made of: the sizes, and with them context, a step, its rows."""
        more = [(self.tokens * self.context)[:, None]] if with_context else []
        more += [self.stepped[:, None], self.rows[:, None]] if with_steps else []
        return np.column_stack([self.sizes, *more])


def _is_cost(solved: _Solved, knots: int, *, with_context: bool) -> bool:
    """Whether all of it costs something; context, whose share is small, by more than twice its error."""
    values, errors = solved.values, solved.errors
    if with_context and values[knots] <= 2 * errors[knots]:
        return False
    return bool((values[:knots] > 0).all() and (values[knots:] >= 0).all())


def _hat(knots: Sequence[int], tokens: float) -> _Vector:
    """Weights of the knots for a call of that size, as the twin reads its curve: level above, the same line below."""
    weights = np.zeros(len(knots))
    if len(knots) == 1:
        return np.ones(1)
    at = min(log2(tokens), log2(knots[-1]))
    right = next(number for number in range(1, len(knots)) if at <= log2(knots[number]))
    low, high = log2(knots[right - 1]), log2(knots[right])
    weights[right] = (at - low) / (high - low)
    weights[right - 1] = 1 - weights[right]
    return weights


def _knots(calls: Sequence[Call]) -> tuple[int, ...]:
    """Return the sizes that enough calls lie around; dropping one moves its calls to its neighbours."""
    knots = list(_KNOTS)
    while knots:
        weights = sum((_hat(knots, one.tokens) for one in calls), np.zeros(len(knots)))
        least = int(np.argmin(weights))
        if weights[least] >= _POINTS:
            break
        del knots[least]
    return tuple(knots)
