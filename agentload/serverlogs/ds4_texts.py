"""What does the text of a ds4-server line say, after its stamp and the server's name?

Not in here: decode and chunk lines, which are most of a log (`ds4`).
"""

from dataclasses import replace
from typing import Final

from agentload.core.records import CacheEvent, Proof
from agentload.serverlogs import ds4_grammar as grammar
from agentload.serverlogs.doubts import MOST_EVENTS, MOST_SUSPECTS, Doubts
from agentload.serverlogs.ds4_caches import CACHE_TROUBLE, cache_event
from agentload.serverlogs.ds4_starts import Starts
from agentload.serverlogs.lines import Kind

_MS_NS: Final = 1_000_000
_BODY: Final = 27  # bytes of a stamp, a space and the server's name before the text
_SHOWN: Final = 200  # bytes of a line in a message


class Texts:
    """Gives each text to who can use it."""

    def __init__(self, starts: Starts, doubts: Doubts) -> None:
        self._starts = starts
        self._doubts = doubts
        self.suspects: list[tuple[int, Proof, str]] = []
        self.cache: list[CacheEvent] = []
        self._cached: dict[tuple[str, str | None], tuple[int, int]] = {}  # kind and reason -> events, tokens
        self.quoted_to = 0  # byte of the log up to which a line may be model output that a warning quotes

    def move(self, by_ns: int, since_ns: int) -> None:
        """Move the times from `since_ns` on: the log's clock turns out to have jumped there."""
        self.suspects[:] = [(at if at < since_ns else at + by_ns, proof, why) for at, proof, why in self.suspects]
        self.cache[:] = [one if one.at < since_ns else replace(one, at=one.at + by_ns) for one in self.cache]

    def cache_sums(self) -> tuple[tuple[str, str | None, int, int], ...]:
        """Return what the lines about caches amount to: of all, also of those that are not kept."""
        return tuple((*what, *counts) for what, counts in self._cached.items())

    def used(self, number: int, *, used: bool) -> Kind:
        """Return what became of a request's line; one that no request could use is told."""
        if used:
            return Kind.UNDERSTOOD
        self._doubts.add(
            "stray-request-line",
            number,
            "it looks like a request's line and continues none; it is not used",
            "it may be text that a model wrote, or part of the log is missing",
        )
        return Kind.UNKNOWN

    def take(self, number: int, offset: int, body: bytes, at: int, *, known: bool) -> Kind:
        """Take one: of a line, written at `at`; `known`: only if it continues a request."""
        book, where = self._starts.present.book, (number, offset)
        if (found := grammar.START.fullmatch(body)) is not None:
            return Kind.UNKNOWN if known else self.used(number, used=book.start(found[1], at, where))
        if (found := grammar.DONE.fullmatch(body)) is not None:
            took_ns = int(found[2] + found[3]) * _MS_NS
            return self.used(number, used=book.done(found[1], took_ns, at, where, known=known))
        if (found := grammar.FINISH.fullmatch(body)) is not None:
            ctx, gen, reason, error, seconds, millis = found.groups()
            took_ns = int(seconds + millis) * _MS_NS
            used = book.finish(ctx, int(gen), reason.decode("ascii"), took_ns, at, where, known=known)
            if used and error is not None:
                self.suspect(number, offset, at, body)
            return self.used(number, used=used)
        if (found := grammar.TOOLS.fullmatch(body)) is not None and not known:
            ids = tuple(one.strip().decode("utf-8", "replace") for one in found[2].split(b",") if one.strip())
            return self.used(number, used=book.tools(found[1], ids, where))
        if known:
            return Kind.UNKNOWN
        if (found := grammar.REBUILD_NEEDED.fullmatch(body)) is not None:
            return self.used(number, used=book.rebuilds.needed(found[2], found[3]))
        if (found := grammar.REBUILD_DONE.fullmatch(body)) is not None:
            return self.used(number, used=book.rebuilds.done(found[1], found[2], int(found[3]), where))
        if self._caches(Proof(number, offset), body, at) or self._starts.server(body, Proof(number, offset)):
            return Kind.UNDERSTOOD
        return self._rare(number, offset, body, at)

    def _rare(self, number: int, offset: int, body: bytes, at: int) -> Kind:
        if (found := grammar.APPENDED.fullmatch(body)) is not None:
            self._starts.present.book.append(int(found[1]))
            return Kind.UNDERSTOOD
        if grammar.QUIET.fullmatch(body) is not None:
            self._quotes(offset, body)
            return Kind.IGNORED
        if (found := grammar.GONE.fullmatch(body)) is not None:
            self._starts.present.book.went(found[1], (number, offset))
        elif grammar.TROUBLE.fullmatch(body) is None:
            return Kind.UNKNOWN
        self.suspect(number, offset, at, body)
        return Kind.UNDERSTOOD

    def _quotes(self, offset: int, body: bytes) -> None:
        """A warning may quote raw model output, which goes on over the next lines."""
        head, quoting, text = body.partition(grammar.SNIPPET)
        if not quoting:
            return
        length = grammar.TEXT_LENGTH.search(head)
        most = grammar.SNIPPET_BYTES if length is None else min(int(length[1]), grammar.SNIPPET_BYTES)
        if most > len(text):
            self.quoted_to = offset + _BODY + len(body) - len(text) + most

    def suspect(self, number: int, offset: int, at: int, body: bytes) -> None:
        """Note a line that tells of trouble."""
        if len(self.suspects) >= MOST_SUSPECTS:
            self._doubts.left_out(number, "suspect lines", MOST_SUSPECTS)
            return
        self.suspects.append((at, Proof(number, offset), body[:_SHOWN].decode("utf-8", "replace")))

    def _caches(self, proof: Proof, body: bytes, at: int) -> bool:
        event = cache_event(body, self._starts.present.index, at, proof)
        if event is None:
            return False
        events, tokens = self._cached.get((event.kind, event.reason), (0, 0))
        self._cached[event.kind, event.reason] = events + 1, tokens + (event.tokens or 0)
        if len(self.cache) < MOST_EVENTS:
            self.cache.append(event)
        else:
            self._doubts.left_out(proof.line, "cache events", MOST_EVENTS)
        if event.kind in CACHE_TROUBLE:
            self.suspect(proof.line, proof.offset, at, body)
        return True
