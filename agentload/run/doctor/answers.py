"""Is what came of a chat request good enough to measure by? Answers in, findings out; nothing is asked here."""

from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Any, Final

from agentload.agents.actions import arguments_of
from agentload.core.records import CUT_OFF, Completion
from agentload.run.doctor import advice
from agentload.run.doctor.finding import Finding, Level

_FEW: Final = 8  # tokens: from fewer nothing is said of how they came
_QUICK_NS: Final = 300_000_000  # an answer that is quicker as a whole does not tell a burst from a stream
_BURST_NS: Final = 1_000_000  # pieces nearer to each other came as one: no server here decodes 1,000 tokens/s for one
_STALL_NS: Final = 1_000_000_000
_SLOW_NS: Final = 30_000_000_000
_TEMPLATE_TOKENS: Final = 64  # that a server's own template may put before every prompt


def chat(first: Completion) -> Finding:
    """Whether a chat request is answered at all."""
    if first.error is None:
        tokens = "?" if first.usage is None else first.usage.completion_tokens
        return Finding("chat", Level.OK, f"answered in {_s(first.t_done - first.t_sent)}, {tokens} tokens")
    what = "correct what the message says"
    if first.error.startswith(CUT_OFF):
        what = "see whether it is busy or still loads; allow more time with --timeout"
    elif first.error.startswith("not an event stream"):
        what = "agents need streamed answers: ask the server itself, not a gateway that collects them"
    return Finding("chat", Level.FAIL, f"a chat request failed: {first.error}", what)


def usage(first: Completion, software: str | None, *, log_tells: bool) -> Finding:
    """Whether the stream ends with the server's own counts."""
    told = first.usage
    if told is not None and told.prompt_tokens is not None and told.completion_tokens is not None:
        found = f"in the stream: prompt {told.prompt_tokens}, completion {told.completion_tokens} tokens"
        return Finding("usage", Level.OK, found)
    missing = "no usage in the stream" if told is None else f"usage without its counts: {first.raw_usage}"
    what = f"it was asked for with stream_options.include_usage: {advice.usage(software)}"
    if log_tells:
        return Finding("usage", Level.WARN, f"{missing}; the log has the counts", what)
    return Finding("usage", Level.FAIL, f"{missing}: tokens would not be known", what)


def cached(
    first: Completion,
    second: Completion,
    software: str | None,
    *,
    log_tells: bool,
    onward: Completion | None = None,
) -> Finding:
    """Whether the server tells cached tokens, and finds a prompt again that it has just had.

    Args:
        first: the answer to a prompt that no cache knows.
        second: the answer to the same prompt again.
        software: the server's profile.
        log_tells: the server's log has the counts too.
        onward: the answer to a conversation that goes on, where one could.
    """
    if second.error is not None:
        return _not_asked("cached", "the same prompt a second time", second)
    one, two = _cached(first), _cached(second)
    prompt = None if second.usage is None else second.usage.prompt_tokens
    if two is None:
        found = f"the same prompt twice: the second time the server said {_said(second.raw_usage)}; null is not 0"
        what = advice.cached_counts(software)
        if log_tells:
            return Finding("cached", Level.WARN, f"{found} (the log tells it)", what)
        return Finding("cached", Level.FAIL, f"{found}: new prefill tokens would not be known", what)
    said = (
        f"the same prompt twice: cached {_or_null(one)}, then {two} of {prompt if prompt is not None else '?'} tokens"
    )
    further = None if onward is None or onward.error is not None else _cached(onward)
    if further is not None and onward is not None:
        prompt = None if onward.usage is None else onward.usage.prompt_tokens
        said += f"; a second turn, as an agent's: {further} of {prompt if prompt is not None else '?'}"
    if not (two or further):
        return Finding("cached", Level.WARN, f"{said}: nothing is found again", advice.prefix_cache(software))
    if one is not None and one > _TEMPLATE_TOKENS:
        return Finding("cached", Level.WARN, f"{said}: the first was sent by nobody before", "look for a proxy's cache")
    return Finding("cached", Level.OK, said)


def _cached(answer: Completion) -> int | None:
    told = None if answer.usage is None else answer.usage.cached_tokens
    return answer.timings.cached_tokens if told is None and answer.timings is not None else told


def _or_null(count: int | None) -> str:
    return "null" if count is None else str(count)


def _said(raw: dict[str, Any] | None) -> str:
    """What a usage without the count holds in its place."""
    if raw is None:
        return "nothing (no usage)"
    if "prompt_tokens_details" not in raw:
        return "nothing (usage has no prompt_tokens_details)"
    details = raw["prompt_tokens_details"]
    return "prompt_tokens_details: null" if details is None else f"prompt_tokens_details: {details}"


def streaming(first: Completion, *others: Completion) -> Finding:
    """Whether tokens come as they are made, by the first answer that is long enough to tell."""
    answer = next((one for one in (first, *others) if one.error is None and _tokens(one) >= _FEW), first)
    at, total_ns, tokens = answer.token_ns, answer.t_done - answer.t_sent, _tokens(answer)
    if tokens < _FEW:
        return Finding("streaming", Level.NOTE, f"{tokens} tokens are too few to tell")
    each = f"{len(at)} pieces with tokens for {tokens} tokens"
    bursts = 1 + sum(after - before > _BURST_NS for before, after in pairwise(at))
    if not at:
        return Finding("streaming", Level.WARN, f"{each}: text comes in no field that is known", "update agentload")
    if total_ns < _QUICK_NS:
        found = f"{each}; the answer came within {total_ns / 1e6:.0f} ms: too quick to tell a stream from a burst"
        return Finding("streaming", Level.NOTE, found)
    spread = f"over {_s(at[-1] - at[0])} of {_s(total_ns)}"
    if bursts == 1:
        found = f"{each}, all at once after {_s(at[0] - answer.t_sent)}: the stream is held back until its end"
        what = "first-token and inter-token times would be wrong: switch the buffering of the proxy off (nginx: "
        return Finding("streaming", Level.FAIL, found, f"{what}proxy_buffering off), or ask the server itself")
    if bursts * _FEW < tokens:
        found = f"{each}, in {bursts} bursts {spread}"
        what = "inter-token times are those of bursts: look for a proxy that buffers, or a stream interval above 1"
        return Finding("streaming", Level.WARN, found, what)
    if len(at) * 2 <= tokens:
        what = "inter-token times are those of pieces (speculative decoding, or a stream interval); counts are right"
        return Finding("streaming", Level.NOTE, f"{each} {spread}", what)
    return Finding("streaming", Level.OK, f"{each} {spread}")


def _tokens(answer: Completion) -> int:
    return len(answer.token_ns) if answer.usage is None else answer.usage.completion_tokens or len(answer.token_ns)


def speed(answer: Completion) -> Finding:
    """Whether first-token and inter-token times are sane."""
    if answer.t_first_token is None:
        return Finding("speed", Level.WARN, "no token came", "see `chat` and `streaming`")
    wait_ns, at = answer.t_first_token - answer.t_sent, answer.token_ns
    gaps = sorted(after - before for before, after in pairwise(at))
    found = f"first token after {_s(wait_ns)}"
    if answer.timings is not None:
        found += f" (the server's own prefill: {answer.timings.prompt_ms / 1e3:.2f} s)"
    if not gaps:
        return Finding("speed", Level.NOTE, f"{found}; one piece: no time between tokens")
    middle, worst = median(gaps), gaps[-1]
    found += f", then {middle / 1e6:.1f} ms between pieces (median), longest {worst / 1e6:.0f} ms"
    if worst > _STALL_NS and worst > 20 * middle:
        return Finding("speed", Level.WARN, found, "something else had the server meanwhile: see `busy` and `load`")
    if wait_ns > _SLOW_NS:
        what = "it is busy, compiles at first use (see --warmup), or is too slow for long contexts"
        return Finding("speed", Level.WARN, found, what)
    return Finding("speed", Level.OK, found)


def tool_calls(attempts: Sequence[tuple[str, Completion]], names: Sequence[str], software: str | None) -> Finding:
    """Whether the model calls a tool that it is offered, with arguments that can be read.

    Args:
        attempts: how each was asked for (`tool_choice "required"`), and what came.
        names: of the tools offered.
        software: the server's profile.
    """
    for how, answer in attempts:
        for call in answer.tool_calls:
            arguments = arguments_of(call)
            if call.name in names and arguments:
                return Finding("tool-calls", Level.OK, f"{how}: {call.name} {call.arguments[:80]}")
    how, last = attempts[-1]
    other = 'or let agents write their calls as text: --protocol json (a scenario\'s protocol = "json")'
    what = "; ".join(filter(None, (advice.tools(software), other)))
    if last.error is not None:
        if last.error.startswith(CUT_OFF):
            return _not_asked("tool-calls", "a tool call", last)
        return Finding("tool-calls", Level.FAIL, f"{how}: {last.error}", what)
    if last.tool_calls:
        call = last.tool_calls[0]
        return Finding("tool-calls", Level.FAIL, f"{how}: no valid call: {call.name!r} {call.arguments[:80]!r}", what)
    if last.finish == "length" and not last.content:
        found = f"{how}: no call before the answer's limit, {len(last.reasoning)} characters of thinking"
        return Finding("tool-calls", Level.WARN, found, "ask the model to think less; " + what)
    said = (last.content or last.reasoning)[:60]
    return Finding("tool-calls", Level.FAIL, f"{how}: {len(attempts)} tries, no call; it said {said!r}", what)


def json_actions(answer: Completion, name: str | None) -> Finding:
    """Whether the model writes an action as JSON when it is told to; `name` is of the tool that it named."""
    if answer.error is not None:
        return _not_asked("tool-calls", "a JSON action", answer)
    if name is not None:
        return Finding("tool-calls", Level.OK, f"protocol json: an action that names {name}")
    found = f"protocol json: no action in {answer.content[:60]!r}"
    return Finding("tool-calls", Level.WARN, found, "agents are asked again, but a model that never does is of no use")


def ignore_eos(free: Completion, forced: Completion, limit: int) -> Finding:
    """Whether `ignore_eos` makes an answer exactly as long as its limit.

    Args:
        free: the answer to a short question.
        forced: the answer to the same with ignore_eos.
        limit: max_tokens of that.
    """
    needs = "agents do not need it; workloads of a fixed output length end early without it"
    if forced.error is not None:
        if forced.error.startswith(CUT_OFF):
            return _not_asked("ignore-eos", "ignore_eos", forced)
        return Finding("ignore-eos", Level.WARN, f"refused: {forced.error}", needs)
    long, short = _decoded(forced), _decoded(free)
    if long is None:
        return Finding("ignore-eos", Level.NOTE, "cannot be told without usage", needs)
    if long < limit:
        what = f"{needs}: update the server, or compare with lengths that the model reaches by itself"
        return Finding("ignore-eos", Level.WARN, f"not honoured: {long} of {limit} tokens, then the model ended", what)
    if long > limit:
        return Finding("ignore-eos", Level.WARN, f"max_tokens {limit} is not kept: {long} tokens", "update the server")
    if short is None or free.finish == "length":
        return Finding("ignore-eos", Level.NOTE, f"{long} of {limit} tokens, but without it the model went on as long")
    return Finding("ignore-eos", Level.OK, f"{long} of {limit} tokens; without it the model ended after {short}")


def _decoded(answer: Completion) -> int | None:
    return None if answer.error is not None or answer.usage is None else answer.usage.completion_tokens


def _not_asked(code: str, what: str, answer: Completion) -> Finding:
    return Finding(code, Level.WARN, f"{what}: {answer.error}", "allow more time with --timeout, and see `chat`")


def _s(ns: int) -> str:
    return f"{ns / 1e9:.2f} s"
