"""Is this a server's log at all, and if not, which command makes one of it?"""

from typing import Any, Final

from agentload.core.records import LogFacts
from agentload.errors import InputError, UsageError
from agentload.serverlogs import ds4, formats
from agentload.serverlogs import undated as cut_off
from agentload.shown import in_shell

_TEXT: Final = "a log as text, it is packed"
_UTF_8: Final = "a log as bytes or UTF-8, it is"
_NO_TEXT: Final = (
    (b"\x1f\x8b", f"{_TEXT} (gzip)", "zcat {}"),
    (b"\x28\xb5\x2f\xfd", f"{_TEXT} (zstd)", "zstdcat {}"),
    (b"\xfd7zXZ\x00", f"{_TEXT} (xz)", "xzcat {}"),
    (b"BZh", f"{_TEXT} (bzip2)", "bzcat {}"),
    (b"\xff\xfe\0\0", f"{_UTF_8} UTF-32", "iconv -f UTF-32 -t UTF-8 {}"),  # its first half is UTF-16's
    (b"\0\0\xfe\xff", f"{_UTF_8} UTF-32", "iconv -f UTF-32 -t UTF-8 {}"),
    (b"\xff\xfe", f"{_UTF_8} UTF-16", "iconv -f UTF-16 -t UTF-8 {}"),
    (b"\xfe\xff", f"{_UTF_8} UTF-16", "iconv -f UTF-16 -t UTF-8 {}"),
)
"""First bytes, what they say, and the command that makes text of a file, or of stdin (-)."""
_TAR_AT: Final = 257  # where the first header of a tar archive has its magic (POSIX.1, ustar interchange format)
_CONTROLS: Final = bytes(set(range(32)) - set(b"\t\n\r\x1b"))
_BINARY_SHARE: Final = 0.05  # of control bytes; text has none, compiled code and models 10 % and more
_LOOKED_AT: Final = 1 << 16  # bytes, for that
_ENOUGH: Final = 1 << 12  # of them, to refuse a file of which no more has been read


def check_unpacked(first: bytes, where: str, file: str | None) -> None:
    """Refuse a log that is packed, or not in bytes of ASCII.

    Args:
        first: its first bytes.
        where: what it is called.
        file: its path; None: it came on stdin.

    Raises:
        InputError: it is; the command that unpacks it is named.
    """
    found = [(said, command) for magic, said, command in _NO_TEXT if first.startswith(magic)]
    if first[_TAR_AT : _TAR_AT + 5] == b"ustar":
        found.append((f"{_TEXT} (tar)", "tar -xOf {} NAME"))
    if found:
        said, command = found[0]
        reading = f"... | {command.format('-')}" if file is None else command.format(in_shell(file))
        raise InputError(f"{where}: expected {said}: `{reading} | agentload account -`")


def check_text(first: bytes, where: str) -> None:
    """Refuse what is no text; only asked where no line is of a known format.

    Raises:
        InputError: it is binary.
    """
    head = first[:_LOOKED_AT].lstrip(b"\0")  # a log that was truncated under its writer begins with a hole
    if _has_controls(head) or (first and not first.strip(b"\0")):
        raise _binary(where)


def check_begin(first: bytes, where: str) -> None:
    """Refuse what is binary from its first bytes on: the rest of a model's file, or of a device, is not read for that.

    NULs are no sign of it here: they are holes in a log that was truncated, and behind them may be lines.

    Raises:
        InputError: it is binary, and no line of its head is of a known format.
    """
    head = first.lstrip(b"\0")[:_LOOKED_AT].replace(b"\0", b"")
    if len(head) >= _ENOUGH and _has_controls(head) and formats.detect(first[: formats.HEAD_BYTES]) is None:
        raise _binary(where)


def _has_controls(head: bytes) -> bool:
    return len(head) - len(head.translate(None, _CONTROLS)) > _BINARY_SHARE * len(head)


def _binary(where: str) -> InputError:
    return InputError(f"{where}: expected a server's log, it is binary (no text, and no line of a known format)")


def check_format(looks: formats.Detected, log_format: str | None, where: str) -> None:
    """Refuse a log that is of another format than was said.

    Raises:
        UsageError: its head is all of another one.
    """
    if log_format is not None and looks.best is not None and not looks.scores.get(log_format):
        raise UsageError(
            f"--format {log_format}: none of the first {looks.lines} lines of {where} is of it, "
            f"{looks.scores[looks.best]} can only be of {looks.best}: say --format {looks.best}, or leave it out"
        )


def one_line(first: bytes, file: str | None) -> str | None:
    """Say that a log's lines end with a carriage return and no newline, and what helps; None of any other log.

    `first` are its first bytes; `file` is its path, None: it came on stdin.
    """
    if b"\n" in first or formats.detect(first[: formats.HEAD_BYTES].replace(b"\r", b"\n")) is None:
        return None
    reading = "... | tr '\\r' '\\n'" if file is None else f"tr '\\r' '\\n' < {in_shell(file)}"
    return f"its lines end with a carriage return and no newline, so that it is one: `{reading} | agentload account -`"


def undated(first: bytes, file: str | None, facts: LogFacts) -> dict[str, Any] | None:
    """How many lines of a ds4 log have no date, of those in `first`; None where all have one, or it is of another kind.

    `command` reads the log with a date for those that have their time of day; None where none has.
    """
    if facts.format != ds4.FORMAT.name or not facts.lines.unknown:
        return None
    lines, with_time = cut_off.count(first)
    if any(one.code == "torn-lines" for one in facts.doubts):
        lines = with_time  # the end of a line that another write cut in two has no stamp, and was put together again
    if not lines:
        return None
    reading = f"... | {cut_off.COMMAND}" if file is None else f"{cut_off.COMMAND} {in_shell(file)}"
    return {
        "lines": lines,
        "of_bytes": len(first),
        "command": f"{reading} | agentload account -" if with_time else None,
    }
