"""What becomes of a ds4-server request that has ended?

Its record is made, and kept for a while: a jump of the wall clock can show later, and moves it. Members of a group wait
for one another, because a line of one may still be given to another.
"""

from typing import Final, TypeVar

from agentload.core.packed import NAMES, Flat, Packer, shifted
from agentload.serverlogs.ds4_request import Open, Say

_RECENT: Final = 4_096  # requests: far more than end within the few lines that a running one needs to tell of a jump
_PREFILL_START, _DECODE_START = NAMES.index("prefill_start"), NAMES.index("decode_start")

_Key = TypeVar("_Key")


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


def drop(of: dict[_Key, list[Open]], key: _Key, one: Open) -> None:
    """Take a request out of an index; a key without requests goes."""
    of[key].remove(one)
    if not of[key]:
        del of[key]


def swapped(groups: dict[int, list[Open]], same: list[Open], gen: int) -> list[Open]:
    """Decode lines name no cached tokens: give a member of a group those that another one was given."""
    for one in same:
        members = groups.get(one.group, []) if one.group is not None else []
        for other in members:
            if other.finish is None and (other.base, other.gen) == (one.base, gen):
                one.swap_decode(other)
                return [one]
    return []
