"""To which open request does a line of ds4-server belong, when no line carries a request's id?

By integers first: lines of prefill and finish name cached and prompt tokens, a decode line ends at prompt + generated
tokens, chunks and generated tokens only grow, each decode line begins where the one before ended. Then by time: what a
line says of when its request began must lie within what is known of that. Requests that both leave open, equal and
begun within the resolution of the stamps, become one group: each line is still counted once, so sums over the group
are exact, but which member it was of is a guess, and said to be one; of members that were never done, prefill counts as
far as their lines prove it (`ds4_groups`).
"""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain, islice, tee
from typing import Final

from agentload.core.packed import Packer
from agentload.serverlogs import ds4_grammar as grammar
from agentload.serverlogs.ds4_clock import SECOND_NS
from agentload.serverlogs.ds4_ended import Ended
from agentload.serverlogs.ds4_equal import Indices, first, is_done, is_not_done, wanted_of
from agentload.serverlogs.ds4_groups import hold, keep, tell
from agentload.serverlogs.ds4_rebuilds import Rebuilds
from agentload.serverlogs.ds4_request import Open, Say, Where

_OTHER_NS: Final = 60 * SECOND_NS  # further off, a first line may be of another request than its integers fit
_MOST_APPENDED: Final = 64  # more than any server has sessions
_RETRY_TOKENS: Final = 50  # a decode line comes every so many tokens

Move = Callable[[int, int], int]  # ns by which a difference, seen by a request last read in line n, was explained


class Book:
    """Requests of one start of the server that are open, and records of all that were."""

    def __init__(self, boot: int, step_ns: int, say: Say, move: Move, done: Packer) -> None:
        """`step_ns` is the resolution of the stamps, 0 with receive stamps; `done` takes the requests that have ended.

        Their key is the start, and in it the order of their first lines.
        """
        self.boot = boot
        self._by = Indices()
        self.by_base = self._by.base.of  # by where their decode began
        self.by_ctx = self._by.ctx.of
        self.whole = False  # the start of the server was seen
        self.single = False  # one request at a time
        self.sessions: int | None = None
        self.begun = 0
        self._step_ns = step_ns
        self._say = say
        self._move = move
        self._open: dict[int, Open] = {}
        self._tools: dict[bytes, list[tuple[Where, tuple[str, ...]]]] = {}
        self._appended: list[int] = []
        self._first_at: int | None = None  # time of the first line of any request
        self._groups: dict[int, list[Open]] = {}
        self._still_open: dict[int, int] = {}  # members of each
        self._ended = Ended(boot, step_ns, say, done)
        self.rebuilds = Rebuilds(self.by_ctx, self._join)

    def open_requests(self) -> int:
        """Requests that are open: never more than the server has sessions."""
        count = sum(not one.gone for one in self._open.values())
        return count if self.sessions is None else min(count, self.sessions)

    def may_move(self, gap_line: int | None) -> bool:
        """Whether a line may have to do with requests that its numbers do not name.

        Args:
            gap_line: the last one before which the clock may have jumped.
        """
        if self.single or self._appended:
            return True
        oldest = next(iter(self._open.values()), None)
        return gap_line is not None and oldest is not None and oldest.first[0] < gap_line

    @property
    def late_ns(self) -> int:
        """By how much the two best lines of a request disagree, where they have receive stamps."""
        return self._ended.late_ns

    # ---- finding ---------------------------------------------------------------------------------------------------

    def _add(self, where: Where, ctx: bytes | None, cached: int | None, prompt: int, new: int | None) -> Open:
        self.begun += 1
        one = Open(self.boot, self.begun, where, ctx, cached, prompt, new)
        self._open[one.number] = one
        self._by.add(one)
        return one

    def _late(self, where: Where, ctx: bytes | None, prompt: int, begun: int) -> Open | None:
        """Open a request whose first lines are missing; it, or its decode, began at `begun`."""
        spans = (None, prompt, None) if ctx is None else grammar.span(ctx)
        if spans is None:
            return None
        one = self._add(where, ctx, *spans)
        if self.whole or (self._first_at is not None and begun > self._first_at + self._step_ns):
            one.lost.append("prompt start line")
        else:
            self._say(
                "log-cut-at-front",
                where[0],
                f"{one.label} began before the log does: all of it is counted, with what lies before",
                "keep the log from server start: start-up lines also prove the settings; of a log in several files, "
                "account all of them together, the oldest first",
            )
        return one

    def _join(self, members: list[Open], where: Where) -> None:
        """Put them into one group, together with the groups they are in."""
        old = {one.group for one in members if one.group is not None}
        new = [one for one in members if one.group is None]
        if len(old) == 1 and not new:
            return
        name = min(old.union(one.number for one in new))
        merged = [one for group in old - {name} for one in self._groups.pop(group)]
        self._still_open[name] = self._still_open.get(name, 0) + sum(one.number in self._open for one in new)
        self._still_open[name] += sum(self._still_open.pop(group) for group in old - {name})
        for one in new:
            hold(one)
        for one in (*merged, *new):
            one.group = name
        group = self._groups.setdefault(name, [])
        group += merged + new
        tell(group, len(group), where[0], self._say)

    def _first_near(self, found: Iterable[Open], begun: int) -> list[Open]:
        return first(one for one in found if not one.gone and one.fits_begin(begun, self._step_ns))

    def _any_fits(self, found: Iterable[Open], begun: int) -> bool:
        return any(one.fits_begin(begun, self._step_ns) for one in found)

    def _pick(self, found: list[Open], at: int, where: Where, *, decode: bool = False, before: int = -1) -> Open | None:
        """Return the request a line belongs to, of those its integers fit; None when it is of none of them.

        The line tells when the request (or its decode) began; it had generated `before` tokens, -1: it was in prefill.
        """
        step_ns = self._step_ns
        fits, off = (Open.fits_decode, Open.off_decode) if decode else (Open.fits_begin, Open.off_begin)
        if not found:
            return None
        found = [one for one in found if fits(one, at, step_ns)] or found
        if len(found) > 1:
            self._join(found, where)
        one = min(found, key=lambda one: (abs(off(one, at, step_ns)), one.number))
        gone, one.gone = one.gone, False
        if one.group is not None:  # what others' lines may have told must not narrow it
            return one
        if not fits(one, at, step_ns):
            far = off(one, at, step_ns)
            last = max(line[0] for line in (one.first, one.chunked, one.done, one.decoded) if line is not None)
            if step_ns and (late_ns := self._move(far, last)):
                at -= late_ns
            elif step_ns:
                # Only a clock that jumped, or a machine that slept, puts its very next line so much too late.
                follows = before < 0 or (before == 0 and one.done_ns is not None)
                is_next = follows and far > 0 and not gone
                if abs(far) > _OTHER_NS and one.decoded is None and one.chunked is None and not is_next:
                    return None
                self._say(
                    "clock-and-durations-disagree",
                    where[0],
                    f"{one.label} began {far / 1e9:.1f} s off what its earlier lines say",
                    "the machine's clock was set or it slept, or a line is not this request's",
                )
                return one
        (one.decode if decode else one.begin).add(at)
        return one

    # ---- lines -----------------------------------------------------------------------------------------------------

    def start(self, ctx: bytes, at: int, where: Where) -> bool:
        """`prompt start`."""
        spans = grammar.span(ctx)
        if spans is None:
            return False
        if self.single:  # one at a time: whatever is open has ended without a line
            for other in self._open.values():
                other.gone = True
        self._first_at = at if self._first_at is None else self._first_at
        one = self._add(where, ctx, *spans)
        one.started = where
        one.begin.add(at)
        return True

    def chunk(self, ctx: bytes, tokens: int, of: int, took_ns: int, at: int, where: Where, *, known: bool) -> bool:
        """`prefill chunk`; `known`: only if it continues a request. False when it is none of a request's lines."""
        same = self.by_ctx.get(ctx, ())
        spans = grammar.span(ctx)
        if spans is None or spans[2] != of or tokens > of:
            return False
        begun = at - took_ns

        def is_before(one: Open) -> bool:
            return one.done_ns is None and (one.chunked is None or one.chunk < tokens)

        earlier, again = tee(self._by.ctx.those(ctx, is_before))
        near = self._first_near(self._by.ctx.near(ctx, is_before, begun), begun)
        found = near or first(earlier)
        if not near and not self._any_fits(again, begun):
            grouped = [one for one in same if one.group is not None]
            if grouped and (not found or self._any_fits(grouped, begun)):  # the group has none that is not so far
                keep((tokens, took_ns, begun, where, False), grouped, grouped, self._groups, self._step_ns)
                return True
        one = self._pick(found, begun, where)
        if one is None:
            if known or (same and not found):  # its position was passed: not a line of any
                return False
            one = self._late(where, ctx, 0, begun)
            if one is None:
                return False
            one.begin.add(begun)
        one.chunk, one.chunk_ns, one.chunked = tokens, took_ns, where
        if one.told is not None:
            keep((tokens, took_ns, begun, where, False), [one], same, self._groups, self._step_ns)
        self._by.moved(one)
        return True

    def done(self, ctx: bytes, took_ns: int, at: int, where: Where, *, known: bool) -> bool:
        """`prompt done`."""
        same = self.by_ctx.get(ctx, ())
        if len(same) == 1 and self._only_done(same[0], took_ns, at, where):
            return True
        begun = at - took_ns

        def is_undone(one: Open) -> bool:
            return one.decoded is None and took_ns >= one.chunk_ns

        undone, again = tee(filter(is_undone, self._by.ctx.those(ctx, is_not_done)))
        near = self._first_near(filter(is_undone, self._by.ctx.near(ctx, is_not_done, begun)), begun)
        found = near or first(undone)
        if not near and not self._any_fits(again, begun):  # lines of a group's members are given to them by guess
            grouped = [one for one in same if one.done_ns is None and one.group is not None]
            found = first(one for one in grouped if one.fits_begin(begun, self._step_ns)) or found or first(grouped)
        one = self._pick(found, begun, where)
        if one is None:
            one = None if known else self._late(where, ctx, 0, begun)
            if one is None:
                return False
            one.begin.add(begun)
        one.done_ns, one.done = took_ns, where
        self._by.moved(one)
        return True

    def decode(self, start: int, end: int, gen: int, took_ns: int, at: int, where: Where, *, known: bool) -> bool:
        """`decoding`: positions [start, end), `gen` tokens in all."""
        base, before = end - gen, gen - (end - start)
        if before < 0 or base < 0 or end <= start:
            return False
        if base not in self.by_base and self._appended and before == 0:
            self._second_pass(base)
        same = self.by_base.get(base, ())
        those = partial(self._by.base.those, base)
        found = (
            first(those(lambda one: one.gen == before and one.done_ns is not None))
            or first(those(lambda one: one.gen == before))
            or first(those(lambda one: one.gen < before))  # lines between were lost
        )
        one = self._pick(found, at - took_ns, where, decode=True, before=before)
        if one is None:
            if known or (same and not found):
                return False
            one = self._late(where, None, base, at - took_ns)
            if one is None:
                return False
            one.decode.add(at - took_ns)
        if one.gen != before and (self.whole or one.decoded is not None):
            one.lost.append("decode lines")
        if one.done_ns is None and one.started is not None and "prompt done line" not in one.lost:
            one.lost.append("prompt done line")
        one.gen, one.decode_ns, one.decoded, one.end_at = gen, took_ns, where, end
        self._by.moved(one)
        return True

    def _only_done(self, one: Open, took_ns: int, at: int, where: Where) -> bool:
        """Take what nearly every `prompt done` is: of the only request of its span, in order and in time."""
        plain = one.done_ns is None and one.decoded is None and one.group is None and not one.gone
        if not plain or took_ns < one.chunk_ns or not one.begin.fits(at - took_ns, self._step_ns):
            return False
        one.begin.add(at - took_ns)
        one.done_ns, one.done, one.end_at = took_ns, where, one.base
        self._by.moved(one)
        return True

    def _only_finish(self, one: Open, ctx: bytes, gen: int, reason: str, took_ns: int, at: int, where: Where) -> bool:
        """Take what nearly every `finish=` is, likewise."""
        plain = gen == one.gen and not one.earlier_gen and one.done_ns is not None and one.started is not None
        if not plain or one.group is not None or one.gone or not one.begin.fits(at - took_ns, self._step_ns):
            return False
        one.begin.add(at - took_ns)
        one.finish, one.finish_gen, one.end_ns, one.ended = reason, gen, took_ns, where
        if self._tools or reason == "tool_calls":
            self._give_tools(one, ctx, reason)
        self._close(one)
        return True

    def append(self, tokens: int) -> None:
        """`tool-error continuation appended`: some request goes on decoding so many tokens after its last one."""
        self._appended.append(tokens)
        del self._appended[:-_MOST_APPENDED]

    def _second_pass(self, base: int) -> None:
        for tokens in self._appended:
            found = [one for one in self._open.values() if one.gen and one.base + one.gen + tokens == base]
            if len(found) == 1:
                one = found[0]
                self._appended.remove(tokens)
                self._by.base.drop(one.base, one)
                one.base, one.earlier_gen, one.gen, one.end_at = base, one.gen, 0, -1
                one.first_decode, one.decode = one.decode, type(one.decode)()
                self._by.passed(one)
                return

    def tools(self, ctx: bytes, ids: tuple[str, ...], where: Where) -> bool:
        """`tool calls`: of the request of that span whose finish line comes next."""
        if grammar.span(ctx) is None:
            return False
        self._tools.setdefault(ctx, []).append((where, ids))
        return True

    def finish(self, ctx: bytes, gen: int, reason: str, took_ns: int, at: int, where: Where, *, known: bool) -> bool:
        """`finish=`."""
        alone = self.by_ctx.get(ctx, ())
        if len(alone) == 1 and self._only_finish(alone[0], ctx, gen, reason, took_ns, at, where):
            return True
        spans = grammar.span(ctx)
        if spans is None:
            return False
        those = partial(self._by.ctx.those, ctx)
        if ctx not in self.by_ctx:  # decode lines may be all there was
            late = [one for one in self.by_base.get(spans[1], ()) if one.ctx is None and one.gen <= gen]
            those = partial(wanted_of, late)
        found = (
            first(those(lambda one: gen in (one.gen, one.gen + one.earlier_gen) and one.done_ns is not None))
            or first(those(lambda one: gen in (one.gen, one.gen + one.earlier_gen)))
            or self._by.swapped(self._groups, chain(those(is_done), those(is_not_done)), spans[1], gen)
            or first(those(lambda one: one.gen <= gen))
        )
        one = self._pick(found, at - took_ns, where, before=gen)
        if one is None:
            one = None if known else self._late(where, ctx, 0, at - took_ns)
            if one is None:
                return False
            one.begin.add(at - took_ns)
        if one.ctx is None:  # its decode lines were all there was
            one.ctx, one.cached, one.new = ctx, spans[0], spans[2]
            self._by.ctx.add(ctx, one)
        missing = gen - one.gen - one.earlier_gen
        if (
            missing > 0
            and not (reason == "error" and missing < _RETRY_TOKENS)
            and gen != one.gen
            and (self.whole or one.started is not None)
        ):
            one.lost.append("decode lines")
        if one.done_ns is None and one.started is not None:
            one.lost.append("prompt done line")
        one.finish, one.finish_gen, one.end_ns, one.ended = reason, gen, took_ns, where
        self._give_tools(one, ctx, reason)
        self._close(one)
        return True

    def _give_tools(self, one: Open, ctx: bytes, reason: str) -> None:
        waiting = self._tools.get(ctx)
        equal = self.by_ctx.get(ctx, [])
        if not waiting and reason == "tool_calls":
            one.lost.append("tool calls line")  # it comes just before
        if not waiting or (reason not in {"tool_calls", "error"} and len(equal) > 1):
            return
        if len(waiting) > 1:
            self._join(equal, one.ended or one.first)
        one.tooled, one.tool_ids = waiting.pop(0)
        if not waiting:
            del self._tools[ctx]

    # ---- ends ------------------------------------------------------------------------------------------------------

    def went(self, ctx: bytes | None, where: Where) -> None:
        """The client went away; a finish line may follow or not."""
        of = self._open.values() if ctx is None else self.by_ctx.get(ctx, ())
        found = list(islice((one for one in of if not one.gone), 2))
        if len(found) == 1:
            found[0].gone, found[0].cancelled = True, where

    def explain(self, by_ns: int, since_line: int, since_ns: int) -> None:
        """Move the times of all requests that began in or after a line, written at `since_ns`."""
        for one in [*self._open.values(), *self._ended.waiting]:
            if one.first[0] >= since_line:
                one.begin.move(by_ns)
            if one.done is not None and one.done[0] >= since_line:
                one.decode.move(by_ns)
        self._ended.move(by_ns, since_ns)

    def _close(self, one: Open) -> None:
        del self._open[one.number]
        self._by.drop(one)
        if one.group is None:
            self._ended.add(one)
            return
        self._ended.waiting.append(one)
        self._still_open[one.group] -= 1
        if not self._still_open[one.group]:
            del self._still_open[one.group]
            self._ended.add_group(self._groups.pop(one.group))

    def end(self) -> None:
        """Say that the server has ended: all requests are done."""
        for ctx, waiting in self._tools.items():
            found = self.by_ctx.get(ctx, [])
            if len(found) == 1 and len(waiting) == 1:
                found[0].tooled, found[0].tool_ids = waiting[0]
            else:
                self._say(
                    "tool-calls-without-request",
                    waiting[0][0][0],
                    f"no single request of ctx {ctx.decode('ascii')} is there for these tool calls",
                    "lines of the log may be missing",
                )
        for one in list(self._open.values()):
            self._close(one)
        self._ended.end()
