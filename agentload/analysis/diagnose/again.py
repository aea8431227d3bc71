"""Why was this prefilled again? For each request with more new tokens than its appended messages explain, the cause."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from agentload.analysis.diagnose import causes
from agentload.analysis.diagnose.causes import Cause, Turn
from agentload.analysis.diagnose.history import AS_WRITTEN, LEFT_OUT, Sent
from agentload.analysis.diagnose.inputs import Inputs, Row

LEAST_TOKENS: Final = 64  # below it: blocks of 16, an end of turn, the first token of an answer rendered anew
_LISTED: Final = 50

_HOW: Final = (
    "the context before is what the agent's request before had at its end, prompt and answer, as the server counted "
    "it; prefilled again is what of it this request did not find in a cache (the context before, at most the prompt, "
    f"minus the cached tokens), where that is more than {LEAST_TOKENS} tokens. Causes are taken from lines of the "
    "server's log and from the exact messages; where neither tells, the cause is unknown"
)


@dataclass(frozen=True, slots=True)
class Found:
    """One request that was prefilled again, and why."""

    turn: Turn
    cause: Cause


@dataclass(slots=True)
class _Counts:
    first_turns: int = 0
    as_appended: int = 0
    unknown: int = 0


def prefilled_again(read: Inputs) -> tuple[dict[str, Any], list[Found]]:
    """Return the part `again` of a diagnosis, and what it lists."""
    turns, counts = _turns(read)
    known = causes.Known(read, turns)
    found = [Found(one, known.cause(one)) for one in turns if one.again_tokens > LEAST_TOKENS]
    counts.as_appended = len(turns) - len(found)
    rebuilt = [known.rebuilt(*one) for one in enumerate(read.rows) if one[1]["rebuild_tokens"]]
    shown = [*found, *(Found(*one) for one in rebuilt)]
    shown.sort(key=lambda one: (-one.turn.again_tokens, one.turn.number))
    new = [row["new_prefill_tokens"] for row in read.rows if row["new_prefill_tokens"] is not None]
    part = {
        "how": _HOW,
        "least_tokens": LEAST_TOKENS,
        "requests": len(turns) + counts.first_turns + counts.unknown,
        "first_turns": counts.first_turns,
        "as_appended": counts.as_appended,
        "unknown_counts": counts.unknown,
        "again_requests": len(found),
        "again_tokens": sum(one.turn.again_tokens for one in found),
        "new_prefill_tokens": sum(new) if new else None,
        "rebuild_tokens": sum(turn.again_tokens for turn, _ in rebuilt),
        "causes": _sums(shown),
        "listed": [_listed(one) for one in shown[:_LISTED]],
        "left_out": max(0, len(shown) - _LISTED),
    }
    return part, shown


def _turns(read: Inputs) -> tuple[list[Turn], _Counts]:
    """Every request that has one before it in its conversation, with the context before; how many are none."""
    counts = _Counts()
    last: dict[str, Row] = {}
    lengths: dict[str, list[tuple[int, Row]]] = defaultdict(list)  # conversation -> (messages, request) so far
    turns: list[Turn] = []
    for number, row in enumerate(read.rows):
        if row["agent"] is None:
            continue
        sent = read.sent.get(str(row["request"]))
        conversation = f"{row['segment']}/{row['agent']}" if sent is None else sent.conversation
        before = last.get(conversation)
        if row["prompt_tokens"] is None or row["cached_tokens"] is None:
            counts.unknown += 1
        elif before is None or row["turn"] == 0 or (sent is not None and sent.before is None):
            counts.first_turns += 1
        else:
            turns.append(_turn(number, row, before, sent, lengths[conversation]))
        if row["prompt_tokens"] is not None and row["error"] is None:
            last[conversation] = row
            if sent is not None:
                lengths[conversation].append((sent.messages, row))
    return turns, counts


def _turn(number: int, row: Row, before: Row, sent: Sent | None, lengths: Sequence[tuple[int, Row]]) -> Turn:
    answered = sent is None or sent.answer != LEFT_OUT
    context = before["prompt_tokens"] + (before["decoded_tokens"] or 0 if answered else 0)
    tokens, estimated = _common(row, before, context, sent, lengths)
    return Turn(
        number=number,
        row=row,
        before=before,
        sent=sent,
        before_tokens=context,
        again_tokens=max(0, min(context, row["prompt_tokens"]) - row["cached_tokens"]),
        common_tokens=tokens,
        common_estimated=estimated,
    )


def _common(
    row: Row, before: Row, context: int, sent: Sent | None, lengths: Sequence[tuple[int, Row]]
) -> tuple[int | None, bool]:
    """Tokens of the messages that both requests have, by the server's counts; and whether that is an estimate.

    Where messages before the last ones differ: of the longest request of the conversation that has none but common
    ones, its answer with it where that is common too: a lower bound.
    """
    if sent is None or sent.common is None or sent.before is None:
        return None, True
    if sent.common == sent.before:
        whole = sent.answer in {AS_WRITTEN, LEFT_OUT, None}
        return min(context if whole else before["prompt_tokens"], row["prompt_tokens"]), not whole
    known = [(count, one) for count, one in lengths if count <= sent.common]
    if not known:
        return 0 if sent.common == 0 else None, True
    count, one = known[-1]
    return one["prompt_tokens"] + (one["decoded_tokens"] or 0 if count < sent.common else 0), True


def _sums(found: Sequence[Found]) -> list[dict[str, Any]]:
    requests: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    for one in found:
        code = one.cause.code
        requests[code] += 1
        tokens[code] += one.turn.again_tokens
        # A rebuild is no part of its request's prefill.
        seconds[code] += 0 if code == causes.REBUILD else _prefill_ns(one.turn.row)
    return [
        {
            "cause": code,
            "title": causes.TITLES[code],
            "requests": requests[code],
            "again_tokens": total,
            "prefill_s": None if code == causes.REBUILD else seconds[code] / 1e9,
        }
        for code, total in tokens.most_common()
    ]


def _prefill_ns(row: Row) -> int:
    start, end = row["prefill_start"], row["prefill_end"]
    return 0 if start is None or end is None else int(end - start)


def _listed(one: Found) -> Mapping[str, Any]:
    turn, cause, row, sent = one.turn, one.cause, one.turn.row, one.turn.sent
    return {
        "agent": row["agent"],
        "request": row["request"],
        "turn": row["turn"],
        "prompt_tokens": row["prompt_tokens"],
        "cached_tokens": row["cached_tokens"],
        "new_prefill_tokens": row["new_prefill_tokens"],
        "before_tokens": turn.before_tokens,
        "appended_tokens": max(0, row["prompt_tokens"] - turn.before_tokens),
        "again_tokens": turn.again_tokens,
        "prefill_s": None if cause.code == causes.REBUILD else _prefill_ns(row) / 1e9,
        "common_messages": None if sent is None else sent.common,
        "of_messages": None if sent is None else sent.before,
        "common_tokens": turn.common_tokens,
        "common_estimated": turn.common_estimated,
        "cause": cause.code,
        "title": causes.TITLES[cause.code],
        "sentence": cause.sentence,
        "rests_on": cause.rests_on,
        "by_agent": None if cause.by is None else cause.by["agent"],
        "by_request": None if cause.by is None else cause.by["request"],
        "proofs": [asdict(proof) for proof in cause.proofs],
    }
