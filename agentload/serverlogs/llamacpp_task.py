"""What do the numbers of one request of llama.cpp's server make, and do they agree?

`prompt_ms` runs from the slot's first batch to its first token, `eval` from there to the last one, and both include
waiting for other slots in the same batch; the lines are written when the request is done. `eval` counts all N tokens,
and its rate is that of N - 1 in its time: `33 tokens` in 26.03 s is 1.23 tok/s there. So

    decode_end = stamp of the eval line      decode_start = prefill_end = decode_end - eval ms
    prefill_start = prefill_end - prompt eval ms

and, the last token never being put into the context,

    cached = n_tokens (release) - (eval tokens - 1) - prompt eval tokens

which was right in 68 of 68 requests, and in two that the context's end cut short. It does not hold where the context
was shifted, nor is it known to hold with a draft model; there only the first `cached n_tokens` line of the task tells
(log verbosity 4). `truncated = 1` alone says that the context was full; a shift has a line of its own.

Each batch of a prompt has such a line. The first one follows `new prompt` at once, by 0.8 ms at most in 26 prompts,
the second one when a batch was computed (650 ms and more): where the first is missing, that is not taken for it.
"""

from collections.abc import Callable
from typing import Final

from agentload.core.packed import Flat

_SUM_TOLERANCE_MS: Final = 0.016  # three numbers with two decimals each
_FIRST_NS: Final = 5_000_000  # from `new prompt` to the first of these lines; the next one is a batch later
_PROOFS: Final = (
    "cached_tokens", "context_start", "decode_end", "decode_ms", "decode_start", "decoded_tokens", "finish",
    "new_prefill_tokens", "prefill_end", "prefill_ms", "prefill_start", "prompt_tokens", "t_end", "t_slot", "total_ms",
)  # fmt: skip

Say = Callable[[str, int, str, str], None]  # code, line, what, advice
Where = tuple[int, int]  # line and byte offset: a Proof, made only of those lines that end up proving something


class Task:
    """What was read of one request so far; times are the log's own, in ns. `*_line` is where it was told.

    Defaults stand in the class: to set them in each object took as long as all of its lines.
    """

    prompt_line: Where | None = None
    t_prompt: int | None = None
    task_tokens: int | None = None
    cached_line: Where | None = None
    first_cached: int | None = None
    t_cached: int | None = None
    prefill_line: Where | None = None
    prefill_ms: float | None = None
    new_tokens: int | None = None
    t_timing: int | None = None  # of the first line of its timings
    decode_line: Where | None = None
    t_eval: int | None = None
    decode_ms: float | None = None
    decoded_tokens: int | None = None
    total_line: Where | None = None
    total: tuple[float, int] | None = None
    speculated = False
    cancel_line: Where | None = None
    refuse_line: Where | None = None
    shifted = False
    end_line: Where | None = None
    n_tokens: int | None = None
    truncated = False
    t_end: int | None = None

    def __init__(self, slot: int, number: int, order: int, launch_line: Where | None, t_slot: int | None) -> None:
        self.slot = slot
        self.number = number
        self.order = order
        self.launch_line = launch_line
        self.t_slot = t_slot

    @property
    def label(self) -> str:
        """What the log calls it."""
        return f"slot {self.slot} task {self.number}"

    @property
    def timed(self) -> bool:
        """Whether its timings have been told."""
        return self.prefill_line is not None and self.decode_line is not None

    @property
    def _is_first(self) -> bool:
        """Whether what was told of the cached tokens is of the prompt's first batch."""
        if self.prompt_line is None or self.cached_line is None:
            return False
        if self.t_prompt is None or self.t_cached is None:
            return self.prompt_line < self.cached_line
        return abs(self.t_cached - self.t_prompt) <= _FIRST_NS

    @property
    def _cached_by_prompt(self) -> int | None:
        return None if self.task_tokens is None or self.new_tokens is None else self.task_tokens - self.new_tokens

    def _finish(self, say: Callable[[str, str, str], None]) -> str | None:
        if self.refuse_line is not None:
            return "error"
        if self.prefill_ms is not None and self.decode_ms is not None:
            return None
        missing = [name for name, ms in (("prompt eval", self.prefill_ms), ("eval", self.decode_ms)) if ms is None]
        if self.n_tokens is None:
            return None
        if self.cancel_line is None:
            say(
                "timing-lines-missing",
                f"{self.label} ended without its {' and '.join(missing)} time, and no line says that it was cancelled",
                "the log may be torn there: keep other programs from writing into it",
            )
            return "cancelled" if len(missing) == 2 else None
        return "cancelled"

    def _cached(self, say: Callable[[str, str, str], None]) -> tuple[int | None, Where | None]:
        by_release = None
        if self.n_tokens is not None and self.decoded_tokens is not None and self.new_tokens is not None:
            by_release = self.n_tokens - (self.decoded_tokens - 1) - self.new_tokens
        sure = not self.shifted and not self.speculated
        lost = self.first_cached is not None and not self._is_first and self.first_cached != self._cached_by_prompt
        if self.first_cached is not None and not lost:
            if sure and by_release is not None and by_release != self.first_cached:
                say(
                    "cached-count-differs",
                    f"{self.label} began with {self.first_cached} cached tokens and its end says {by_release}; "
                    "the first is used",
                    "compare with cached_tokens of the answers; the log may be torn there",
                )
            return self.first_cached, self.cached_line
        if by_release is None and not lost:
            return None, None
        if sure and by_release is not None and by_release >= 0:
            return by_release, self.end_line
        if lost:
            why = f"the line of its first batch is missing, the first one there says {self.first_cached}"
        else:
            why = f"its numbers make {by_release}" if sure else "its context was shifted or a draft model was used"
        say(
            "cached-count-unknown",
            f"{self.label}: the cached tokens cannot be worked out, {why}",
            "start the server with -lv 4: then it logs what was cached; keep other programs from writing into the log",
        )
        return None, None

    def _check(self, say: Callable[[str, str, str], None], prompt_tokens: int | None) -> None:
        if self.task_tokens is not None and prompt_tokens is not None and self.task_tokens != prompt_tokens:
            say(
                "prompt-count-differs",
                f"{self.label} has a prompt of {self.task_tokens} tokens, cached and new ones are {prompt_tokens}; "
                "the latter is used",
                "compare with prompt_tokens of the answers; the log may be torn there",
            )
        if self.total is None or self.prefill_ms is None or self.decode_ms is None:
            return
        total_ms, total_tokens = self.total
        tokens = (self.new_tokens or 0) + (self.decoded_tokens or 0)
        if tokens != total_tokens or abs(self.prefill_ms + self.decode_ms - total_ms) > _SUM_TOLERANCE_MS:
            say(
                "timings-disagree",
                f"{self.label}: prompt eval and eval make {tokens} tokens in {self.prefill_ms + self.decode_ms:.2f} "
                f"ms, its total says {total_tokens} in {total_ms:.2f} ms",
                "a line in the log may not be the server's own: check the lines of this request",
            )

    def record(self, boot: int, line: int, tell: Say) -> Flat:
        """Return what is known, as a `LoggedRequest` has it; `tell` hears of what does not fit together."""

        def say(code: str, what: str, advice: str) -> None:
            tell(code, line, what, advice)

        finish = self._finish(say)
        cached, cached_line = self._cached(say)
        new, new_line = self.new_tokens, self.prefill_line
        whole = self.n_tokens is not None and self.task_tokens is not None and self.n_tokens >= self.task_tokens
        if new is None and finish == "cancelled" and whole and cached is not None and self.task_tokens is not None:
            new = self.task_tokens - cached  # it was cancelled while decoding: all of the prompt had been prefilled
            new_line = self.end_line
        counted = cached is not None and new is not None
        prompt = (cached or 0) + (new or 0) if counted else self.task_tokens
        self._check(say, prompt)
        prefill_start, prefill_end = None if self.refuse_line is not None else self.t_prompt, None
        start_line, middle_line = self.prompt_line, None
        if self.t_eval is not None and self.decode_ms is not None:
            prefill_end = self.t_eval - round(self.decode_ms * 1e6)
            middle_line = self.prefill_line or self.decode_line
            if self.prefill_ms is not None:
                prefill_start, start_line = prefill_end - round(self.prefill_ms * 1e6), self.prefill_line
        ended = None if self.refuse_line is None and finish is None else self.refuse_line or self.cancel_line
        return (
            boot,
            self.label,
            self.slot,
            prompt,
            cached,
            new,
            self.decoded_tokens,
            self.t_slot,
            prefill_start,
            prefill_end,
            prefill_end,  # decode begins there
            None if self.decode_ms is None else self.t_eval,
            self.t_end,
            self.prefill_ms,
            self.decode_ms,
            finish,
            (),  # tool calls are not in the log
            None,  # nor are rebuilt tokens
            cached,  # where its prefill starts
            self.truncated,
            (
                _PROOFS,
                (
                    cached_line,
                    cached_line,
                    self.decode_line,
                    self.decode_line,
                    None if middle_line is None else self.decode_line,
                    self.decode_line,
                    ended,
                    new_line,
                    middle_line,
                    self.prefill_line,
                    start_line,
                    self.prompt_line or (cached_line if counted else None),
                    self.end_line,
                    self.launch_line,
                    self.total_line,
                ),
            ),
            None,
            None,
            None,
            1,  # its first token, which the prompt's last batch made: the server's own rate is of the others too
        )
