"""What do the lines about requests say together, within one start of llama.cpp's server?

`prompt_ms` runs from the slot's first batch to its first token, `eval` from there to the last one, and both include
waiting for other slots in the same batch; the lines are written when the request is done. So

    decode_end = stamp of the eval line      decode_start = prefill_end = decode_end - eval ms
    prefill_start = prefill_end - prompt eval ms

and, the last token never being put into the context,

    cached = n_tokens (release) - (eval tokens - 1) - prompt eval tokens

which was right in 68 of 68 requests, and in two that the context's end cut short. It does not hold where the context
was shifted, nor is it known to hold with a draft model; there only the first `cached n_tokens` line of the task tells
(log verbosity 4). `truncated = 1` alone says that the context was full; a shift has a line of its own.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from agentload.core.records import LoggedRequest, Proof
from agentload.serverlogs import llamacpp_grammar as grammar
from agentload.serverlogs.lines import Kind

_SUM_TOLERANCE_MS: Final = 0.016  # three numbers with two decimals each

Say = Callable[[str, str, str], None]  # code, what, advice


@dataclass(slots=True)
class _Task:
    """What was read of one request so far; times are the log's own, in ns."""

    boot: int
    slot: int
    number: int
    t_slot: int | None = None
    t_prompt: int | None = None
    task_tokens: int | None = None
    first_cached: int | None = None
    prefill_ms: float | None = None
    new_tokens: int | None = None
    t_timing: int | None = None  # of the first line of its timings
    t_eval: int | None = None
    decode_ms: float | None = None
    decoded_tokens: int | None = None
    total: tuple[float, int] | None = None
    speculated: bool = False
    cancelled: bool = False
    refused: bool = False
    shifted: bool = False
    n_tokens: int | None = None
    truncated: bool = False
    t_end: int | None = None
    proofs: dict[str, Proof] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """What the log calls it."""
        return f"slot {self.slot} task {self.number}"

    def _finish(self, say: Say) -> str | None:
        if self.refused:
            return "error"
        missing = [name for name, ms in (("prompt eval", self.prefill_ms), ("eval", self.decode_ms)) if ms is None]
        if self.n_tokens is None or not missing:
            return None
        if not self.cancelled:
            say(
                "timing-lines-missing",
                f"{self.label} ended without its {' and '.join(missing)} time, and no line says that it was cancelled",
                "the log may be torn there: keep other programs from writing into it",
            )
        return "cancelled" if self.cancelled or len(missing) == 2 else None

    def _cached(self, say: Say) -> int | None:
        by_release = None
        if self.n_tokens is not None and self.decoded_tokens is not None and self.new_tokens is not None:
            by_release = self.n_tokens - (self.decoded_tokens - 1) - self.new_tokens
        sure = not self.shifted and not self.speculated
        if self.first_cached is not None:
            if sure and by_release is not None and by_release != self.first_cached:
                say(
                    "cached-count-differs",
                    f"{self.label} began with {self.first_cached} cached tokens and its end says {by_release}; "
                    "the first is used",
                    "compare with cached_tokens of the answers; the log may be torn there",
                )
            return self.first_cached
        if by_release is None:
            return None
        if sure and by_release >= 0:
            self.proofs["cached_tokens"] = self.proofs["t_end"]
            return by_release
        why = f"its numbers make {by_release}" if sure else "its context was shifted or a draft model was used"
        say(
            "cached-count-unknown",
            f"{self.label}: the cached tokens cannot be worked out, {why}",
            "start the server with -lv 4: then it logs what was cached",
        )
        return None

    def _check(self, say: Say, prompt_tokens: int | None) -> None:
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

    def record(self, say: Say) -> LoggedRequest:
        """Return what is known; `say` hears of what does not fit together."""
        finish = self._finish(say)
        cached = self._cached(say)
        new = self.new_tokens
        whole = self.n_tokens is not None and self.task_tokens is not None and self.n_tokens >= self.task_tokens
        if new is None and finish == "cancelled" and whole and cached is not None and self.task_tokens is not None:
            new = self.task_tokens - cached  # it was cancelled while decoding: all of the prompt had been prefilled
            self.proofs["new_prefill_tokens"] = self.proofs["t_end"]
        if cached is None or new is None:
            prompt = self.task_tokens
        else:
            prompt = cached + new
            self.proofs.setdefault("prompt_tokens", self.proofs["cached_tokens"])
        self._check(say, prompt)
        prefill_start, prefill_end = None if self.refused else self.t_prompt, None
        if self.t_eval is not None and self.decode_ms is not None:
            prefill_end = self.t_eval - round(self.decode_ms * 1e6)
            self.proofs["decode_start"] = self.proofs["decode_end"]
            self.proofs["prefill_end"] = self.proofs.get("prefill_ms", self.proofs["decode_end"])
            if self.prefill_ms is not None:
                prefill_start = prefill_end - round(self.prefill_ms * 1e6)
                self.proofs["prefill_start"] = self.proofs["prefill_ms"]
        if cached is not None:
            self.proofs["context_start"] = self.proofs["cached_tokens"]
        return LoggedRequest(
            boot=self.boot,
            label=self.label,
            slot=self.slot,
            prompt_tokens=prompt,
            cached_tokens=cached,
            new_prefill_tokens=new,
            decoded_tokens=self.decoded_tokens,
            t_slot=self.t_slot,
            prefill_start=prefill_start,
            prefill_end=prefill_end,
            decode_start=prefill_end,
            decode_end=None if self.decode_ms is None else self.t_eval,
            t_end=self.t_end,
            prefill_ms=self.prefill_ms,
            decode_ms=self.decode_ms,
            finish=finish,
            context_start=cached,
            truncated=self.truncated,
            proofs=tuple(sorted(self.proofs.items())),
        )


_Found = re.Match[bytes]
_Action = Callable[["_Task", _Found, int | None, Proof], None]


class Requests:
    """The requests of one start of the server.

    A line counts for a request only when that request was launched in that slot and has not been told this before:
    whatever else looks like one is a stray line, of which `say` hears.
    """

    def __init__(self, boot: int, say: Say) -> None:
        self._boot = boot
        self._say = say
        self._open: dict[int, _Task] = {}
        self._seen: set[int] = set()
        self.done: list[LoggedRequest] = []
        self.whole = False  # the start's first lines are in the log
        self.jitter_ns = 0  # most time between two lines that the server writes in one go

    def open_requests(self) -> int:
        """How many were launched and not released."""
        return len(self._open)

    def match(self, text: bytes) -> tuple[str, re.Match[bytes]] | None:
        """Whether a line is about a request's course: its first word and what it says, for `take`."""
        word = text.partition(b" ")[0].decode("ascii", "replace")
        known = _BY_WORD.get(word)
        found = None if known is None else known[0].fullmatch(text)
        return None if found is None else (word, found)

    def take(self, slot: int, number: int, said: tuple[str, re.Match[bytes]], at: int | None, proof: Proof) -> Kind:
        """Take what a line says of task `number` in `slot`; `at` is its time in ns, where it has one."""
        word, found = said
        if word == _LAUNCH:
            if found[0].endswith(b"1"):
                self._say(
                    "parallel-choices",
                    f"slot {slot} task {number} copies another task's prompt, and its timing lines repeat those tokens",
                    "ask for one choice a request: otherwise sums of new prefill tokens count a prompt once per choice",
                )
            return self._launch(slot, number, at, proof)
        _, name, action = _BY_WORD[word]
        task = self._find(slot, number)
        if task is None:
            return self._stray(f"slot {slot} has no open task {number} that could have said this")
        if name and name in task.proofs:
            return self._stray(f"{task.label} has been told this before, in line {task.proofs[name].line}")
        if name:
            task.proofs[name] = proof
        action(task, found, at, proof)
        if name == "t_end":
            self._close(task)
        elif name == "total_ms" and at is not None and task.t_timing is not None:
            self.jitter_ns = max(self.jitter_ns, at - task.t_timing)
        return Kind.UNDERSTOOD

    def cancel(self, number: int, proof: Proof) -> None:
        """The client of task `number` has gone; it may have got no slot yet, or be done."""
        task = self._open.get(number)
        if task is not None:
            task.cancelled = True
            task.proofs.setdefault("finish", proof)

    def refuse(self, number: int, proof: Proof) -> None:
        """The server answers task `number` with an error."""
        task = self._open.get(number)
        if task is not None:
            task.refused = True
            task.proofs["finish"] = proof

    def end(self) -> None:
        """The start is over, or its log: what is open stays without an end."""
        for task in list(self._open.values()):
            self._close(task)

    def _launch(self, slot: int, number: int, at: int | None, proof: Proof) -> Kind:
        if number < 0 or number in self._seen:
            return self._stray(f"task {number} is launched a second time")
        for other in [task for task in self._open.values() if task.slot == slot]:
            self._say(
                "slot-taken-twice",
                f"slot {slot} takes task {number} and has not released task {other.number}, which stays without an end",
                "the log may be torn there: keep other programs from writing into it",
            )
            self._close(other)
        self._seen.add(number)
        self._open[number] = _Task(self._boot, slot, number, t_slot=at, proofs={"t_slot": proof})
        return Kind.UNDERSTOOD

    def _find(self, slot: int, number: int) -> _Task | None:
        """Return the open task; of a log that is cut at the front it need not have been launched there."""
        task = self._open.get(number)
        if task is None and not self.whole and number >= 0 and number not in self._seen:
            self._say(
                "log-cut-at-front",
                f"slot {slot} task {number} was launched before the log begins: when it got its slot is not known",
                "keep the log from server start: start-up lines also prove the settings",
            )
            self._seen.add(number)
            task = self._open[number] = _Task(self._boot, slot, number)
        return task if task is not None and task.slot == slot else None

    def _stray(self, what: str) -> Kind:
        self._say(
            "stray-request-line",
            f"{what}; the line is not used",
            "it may be text that a model or a user wrote, or part of the log is missing",
        )
        return Kind.UNKNOWN

    def _close(self, task: _Task) -> None:
        del self._open[task.number]
        self.done.append(task.record(self._say))


def _launch(_: _Task, __: _Found, ___: int | None, ____: Proof) -> None:
    """`Requests` makes the task."""


def _new_prompt(task: _Task, found: _Found, at: int | None, proof: Proof) -> None:
    task.t_prompt, task.task_tokens = at, int(found[1])
    task.proofs["prefill_start"] = proof


def _cached(task: _Task, found: _Found, _: int | None, proof: Proof) -> None:
    if task.first_cached is None:  # the later ones, one a batch, count what was prefilled since
        task.first_cached = int(found[1])
        task.proofs["cached_tokens"] = proof


def _prompt_time(task: _Task, found: _Found, at: int | None, proof: Proof) -> None:
    task.prefill_ms, task.new_tokens, task.t_timing = float(found[1]), int(found[2]), at
    task.proofs["new_prefill_tokens"] = proof


def _eval_time(task: _Task, found: _Found, at: int | None, proof: Proof) -> None:
    task.decode_ms, task.decoded_tokens, task.t_eval = float(found[1]), int(found[2]), at
    task.proofs["decoded_tokens"] = task.proofs["decode_end"] = proof


def _total_time(task: _Task, found: _Found, _: int | None, __: Proof) -> None:
    task.total = (float(found[1]), int(found[2]))


def _speculated(task: _Task, _: _Found, __: int | None, ___: Proof) -> None:
    task.speculated = True


def _shifted(task: _Task, _: _Found, __: int | None, ___: Proof) -> None:
    task.shifted = True


def _release(task: _Task, found: _Found, at: int | None, _: Proof) -> None:
    task.n_tokens, task.truncated, task.t_end = int(found[1]), found[2] == b"1", at


_LAUNCH: Final = "processing"
# First word of a line's text -> (the whole of it, the fact that it may tell once, what to do with it).
_BY_WORD: Final[dict[str, tuple[re.Pattern[bytes], str, _Action]]] = {
    _LAUNCH: (grammar.LAUNCH, "", _launch),
    "new": (grammar.NEW_PROMPT, "prompt_tokens", _new_prompt),
    "cached": (grammar.CACHED, "", _cached),
    "prompt": (grammar.PROMPT_TIME, "prefill_ms", _prompt_time),
    "eval": (grammar.EVAL_TIME, "decode_ms", _eval_time),
    "total": (grammar.TOTAL_TIME, "total_ms", _total_time),
    "stop": (grammar.RELEASE, "t_end", _release),
    "draft": (grammar.SPECULATED, "", _speculated),
    "slot": (grammar.SHIFTED, "", _shifted),
    "input": (grammar.SHIFTED, "", _shifted),
}
