"""Why is no line of a server's log of a known format, and what helps?

journald, docker and others give each line a time, a host or a name. Such a log is not read: its times and offsets would
be another file's. But it can be said what stands behind, and how to get it. Nor is one read that a logging
configuration of vLLM or SGLang has made JSON; requests that SGLang itself writes as JSON are.

A prefix is one regular expression, of the part of the syntax that Python and `sed -E` share, so that what is looked for
and what the command removes is the same. Several may stand in a row (kubectl logs --prefix --timestamps).
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from agentload.serverlogs import formats
from agentload.serverlogs.jsonrequests import decoded
from agentload.shown import in_shell

_LEAST_SHARE: Final = 0.5  # of the lines that have it: a program that puts something in front does so everywhere
_MOST_LAYERS: Final = 3
_MOST_LINES: Final = formats.HEAD_BYTES // 16  # no format's line is that short, and each is asked in every way
_AT_ONCE: Final = {"sed": "-u", "jq": "--unbuffered"}  # has a program write each line when it has it


@dataclass(frozen=True, slots=True)
class Behind:
    """What stands behind the prefix of each line."""

    format: str
    lines: int  # of those looked at, that only this format would write
    looked_at: int
    by: str  # who writes such a prefix
    steps: tuple[str, ...]  # shell commands that take it away, each from stdin to stdout
    instead: str  # how to get the log without it; empty where nothing can be said

    def sentence(self, file: str | None, *, grows: bool = False) -> str:
        """Say what was found, and what helps; `file` None: the log came on stdin, or its server is ours.

        Of a log that `grows` it is a file that follows it, else the command to read it with.
        """
        if grows and file is not None:
            steps = (f"{name} {_AT_ONCE[name]} {more}" for name, more in (one.split(" ", 1) for one in self.steps))
            command = (
                f"let `tail -n +1 -F {in_shell(file)} | {' | '.join(steps)} >> FILE` run, and give FILE as the log"
            )
        elif grows:
            command = "have it written without"
        else:
            first, *others = self.steps
            reading = ("...", first) if file is None else (f"{first} {in_shell(file)}",)
            command = f"`{' | '.join((*reading, *others, 'agentload account -'))}`"
        instead = f"; or at the source: {self.instead}" if self.instead else ""
        return (
            f"{self.lines:,} of its first {self.looked_at:,} lines are of {self.format}, behind what {self.by} puts in "
            f"front: {command}{instead}"
        )


@dataclass(frozen=True, slots=True)
class _Layer:
    """One kind of prefix."""

    by: str
    pattern: str  # from the line's beginning on, for Python and for sed -E; empty: each line is an object of JSON
    instead: str = ""

    def strip(self, lines: Sequence[bytes]) -> list[bytes] | None:
        """Return the lines without it; None when too few have it."""
        cut = _unpacked if not self.pattern else _Cut(self.pattern)
        found = [cut(line) for line in lines]
        has = sum(one is not None for one in found)
        if not has or has < _LEAST_SHARE * len(lines):
            return None
        return [line if one is None else one for line, one in zip(lines, found, strict=True)]


class _Cut:
    def __init__(self, pattern: str) -> None:
        self._pattern = re.compile(pattern.encode("ascii"))

    def __call__(self, line: bytes) -> bytes | None:
        found = self._pattern.match(line)
        return None if found is None else line[found.end() :]


def _unpacked(line: bytes) -> bytes | None:
    """Return the text of a line of docker's json-file driver."""
    if not line.startswith(b'{"log":'):
        return None
    try:
        text = json.loads(line).get("log")
    except (ValueError, RecursionError):
        return None
    return text.rstrip("\r\n").encode("utf-8", "replace") if isinstance(text, str) else None


_JOURNAL: Final = "journalctl or syslog"
_CAT: Final = "`journalctl -u UNIT -o cat`"
_NAMED: Final = "([^ :]+ )?[^ ]+: "  # host, and unit or program with its process: journald may leave out the host
_LAYERS: Final = (
    _Layer(_JOURNAL, "^[A-Z][a-z]{2} [ 0-9][0-9] [0-9:.]+ " + _NAMED, _CAT),  # short, short-precise
    _Layer(_JOURNAL, "^[A-Z][a-z]{2} [0-9-]{10} [0-9:.]+ [^ ]+ " + _NAMED, _CAT),  # short-full, with-unit
    _Layer(_JOURNAL, "^[0-9-]{10}T[0-9:.]+(Z|[+-][0-9:]+) " + _NAMED, _CAT),  # short-iso, short-iso-precise, rsyslog
    _Layer(_JOURNAL, r"^\[? *[0-9]+\.[0-9]{6}\]? " + _NAMED, _CAT),  # short-monotonic, short-unix
    _Layer(_JOURNAL, r"^(<[0-9]+>)?1 [^ ]+ [^ ]+ [^ ]+ [^ ]+ [^ ]+ (-|\[[^]]*\]) ", _CAT),  # RFC 5424
    _Layer("kubectl logs --prefix", r"^\[pod/[^]]+\] ", "`kubectl logs` without --prefix"),
    _Layer("the container runtime (CRI)", "^[^ ]+ (stdout|stderr) F ", "`kubectl logs` or `crictl logs`"),
    _Layer("docker's json-file driver", "", "`docker logs`, without -t"),
    _Layer(
        "docker logs -t, kubectl logs --timestamps or the like",
        "^[0-9-]{10}[T_ ][0-9:.,]+(Z|[+-][0-9:]+)? ",
        "leaving out the option for times",
    ),
    _Layer("docker compose logs", r"^([0-9]+\|)?[^ |]+ +\| ", "`docker compose logs --no-log-prefix`"),
    _Layer("ts", "^[A-Z][a-z]{2} [ 0-9][0-9] [0-9:.]+ "),
)
_NOT_AS_JSON: Final = (
    "its lines are JSON, and none is of a request as SGLang itself writes it: start vLLM without a JSON formatter "
    "(--logging-config, VLLM_LOGGING_CONFIG_PATH), SGLang too (SGLANG_LOGGING_CONFIG_PATH)"
)
_COLOURS: Final = re.compile(rb"\x1b\[[0-9;]*[A-Za-z]")
_SLASH: Final = ("/", "\\/")
_COLOURS_SED: Final = r"s/\x1b\[[0-9;]*[A-Za-z]//g"


def why_unknown(head: bytes, file: str | None, *, grows: bool = False) -> str | None:
    """Say why no line of a log's head is of a known format, and what helps; None when one is, or it cannot be told.

    Arguments as `Behind.sentence` has them.
    """
    if formats.detect(head[: formats.HEAD_BYTES]) is not None:
        return None
    found = behind(head)
    if found is not None:
        return found.sentence(file, grows=grows)
    lines = _lines(head)
    return _NOT_AS_JSON if sum(map(_is_json, lines)) > _LEAST_SHARE * len(lines) else None


def _lines(head: bytes) -> list[bytes]:
    return formats.written(head[: formats.HEAD_BYTES], _MOST_LINES)[0]


def _is_json(line: bytes) -> bool:
    """Whether it is an object of JSON, and none of docker's."""
    return _unpacked(line) is None and decoded(line) is not None


def behind(head: bytes) -> Behind | None:
    """Return what the head of a log is behind prefixes; None when that is no known format either.

    To be asked when `formats.look` finds none. Of several ways the one that leaves most lines of a format is taken.
    """
    lines = _lines(head)
    plain = [_COLOURS.sub(b"", line) for line in lines]
    coloured = sum(one != line for one, line in zip(plain, lines, strict=True)) >= _LEAST_SHARE * len(lines)
    known = formats.installed()
    most, log_format, layers = 0, "", tuple[_Layer, ...]()
    for taken, stripped in _ways(plain, ()):
        for name, one in known.items():
            if (found := one.looks_like(stripped)) > most:
                most, log_format, layers = found, name, taken
    if not most:
        return None
    return Behind(
        format=log_format,
        lines=most,
        looked_at=len(lines),
        by=" and ".join(dict.fromkeys(one.by for one in layers)) or "a terminal's colours",
        steps=_steps(layers, coloured=coloured),
        instead=", ".join(dict.fromkeys(one.instead for one in layers if one.instead)),
    )


def _steps(layers: Sequence[_Layer], *, coloured: bool) -> tuple[str, ...]:
    """Return the commands; what neighbours of them have for sed stands in one."""
    parts = [_COLOURS_SED] if coloured else []
    parts += [one.pattern and f"s/{one.pattern.replace(*_SLASH)}//" for one in layers]
    steps = []
    for is_sed, some in groupby(parts, bool):
        each = [f"'{part}'" for part in some]
        flag = " -e " if len(each) > 1 else " "
        steps.append(f"sed -E{flag}{flag.join(each)}" if is_sed else "jq -rj .log")
    return tuple(steps)


def _ways(lines: Sequence[bytes], taken: tuple[_Layer, ...]) -> Iterator[tuple[tuple[_Layer, ...], Sequence[bytes]]]:
    """Give the ways to take prefixes away, fewest first, and what each leaves of the lines."""
    yield taken, lines
    if len(taken) == _MOST_LAYERS:
        return
    for layer in _LAYERS:
        stripped = None if layer in taken else layer.strip(lines)
        if stripped is not None:
            yield from _ways(stripped, (*taken, layer))
