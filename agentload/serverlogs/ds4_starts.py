"""How often did ds4-server start in this log, and what does each start say of its settings?

A start is seen by its start-up lines: the first of them after a server was ready, or had requests, begins another one.
Lines of the engine that come before it belong to it. Values printed are those in force; without `batched mode enabled`
the server takes one request at a time.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from agentload.core.records import Boot, Proof, Setting
from agentload.serverlogs import ds4_grammar as grammar
from agentload.serverlogs.ds4_request import Say
from agentload.serverlogs.ds4_requests import Book


@dataclass(slots=True)
class Start:
    """One start of the server."""

    index: int
    first_line: int
    book: Book
    context: bool = False  # its first line was seen
    batched: bool = False
    ready: Proof | None = None


class Starts:
    """All starts of a log."""

    def __init__(self, make: Callable[[int], Book], say: Say) -> None:
        """`make` makes the book of requests of a start."""
        self._make = make
        self._say = say
        self._all = [Start(0, 1, make(0))]
        self._early: int | None = None  # first engine line of a start that has not printed a line of its own yet
        self._waiting: list[tuple[str, str | int | bool, Proof]] = []
        self._settings: list[Setting] = []
        self.late_ns = 0

    @property
    def present(self) -> Start:
        """The last start so far."""
        return self._all[-1]

    def _set(self, name: str, proof: Proof, *, value: str | int | float | bool) -> None:
        self._settings.append(Setting(name, value, self.present.index, proof))

    def _line(self, proof: Proof, *, context: bool = False) -> Start:
        """Note a start-up line; begin another start where it cannot be of the present one."""
        start = self.present
        if start.ready is not None or start.book.begun or (context and start.context):
            self._end()
            first_line = proof.line if self._early is None else self._early
            start = Start(len(self._all), first_line, self._make(len(self._all)))
            self._all.append(start)
        start.context = start.context or context
        start.book.whole = True
        self._early = None
        self._flush()
        return start

    def _flush(self) -> None:
        for name, value, proof in self._waiting:
            self._set(name, proof, value=value)
        self._waiting.clear()

    def _end(self) -> None:
        self.present.book.end()
        self.late_ns = max(self.late_ns, self.present.book.late_ns)

    def close(self) -> tuple[tuple[Boot, ...], tuple[Setting, ...]]:
        """Say that the log has ended."""
        self._flush()
        self._end()
        boots = tuple(Boot(one.index, one.first_line, one.ready) for one in self._all)
        return boots, tuple(self._settings)

    # ---- lines -----------------------------------------------------------------------------------------------------

    def engine(self, text: bytes, proof: Proof) -> bool:
        """Take a line of the engine; False when it says nothing of a start."""
        opens = grammar.ENGINE_OPENS.fullmatch(text) is not None
        if opens and self._early is None:
            self._early = proof.line
        if (found := grammar.DEVICE.fullmatch(text)) is not None:
            self._waiting.append(("device", (found[1] or found[2]).decode("utf-8", "replace"), proof))
            return True
        if grammar.MANAGED_KV.fullmatch(text) is not None:
            self._set("managed_kv_cache", proof, value=True)
            return True
        return opens

    def server(self, body: bytes, proof: Proof) -> bool:
        """Take a line of the server; False when it is no start-up line."""
        for pattern, take in (
            (grammar.CONTEXT, self._context),
            (grammar.RESIDENT, self._resident),
            (grammar.BATCHED, self._batched),
            (grammar.KV_DISK, self._kv_disk),
            (grammar.KV_DISK_FAILED, self._kv_disk_failed),
            (grammar.REPLAY_OFF, self._replay_off),
            (grammar.MTP_OFF, self._mtp_off),
            (grammar.TRACE, self._trace),
            (grammar.READY, self._ready),
        ):
            found = pattern.fullmatch(body)
            if found is not None:
                take(found, proof)
                return True
        return False

    def _context(self, found: re.Match[bytes], proof: Proof) -> None:
        self._line(proof, context=True)
        self._set("context_buffers_mib", proof, value=float(found[1]))
        for name, text in grammar.PAIR.findall(found[2]):
            self._set(name.decode("ascii"), proof, value=grammar.value(text))

    def _resident(self, found: re.Match[bytes], proof: Proof) -> None:
        self._line(proof)
        self._set("context_buffers_all_sessions_gib", proof, value=float(found[1]))

    def _batched(self, found: re.Match[bytes], proof: Proof) -> None:
        start = self._line(proof)
        start.batched = True
        self._set("batched", proof, value=True)
        for name, text in grammar.PAIR.findall(found[1]):
            value = grammar.value(text)
            self._set(name.decode("ascii"), proof, value=value)
            if name == b"resident_sessions" and isinstance(value, int):
                start.book.sessions = value

    def _kv_disk(self, found: re.Match[bytes], proof: Proof) -> None:
        self._line(proof)
        self._set("kv_disk_dir", proof, value=found[1].decode("utf-8", "replace"))
        for key, text in grammar.PAIR.findall(found[2]):
            name = key.decode("ascii")
            value = text.removesuffix(b"s") if name == "hit_half_life" else text
            self._set(grammar.KV_DISK_NAMES.get(name, f"kv_cache_{name}"), proof, value=grammar.value(value))

    def _kv_disk_failed(self, found: re.Match[bytes], proof: Proof) -> None:
        self._line(proof)
        self._say(
            "kv-disk-not-in-force",
            proof.line,
            f"the directory of the disk cache could not be made ({found[1][:200].decode('utf-8', 'replace')})",
            "the server runs on without a disk cache: give it a directory that it can make",
        )

    def _replay_off(self, _: re.Match[bytes], proof: Proof) -> None:
        self._line(proof)
        self._set("exact_dsml_tool_replay", proof, value=False)

    def _mtp_off(self, _: re.Match[bytes], proof: Proof) -> None:
        self._line(proof)
        self._set("mtp", proof, value=False)
        self._say(
            "draft-model-not-in-force",
            proof.line,
            "a draft model is loaded, and not used in batched mode",
            "leave out either the draft model or the batched sessions",
        )

    def _trace(self, found: re.Match[bytes], proof: Proof) -> None:
        self._line(proof)
        self._set("trace", proof, value=found[1].decode("utf-8", "replace"))

    def _ready(self, found: re.Match[bytes], proof: Proof) -> None:
        start = self._line(proof)
        start.ready = proof
        self._set("listening", proof, value=found[1].decode("utf-8", "replace"))
        if start.context and not start.batched:
            start.book.single = True
            self._set("batched", proof, value=False)
