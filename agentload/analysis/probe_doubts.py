"""What should a reader know beside the numbers of a probe: was it cold, was it as long as asked, did others decode?"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from agentload.core.records import Doubt, Source

_CLOCK: Final = 0.05  # of the prefill's time: a clock known less well than that is said
_PIECES: Final = 0.02  # tokens a piece further from 1 are said

Part = Mapping[str, Any]  # `probe` of one segment of account.json


def doubts(parts: Sequence[Part]) -> list[Doubt]:
    """Return what a reader of these segments' numbers should know, once for each kind.

    That a prompt is not as long as was asked, or capped, is in the manifest: whoever sized it has said so.
    """
    return [
        *_cold_doubts(parts),
        *_told(
            [one for one in parts if one["prefill_tok_s"] is None],
            "probe-no-speed",
            "a cold prompt was not answered, or its time or tokens are not known",
            "see the request's error in events.jsonl; its repeat has no speed",
        ),
        *_told(
            [one for one in parts if one["nearly_finished"] is None and one["throughout"] is False],
            "probe-not-throughout",
            "not every decoder wrote for as long as the prompt was computed",
            "raise probe.decode_tokens, or forbid the end: request = { ignore_eos = true }",
            lambda one: "none" if one["covered"] is None else f"{one['covered']:.0%}",
        ),
        *_told(
            [one for one in parts if one["neighbour_tokens"] is not None and one["alone_tok_s"] is None],
            "probe-alone-unknown",
            "the decoders' speed alone is not known, so there is no utilisation and no cost without decode steps",
            "raise probe.settle_tokens, and see that the server streams token by token",
        ),
        *_told(
            [one for one in parts if one["prefill_source"] == Source.CLIENT.value],
            "probe-client-times",
            "nothing tells when the prompt was computed: its time is the client's, network and queue in it",
            "own the server's log",
        ),
        *_told(
            [one for one in parts if _by_a_loose_clock(one)],
            "probe-clock",
            "when the prompt was computed is known no better than that on the client's clock: gaps, neighbours' "
            "tokens, their use and the ends rest on it, and a start before the throw is shown as 0 s",
            "let agentload start the server (--launch): then each line of its log has a receive stamp",
            lambda one: f"+-{one['clock_error_s']:.2f} s of {one['prefill_s']:.2f} s",
        ),
        *_told(
            [
                one
                for one in parts
                if one["tokens_per_piece"] is not None and abs(one["tokens_per_piece"] - 1) > _PIECES
            ],
            "probe-pieces",
            "the stream's pieces are not single tokens: tokens are weighed by the answers' usage, gaps lie between "
            "pieces",
            "compare gaps only between servers that stream alike",
            lambda one: f"{one['tokens_per_piece']:.2f} tokens a piece",
        ),
    ]


def _by_a_loose_clock(one: Part) -> bool:
    if one["clock_error_s"] is None or one["prefill_source"] != Source.LOG.value or not one["prefill_s"]:
        return False
    return bool(one["clock_error_s"] > _CLOCK * one["prefill_s"])


def _cold_doubts(parts: Sequence[Part]) -> list[Doubt]:
    return [
        *_told(
            [one for one in parts if one["cold"] is False],
            "probe-not-cold",
            "the cold prompt found tokens in a cache that it should not have",
            "give the server a fresh process and an empty cache folder, or a seed that was not used on it",
            lambda one: f"{one['cached_tokens']:,} cached, {one['expected_cached_tokens']:,} expected",
        ),
        *_told(
            [one for one in parts if one["cold"] is None],
            "probe-cold-unproven",
            "nothing tells how much of the cold prompt came from a cache",
            "see that the server's log or its answers' usage tell cached tokens",
        ),
        *_told(
            [one for one in parts if one["context_kept"] is False],
            "probe-context-lost",
            "the context before the cold prompt was computed again instead of reused",
            "give the server a slot and cache space for each prompt at once, beside those of the decoders",
            lambda one: "not told" if one["cached_tokens"] is None else f"{one['cached_tokens']:,} cached",
        ),
    ]


def _told(
    parts: Sequence[Part], code: str, message: str, advice: str, number: Callable[[Part], str] | None = None
) -> list[Doubt]:
    if not parts:
        return []
    names = [f"{one['load']}-r{one['repeat']}" + (f" ({number(one)})" if number is not None else "") for one in parts]
    return [Doubt(code, f"{', '.join(names)}: {message}", advice)]
