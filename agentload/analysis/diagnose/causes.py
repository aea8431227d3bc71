"""What made a server prefill tokens again that it had had in a cache?

Looked for in this order: prompt caching that is off, another start of the server, what the server's log says of slots
and of the disk cache, what changed in the messages. A cause names the lines that show it. The first that is shown wins;
what nothing shows is unknown.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from agentload.analysis.diagnose.history import AS_WRITTEN, LEFT_OUT, Said, Sent
from agentload.analysis.diagnose.inputs import Inputs, Row
from agentload.serverlogs.promptlines import Miss

SLOT_TAKEN: Final = "slot-taken"
EVICTED: Final = "evicted"
DISK_MISS: Final = "disk-miss"
OTHER_SLOT: Final = "other-slot"
HISTORY: Final = "history-changed"
RERENDERED: Final = "answer-rerendered"
RESTART: Final = "restart"
CACHE_OFF: Final = "cache-off"
UNUSABLE: Final = "cache-unusable"
REBUILD: Final = "rebuild"
UNKNOWN: Final = "unknown"

TITLES: Final[Mapping[str, str]] = {
    SLOT_TAKEN: "its slot was taken by another request",
    EVICTED: "its slot was taken, and what was kept of it on disk was dropped",
    DISK_MISS: "its slot was taken, and what was kept of it on disk was not found",
    OTHER_SLOT: "the server gave it another slot than the one that held its history",
    HISTORY: "the sent history changed",
    RERENDERED: "the server rendered the history otherwise than it had written it",
    RESTART: "the server was started again",
    CACHE_OFF: "prompt caching is off",
    UNUSABLE: "the server could not use what it held",
    REBUILD: "a tool checkpoint was rebuilt after the answer",
    UNKNOWN: "unknown",
}

LOG: Final = "log"
MESSAGES: Final = "messages"
SETTINGS: Final = "settings"
COUNTS: Final = "counts"

_LOG_FILE: Final = "server.log"
_NEAR: Final = 2  # tokens: the last one of an answer may not be in the slot, an end of turn may be
_SLACK: Final = 64  # tokens, by which a prompt's reused part may end before the prompt did


@dataclass(frozen=True, slots=True)
class Turn:
    """One request that has another before it in its conversation."""

    number: int  # its place among all rows
    row: Row
    before: Row
    sent: Sent | None
    before_tokens: int  # the context at the end of the request before
    again_tokens: int
    common_tokens: int | None
    common_estimated: bool


@dataclass(frozen=True, slots=True)
class Cause:
    """Why tokens were prefilled again."""

    code: str
    sentence: str
    rests_on: str | None  # log | messages | settings | counts; None: nothing tells
    proofs: tuple[Said, ...] = ()
    by: Row | None = None  # the request that did it


def named(row: Row) -> str:
    """A request as a sentence has it."""
    if row["agent"] is None:
        return f"{row['label'] or row['request']}, which is matched with no agent's request,"
    return f"{row['request']} of {row['agent']}"


class Known:
    """What is known of a run, to be asked for causes."""

    def __init__(self, read: Inputs, turns: Sequence[Turn]) -> None:
        """`turns`: all of the run."""
        self._read = read
        self._off = _cache_off(read, turns)
        self._ds4 = Ds4(read) if read.software == "ds4" else None
        self._llamacpp = Llamacpp(read) if read.software == "llamacpp" else None

    def cause(self, turn: Turn) -> Cause:
        """Return why `turn` was prefilled again."""
        found = self._off or _restarted(self._read, turn)
        if found is None and self._ds4 is not None:
            found = self._ds4.cause(turn)
        if found is None and self._llamacpp is not None:
            found = self._llamacpp.cause(turn)
        return found or changed(turn) or rerendered(turn) or _unknown(turn)

    def rebuilt(self, number: int, row: Row) -> tuple[Turn, Cause]:
        """Return what was prefilled once more after the answer of `row`, and the line that tells so."""
        context = (row["prompt_tokens"] or 0) + (row["decoded_tokens"] or 0)
        sent = self._read.sent.get(str(row["request"]))
        turn = Turn(number, row, row, sent, context, row["rebuild_tokens"], None, common_estimated=True)
        first = _first_line(row) or 0
        line = next(
            (
                one.line
                for one in self._read.lines.rebuilds
                if one.line.number > first and one.prompt_tokens == row["prompt_tokens"]
            ),
            None,
        )
        said = "its tool calls, as the server puts them into a prompt, were not what it had sampled"
        proofs = () if line is None else (Said(_LOG_FILE, line.number, line.text),)
        return turn, Cause(REBUILD, said, LOG, proofs)


# ---- any server ------------------------------------------------------------------------------------------------------


def _cache_off(read: Inputs, turns: Sequence[Turn]) -> Cause | None:
    """Prompt caching that is off by its setting; else, where no later turn ever found anything, by what was seen."""
    for name, off in (("cache_prompt", False), ("enable_prefix_caching", False), ("disable_radix_cache", True)):
        if read.setting(name) is off:
            source = read.setting_source(name)
            where = f" ({source})" if source else " (as asked for on the command line)"
            return Cause(CACHE_OFF, f"{name} is {off}{where}", SETTINGS)
    if read.software == "ds4" or len(turns) < 3 or any(one.row["cached_tokens"] for one in turns):
        return None
    return Cause(
        CACHE_OFF, f"none of {len(turns)} later turns found any token in a cache, as when prompt caching is off", COUNTS
    )


def _restarted(read: Inputs, turn: Turn) -> Cause | None:
    was, now = turn.before["boot"], turn.row["boot"]
    if was is None or now is None or was == now:
        return None
    between = [
        line
        for line in read.account["server_starts"]
        if (turn.before["decode_proof_line"] or 0) < line <= (turn.row.get("prefill_start_proof_line") or line)
    ]
    proofs = tuple(Said(_LOG_FILE, line, "the server's first line of a start") for line in between[-1:])
    return Cause(RESTART, f"the server was started again since {turn.before['request']}", LOG, proofs)


def changed(turn: Turn) -> Cause | None:
    """A history that was not sent again as it was."""
    sent = turn.sent
    if sent is None:
        return None
    if sent.changed is not None:
        return Cause(HISTORY, sent.changed, MESSAGES, sent.proofs)
    if sent.answer not in {None, AS_WRITTEN, LEFT_OUT}:
        return Cause(HISTORY, f"the answer of {turn.before['request']} was {sent.answer}", MESSAGES, sent.proofs)
    return None


def rerendered(turn: Turn) -> Cause | None:
    """All of the prompt before was reused and nothing of the answer to it, though the messages only grew."""
    cached, prompt = turn.row["cached_tokens"], turn.before["prompt_tokens"]
    if turn.sent is None or not prompt - _SLACK <= cached <= prompt + _SLACK or cached == 0:
        return None
    said = (
        f"the messages only grew; reused were {cached:,} tokens, where the prompt of {turn.before['request']} ended "
        f"({prompt:,}): its answer was not found as it had been written"
    )
    return Cause(RERENDERED, said, COUNTS)


def _unknown(turn: Turn) -> Cause:
    why = "no messages of it are kept" if turn.sent is None else "the messages only grew"
    return Cause(UNKNOWN, f"neither the log nor the messages tell why ({why})", None)


def _first_line(row: Row) -> int | None:
    known = [row.get(name) for name in ("prefill_start_proof_line", "prefill_proof_line", "decode_proof_line")]
    return min((line for line in known if line is not None), default=None)


def _last_line(row: Row) -> int | None:
    known = [row.get(name) for name in ("prefill_start_proof_line", "prefill_proof_line", "decode_proof_line")]
    return max((line for line in known if line is not None), default=None)


def _held(row: Row) -> int:
    """Tokens that a slot holds at the end of a request."""
    return (row["prompt_tokens"] or 0) + (row["decoded_tokens"] or 0)


# ---- ds4-server ------------------------------------------------------------------------------------------------------


class Ds4:
    """A slot has no name in its log: whose it was follows from how many tokens it held when another prompt came."""

    def __init__(self, read: Inputs) -> None:
        self._lines = read.lines
        self._rows = read.rows
        self._disk_is_on = read.setting("kv_disk_dir") is not None
        starts = sorted((line, at) for at, row in enumerate(read.rows) if (line := _first_line(row)) is not None)
        # The line of a miss stands before `prompt start` of its request, others' lines may stand between.
        self._by: dict[int, Row] = {}
        left = list(starts)
        for miss in self._lines.misses:
            at = next(
                (
                    place
                    for place, (line, number) in enumerate(left)
                    if line > miss.line.number and read.rows[number]["prompt_tokens"] == miss.prompt_tokens
                ),
                None,
            )
            if at is not None:
                self._by[miss.line.number] = read.rows[left.pop(at)[1]]

    def cause(self, turn: Turn) -> Cause | None:
        """Return the cause; None where the log does not tell."""
        after, until = _last_line(turn.before), _first_line(turn.row)
        if after is None or until is None:
            return None
        own = None
        held = _held(turn.before)
        for miss in self._lines.misses:
            if not after < miss.line.number < until or abs(miss.live_tokens - held) > _NEAR:
                continue
            by = self._by.get(miss.line.number)
            if by is turn.row:
                own = miss
            elif by is None or by["agent"] != turn.row["agent"]:
                return self._taken(turn, miss, by, until)
        if own is None:
            return None
        proof = Said(_LOG_FILE, own.line.number, own.line.text)
        told = changed(turn)
        if told is not None:
            return Cause(told.code, told.sentence, MESSAGES, (proof, *told.proofs), None)
        said = (
            f"its slot still held its {own.live_tokens:,} tokens, of which {own.common_tokens:,} were the same "
            f"({own.reason}), though the messages only grew"
        )
        return Cause(RERENDERED, said, LOG, (proof,))

    def _taken(self, turn: Turn, miss: Miss, by: Row | None, until: int) -> Cause:
        taken_line = miss.line.number
        others = self._others_of_that_length(turn, miss)
        rests_on = COUNTS if others else LOG
        who = "a request that is not known" if by is None else named(by)
        proofs = [Said(_LOG_FILE, taken_line, miss.line.text)]
        said = (
            f"{who} took the slot that held its {miss.live_tokens:,} tokens, having {miss.common_tokens:,} of its own "
            f"{miss.prompt_tokens:,} in common with them"
        )
        if others:
            said += f" (or that of {' or '.join(others)}, which held as many: the log names no slots)"
        disk = [one for one in self._lines.disk if taken_line < one.line.number < until]
        stored = next(
            (one for one in disk if one.kind == "stored" and one.reason == "evict" and one.tokens == miss.live_tokens),
            None,
        )
        if stored is None:
            if self._disk_is_on:
                said += "; the log has no line that they were stored on disk"
            return Cause(SLOT_TAKEN, said, rests_on, tuple(proofs), by)
        proofs.append(Said(_LOG_FILE, stored.line.number, stored.line.text))
        dropped = next((one for one in disk if one.kind == "evicted" and one.tokens == stored.tokens), None)
        if dropped is None:
            return Cause(
                DISK_MISS, f"{said}; they were stored on disk, and not read again", rests_on, tuple(proofs), by
            )
        proofs.append(Said(_LOG_FILE, dropped.line.number, dropped.line.text))
        return Cause(
            EVICTED,
            f"{said}; they were stored on disk, and dropped there before {turn.row['request']} came "
            f"({dropped.reason or 'no reason told'})",
            rests_on,
            tuple(proofs),
            by,
        )

    def _others_of_that_length(self, turn: Turn, miss: Miss) -> list[str]:
        """Other agents whose context was as long when the slot was taken: it may have been theirs."""
        latest: dict[str, Row] = {}
        for row in self._rows:
            first = _first_line(row)
            if row["agent"] not in {None, turn.row["agent"]} and first is not None and first < miss.line.number:
                latest[row["agent"]] = row
        return sorted(agent for agent, row in latest.items() if abs(_held(row) - miss.live_tokens) <= _NEAR)


# ---- llama.cpp -------------------------------------------------------------------------------------------------------


class Llamacpp:
    """Each request's slot is in its log, and at which line it was given."""

    def __init__(self, read: Inputs) -> None:
        self._slots = read.lines.slots
        self._launched: dict[str, list[int]] = defaultdict(list)  # label -> lines: each start counts tasks anew
        for one in self._slots:
            if one.kind == "launched":
                self._launched[f"slot {one.slot} task {one.task}"].append(one.line.number)
        self._rows = [(line, row) for row in read.rows if (line := self._line(row)) is not None]

    def _line(self, row: Row) -> int | None:
        """Where its slot was given to it; else its first line."""
        first = _first_line(row)
        known = self._launched.get(str(row["label"]), ())
        if first is None:
            return known[0] if len(known) == 1 else None
        return max((line for line in known if line <= first), default=first)

    def cause(self, turn: Turn) -> Cause | None:
        """Return the cause; None where the log does not tell."""
        slot, after, until = turn.before["slot"], self._line(turn.before), self._line(turn.row)
        if slot is None or after is None or until is None:
            return None
        others = [
            (line, row)
            for line, row in self._rows
            if row["slot"] == slot
            and row["boot"] == turn.row["boot"]
            and after < line < until
            and row["agent"] != turn.row["agent"]
        ]
        if others:
            line, by = min(others, key=lambda one: one[0])
            said = f"{named(by)} was given slot {slot}, which held its {turn.before_tokens:,} tokens"
            return Cause(SLOT_TAKEN, said, LOG, (*self._selected(line, slot), self._proof(line)), by)
        unusable = [one for one in self._slots if one.kind == "unusable" and one.line.number > until]
        task = str(turn.row["label"]).rpartition(" ")[2]
        mine = [one for one in unusable if str(one.task) == task and one.slot == turn.row["slot"]]
        if mine:
            line_of = mine[0].line
            return Cause(
                UNUSABLE,
                "the server says that it processes the whole prompt again",
                LOG,
                (Said(_LOG_FILE, line_of.number, line_of.text),),
            )
        if turn.row["slot"] != slot:
            said = (
                f"it was given slot {turn.row['slot']}, while slot {slot} still held its {turn.before_tokens:,} tokens"
            )
            return Cause(OTHER_SLOT, said, LOG, (*self._selected(until, turn.row["slot"]), self._proof(until)))
        return None

    def _selected(self, launch_line: int, slot: int) -> tuple[Said, ...]:
        """The line that says why this slot was chosen: the last of its kind before the launch."""
        before = [one for one in self._slots if one.kind == "selected" and one.line.number < launch_line]
        if not before or before[-1].slot != slot:
            return ()
        return (Said(_LOG_FILE, before[-1].line.number, before[-1].line.text),)

    def _proof(self, line: int) -> Said:
        text = next((one.line.text for one in self._slots if one.line.number == line), "its first line")
        return Said(_LOG_FILE, line, text)
