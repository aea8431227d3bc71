"""What does the server's log tell, before anything of ours is in it and afterwards?

A log may have gigabytes: of a long one only its beginning, which states settings, and its end are read for the counts
of lines. What was added since the visit began is read apart, whole.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from anyio import to_thread

from agentload import plugins
from agentload.analysis.evidence import read_head, read_log
from agentload.core.clocks import align
from agentload.core.ports import Clock
from agentload.core.records import Completion, LogFacts, LoggedRequest, Timeline
from agentload.errors import InputError
from agentload.run.doctor.facts import LogSays
from agentload.serverlogs import formats, wrapped
from agentload.servers.attach import AttachedLog

_HEAD_BYTES: Final = 1 << 21
_TAIL_BYTES: Final = 1 << 22  # of lines that no reader knows some 2 MB are read in a second
_READ_BYTES: Final = 1 << 20
_POLL_NS: Final = 50_000_000
_SETTLE_NS: Final = 3_000_000_000  # a server writes a request's last lines after the client has its last byte
_DAY_S: Final = 86_400


class OwnedLog:
    """The log of a server of ours, which is in it from the first line on."""

    def __init__(self, path: Path, times: Path, log_format: str | None) -> None:
        self._path, self._times, self._format = path, times, log_format

    async def settle(self, answers: Sequence[Completion], clock: Clock) -> LogSays:
        """Read it once it shows all `answers`, or when it has had time to."""
        return await _settled(lambda: self._look(answers), lambda: self._path.stat().st_size, clock)

    def _look(self, answers: Sequence[Completion]) -> LogSays:
        facts = read_log(self._path, self._times, self._format)
        return _says(self._path, facts, facts, answers, owned=True, size=facts.size)


class SilentLog:
    """The log of a server that somebody else started."""

    def __init__(self, attached: AttachedLog, log_format: str | None) -> None:
        self._attached, self._format = attached, log_format
        self._begin = attached.size_at_start
        self._grew, self._silent_s = 0, 0.0

    async def be_silent(self, clock: Clock, seconds: float) -> None:
        """See whether it grows while nothing of ours is asked."""
        before, began_ns = self._size(), clock.now_ns()
        await clock.sleep_until(began_ns + int(seconds * 1e9))
        self._begin = self._size()
        self._grew, self._silent_s = self._begin - before, (clock.now_ns() - began_ns) / 1e9

    async def settle(self, answers: Sequence[Completion], clock: Clock) -> LogSays:
        """Read it once it shows all `answers`, or when it has had time to.

        Raises:
            InputError: it was rotated away or truncated meanwhile, or cannot be read.
        """
        return await _settled(lambda: self._look(answers), self._size, clock)

    def _size(self) -> int:
        return self._attached.place()[1]

    def _look(self, answers: Sequence[Completion]) -> LogSays:
        path = self._attached.path
        if (why := self._attached.changed()) is not None:
            raise InputError(f"--server-log: {why}")
        try:
            size = path.stat().st_size
            whole = formats.read(_pieces(path, size), self._format).facts
            named = whole.format if whole.format in plugins.names(plugins.SERVERLOGS) else None
            since = formats.read(_since(path, self._begin, size), named).facts
        except OSError as error:
            raise InputError(f"--server-log: {path} cannot be read: {error.strerror}") from error
        return _says(
            path,
            whole,
            since,
            answers,
            owned=False,
            size=size - self._begin,
            refusal=self._attached.refusal,
            silent=(self._grew, self._silent_s),
        )


async def _settled(look: Callable[[], LogSays], size: Callable[[], int], clock: Clock) -> LogSays:
    """Look again whenever it has grown, until all is there or the time to wait is over."""
    give_up_ns = clock.now_ns() + _SETTLE_NS
    seen = size()
    said = await to_thread.run_sync(look)
    while said.found < said.ours and (said.shows_requests or not said.grew_bytes) and clock.now_ns() < give_up_ns:
        await clock.sleep_until(clock.now_ns() + _POLL_NS)
        if (now := size()) != seen:
            seen = now
            said = await to_thread.run_sync(look)
    return said


def _pieces(path: Path, size: int) -> Iterator[bytes]:
    """The whole of it, or its beginning and its end."""
    if size <= _HEAD_BYTES + _TAIL_BYTES:
        yield from _since(path, 0, size)
        return
    yield from _since(path, 0, _HEAD_BYTES)
    yield b"\n"
    yield from _since(path, size - _TAIL_BYTES, size)


def _since(path: Path, begin: int, end: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        file.seek(begin)
        left = end - begin
        while left > 0 and (data := file.read(min(left, _READ_BYTES))):
            left -= len(data)
            yield data


def _says(
    path: Path,
    whole: LogFacts,
    since: LogFacts,
    answers: Sequence[Completion],
    *,
    owned: bool,
    size: int,
    refusal: str | None = None,
    silent: tuple[int, float] = (0, 0.0),
) -> LogSays:
    names = plugins.names(plugins.SERVERLOGS)
    known = whole.format in names
    settings = {one.name: one.value for one in whole.settings}
    if settings.get("batched") is False:  # ds4 without slots takes one request at a time
        settings["resident_sessions"] = 1
    ours = [one for one in answers if one.error is None and one.usage is not None]
    found = _found(ours, since.requests) if since.counts_requests else _found_by_id(ours, since.requests)
    shows = since.counts_requests or bool(since.requests)
    aligned = align(since, ours)
    return LogSays(
        path=str(path),
        owned=owned,
        format=whole.format if known else None,
        known=names,
        why_unknown=_why_unknown(path, whole, owned=owned),
        lines=whole.lines,
        timeline=since.timeline,
        refusal=refusal,
        grew_silent_bytes=silent[0],
        silent_s=silent[1],
        grew_bytes=size,
        ours=len(ours) if known else len([one for one in answers if one.error is None]),
        found=found if known else 0,
        counts=since.counts_requests,
        shows_requests=shows,
        others=max(0, len(since.requests) - len(answers)) if known else 0,
        settings=settings,
        clock_error_ns=aligned.clock_error_ns if aligned.timeline is Timeline.UNIX else None,
        wall_ahead_s=wall_ahead_s(ours, since) if since.timeline is Timeline.WALL and known else None,
    )


def _why_unknown(path: Path, facts: LogFacts, *, owned: bool) -> str | None:
    if facts.lines.understood or not facts.lines.unknown:
        return None
    return wrapped.why_unknown(read_head(path), None if owned else str(path), grows=True)


def _found(ours: Sequence[Completion], logged: Sequence[LoggedRequest]) -> int:
    """How many of our answers the log has, by their token counts."""
    there = Counter((one.prompt_tokens, one.decoded_tokens) for one in logged)
    asked = Counter((one.usage.prompt_tokens, one.usage.completion_tokens) for one in ours if one.usage is not None)
    return (there & asked).total()


def _found_by_id(ours: Sequence[Completion], logged: Sequence[LoggedRequest]) -> int:
    there = {one.server_id for one in logged if one.server_id is not None}
    return sum(one.server_id in there for one in ours)


def wall_ahead_s(ours: Sequence[Completion], since: LogFacts) -> float | None:
    """How far the log's stamps, which have no year and whole seconds, stand ahead of this machine's clock in UTC.

    From the last answer that has its like in the log: its last token was written within a second of our having it.
    """
    for answer in reversed(ours):
        for one in reversed(since.requests):
            end = one.decode_end if one.t_end is None else one.t_end
            counts = None if answer.usage is None else (answer.usage.prompt_tokens, answer.usage.completion_tokens)
            if end is None or counts != (one.prompt_tokens, one.decoded_tokens):
                continue
            done_s = answer.t_done / 1e9
            january_s = datetime(datetime.fromtimestamp(done_s, UTC).year, 1, 1, tzinfo=UTC).timestamp()
            ahead_s = end / 1e9 - (done_s - january_s)
            return (ahead_s + _DAY_S / 2) % _DAY_S - _DAY_S / 2  # its days are counted without a year: 29 February
    return None
