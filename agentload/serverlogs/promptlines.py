"""Which lines of a server's log tell what became of the prompts that it kept?

Of ds4-server: what a slot held when another prompt came into it, and what was stored on disk, read and dropped. Of
llama.cpp's server: which slot a request was given and why, and that a kept prompt could not be used. Facts on requests
come from the readers of the formats; these lines only say why a prompt was prefilled again. Only whole lines count, as
there: a model's words can look like one.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from agentload.serverlogs import ds4_grammar as ds4
from agentload.serverlogs import llamacpp_grammar as llamacpp
from agentload.serverlogs.lines import uncoloured

_SHOWN: Final = 240  # characters of a line


@dataclass(frozen=True, slots=True)
class Line:
    """One line, without colours."""

    number: int  # 1-based
    text: str


@dataclass(frozen=True, slots=True)
class Miss:
    """A prompt came into a slot whose tokens it does not go on from: what the slot held is lost."""

    line: Line
    live_tokens: int  # what the slot held
    prompt_tokens: int
    common_tokens: int
    reason: str


@dataclass(frozen=True, slots=True)
class Disk:
    """Something about the disk cache."""

    line: Line
    kind: str  # stored | hit | evicted | skipped | store failed | load failed | discarded | ...
    tokens: int | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Slot:
    """Something about a slot of llama.cpp's server."""

    line: Line
    slot: int
    task: int
    kind: str  # selected | launched | unusable


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A tool checkpoint was rebuilt after the answer of a request with this prompt."""

    line: Line
    prompt_tokens: int


@dataclass(slots=True)
class PromptLines:
    """All of them, in order."""

    misses: list[Miss] = field(default_factory=list)
    disk: list[Disk] = field(default_factory=list)
    slots: list[Slot] = field(default_factory=list)
    rebuilds: list[Rebuilt] = field(default_factory=list)


_MISS: Final = re.compile(
    rb"live kv cache miss(?: RESPPROTO)? live=(\d{1,9}) prompt=(\d{1,9}) common=(\d{1,9})(?: vision=\w+)? "
    rb"reason=([\w-]+)"
)
_DS4_WORDS: Final = (b" kv cache ", b"tool checkpoint rebuild done ")
_SELECTED: Final = re.compile(rb"selected slot by .*")
_UNUSABLE: Final = re.compile(rb"forcing full prompt re-processing.*")
_LLAMA_WORDS: Final = (b"selected slot by", b"processing task", b"forcing full prompt")


def read(lines: Iterable[bytes], log_format: str | None) -> PromptLines:
    """Return what the lines of a log tell; of other formats than ds4 and llamacpp nothing."""
    found = PromptLines()
    take, words = {"ds4": (_take_ds4, _DS4_WORDS), "llamacpp": (_take_llamacpp, _LLAMA_WORDS)}.get(
        str(log_format), (None, ())
    )
    if take is None:
        return found
    for number, line in enumerate(lines, 1):
        if any(word in line for word in words):
            take(found, number, line.rstrip(b"\r\n"))
    return found


def _line(number: int, text: bytes) -> Line:
    return Line(number, text[:_SHOWN].decode("utf-8", "replace"))


def _take_ds4(found: PromptLines, number: int, raw: bytes) -> None:
    text = uncoloured(raw)
    stamped = ds4.STAMPED.fullmatch(text)
    body = text if stamped is None else stamped[2]
    if not body.startswith(ds4.SERVER):
        return
    body = body[len(ds4.SERVER) :]
    if (miss := _MISS.fullmatch(body)) is not None:
        live, prompt, common = (int(part) for part in miss.groups()[:3])
        found.misses.append(Miss(_line(number, text), live, prompt, common, miss[4].decode("ascii")))
    elif (rebuilt := ds4.REBUILD_DONE.fullmatch(body)) is not None:
        if (span := ds4.span(rebuilt[2])) is not None:
            found.rebuilds.append(Rebuilt(_line(number, text), span[1]))
    elif (disk := ds4.STORE.fullmatch(body)) is not None:
        tokens, why = ds4.TOKENS.search(disk[2]), ds4.REASON.search(disk[2])
        found.disk.append(
            Disk(
                _line(number, text),
                disk[1].decode("ascii"),
                None if tokens is None else int(tokens[1]),
                None if why is None else why[1].decode("ascii"),
            )
        )


def _take_llamacpp(found: PromptLines, number: int, raw: bytes) -> None:
    text = uncoloured(raw)
    prefix = llamacpp.PREFIX.match(text)
    body = text if prefix is None else text[prefix.end() :]
    slot = llamacpp.SLOT.fullmatch(body)
    if slot is None:
        return
    for kind, pattern in (("selected", _SELECTED), ("launched", llamacpp.LAUNCH), ("unusable", _UNUSABLE)):
        if pattern.fullmatch(slot[3]) is not None:
            found.slots.append(Slot(_line(number, text), int(slot[1]), int(slot[2]), kind))
            return
