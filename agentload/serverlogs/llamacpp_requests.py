"""Which request of llama.cpp's server does a line belong to, within one start?

Newer builds write a request's timings, then its release; older ones the release first. So what was released without
timings waits for them until its slot is given away.
"""

import re
from collections.abc import Callable
from typing import Final

from agentload.core.packed import Packer
from agentload.serverlogs import llamacpp_grammar as grammar
from agentload.serverlogs.lines import Kind
from agentload.serverlogs.llamacpp_task import Say, Task, Where

_PAGE: Final = 1 << 15  # task numbers
_BACK_NS: Final = 1_000_000_000  # one thread launches and releases, by a clock that never goes back: a torn digit may


class _Numbers:
    """Task numbers that were launched: a million of them in 150 KB, and no more for one that is far off."""

    def __init__(self) -> None:
        self._pages: dict[int, bytearray] = {}

    def add(self, number: int) -> bool:
        """Add one; False when it was there."""
        page = self._pages.get(number // _PAGE)
        if page is None:
            page = self._pages[number // _PAGE] = bytearray(_PAGE // 8)
        at, bit = number % _PAGE >> 3, 1 << (number & 7)
        new = not page[at] & bit
        page[at] |= bit
        return new


class Requests:
    """The requests of one start of the server.

    A line counts for a request only when that request was launched in that slot and has not been told this before:
    whatever else looks like one is a stray line, of which `say` hears.
    """

    def __init__(self, boot: int, say: Say, done: Packer) -> None:
        """`done` takes each request at its end; its key is the start, and in it the order of release."""
        self._boot = boot
        self._say = say
        self.open: dict[int, Task] = {}
        self._released: dict[int, Task] = {}  # by slot: without timings, which may follow
        self._seen = _Numbers()
        self._launched = 0
        self._done = done
        self._ended = 0
        self._last_ns = 0  # time of the last launch or release
        self.whole = False  # the start's first lines are in the log
        self.jitter_ns = 0  # most time between two lines that the server writes in one go

    @property
    def begun(self) -> bool:
        """Whether there was any request."""
        return self._launched > 0

    def open_requests(self) -> int:
        """How many were launched and not released."""
        return len(self.open)

    def match(self, text: bytes) -> tuple[str, re.Match[bytes]] | None:
        """Whether a line is about a request's course: its first word and what it says, for `take`."""
        word = text.partition(b" ")[0].decode("ascii", "replace")
        known = _BY_WORD.get(word)
        found = None if known is None else known[0].fullmatch(text)
        return None if found is None else (word, found)

    def take(self, slot: int, number: int, said: tuple[str, re.Match[bytes]], at: int | None, where: Where) -> Kind:
        """Take what a line says of task `number` in `slot`; `at` is its time in ns, where it has one."""
        word, found = said
        if word == _LAUNCH:
            return self.launch(slot, number, at, where, child=found[0].endswith(b"1"))
        _, action = _BY_WORD[word]
        task = self.find(slot, number, where)
        if task is None:
            return self.stray(where, f"slot {slot} has no open task {number} that could have said this")
        told = action(task, found, at, where)
        if told is not None:
            return self.stray(where, f"{task.label} has been told this before, in line {told[0]}")
        if word == _RELEASE:
            self.release(task)
        elif word == _TOTAL and at is not None and task.t_timing is not None:
            self.jitter_ns = max(self.jitter_ns, at - task.t_timing)
        return Kind.UNDERSTOOD

    def cancel(self, number: int, where: Where) -> None:
        """The client of task `number` has gone; it may have got no slot yet, or be done."""
        task = self.open.get(number)
        if task is not None and task.cancel_line is None:
            task.cancel_line = where

    def refuse(self, number: int, where: Where) -> None:
        """The server answers task `number` with an error."""
        task = self.open.get(number)
        if task is not None:
            task.refuse_line = where

    def end(self) -> None:
        """The start is over, or its log: what is open stays without an end."""
        for task in list(self._released.values()):
            self._close(task)
        for task in list(self.open.values()):
            self._end(task)
            self._close(task)
        self._released.clear()
        self.open.clear()
        self._seen = _Numbers()  # 4 KB, and a log may have thousands of starts

    def launch(self, slot: int, number: int, at: int | None, where: Where, *, child: bool) -> Kind:
        """Task `number` gets `slot`; a `child` copies another task's prompt."""
        if child:
            self._say(
                "parallel-choices",
                where[0],
                f"slot {slot} task {number} copies another task's prompt, and its timing lines repeat those tokens",
                "ask for one choice a request: otherwise sums of new prefill tokens count a prompt once per choice",
            )
        if at is not None:
            self._stands_at(at, where)
        if number < 0 or not self._seen.add(number):
            return self.stray(where, f"task {number} is launched a second time")
        waiting = self._released.pop(slot, None)
        if waiting is not None:
            self._close(waiting)
        for other in [task for task in self.open.values() if task.slot == slot]:
            self._say(
                "slot-taken-twice",
                where[0],
                f"slot {slot} takes task {number} and has not released task {other.number}, which stays without an end",
                "the log may be torn there: keep other programs from writing into it",
            )
            self._end(other)
            self._close(other)
        self._new(slot, number, where, at)
        return Kind.UNDERSTOOD

    def _stands_at(self, at: int, where: Where) -> None:
        """A request got its slot then: is that the time of the process that wrote the lines before?"""
        if at < self._last_ns - _BACK_NS:
            self._say(
                "stamps-go-back",
                where[0],
                f"the stamp is {(self._last_ns - at) / 1e9:.1f} s earlier than that of a line before it, and no "
                "start-up line stands between",
                "logs of several processes may have been put together: account for them one by one, each from its "
                "first lines on",
            )
        self._last_ns = at

    def _new(self, slot: int, number: int, launched: Where | None, at: int | None) -> Task:
        self._launched += 1
        task = self.open[number] = Task(slot, number, self._launched, launched, at)
        return task

    def find(self, slot: int, number: int, where: Where) -> Task | None:
        """Return the task, open or waiting for its timings; of a log cut at the front it need not be launched there."""
        task = self.open.get(number)
        if task is None:
            task = self._released.get(slot)
            if task is not None and task.number == number:
                return task
            task = None
        if task is None and not self.whole and number >= 0 and self._seen.add(number):
            self._say(
                "log-cut-at-front",
                where[0],
                f"slot {slot} task {number} was launched before the log begins: when it got its slot is not known",
                "keep the log from server start: start-up lines also prove the settings",
            )
            task = self._new(slot, number, None, None)
        return task if task is not None and task.slot == slot else None

    def stray(self, where: Where, what: str) -> Kind:
        """Tell of a line that is not used."""
        self._say(
            "stray-request-line",
            where[0],
            f"{what}; the line is not used",
            "it may be text that a model or a user wrote, or part of the log is missing",
        )
        return Kind.UNKNOWN

    def release(self, task: Task) -> None:
        """Task is done; its timings may follow."""
        if task.t_end is not None:
            self._last_ns = task.t_end
        self._end(task)
        if task.timed or task.refuse_line is not None:
            self._close(task)
            return
        waiting = self._released.pop(task.slot, None)
        if waiting is not None:
            self._close(waiting)
        self._released[task.slot] = task

    def _end(self, task: Task) -> None:
        del self.open[task.number]
        self._ended += 1
        task.order = self._ended

    def _close(self, task: Task) -> None:
        last = task.end_line or task.decode_line or task.launch_line or (1, 0)
        self._done.add((self._boot << 40) + task.order, task.record(self._boot, last[0], self._say))


_Found = re.Match[bytes]
_Action = Callable[[Task, _Found, int | None, Where], Where | None]  # where it was told before, if it was


def _launch(_: Task, __: _Found, ___: int | None, ____: Where) -> None:
    """`Requests` makes the task."""


def _new_prompt(task: Task, found: _Found, at: int | None, where: Where) -> Where | None:
    if task.prompt_line is not None:
        return task.prompt_line
    task.t_prompt, task.task_tokens, task.prompt_line = at, int(found[1]), where
    return None


def _cached(task: Task, found: _Found, at: int | None, where: Where) -> None:
    # The later ones, one a batch, count what was prefilled since.
    if task.first_cached is None or (at is not None and task.t_cached is not None and at < task.t_cached):
        task.first_cached, task.t_cached, task.cached_line = int(found[1] or found[2]), at, where


def _prompt_time(task: Task, found: _Found, at: int | None, where: Where) -> Where | None:
    if task.prefill_line is not None:
        return task.prefill_line
    task.prefill_ms, task.new_tokens, task.t_timing, task.prefill_line = float(found[1]), int(found[2]), at, where
    return None


def _eval_time(task: Task, found: _Found, at: int | None, where: Where) -> Where | None:
    if task.decode_line is not None:
        return task.decode_line
    task.decode_ms, task.decoded_tokens, task.t_eval, task.decode_line = float(found[1]), int(found[2]), at, where
    return None


def _total_time(task: Task, found: _Found, _: int | None, where: Where) -> Where | None:
    if task.total_line is not None:
        return task.total_line
    task.total, task.total_line = (float(found[1]), int(found[2])), where
    return None


def _speculated(task: Task, _: _Found, __: int | None, ___: Where) -> None:
    task.speculated = True


def _shifted(task: Task, _: _Found, __: int | None, ___: Where) -> None:
    task.shifted = True


def _release(task: Task, found: _Found, at: int | None, where: Where) -> Where | None:
    if task.end_line is not None:
        return task.end_line
    task.n_tokens, task.truncated, task.t_end, task.end_line = int(found[1]), found[2] == b"1", at, where
    return None


_LAUNCH: Final = "processing"
_RELEASE: Final = "stop"
_TOTAL: Final = "total"
# First word of a line's text -> (the whole of it, what to do with it).
_BY_WORD: Final[dict[str, tuple[re.Pattern[bytes], _Action]]] = {
    _LAUNCH: (grammar.LAUNCH, _launch),
    "new": (grammar.NEW_PROMPT, _new_prompt),
    "cached": (grammar.CACHED, _cached),
    "kv": (grammar.CACHED, _cached),
    "n_tokens": (grammar.CACHED, _cached),
    "prompt": (grammar.PROMPT_TIME, _prompt_time),
    "eval": (grammar.EVAL_TIME, _eval_time),
    _TOTAL: (grammar.TOTAL_TIME, _total_time),
    _RELEASE: (grammar.RELEASE, _release),
    "draft": (grammar.SPECULATED, _speculated),
    "slot": (grammar.SHIFTED, _shifted),
    "input": (grammar.SHIFTED, _shifted),
}
