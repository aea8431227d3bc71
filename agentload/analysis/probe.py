"""What did each cold prompt of a probe measure, and what do its repeats say together?

Times come from where the joined requests have theirs, the log first, and `prefill_source` says which; pieces of the
decoders' answers carry the client's stamps. A piece is not a token: tokens are pieces weighed with the answer's own
tokens a piece, while gaps stay between pieces, for that is how long nothing came.

Agents of a segment: d0, d1, ... decode; p0, p1, ... are the cold prompts. Before its begin marker h0, h1, ... put the
context of p0, p1, ... into a cache, where there is one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from agentload.analysis.evidence import Evidence
from agentload.core import probe as core
from agentload.core.accounting import NS_PER_S, ratio
from agentload.core.estimates import expected_under_time_sharing
from agentload.core.intervals import Intervals
from agentload.core.probe import Load, Span, Turn
from agentload.core.records import Completion, Request, Segment, Source

TEMPLATE_TOKENS: Final = 64  # what any two prompts share before their first own word, as in analysis.taints
_TEMPLATE_SHARE: Final = 100  # and no more than so manyth of a short prompt
_KEPT: Final = 0.95  # of the context before the prompt: less, and it was computed again

_BEST_SOURCE_LAST: Final = (Source.CLIENT, Source.USAGE, Source.EXPORT, Source.SPANS, Source.LOG)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a probe was to be, and when: of the scenario and the events. Times are Unix ns."""

    tokens: int | None  # new ones of a cold prompt, as aimed at: fewer than asked for where the context is too small
    at_context: int = 0
    thrown: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)  # segment -> (throw, settled since)
    primed: Mapping[str, Mapping[str, int | None]] = field(default_factory=dict)  # segment -> h0, ... -> prompt tokens


def asked(evidence: Evidence) -> Asked | None:
    """Return what a run's probe was to be; None where its workload is another one."""
    scenario, events = evidence.manifest.scenario, evidence.probe
    if scenario.get("workload") != "probe":
        return None
    given, sized = scenario.get("probe") or {}, events.sized or {}
    tokens = sized.get("tokens", given.get("prompt_tokens"))
    return Asked(tokens, given.get("at_context") or 0, events.thrown, events.primed)


# ---- one cold prompt, or several at once -----------------------------------------------------------------------------


def segment(
    rows: Sequence[Request],
    part: Segment,
    completions: Mapping[str, Completion],
    asked: Asked | None,
    clock_error_ns: int | None = None,
) -> dict[str, Any] | None:
    """Return what account.json says of one segment of a probe; None where no cold prompt was thrown into it.

    Args:
        rows: the joined requests of the run.
        part: the segment.
        completions: the client's, by request: their stamps.
        asked: what it was to be; None: the run is no probe.
        clock_error_ns: so far the log's times may lie from the client's; None: not known, or there is no log.
    """
    named = core.load_of(part.segment)
    mine = [one for one in rows if (one.run, one.segment) == (part.run, part.segment) and one.agent is not None]
    cold = sorted((one for one in mine if _is(one, "p")), key=lambda one: one.request)
    thrown = [one.t_sent for one in cold if one.t_sent is not None]
    if asked is None or named is None or not thrown:
        return None
    load, repeat = named
    throw_ns, settled_ns = asked.thrown.get(part.segment, (min(thrown), None))
    decoders = _by_agent(one for one in mine if _is(one, "d"))
    turns = {name: [_turn(one, completions.get(one.request)) for one in theirs] for name, theirs in decoders.items()}
    primed = asked.primed.get(part.segment, {})
    context = [primed.get(f"h{(one.agent or '')[1:]}") if asked.at_context else 0 for one in cold]
    each = [_prompt(one, throw_ns, left, clock_error_ns or 0) for one, left in zip(cold, context, strict=True)]
    found: dict[str, Any] = {
        "load": load.name,
        "decoders": load.decoders,
        "prompts": load.prompts,
        "nearly_finished": load.nearly_finished,
        "repeat": repeat,
        "throw_ns": throw_ns,
        **_length(each, asked),
        **_prefill(cold),
        "clock_error_s": _s(clock_error_ns),
        "ttft_s": median_of(one["ttft_s"] for one in each),
        "each": each,
    }
    spans = [span for one in cold if (span := _span(one.prefill_start, one.prefill_end)) is not None]
    whole = len(spans) == load.prompts
    ends = [one.prefill_end for one in cold if one.prefill_end is not None]
    spread_ns = core.fairness_spread_ns(ends) if whole else None
    found["ends_spread_s"] = _s(spread_ns)
    window = (min(start for start, _ in spans), max(end for _, end in spans)) if whole else None
    return found | _beside(window, spans, load, decoders, turns, (settled_ns, throw_ns), found)


def _is(one: Request, kind: str) -> bool:
    return one.agent is not None and one.agent[:1] == kind and one.agent[1:].isdigit()


def _by_agent(rows: Iterable[Request]) -> dict[str, list[Request]]:
    found: dict[str, list[Request]] = {}
    for one in sorted(rows, key=lambda one: (one.agent or "", one.t_sent or 0)):
        found.setdefault(one.agent or "", []).append(one)
    return found


def _turn(row: Request, completion: Completion | None) -> Turn:
    stamps = () if completion is None else completion.token_ns
    tokens = row.usage_completion_tokens if row.usage_completion_tokens is not None else row.decoded_tokens
    return Turn(stamps, tokens)


def _span(start: int | None, end: int | None) -> Span | None:
    return None if start is None or end is None or end <= start else (start, end)


def _s(value_ns: float | None) -> float | None:
    return None if value_ns is None else value_ns / NS_PER_S


def median_of(values: Iterable[float | None]) -> float | None:
    """The median of what is known; None where nothing is."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _prompt(one: Request, throw_ns: int, context_tokens: int | None, error_ns: int) -> dict[str, Any]:
    """One cold prompt; its times count from the throw. `context_tokens` stood in a cache for it; None: not known.

    A prefill that would begin before the throw, by no more than the clocks' error, began 0 s after it: nobody computes
    what was not sent. Further before it stays as it is, for then something is wrong.
    """
    prompt = one.usage_prompt_tokens if one.usage_prompt_tokens is not None else one.prompt_tokens
    cached = one.cached_tokens if one.cached_tokens is not None else one.usage_cached_tokens
    allowed = min(TEMPLATE_TOKENS, (prompt or 0) // _TEMPLATE_SHARE)
    known = cached is not None and context_tokens is not None
    first = None if one.t_first_token is None or one.t_sent is None else one.t_first_token - one.t_sent
    return {
        "request": one.request,
        "prompt_tokens": prompt,
        "cached_tokens": cached,
        "expected_cached_tokens": context_tokens,
        # Under a context the new tokens are what was asked for; without one all of the prompt.
        "counted_tokens": prompt if context_tokens == 0 or prompt is None or cached is None else prompt - cached,
        "cold": (cached or 0) <= (context_tokens or 0) + allowed if known else None,
        "context_kept": (cached or 0) >= _KEPT * (context_tokens or 0) if known else None,
        "prefill_start_s": None if one.prefill_start is None else _s(_after(one.prefill_start - throw_ns, error_ns)),
        "prefill_end_s": None if one.prefill_end is None else _s(one.prefill_end - throw_ns),
        "ttft_s": _s(first),
        "error": one.error,
        "line": None if one.prefill_proof is None else one.prefill_proof.line,
    }


def _after(wait_ns: int, error_ns: int) -> int:
    return 0 if -error_ns <= wait_ns < 0 else wait_ns


def _length(each: Sequence[Mapping[str, Any]], asked: Asked) -> dict[str, Any]:
    """What was asked for and counted; of several prompts the one that is furthest off."""
    wanted = asked.tokens
    counted = [one["counted_tokens"] for one in each if one["counted_tokens"] is not None]
    cached = [one["cached_tokens"] for one in each]
    return {
        "asked_tokens": wanted,
        "counted_tokens": max(counted, key=lambda value: abs(value - (wanted or 0)), default=None),
        "cached_tokens": None if None in cached else max(cached, default=None),
        "expected_cached_tokens": each[0]["expected_cached_tokens"],
        "cold": all_of(one["cold"] for one in each),
        "context_kept": all_of(one["context_kept"] for one in each) if asked.at_context else None,
    }


def all_of(values: Iterable[bool | None]) -> bool | None:
    """False where one is false; None where one is not known, or there is none."""
    known = list(values)
    if False in known:
        return False
    return None if None in known or not known else True


def _prefill(cold: Sequence[Request]) -> dict[str, Any]:
    """Tokens over the union of the prefill intervals (PROTOCOL 1.10); null where one of the prompts has not all."""
    spans = [_span(one.prefill_start, one.prefill_end) for one in cold]
    tokens = [one.new_prefill_tokens for one in cold]
    sources = [one.prefill_source for one in cold if one.prefill_source is not None]
    known = None not in spans and all(one.error is None for one in cold)
    taken_ns = Intervals.of(span for span in spans if span is not None).measure_ns() if known else None
    total = sum(value for value in tokens if value is not None) if None not in tokens else None
    known_ones = all(one in _BEST_SOURCE_LAST for one in sources)
    worst = min(sources, key=_BEST_SOURCE_LAST.index) if sources and known_ones else None
    return {
        "prefill_tokens": total,
        "prefill_s": _s(taken_ns),
        "prefill_source": None if worst is None else worst.value,
        "prefill_tok_s": ratio(total or None, _s(taken_ns)),  # no new token: all came from a cache, or was miscounted
    }


def _beside(
    window: Span | None,
    spans: Sequence[Span],
    load: Load,
    decoders: Mapping[str, Sequence[Request]],
    turns: Mapping[str, Sequence[Turn]],
    settled: tuple[int | None, int],
    found: Mapping[str, Any],
) -> dict[str, Any]:
    """What the decoders got while the prompt was computed, and alone before; all null where nobody decodes."""
    nothing = dict.fromkeys(
        (
            *("gaps", "gaps_straddling", "gap_s", "gap_p99_s", "gap_longest_s", "tokens_per_piece"),
            *("neighbour_tokens", "neighbour_tok_s", "alone_tok_s", "settled_s", "utilisation"),
            *("covered", "throughout", "decode_steps", "step_alone_s", "cost_ms_per_token", "exposure"),
        )
    )
    if window is None:
        return nothing
    if not decoders:
        return nothing | {"exposure": 0.0, "cost_ms_per_token": _cost_ms(found, 0.0, None)}
    every = [turn for theirs in turns.values() for turn in theirs]
    waits = core.gaps(every, window)
    meanwhile = {name: core.tokens_in(theirs, window) for name, theirs in turns.items()}
    length_s = (window[1] - window[0]) / NS_PER_S
    quiet = _settled(turns, *settled)
    alone = None if quiet is None else core.speed_alone(turns.values(), quiet)
    speed = sum(meanwhile.values()) / length_s
    steps = max(meanwhile.values())  # a step of the batch gives every decoder a token
    step_s = None if alone is None else len(turns) / alone
    covered = [core.coverage(_decodes(theirs), window) for theirs in decoders.values()]
    least = min((share for share in covered if share is not None), default=None)
    stamped = [turn for turn in every if turn.stamps and turn.tokens is not None]
    pieces = sum(len(turn.stamps) for turn in stamped)
    return nothing | {
        "gaps": None if waits is None else waits.count,
        "gaps_straddling": None if waits is None else waits.straddling,
        "gap_s": None if waits is None else _s(waits.median_ns),
        "gap_p99_s": None if waits is None or waits.count < core.LEAST_GAPS else _s(waits.p99_ns),
        "gap_longest_s": None if waits is None else _s(waits.longest_ns),
        "tokens_per_piece": ratio(sum(turn.tokens or 0 for turn in stamped), pieces),
        "neighbour_tokens": sum(meanwhile.values()),
        "neighbour_tok_s": speed,
        "alone_tok_s": alone,
        "settled_s": None if quiet is None else _s(quiet[1] - quiet[0]),
        "utilisation": core.utilisation(speed, alone),
        "covered": least,
        "throughout": None if least is None else len(decoders) == load.decoders and least >= core.THROUGHOUT,
        "decode_steps": steps,
        "step_alone_s": step_s,
        "cost_ms_per_token": _cost_ms(found, steps, step_s),
        "exposure": core.exposed(spans, (span for theirs in decoders.values() for span in _decodes(theirs))),
    }


def _settled(turns: Mapping[str, Sequence[Turn]], since_ns: int | None, throw_ns: int) -> Span | None:
    """Return from when to when all decoders wrote alone: since the last of them began, where no event says it."""
    if since_ns is None:
        began = [[stamp for turn in theirs for stamp in turn.stamps] for theirs in turns.values()]
        since_ns = max(min(stamps) for stamps in began) if all(began) else None
    return None if since_ns is None or since_ns >= throw_ns else (since_ns, throw_ns)


def _decodes(rows: Iterable[Request]) -> list[Span]:
    return [span for one in rows if (span := _span(one.decode_start, one.decode_end)) is not None]


def _cost_ms(found: Mapping[str, Any], steps: float, step_s: float | None) -> float | None:
    if found["prefill_s"] is None or not found["prefill_tokens"]:
        return None
    cost = core.cost_per_token_s(found["prefill_s"], found["prefill_tokens"], steps, step_s)
    return None if cost is None else cost * 1000


# ---- repeats ---------------------------------------------------------------------------------------------------------

MEDIANS: Final = (
    *("prefill_s", "prefill_tok_s", "ttft_s", "ends_spread_s", "gap_s", "gap_p99_s", "neighbour_tokens"),
    *("neighbour_tok_s", "alone_tok_s", "utilisation", "cost_ms_per_token", "exposure"),
)
"""Numbers of a segment of which a load has the median of its repeats."""


def summary(parts: Iterable[Mapping[str, Any] | None]) -> dict[str, Any] | None:
    """Return what the repeats of each load say together; None where there is no probe.

    The ceiling of a run is its speed without load; null where it has none. A sweep's: `analysis.probe_sweep`.

    Args:
        parts: `probe` of each segment.
    """
    repeats: dict[str, list[Mapping[str, Any]]] = {}
    for one in parts:
        if one is not None:
            repeats.setdefault(one["load"], []).append(one)
    if not repeats:
        return None
    order = sorted(repeats, key=lambda name: _load(repeats[name][0]).rank)
    alone = core.Load(0).name
    ceiling = median_of(one["prefill_tok_s"] for one in repeats.get(alone, ()))
    return {
        "ceiling_tok_s": ceiling,
        "ceiling_of": None if ceiling is None else alone,
        "loads": [one | shares(one, ceiling) for one in (load(name, repeats[name]) for name in order)],
    }


def _load(one: Mapping[str, Any]) -> Load:
    return Load(one["decoders"], one["prompts"], one["nearly_finished"])


def ranks(ends: Iterable[Sequence[float]]) -> list[float]:
    """Return medians by rank: of the first ends, of the second ones, ...; as many as all repeats have."""
    return [median(one) for one in zip(*(sorted(one) for one in ends), strict=False)]


def load(name: str, mine: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return one load: medians of its repeats, of a gap the longest and of a coverage the smallest of all."""
    first = mine[0]
    speeds = [one["prefill_tok_s"] for one in mine if one["prefill_tok_s"] is not None]
    counted = [one["counted_tokens"] for one in mine if one["counted_tokens"] is not None]
    cached = [one["cached_tokens"] for one in mine]
    longest = [one["gap_longest_s"] for one in mine if one["gap_longest_s"] is not None]
    gaps = [one["gaps"] for one in mine if one["gaps"] is not None]
    covered = [one["covered"] for one in mine if one["covered"] is not None]
    asked = first["asked_tokens"]
    return {
        "load": name,
        **{key: first[key] for key in ("decoders", "prompts", "nearly_finished", "asked_tokens")},
        "repeats": len(mine),
        "counted_tokens": max(counted, key=lambda value: abs(value - (asked or 0)), default=None),
        "cached_tokens": None if None in cached else max(cached),
        "expected_cached_tokens": first["expected_cached_tokens"],
        "cold": all_of(one["cold"] for one in mine),
        "prefill_source": first["prefill_source"],
        **{key: median_of(one[key] for one in mine) for key in MEDIANS},
        "ends_s": ranks(_ends(one) for one in mine),
        "speeds_tok_s": speeds,
        "spread": core.spread(speeds),
        "gaps": min(gaps, default=None),
        "gap_longest_s": max(longest, default=None),
        "covered": min(covered, default=None),
        "throughout": all_of(one["throughout"] for one in mine) if first["decoders"] else None,
    }


def _ends(one: Mapping[str, Any]) -> list[float]:
    return [prompt["prefill_end_s"] for prompt in one["each"] if prompt["prefill_end_s"] is not None]


def shares(one: Mapping[str, Any], ceiling_tok_s: float | None) -> dict[str, float | None]:
    """Return a load's share of the ceiling, and what time sharing alone would leave of that beside what was measured.

    ESTIMATE: decode only takes prefill's time (core.estimates); null without a ceiling or a speed alone.
    """
    speed, used = one["prefill_tok_s"], one["utilisation"]
    expected = None
    if ceiling_tok_s is not None and used is not None:
        expected = expected_under_time_sharing(ceiling_tok_s, used)
    return {
        "share_of_ceiling": ratio(speed, ceiling_tok_s),
        "expected_tok_s": expected,
        "measured_to_expected": ratio(speed, expected),
    }
