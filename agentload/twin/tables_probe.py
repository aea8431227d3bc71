"""Does the simulated server give what synthetic probes measured on the real one? Report A's tables 1, 3, 8, 10 and 11.

Costs come from a profile without noise; the scheduler does the rest.
"""

from itertools import pairwise
from math import log2
from typing import Final

from agentload.core.estimates import expected_under_time_sharing
from agentload.twin.options import Options
from agentload.twin.profile import Profile
from agentload.twin.published import Published
from agentload.twin.rows import Evidence, Misfit, Row, between, exact, free, in_range_or_near, near
from agentload.twin.scenarios import Probe, probe, unloaded_decode_tok_s

_FITTED: Final = Evidence.FITTED
_FREE: Final = Evidence.FREE
_SMALL: Final = 128  # the default of the flag under test
_LARGE: Final = 2048  # the idle quantum
_SWEEP: Final = (128, 512, 1024, 1536, 2048, 4096, 8192)
_ODD: Final = 1536  # no divisor of the chunk cap
_CONTEXTS: Final = (16_384, 45_056, 81_920, 139_264)  # in each bucket of table 7, and where no quantum is cut in two
_APPEND: Final = 4_096  # tokens: two quanta of 2048


def _options(quantum: int, prefill_chunk: int | None = None) -> Options:
    return Options(mixed_prefill_quantum=quantum, prefill_chunk=prefill_chunk)


class ProbeTables:
    """The scenarios, each played once, and the tables they make."""

    def __init__(self, profile: Profile, published: Published) -> None:
        self._profile = profile
        self._of = published
        tokens, decoders = published.probe.prompt_tokens, published.probe.decoders
        self.sweep = {
            quantum: probe(profile, _options(quantum), tokens=tokens, decoders=decoders) for quantum in _SWEEP
        }

    def rows(self) -> list[Row]:
        """All rows, table by table."""
        return [*self._load(), *self._sweep(), *self._gaps(), *self._fairness(), *self._boundary()]

    # ---- table 1 ---------------------------------------------------------------------------------------------------

    def _load(self) -> list[Row]:
        of, table = self._of.load, "1"
        context, span = of.no_load_context_tokens, of.no_load_span_tokens
        idle = probe(self._profile, _options(_LARGE), tokens=span, start=context)
        middle = sorted(of.no_load_tok_s)[len(of.no_load_tok_s) // 2]
        rows = [near(table, f"no load, at {context:,} tokens, tok/s", middle, idle.tok_s, 0.04, _FITTED)]
        for quantum, want in of.three_decoding_tok_s.items():
            got = self.sweep[quantum].tok_s
            rows.append(near(table, f"three decoding, quantum {quantum}, tok/s", want, got, 0.04, _FITTED))
        for quantum, want in of.one_decoding_tok_s.items():
            got = self._probe(quantum, decoders=1).tok_s
            rows.append(near(table, f"one decoding, quantum {quantum}, tok/s", want, got, 0.04, _FITTED))
        three, one = of.three_decoding_tok_s, of.one_decoding_tok_s
        rows.append(free(table, "ratio, three decoding", three[_LARGE] / three[_SMALL], self._ratio(), _FITTED))
        ratio_of_one = self._probe(_LARGE, decoders=1).tok_s / self._probe(_SMALL, decoders=1).tok_s
        rows.append(free(table, "ratio, one decoding", one[_LARGE] / one[_SMALL], ratio_of_one, _FITTED))
        ratio = self._ratio_at(context, span)
        rows.append(between(table, f"ratio at {context:,} tokens", of.ratio_at_context, ratio, 1.55, 1.75, _FREE))
        return [*rows, *self._falling()]

    def _falling(self) -> list[Row]:
        """The ratio at several contexts under one load: what context alone does to it."""
        ratios = [self._ratio_at(context, _APPEND) for context in _CONTEXTS]
        name = f"ratio, {_APPEND:,} tokens at"
        rows = [
            free("text", f"{name} {context:,}", None, ratio, _FREE)
            for context, ratio in zip(_CONTEXTS, ratios, strict=True)
        ]
        falls = int(all(before > after for before, after in pairwise(ratios)))
        return [*rows, exact("text", "and it falls from each to the next (1: yes)", 1, falls, _FREE)]

    def _ratio_at(self, context: int, span: int) -> float:
        """Speed with quantum 2048 over that with 128, while the sessions write."""
        decoders = self._of.probe.decoders
        small, large = (
            probe(self._profile, _options(quantum), tokens=span, start=context, decoders=decoders).tok_s
            for quantum in (_SMALL, _LARGE)
        )
        return large / small

    def _ratio(self) -> float:
        return self.sweep[_LARGE].tok_s / self.sweep[_SMALL].tok_s

    def _probe(self, quantum: int, decoders: int) -> Probe:
        return probe(self._profile, _options(quantum), tokens=self._of.probe.prompt_tokens, decoders=decoders)

    # ---- table 3 ---------------------------------------------------------------------------------------------------

    @property
    def ceiling(self) -> float:
        """The fastest quantum of the sweep."""
        return max(one.tok_s for one in self.sweep.values())

    def _sweep(self) -> list[Row]:
        of, table = self._of.probe, "3"
        rows = [
            near(table, f"quantum {quantum}, tok/s", want, self.sweep[quantum].tok_s, 0.02, _FITTED)
            for quantum, want in of.tok_s.items()
        ]
        largest = self.sweep[max(self.sweep)].tok_s
        rows.append(in_range_or_near(table, "quantum 8192, tok/s", of.tok_s_8192, largest, 0.03, _FREE))
        fastest = max(self.sweep, key=lambda quantum: self.sweep[quantum].tok_s)
        rows.append(exact(table, "the ceiling is that of quantum", max(self.sweep), fastest, _FREE))
        rows.append(free(table, "ceiling, tok/s", of.ceiling_tok_s, self.ceiling, _FREE))
        for quantum, share in of.share_of_ceiling.items():
            got = self.sweep[quantum].tok_s / self.ceiling
            rows.append(free(table, f"quantum {quantum}, share of the ceiling", share, got, _FITTED))
        odd, even = self.sweep[_ODD].tok_s, self.sweep[_LARGE].tok_s
        rows.append(exact(table, f"quantum {_ODD} is slower than {_LARGE} (1: yes)", 1, int(odd < even), _FREE))
        return rows

    def below_interpolation(self) -> float:
        """By how much quantum 1536 is slower than what lies between 1024 and 2048."""
        low, high = self.sweep[1024].tok_s, self.sweep[2048].tok_s
        return 1 - self.sweep[_ODD].tok_s / (low + (high - low) * (log2(_ODD) - 10))

    # ---- table 10 and the text -------------------------------------------------------------------------------------

    def _gaps(self) -> list[Row]:
        of = self._of.probe
        rows = [
            near(
                "10",
                f"gap between two tokens of a neighbour, quantum {quantum}, s",
                want,
                self._gap(quantum),
                0.02,
                _FITTED,
            )
            for quantum, want in of.gap_s.items()
        ]
        low, high = of.decode_alone_tok_s
        alone = unloaded_decode_tok_s(self._profile, _options(_SMALL), of.decoders)
        rows.append(
            between("text", "decode of each of three sessions alone, tok/s", (low, high), alone, low, high, _FITTED)
        )
        for quantum, want in of.stall_s.items():
            rows.append(
                free(
                    "text",
                    f"stall of a cold prompt, quantum {quantum}, s",
                    want,
                    self.sweep[quantum].took_s[0],
                    _FITTED,
                )
            )
        for quantum, want in of.neighbour_tokens.items():
            one = self.sweep[quantum]
            left = max(0.0, of.neighbour_window_s - one.took_s[0])
            got = one.neighbour_tokens * min(1.0, of.neighbour_window_s / one.took_s[0]) + left * alone * of.decoders
            rows.append(free("text", f"tokens of the neighbours in 112 s, quantum {quantum}", want, got, _FREE))
        return rows

    def _gap(self, quantum: int) -> float:
        gap = self.sweep[quantum].gap_s
        assert gap is not None
        return gap

    def _fairness(self) -> list[Row]:
        rows: list[Row] = []
        of, tokens = self._of.fairness, self._of.probe.prompt_tokens
        for quantum, want in of.took_s.items():
            one = probe(self._profile, _options(quantum), tokens=tokens, decoders=self._of.probe.decoders, prompts=3)
            name = f"three cold prompts of {tokens:,}, quantum {quantum}"
            for number, (published, got) in enumerate(zip(want, one.took_s, strict=True), 1):
                rows.append(near("text", f"{name}: no. {number}, s", published, got, 0.02, _FITTED))
            spread, published_spread = max(one.took_s) - min(one.took_s), max(want) - min(want)
            rows.append(between("text", f"{name}: spread, s", round(published_spread, 3), spread, 0.0, 1.5, _FREE))
        return rows

    # ---- table 11 --------------------------------------------------------------------------------------------------

    def _boundary(self) -> list[Row]:
        of, table = self._of.boundary, "11"
        played = {
            chunk: probe(self._profile, _options(_SMALL, chunk), tokens=of.span_tokens, start=of.start_tokens)
            for chunk in of.calls
        }
        largest = max(played)
        rows: list[Row] = []
        for chunk, one in played.items():
            name = f"--prefill-chunk {chunk}"
            rows.append(exact(table, f"{name}, engine calls", of.calls[chunk], len(one.calls), _FREE))
            mean = of.span_tokens / len(one.calls)
            rows.append(near(table, f"{name}, mean chunk, tokens", of.mean_chunk_tokens[chunk], mean, 0.002, _FREE))
            rows.append(
                free(table, f"{name}, tok/s", of.tok_s[chunk], one.tok_s, _FITTED if chunk == largest else _FREE)
            )
            if chunk in of.loss:
                loss, want = 1 - one.tok_s / played[largest].tok_s, of.loss[chunk]
                rows.append(
                    Row(
                        table, f"{name}, loss", want, loss, "3 points", abs(loss - want) <= 0.03, _FREE, loss / want - 1
                    )
                )
        start = of.sequence_start + Options().chunk_cap
        row = probe(self._profile, _options(_SMALL), tokens=sum(of.sequence), start=start)
        rows.append(exact(table, f"chunks from {of.sequence_start} mod 4096", of.sequence, row.calls, _FREE))
        return rows

    # ---- what does not fit -----------------------------------------------------------------------------------------

    def misfits(self) -> list[Misfit]:
        """Published numbers that contradict the others, or that the model misses, with the reason."""
        of, sharing = self._of.probe, self._of.time_sharing
        low, high = of.below_interpolation_1536
        alone = unloaded_decode_tok_s(self._profile, _options(_SMALL), of.decoders)
        found = [
            Misfit(
                "3", f"quantum {_ODD}, below the line from 1024 to 2048", f"{low:.0%} to {high:.0%}",
                f"{self.below_interpolation():.1%} ({self.sweep[_ODD].tok_s:.0f} tok/s, published about 440)",
                f"the chunk cap makes {len(self.sweep[_ODD].calls)} engine calls of {self.sweep[_ODD].quanta} quanta; "
                "what more is lost is not in the model",
            ),
            Misfit(
                "1", "rows 1 and 2 as one span", "279 idle, 509 loaded", "loaded is never faster than idle",
                "279 fits a context near 177,700 tokens only, 509 a cold prompt: the rows are of different spans",
            ),
            Misfit(
                "3", "ceiling and idle quantum", "559, and 1.88 ms a token at 2048 (532)", f"{self.ceiling:.0f}",
                "the ceiling is the fastest quantum of the sweep, not an idle server",
            ),
        ]  # fmt: skip
        for quantum, share in sharing.utilisation.items():
            got = 1 / self._gap(quantum)
            expected = expected_under_time_sharing(of.ceiling_tok_s, share)
            found.append(
                Misfit(
                    "8", f"decode of a neighbour meanwhile, quantum {quantum}, tok/s",
                    f"{sharing.decode_tok_s[quantum]} (utilisation {share:.1%}; {of.ceiling_tok_s:.0f} x (1 - it) = "
                    f"{expected:.0f} as published)",
                    f"{got:.2f} ({got / alone:.1%})",
                    f"table 10's gap of {of.gap_s[quantum]} s is {1 / of.gap_s[quantum]:.2f} tok/s: they disagree",
                )
            )  # fmt: skip
        return found
