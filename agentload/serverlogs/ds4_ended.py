"""What becomes of a ds4-server request that has ended?

Its record is made, and kept for a while: a jump of the wall clock can show later, and moves it. Members of a group wait
for one another, because a line of one may still be given to another: at the end they get what adds up,

    `prompt done` + elapsed of the last decode line = elapsed of the finish line

which real logs keep to the ms. They stay a group, for more than one way of giving may add up.
"""

from typing import Final

from agentload.core.packed import NAMES, Flat, Packer, shifted
from agentload.serverlogs.ds4_groups import share
from agentload.serverlogs.ds4_request import DECODE_PARTS, END_PARTS, Open, Say

_RECENT: Final = 4_096  # requests: far more than end within the few lines that a running one needs to tell of a jump
_ADDS_UP_NS: Final = 2_000_000  # three durations, each rounded to the ms
_MOST_MEMBERS: Final = 16  # of a group whose lines are given anew: far more than any server has sessions
_MOST_TRIES: Final = 5_000
_PREFILL_START, _DECODE_START = NAMES.index("prefill_start"), NAMES.index("decode_start")


class Ended:
    """Requests of one start that have ended."""

    def __init__(self, boot: int, step_ns: int, say: Say, done: Packer) -> None:
        """`done` takes the records; their key is the start, and in it the order of their first lines."""
        self._boot = boot
        self._step_ns = step_ns
        self._say = say
        self._done = done
        self._recent: list[tuple[int, Flat]] = []
        self.waiting: list[Open] = []  # members of groups
        self.late_ns = 0  # of receive stamps: by how much the two best lines of a request disagree

    def add(self, one: Open, group: str | None = None) -> None:
        """What was read of it is final."""
        self._recent.append((one.number, one.record(self._step_ns, group, self._say)))
        if not self._step_ns:
            self.late_ns = max(self.late_ns, one.late_ns())
        if len(self._recent) > _RECENT:
            self._settle(_RECENT // 2)

    def add_group(self, members: list[Open]) -> None:
        """None of them is open any more."""
        name = f"boot {self._boot} group {members[0].group}" if len(members) > 1 else None
        ended = {one.number for one in members}
        self.waiting = [one for one in self.waiting if one.number not in ended]
        share(members)
        add_up(members)
        for one in members:
            self.add(one, name)

    def move(self, by_ns: int, since_ns: int) -> None:
        """Move the times of those that began at `since_ns` or after it."""
        since_ns -= self._step_ns
        self._recent[:] = [
            (number, one if (one[_PREFILL_START] or one[_DECODE_START] or 0) < since_ns else shifted(one, by_ns))
            for number, one in self._recent
        ]

    def end(self) -> None:
        """The start has ended: nothing moves any more."""
        self._settle(len(self._recent))

    def _settle(self, count: int) -> None:
        for number, record in self._recent[:count]:
            self._done.add((self._boot << 40) + number, record)
        del self._recent[:count]


def add_up(members: list[Open]) -> None:
    """Give decode lines and finish lines to the members of a group so that the durations of each add up, if they can.

    Of several ways the one is taken that leaves most as it was for the first members.
    """
    if not 1 < len(members) <= _MOST_MEMBERS or not all(_is_whole(one) for one in members):
        return
    ways = [_ways(index, members) for index in range(len(members))]
    chosen = _first(ways, [_MOST_TRIES])
    decodes, ends = ([one.parts(names) for one in members] for names in (DECODE_PARTS, END_PARTS))
    for one, (decode, end) in zip(members, chosen, strict=False):  # none, if nothing adds up
        one.take_parts(DECODE_PARTS, decodes[decode])
        one.take_parts(END_PARTS, ends[end])


def _is_whole(one: Open) -> bool:
    lines = one.done, one.decoded, one.ended
    return None not in lines and one.first_decode is None


def _ways(index: int, members: list[Open]) -> list[tuple[int, int]]:
    """Return whose decode lines and whose finish line add up with a member's prefill, its own first."""
    begins_ns = members[index].done_ns or 0
    found = [
        (decode, end)
        for decode, of_decode in enumerate(members)
        for end, of_end in enumerate(members)
        if of_decode.gen == of_end.finish_gen
        and abs(begins_ns + of_decode.decode_ns - (of_end.end_ns or 0)) <= _ADDS_UP_NS
    ]
    return sorted(found, key=lambda way: way != (index, index))


def _first(ways: list[list[tuple[int, int]]], tries: list[int], *so_far: tuple[int, int]) -> list[tuple[int, int]]:
    """Return one way for each, so that no number comes twice in either place; nothing when none was found."""
    if len(so_far) == len(ways):
        return list(so_far)
    decodes, ends = ({way[place] for way in so_far} for place in (0, 1))
    for way in ways[len(so_far)]:
        if tries[0] > 0 and way[0] not in decodes and way[1] not in ends:
            tries[0] -= 1
            if found := _first(ways, tries, *so_far, way):
                return found
    return []
