"""What has a conversation shown so far: which paths, lines and names, and which calls were made?

Read from the messages alone, each once for its content. A path counts as there when a listing, a search or a count
printed it, when a read of it went well, or when the user named it; text inside files proves none.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

_CACHED: Final = 4096
_MOST_NAMES: Final = 60  # of one result
# Nothing in it needs quoting in a shell. No leading dash, no hidden file.
_PATH: Final = r"[A-Za-z0-9_][\w+-]*(?:\.[\w+-]+)*(?:/[A-Za-z0-9_][\w+-]*(?:\.[\w+-]+)*)*"
_TEXT_END_LIST: Final = "c cc cfg cpp go h hpp java js json md py pyi rb rs rst sh toml ts txt yaml yml"
_TEXT_ENDS: Final = frozenset(_TEXT_END_LIST.split())
_LISTED: Final = re.compile(rf"(?:\./)?({_PATH})(/?)", re.ASCII)
_FOUND: Final = re.compile(rf"(?:\./)?({_PATH}):(\d+):(.*)", re.ASCII)
_MEASURED: Final = re.compile(rf"\s*(\d+) (?:\./)?({_PATH})", re.ASCII)
_IN_PROSE: Final = re.compile(rf"(?<![\w./-]){_PATH}", re.ASCII)
_CUT: Final = re.compile(r"\[\.\.\. \d+ bytes cut here \.\.\.\]")
_GO_ON: Final = re.compile(r"\[this answer holds no more: go on with start_line (\d+)\]")
_LINE: Final = re.compile(r"^ *(\d+)\t", re.MULTILINE)
_DEFINED: Final = re.compile(
    r"\b(?:fn|struct|enum|trait|type|const|static|mod|macro_rules!|def|class|func|function) +([A-Za-z_]\w{3,39})\b",
    re.ASCII,
)
_NAME: Final = re.compile(r"\b(?:[a-z]+_[a-z_]{2,30}|[A-Z][a-z]+[A-Z]\w{1,30})\b", re.ASCII)
_WORD: Final = re.compile(r"\b[a-z]{5,14}\b")
# Words of a question that are in every file or in none.
_DULL_WORDS: Final = (
    "about after along answer audit because before begin begins behind being between build called cases change changed "
    "claim close code colleague comes count cover depend during early either enough every explain exactly files final "
    "first follow found give gives given happens itself least likely lines list making might model names needs never "
    "object order other others passed place places question questions reading repository review right sentence should "
    "someone something takes tasks their there these thing things those three through under until where whether which "
    "while whole whose within without would write wrong"
)
_DULL: Final = frozenset(_DULL_WORDS.split())


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of the conversation, with its result when there is one."""

    tool: str
    arguments: str
    result: str | None

    @property
    def command(self) -> str:
        """The shell command; empty for another tool."""
        return str(self.given.get("command", "")) if self.tool == "bash" else ""

    @property
    def given(self) -> dict[str, Any]:
        """The arguments decoded; empty when they are no JSON object."""
        return _decoded(self.arguments)


@dataclass(frozen=True, slots=True)
class Sights:
    """What one message shows."""

    files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    hits: tuple[tuple[str, int], ...] = ()  # (path, line) of a search
    names: tuple[str, ...] = ()
    lines: tuple[tuple[str, int], ...] = ()  # (path, number of lines) counted
    read: tuple[str, int, int] | None = None  # (path, first, last line) that a read showed
    more_from: int | None = None  # the read ended early: where it goes on
    missing: str | None = None  # a read that failed


@dataclass(slots=True)
class Seen:
    """All of a conversation, in order of first sight."""

    files: dict[str, None] = field(default_factory=dict)
    folders: dict[str, None] = field(default_factory=dict)
    asked: dict[str, None] = field(default_factory=dict)  # files that the user named
    hits: dict[str, dict[int, None]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)  # and the file that was read when it was first seen, or ""
    asked_names: dict[str, None] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)  # files read to their end from the first line
    more_from: dict[str, int] = field(default_factory=dict)
    shown: dict[tuple[str, int], None] = field(default_factory=dict)  # (path, line) that an answer may name
    calls: list[Call] = field(default_factory=list)
    listed: bool = False  # a search or a listing has shown files

    def readable(self) -> list[str]:
        """Files whose names say that they are text."""
        return [path for path in self.files if path.rpartition(".")[2] in _TEXT_ENDS]


def see(messages: Sequence[Mapping[str, Any]]) -> Seen:
    """Read a conversation."""
    seen = Seen()
    open_calls: dict[str, tuple[str, str]] = {}
    missing: set[str] = set()
    for message in messages:
        role = message.get("role")
        if role == "user":
            paths, names = _asked(text_of_message(message))
            seen.asked.update(dict.fromkeys(paths))
            seen.files.update(dict.fromkeys(paths))
            seen.asked_names.update(dict.fromkeys(names))
        elif role == "assistant":
            for call in message.get("tool_calls") or ():
                function = call.get("function") or {}
                made = str(function.get("name", "")), str(function.get("arguments", ""))
                open_calls[str(call.get("id"))] = made
        elif role == "tool":
            tool, arguments = open_calls.pop(str(message.get("tool_call_id")), ("", ""))
            text = text_of_message(message)
            seen.calls.append(Call(tool, arguments, text))
            _add(seen, sights_of(tool, arguments, text), missing)
    for path in missing:
        seen.files.pop(path, None)
    return seen


def text_of_message(message: Mapping[str, Any]) -> str:
    """Return the text of a message whose content is text, or parts with text."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content or () if isinstance(part, Mapping))


@lru_cache(maxsize=_CACHED)
def sights_of(tool: str, arguments: str, text: str) -> Sights:
    """Return what the result of a call shows."""
    given = _decoded(arguments)
    if tool == "read":
        return _of_read(str(given.get("path", "")), given.get("end_line"), text)
    command = str(given.get("command", ""))
    program = command.partition(" ")[0]
    lines = _whole_lines(text)
    files: dict[str, None] = {}
    folders: dict[str, None] = {}
    hits: list[tuple[str, int]] = []
    counted: list[tuple[str, int]] = []
    for line in lines:
        if program == "grep" and (match := _FOUND.fullmatch(line)):
            files[match[1]] = None
            hits.append((match[1], int(match[2])))
        elif program in ("ls", "find") and (match := _LISTED.fullmatch(line)):
            (folders if match[2] else files)[match[1]] = None
        elif program == "wc" and (match := _MEASURED.fullmatch(line)) and match[2] != "total":
            files[match[2]] = None
            counted.append((match[2], int(match[1])))
    for path in files:
        while (path := path.rpartition("/")[0]) and path not in folders:
            folders[path] = None
    names = () if program in ("ls", "find", "wc") else _names("\n".join(lines))
    return Sights(tuple(files), tuple(folders), tuple(hits), names, tuple(counted))


def _of_read(path: str, end: Any, text: str) -> Sights:
    path = path.removeprefix("./")
    numbers = _LINE.findall(text)
    if not numbers:
        return Sights(missing=path)
    first, last = int(numbers[0]), int(numbers[-1])
    more = _GO_ON.search(text, len(text) - 400 if len(text) > 400 else 0)
    whole = first == 1 and more is None and end is None
    counted = ((path, last),) if whole else ()
    go_on = int(more[1]) if more else None
    return Sights((path,), names=_names(text), lines=counted, read=(path, first, last), more_from=go_on)


def _add(seen: Seen, sights: Sights, missing: set[str]) -> None:
    for path in sights.files:
        seen.files[path] = None
    seen.listed = seen.listed or bool(sights.files)
    seen.folders.update(dict.fromkeys(sights.folders))
    for path, line in sights.hits:
        seen.hits.setdefault(path, {})[line] = None
        seen.shown[path, line] = None
    home = sights.read[0] if sights.read is not None else ""
    for name in sights.names:
        seen.names.setdefault(name, home)
    seen.lines.update(sights.lines)
    if sights.read is not None:
        path, first, last = sights.read
        seen.shown[path, first] = None
        seen.shown[path, last] = None
        seen.more_from.pop(path, None)
        if sights.more_from is not None:
            seen.more_from[path] = sights.more_from
        if (path, last) in sights.lines:
            seen.whole.add(path)
    if sights.missing is not None:
        missing.add(sights.missing)


@lru_cache(maxsize=256)
def _asked(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the files that a user's message names, and the words worth a search: code first, then prose."""
    paths = [one for one in _IN_PROSE.findall(text) if one.rpartition(".")[2] in _TEXT_ENDS and "." in one]
    names = dict.fromkeys(_NAME.findall(text))
    names.update(dict.fromkeys(word for word in _WORD.findall(text) if word not in _DULL))
    return tuple(dict.fromkeys(paths)), tuple(names)


def _names(text: str) -> tuple[str, ...]:
    """Return names that `text` defines or uses, definitions first."""
    found = dict.fromkeys(_DEFINED.findall(text))
    if len(found) < _MOST_NAMES:
        found.update(dict.fromkeys(_NAME.findall(text)))
    return tuple(found)[:_MOST_NAMES]


def _whole_lines(text: str) -> list[str]:
    """Return the lines of a result; where its middle was cut out, the two torn ones are left out."""
    lines = text.splitlines()
    torn = {at + step for at, line in enumerate(lines) if _CUT.fullmatch(line) for step in (-1, 0, 1)}
    return [line for at, line in enumerate(lines) if at not in torn]


def _decoded(arguments: str) -> dict[str, Any]:
    try:
        value = json.loads(arguments)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
