"""How does a simulated probe stand beside the published one (report A, tables 1, 3, 8 and 10, and fairness)?

In the words of `agentload twin tables`: what the profile was fitted to says nothing for the twin when it comes out
again. A row stands where both sides have a number and the prompt is alike: no context before it and 25 % off in length
at most (20,000 is the nominal length, 24,676 what the report's times imply); times as a whole only within 1 %.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from agentload.analysis.beside_published import FACTOR, LARGE, SMALL
from agentload.analysis.probe import TEMPLATE_TOKENS
from agentload.artifacts.design import Design
from agentload.core.accounting import ratio
from agentload.core.estimates import expected_under_time_sharing
from agentload.core.probe import Load
from agentload.core.records import Applied
from agentload.twin import published
from agentload.twin.published import Published
from agentload.twin.rows import Evidence, Misfit, Row, Shown, free
from agentload.twin.tables import PROBE_PROFILE, SOURCE

_LARGEST: Final = 8192  # the quantum that was the ceiling
_SAME_LENGTH: Final = 0.01
_ALIKE: Final = 0.25
_AGREES: Final = 0.05
_THREE: Final = Load(3).name
_ONE: Final = Load(1).name
_TOGETHER: Final = Load(3, 3).name

Loads = Mapping[str, Mapping[str, Any]]  # by name, as analysis.probe.load or a row of a sweep has them


def of_sweep(design: Design, swept: Mapping[str, Any], profile: str) -> dict[str, Any] | None:
    """Return a sweep of the quantum on the twin beside what was published; None: it is no such sweep."""
    quanta = {one.name: one.expected.get(FACTOR) for one in design.variants}
    if not design.simulated or None in quanta.values() or len(set(quanta.values())) < len(quanta):
        return None
    found: dict[int, dict[str, Mapping[str, Any]]] = {}
    for row in swept["rows"]:
        found.setdefault(int(quanta[row["variant"]] or 0), {})[row["load"]] = row
    return beside(found, profile)


def with_published(
    summary: dict[str, Any] | None,
    sized: Mapping[str, Any] | None,
    settings: Sequence[Applied],
    server: Mapping[str, Any],
) -> dict[str, Any] | None:
    """Return a run's `probe` with how its prompts were `sized`, and `published`: null unless it is simulated."""
    if summary is None:
        return None
    profile = (server.get("simulated") or {}).get("profile")
    quantum = next((one.applied for one in settings if one.name == FACTOR), None)
    told = None
    if profile is not None and isinstance(quantum, int):
        told = beside({quantum: {one["load"]: one for one in summary["loads"]}}, str(profile))
    return summary | {"sized": sized, "published": told}


def beside(quanta: Mapping[int, Loads], profile: str) -> dict[str, Any] | None:
    """Return rows and misfits; None where nothing was published of these quanta and loads.

    Args:
        quanta: quantum -> its loads.
        profile: of the twin.
    """
    rows = _Rows(published.load(), quanta, Evidence.FITTED if profile == PROBE_PROFILE else Evidence.FREE)
    rows.load()
    rows.sweep()
    rows.gaps()
    rows.neighbours()
    rows.fairness()
    if not rows.all:
        return None
    return {
        "source": SOURCE,
        "profile": profile,
        "note": f"its prompts have about {rows.prompt_tokens:,} tokens",
        "rows": [asdict(one) for one in rows.all],
        "misfits": [asdict(one) for one in rows.misfits()],
    }


def _alike(load: Mapping[str, Any], tokens: int) -> bool:
    counted, cached = load["counted_tokens"], load["cached_tokens"]
    return counted is not None and abs(counted / tokens - 1) <= _ALIKE and (cached or 0) <= TEMPLATE_TOKENS


class _Rows:
    def __init__(self, of: Published, quanta: Mapping[int, Loads], fitted: Evidence) -> None:
        """`fitted` is the evidence of what the probe's profile was fitted to."""
        self._of = of
        self._quanta = {
            quantum: {name: one for name, one in loads.items() if _alike(one, of.probe.prompt_tokens)}
            for quantum, loads in sorted(quanta.items())
        }
        self._fitted = fitted
        self.all: list[Row] = []

    @property
    def prompt_tokens(self) -> int:
        """How long the published prompts were."""
        return self._of.probe.prompt_tokens

    def _add(
        self, table: str, quantity: str, told: Shown | None, simulated: float | None, evidence: Evidence | None = None
    ) -> None:
        if simulated is not None and told is not None:
            self.all.append(free(table, quantity, told, simulated, evidence or self._fitted))

    def _number(self, quantum: int, load: str, name: str) -> float | None:
        found = self._quanta.get(quantum, {}).get(load)
        value: float | None = None if found is None else found[name]
        return value

    def _as_long(self, quantum: int, load: str) -> bool:
        """Whether the prompt was as long as the published one."""
        tokens = self._number(quantum, load, "counted_tokens")
        return tokens is not None and abs(tokens / self._of.probe.prompt_tokens - 1) <= _SAME_LENGTH

    def load(self) -> None:
        """Table 1, rows 2 and 3."""
        of = self._of.load
        for load, words, told in (
            (_THREE, "three decoding", of.three_decoding_tok_s),
            (_ONE, "one decoding", of.one_decoding_tok_s),
        ):
            for quantum in self._quanta:
                speed = self._number(quantum, load, "prefill_tok_s")
                self._add("1", f"{words}, quantum {quantum}, tok/s", told.get(quantum), speed)
            both = ratio(self._number(LARGE, load, "prefill_tok_s"), self._number(SMALL, load, "prefill_tok_s"))
            self._add("1", f"ratio, {words}", told[LARGE] / told[SMALL], both)

    def sweep(self) -> None:
        """Table 3; shares of the ceiling only where the quantum is there that was the ceiling."""
        of = self._of.probe
        speeds = {quantum: self._number(quantum, _THREE, "prefill_tok_s") for quantum in self._quanta}
        for quantum, speed in speeds.items():
            if quantum == _LARGEST:
                self._add("3", f"quantum {quantum}, tok/s", of.tok_s_8192, speed, Evidence.FREE)
            else:
                self._add("3", f"quantum {quantum}, tok/s", of.tok_s.get(quantum), speed)
        ceiling = max((speed for speed in speeds.values() if speed is not None), default=None)
        if speeds.get(_LARGEST) is None:
            return
        self._add("3", "ceiling, tok/s", of.ceiling_tok_s, ceiling, Evidence.FREE)
        for quantum, speed in speeds.items():
            told = of.share_of_ceiling.get(quantum)
            self._add("3", f"quantum {quantum}, share of the ceiling", told, ratio(speed, ceiling))

    def gaps(self) -> None:
        """Table 10."""
        for quantum in self._quanta:
            title = f"gap between two tokens of a neighbour, quantum {quantum}, s"
            self._add("10", title, self._of.probe.gap_s.get(quantum), self._number(quantum, _THREE, "gap_s"))

    def neighbours(self) -> None:
        """The text: how long a cold prompt stalls, what the sessions write alone, and what they got in 112 s."""
        of = self._of.probe
        for quantum in self._quanta:
            alone = self._number(quantum, _THREE, "alone_tok_s")
            each = ratio(alone, of.decoders)
            title = f"decode of each of three sessions alone, quantum {quantum}, tok/s"
            self._add("text", title, of.decode_alone_tok_s, each)
            took = next(iter(self._quanta[quantum].get(_THREE, {}).get("ends_s", ())), None)
            if took is None or not self._as_long(quantum, _THREE):
                continue
            self._add("text", f"stall of a cold prompt, quantum {quantum}, s", of.stall_s.get(quantum), took)
            tokens = self._number(quantum, _THREE, "neighbour_tokens")
            if tokens is not None and alone is not None:
                window = of.neighbour_window_s
                got = tokens * min(1.0, window / took) + max(0.0, window - took) * alone
                title = f"tokens of the neighbours in {window:g} s, quantum {quantum}"
                self._add("text", title, of.neighbour_tokens.get(quantum), got, Evidence.FREE)

    def fairness(self) -> None:
        """Three cold prompts at once."""
        for quantum in self._quanta:
            told = self._of.fairness.took_s.get(quantum)
            if told is None or not self._as_long(quantum, _TOGETHER):
                continue
            name = f"three cold prompts at once, quantum {quantum}"
            ends = self._quanta[quantum][_TOGETHER]["ends_s"]
            for number, (theirs, ours) in enumerate(zip(told, ends, strict=False), 1):
                self._add("text", f"{name}: no. {number}, s", theirs, ours)
            spread = self._number(quantum, _TOGETHER, "ends_spread_s")
            self._add("text", f"{name}: spread, s", round(max(told) - min(told), 3), spread, Evidence.FREE)

    def misfits(self) -> list[Misfit]:
        """Table 8, where table 10 contradicts it: 1.08 tok/s at a gap of 4.02 s; 1.77 at 0.58 s agree."""
        of, sharing = self._of.probe, self._of.time_sharing
        found = []
        for quantum, share in sharing.utilisation.items():
            gap, used = self._number(quantum, _THREE, "gap_s"), self._number(quantum, _THREE, "utilisation")
            if gap is None or used is None or abs(sharing.decode_tok_s[quantum] * of.gap_s[quantum] - 1) <= _AGREES:
                continue
            expected = expected_under_time_sharing(of.ceiling_tok_s, share)
            found.append(
                Misfit(
                    "8",
                    f"decode of a neighbour meanwhile, quantum {quantum}, tok/s",
                    f"{sharing.decode_tok_s[quantum]} (utilisation {share:.1%}; {of.ceiling_tok_s:.0f} x (1 - it) = "
                    f"{expected:.0f} as published)",
                    f"{1 / gap:.2f} ({used:.1%})",
                    f"table 10's gap of {of.gap_s[quantum]} s is {1 / of.gap_s[quantum]:.2f} tok/s: they disagree",
                )
            )
        return found
