"""What is sure of ds4-server requests that cannot be told apart: above all, how far was prefill of those never done?

A request logs each position once, so as many of them have come so far as there are lines of it. Some of the lines are
of those that were done: that so many more have come so far is proved, and no more. Where all go through the same
positions, that is how far they were.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from operator import itemgetter
from typing import Final

from agentload.serverlogs.ds4_request import LATE_NS, Chunk, Open, Say

_SHOWN: Final = 8  # members of a group


def tell(group: Iterable[Open], count: int, line: int, say: Say) -> None:
    """Say that its members, so many, cannot be told apart since a line."""
    shown = sorted(one.first[0] for one in islice(group, _SHOWN))
    more = f" and {count - _SHOWN} more" if count > _SHOWN else ""
    say(
        "equal-requests",
        line,
        f"the requests that begin in lines {', '.join(map(str, shown))}{more} cannot be told apart: only their sums "
        "are sure, and how much prefill of those without an end was computed at least",
        "make prompts differ in length; receive stamps tell apart what begins in one second",
    )


def hold(one: Open) -> None:
    """From here on chunk lines may be given to others than those they are of: keep them, and what is sure of it."""
    if one.done_ns is None and one.told is None:
        one.told = []
        if one.chunked is not None:
            one.told.append((one.chunk, one.chunk_ns, one.begin.least, one.chunked, True))


def keep(line: Chunk, of: Sequence[Open], same: Iterable[Open], groups: Mapping[int, list[Open]], step_ns: int) -> None:
    """Keep a line for the group of that member whose beginning is nearest to what it says.

    It is one `of` these, unless it is so by time of none: then of any in the groups of the `same` span, ended or not.
    """
    near = [one for one in of if abs(one.off_begin(line[2], step_ns)) <= (step_ns or LATE_NS)]
    if not near:
        names = {one.group for one in same if one.group is not None}
        near = [one for name in names for one in groups[name] if one.ctx == of[0].ctx]
    held = [(abs(one.off_begin(line[2], step_ns)), one.number, one.told) for one in near if one.told is not None]
    if held:
        min(held)[2].append(line)


def share(members: Sequence[Open]) -> None:
    """Give to members that were never done what the chunk lines of all prove."""
    held: dict[bytes | None, list[Open]] = {}
    for one in members:
        if one.told is not None:
            held.setdefault(one.ctx, []).append(one)
    for same in held.values():
        undone = [one for one in same if not one.prefilled]
        if undone:
            _share(undone, len(same) - len(undone), [line for one in same for line in one.told or ()])


def _share(undone: Iterable[Open], done: int, lines: Iterable[Chunk]) -> None:
    reached = _reached(lines)
    at = 0
    # The first of them went furthest, as it was guessed line by line; of as many lines the first ones are theirs.
    for place, one in enumerate(sorted(undone, key=lambda one: (-one.chunk, one.number)), done + 1):
        while at < len(reached) and reached[at][1] < place:
            at += 1
        if at == len(reached):
            one.chunk, one.chunk_ns, one.chunked = 0, 0, None
        else:
            tokens, _, proofs = reached[at]
            _, one.chunk_ns, _, one.chunked, _ = proofs.pop() if len(proofs) > 1 else proofs[0]
            one.chunk = tokens


def _reached(lines: Iterable[Chunk]) -> list[tuple[int, int, list[Chunk]]]:
    """Return the positions, the furthest first, how many have come to each, and lines that prove it, the last first.

    That one was further before there was a choice proves it too, by one line for all of those.
    """
    at: dict[int, list[Chunk]] = {}
    for line in lines:
        at.setdefault(line[0], []).append(line)
    found = []
    beyond: list[Chunk] = []
    for tokens in sorted(at, reverse=True):
        here = sorted(at[tokens], key=itemgetter(3), reverse=True)
        found.append((tokens, len(here) + len(beyond), beyond[-1:] + here))
        beyond += [line for line in here if line[4]]
    return found
