"""Which open requests of ds4-server, equal by the integers of a line, are looked at when it comes?

The oldest, and no more of them than any server has sessions: were each line held against all, 4,000 requests of one
prompt in one second would take 9 s.
"""

from collections.abc import Iterable
from typing import Final, TypeVar

from agentload.serverlogs.ds4_request import DECODE_PARTS, Open

_MOST_COMPARED: Final = 64

_Key = TypeVar("_Key")


def first(found: Iterable[Open]) -> list[Open]:
    """Return the first `_MOST_COMPARED` that have not gone; where all have, the first of those."""
    here: list[Open] = []
    gone: list[Open] = []
    for one in found:
        (gone if one.gone else here).append(one)
        if len(here) == _MOST_COMPARED:
            break
    return here or gone[:_MOST_COMPARED]


def swapped(groups: dict[int, list[Open]], same: Iterable[Open], gen: int) -> list[Open]:
    """Decode lines name no cached tokens: give a member of a group those that another one was given."""
    looked_through: set[tuple[int, int]] = set()  # groups, each for one beginning of decode
    for one in same:
        if one.group is None or (one.group, one.base) in looked_through:
            continue
        for other in groups.get(one.group, ()):
            if other.finish is None and (other.base, other.gen) == (one.base, gen):
                mine = one.parts(DECODE_PARTS)
                one.take_parts(DECODE_PARTS, other.parts(DECODE_PARTS))
                other.take_parts(DECODE_PARTS, mine)
                return [one]
        looked_through.add((one.group, one.base))
    return []


def drop(of: dict[_Key, list[Open]], key: _Key, one: Open) -> None:
    """Take a request out of an index; a key without requests goes."""
    of[key].remove(one)
    if not of[key]:
        del of[key]
