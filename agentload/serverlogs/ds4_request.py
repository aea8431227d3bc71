"""What do the lines of one ds4-server request say together, above all: when did its phases begin and end?

Durations inside the lines are monotonic with ms and count from t0, just before `prompt start`; decode durations count
from the end of prefill. Each line so gives `stamp - elapsed`, an interval of one second that holds t0, and the lines
of one request narrow it:

    max(stamp - elapsed) <= t0 < min(stamp - elapsed) + 1 s

Its middle is taken. With receive stamps, which are late by a delay that is never negative, t0 is the least of
`received - elapsed`.

    prefill_end = decode_start = t0 + `prompt done`      decode_end = decode_start + elapsed of the last decode line
    t_end = t0 + elapsed of the finish line

Of a request without an end, only what its lines prove counts: new tokens up to its last chunk, unless all were done.
Where the last decode line has fewer tokens than the finish line, the rest is not of the time that it tells.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from agentload.core.packed import Flat
from agentload.serverlogs.ds4_runs import Run

_ROUNDED_NS: Final = 1_500_000  # what rounds three durations to the ms each may make of one time
LATE_NS: Final = 100_000_000  # a line may come so much after what it tells, before times are said to disagree
_FAR: Final = 1 << 80
_PROOFS: Final = (
    "prompt_tokens", "cached_tokens", "prefill_start", "prefill_end", "new_prefill_tokens", "decode_end",
    "decoded_tokens", "finish", "t_end", "tool_call_ids", "rebuild_tokens",
)  # fmt: skip

# What the decode lines of a request tell of it, and its finish line.
DECODE_PARTS: Final = ("gen", "decode_ns", "decoded", "end_at", "decode")
END_PARTS: Final = ("finish", "finish_gen", "end_ns", "ended", "tool_ids", "tooled")

Say = Callable[[str, int, str, str], None]  # code, line, what, advice
Where = tuple[int, int]  # line and byte offset: a Proof, made only of those lines that end up proving something
# Tokens, ns it took, where it puts t0, where it stands; whether it is sure to be that request's, and its last one.
Chunk = tuple[int, int, int, Where, bool]


@dataclass(slots=True, eq=False)
class Anchor:
    """All `time of the line - elapsed` of one beginning."""

    least: int = _FAR
    most: int = -_FAR
    second: int = _FAR  # the second least

    @property
    def known(self) -> bool:
        """Whether any line told."""
        return self.most != -_FAR

    def add(self, at: int) -> None:
        """Add one."""
        if at < self.least:
            self.second, self.least = self.least, at
        elif at < self.second:
            self.second = at
        self.most = max(self.most, at)

    def takes(self, run: Run, since_ns: int, slack_ns: int) -> bool:
        """Add all lines of a run, whose times count from `since_ns`; False when they are too far apart.

        Runs are of logs without receive stamps, where nobody asks for the second least.
        """
        least, most = since_ns + run[7], since_ns + run[8]
        if not self.most - slack_ns <= least <= most <= self.least + slack_ns or most - least > slack_ns:
            return False
        self.least, self.most = min(self.least, least), max(self.most, most)
        return True

    def move(self, by: int) -> None:
        """Move all of them."""
        if self.known:
            self.least += by
            self.most += by
            self.second += by

    def middle(self, step_ns: int) -> int:
        """Return the estimate; stamps are rounded down to a multiple of `step_ns` (0: receive stamps)."""
        return self.least if step_ns == 0 else (self.most + self.least + step_ns) // 2

    def fits(self, at: int, step_ns: int) -> bool:
        """Whether a line that says `at` can be of the same beginning."""
        return not self.known or self.most - step_ns - LATE_NS <= at <= self.least + step_ns + LATE_NS


class Open:
    """What was read of one request so far; times and durations in ns.

    Defaults stand in the class: to set them in each object took as long as six of its lines.
    """

    started: Where | None = None
    chunk = 0
    chunk_ns = 0
    chunked: Where | None = None
    done_ns: int | None = None
    done: Where | None = None
    gen = 0
    decode_ns = 0
    decoded: Where | None = None
    end_at = -1  # where its last decode line ended
    earlier_gen = 0  # tokens of a first pass, before a tool error was appended
    first_decode: Anchor | None = None
    finish: str | None = None
    finish_gen = 0
    end_ns: int | None = None
    ended: Where | None = None
    tool_ids: tuple[str, ...] = ()
    tooled: Where | None = None
    rebuilt: int | None = None
    rebuild: Where | None = None
    gone = False  # it seems to have ended without a line
    cancelled: Where | None = None
    group: int | None = None
    told: list[Chunk] | None = None  # since it is in a group: chunk lines given to it, whichever member's they are

    def __init__(
        self,
        boot: int,
        number: int,
        first: Where,
        ctx: bytes | None,
        cached: int | None,
        prompt: int,
        new: int | None,
    ) -> None:
        """`number` in order of their first lines; `ctx` is A..B:N, None when only decode lines were seen."""
        self.boot = boot
        self.number = number
        self.first = first
        self.ctx = ctx
        self.cached = cached
        self.prompt = prompt
        self.new = new
        self.base = prompt  # or where the second pass began
        self.begin = Anchor()  # of t0
        self.decode = Anchor()  # of the beginning of the present decode pass
        self.lost: list[str] = []

    @property
    def label(self) -> str:
        """The log calls it nothing, so: its span, and its first line."""
        name = f"gen after {self.prompt}" if self.ctx is None else f"ctx {self.ctx.decode('ascii')}"
        return f"{name} line {self.first[0]}"

    def fits_begin(self, at: int, step_ns: int) -> bool:
        """Whether a line that puts t0 at `at` can be of this request."""
        return self.begin.fits(at, step_ns)

    def fits_decode(self, at: int, step_ns: int) -> bool:
        """Whether a line that puts the beginning of decode at `at` can be of this request; in a group it always can."""
        if self.group is not None:
            return True
        if self.decode.known or self.done_ns is None or self.first_decode is not None:
            return self.decode.fits(at, step_ns)
        return self.begin.fits(at - self.done_ns, step_ns)

    def off_begin(self, at: int, step_ns: int) -> int:
        """How far a line that puts t0 at `at` is off what is known of it; 0 when nothing is.

        Of a stamp `at` is the beginning of an interval, as long as `step_ns`: its middle is compared with a middle.
        """
        return at + step_ns // 2 - self.begin.middle(step_ns) if self.begin.known else 0

    def off_decode(self, at: int, step_ns: int) -> int:
        """How far a line that puts the beginning of decode at `at` is off, likewise."""
        if self.decode.known:
            return at + step_ns // 2 - self.decode.middle(step_ns)
        return self.off_begin(at - (self.done_ns or 0), step_ns)

    def parts(self, names: tuple[str, ...]) -> tuple[Any, ...]:
        """Return `DECODE_PARTS` or `END_PARTS` of it, which `take_parts` gives to another member of the group."""
        return tuple(getattr(self, name) for name in names)

    def take_parts(self, names: tuple[str, ...], values: tuple[Any, ...]) -> None:
        """Take those of another member."""
        for name, value in zip(names, values, strict=True):
            setattr(self, name, value)

    @property
    def prefilled(self) -> bool:
        """Whether any line says that all of its prompt was done."""
        return self.done_ns is not None or self.decoded is not None or self.finish is not None

    # ---- times -----------------------------------------------------------------------------------------------------

    def _begins(self, step_ns: int) -> tuple[int | None, int | None]:
        """Return t0 and the beginning of decode."""
        decode = self.decode if self.first_decode is None else self.first_decode
        if not self.begin.known:
            return None, decode.middle(step_ns) if decode.known else None
        if self.done_ns is None:
            start = self.begin.middle(step_ns)
            return start, max(start, decode.middle(step_ns)) if decode.known else None
        if not decode.known:
            start = self.begin.middle(step_ns)
            return start, start + self.done_ns
        of_decode = decode.least - self.done_ns
        if not step_ns and self.begin.least - of_decode <= _ROUNDED_NS:  # no earlier than rounding makes it
            of_decode = self.begin.least
        least = min(self.begin.least, of_decode)
        most = max(self.begin.most, decode.most - self.done_ns)
        agree = most - least <= step_ns + LATE_NS or not step_ns
        start = (least if step_ns == 0 else (most + least + step_ns) // 2) if agree else self.begin.middle(step_ns)
        between = decode.middle(step_ns) - start - self.done_ns
        if (agree and step_ns) or between <= LATE_NS:
            return start, start + self.done_ns
        # Something stood between prefill and decode, unless their lines were late: the end leaves only so much room.
        if self.end_ns is not None and self.first_decode is None:
            between = min(between, max(self.end_ns - self.done_ns - self.decode_ns, 0))
        return start, start + self.done_ns + between

    def _decode_end(self, decode_start: int | None, step_ns: int) -> int | None:
        if decode_start is None:
            return None
        if self.first_decode is not None:
            return max(decode_start, self.decode.middle(step_ns) + self.decode_ns)
        if self.decoded is None:
            return decode_start if self.finish is not None and self.finish_gen == 0 else None
        if not step_ns and abs(self.decode.least - decode_start) <= _ROUNDED_NS:  # its own lines round once less
            return max(decode_start, self.decode.least + self.decode_ns)
        return decode_start + self.decode_ns

    def late_ns(self) -> int:
        """By how much its two least delayed lines disagree on when it began."""
        return max((one.second - one.least for one in (self.begin, self.decode) if one.second < _FAR // 2), default=0)

    # ---- the record ------------------------------------------------------------------------------------------------

    def record(self, step_ns: int, group: str | None, say: Say) -> Flat:
        """Return what is known, as a `LoggedRequest` has it; `say` hears of what was lost."""
        start, decode_start = self._begins(step_ns)
        decode_end = self._decode_end(decode_start, step_ns)
        prefilled = self.prefilled
        prefill_end, new = decode_start, self.new
        if self.done_ns is not None and start is not None:
            prefill_end = start + self.done_ns
        elif not prefilled:
            prefill_end = None if start is None or self.chunked is None else start + self.chunk_ns
            new = None if self.chunked is None else self.chunk
        decoded: int | None = self.finish_gen if self.finish is not None else self.gen + self.earlier_gen
        if self.finish is None and self.decoded is None:
            decoded = None if self.done_ns is None else 0
        t_end = None if start is None or self.end_ns is None else start + self.end_ns
        if t_end is not None:  # without `prompt done` each is as good as a stamp only
            t_end = max(t_end, decode_end or 0, decode_start or 0)
        self._doubt(say)
        spans = None if self.ctx is None else self.started or self.done or self.chunked or self.ended or self.tooled
        # With all of the prompt done, the line that says so; else how far it was.
        prefill = (self.done or self.decoded or self.ended) if prefilled else self.chunked
        return (
            self.boot,
            self.label,
            None,  # the log names no slot
            self.prompt,
            self.cached,
            new,
            decoded,
            None,
            start,
            prefill_end,
            decode_start,
            decode_end,
            t_end,
            None if self.done_ns is None else self.done_ns / 1e6,
            None if self.decoded is None or self.first_decode is not None else self.decode_ns / 1e6,
            "cancelled" if self.finish is None and self.cancelled is not None else self.finish,
            self.tool_ids,
            self.rebuilt,
            self.cached,  # where its prefill starts
            False,
            (
                _PROOFS,
                (
                    spans or self.decoded,
                    spans,
                    self.started or self.done or self.chunked or self.ended,
                    prefill,
                    None if self.ctx is None else prefill,
                    self.decoded,
                    self.ended or self.decoded,
                    self.ended or self.cancelled,
                    self.ended,
                    self.tooled,
                    self.rebuild,
                ),
            ),
            group,
            None,
            None,
            self._untimed(),
        )

    def _untimed(self) -> int | None:
        """Return how many of its tokens no decode line has, and so not the time of its decode; None: not known."""
        if self.first_decode is not None:
            return None  # of two passes: its time holds what was appended and computed between them, which is no decode
        return 0 if self.finish is None or self.decoded is None else self.finish_gen - self.gen

    def _doubt(self, say: Say) -> None:
        line = self.first[0] if self.ended is None else self.ended[0]
        if self.finish is None and self.cancelled is None:
            say(
                "request-without-end",
                line,
                f"{self.label} has no finish line: only what its lines prove is counted",
                "a cancelled request leaves none, nor does one that runs when the log ends; see the client's view",
            )
        if self.finish is not None and self.earlier_gen and self.finish_gen != self.earlier_gen + self.gen:
            say(
                "first-pass-not-counted",
                line,
                f"{self.label} decoded {self.earlier_gen} tokens before a tool error that its finish line leaves out, "
                "and is in no decode speed: what was appended was computed between its two passes",
                "the count is what the client was told; use a build that adds both passes",
            )
        if self.lost:
            say(
                "request-lines-lost",
                line,
                f"{self.label} lacks its {', '.join(dict.fromkeys(self.lost))}",
                "the log may be torn or cut there: its times are less exact, and what no line tells is not counted",
            )
