"""Which call does a coding agent make next, given what it has seen?

A listing first, since it knows no path; then reads and shell commands in the shares of `lengths.Mix`, each about
something the conversation has shown. The listing counts: what comes after it is drawn so that the shares expected of
the whole task, of n calls, are those of the mix.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from agentload.twin.conversation import Seen
from agentload.twin.lengths import Draws, Settings

Made = tuple[str, dict[str, Any]]  # tool and arguments
T = TypeVar("T")

_TRIES: Final = 6  # draws for a call that was not made before
_FIND_ALL: Final = "find . -type f -not -path './.git/*' | sort | head -n 400"
_LIST_ALL: Final = "ls -1dp * */* */*/* 2>/dev/null | head -n 400"
# How much likelier a file is read that the task names, and that searches have hit so many times.
_ASKED_WEIGHT: Final = 6.0
_MOST_HITS: Final = 10
_AROUND: Final = 0.7  # chance that a search for a name shows the lines around it, in the folder it is known from
_GO_ON: Final = 0.3  # chance to go on where a read ended early


class _Next:
    """One choice; each method returns a call, or None when there is nothing of its kind to do."""

    def __init__(self, seen: Seen, settings: Settings, draws: Draws) -> None:
        self._seen, self._mix, self._lengths, self._draws = seen, settings.mix, settings.lengths, draws
        self._files = seen.readable()

    def whole(self) -> Made | None:
        """Read a file that was not read yet, likelier one that the task names or a search hit."""
        unread = [path for path in self._files if path not in self._seen.whole and path not in self._seen.more_from]
        if not unread:
            return None
        weights = [self._weight(path) for path in unread]
        return "read", {"path": unread[self._draws.index(weights)]}

    def part(self) -> Made | None:
        """Read some lines: on from where a read ended, around a hit, or the first ones of a file."""
        seen, draws = self._seen, self._draws
        lines = self._lengths.range_lines.at(draws.unit())
        if seen.more_from and draws.chance(_GO_ON):
            path = self._pick(list(seen.more_from))
            first = seen.more_from[path]
        elif hit := [path for path in seen.hits if path in self._files]:
            path = self._pick(hit)
            first = max(1, self._pick(list(seen.hits[path])) - draws.below(lines))
        elif self._files:
            path, first = self._pick(self._files), 1
        else:
            return None
        last = first + lines - 1
        if path in seen.lines:
            last = max(first, min(last, seen.lines[path]))
        return "read", {"path": path, "start_line": first, "end_line": last}

    def grep(self) -> Made | None:
        """Search for a name that was seen or a word of the task: everywhere, in a folder, or with what is around it.

        Sorted, or by a sorted list of files: `grep -r` alone goes by the order in which a folder happens to be stored.
        """
        draws = self._draws
        done = " ".join(call.command for call in self._seen.calls)
        names = [name for name in self._seen.names if f"'{name}'" not in done]
        asked = [name for name in self._seen.asked_names if f"'{name}'" not in done]
        if asked and (not names or draws.chance(0.5)):
            names = asked[:8]
        if not names:
            return None
        name, lines = self._pick(names), self._lengths.grep_lines.at(draws.unit())
        if (home := self._seen.names.get(name)) and draws.chance(_AROUND):
            folder, gap, base = home.rpartition("/")
            some = f"{folder}{gap}*.{base.rpartition('.')[2]}"
            return _bash(f"grep -Hn -C {2 + draws.below(6)} '{name}' {some} | head -n {lines}")
        folders = [folder for folder in self._seen.folders if "/" not in folder]
        where = self._pick(folders) if folders and draws.chance(0.8) else "."
        return _bash(f"grep -rn --exclude-dir=.git '{name}' {where} | sort -t: -k1,1 -k2,2n | head -n {lines}")

    def look(self) -> Made | None:
        """List everything there is; None when both ways have been tried."""
        ways = [_FIND_ALL, _LIST_ALL]
        if not self._finds():
            ways.reverse()
        tried = {call.command for call in self._seen.calls}
        return next((_bash(way) for way in ways if way not in tried), None)

    def look_again(self) -> Made | None:
        """List a folder that was seen, or find files by a part of a name that was seen."""
        folders, files = list(self._seen.folders), list(self._seen.files)
        if folders and not self._finds():
            return _bash(f"ls -1dp {self._pick(folders)}/*")
        if not files:
            return None
        stem = self._pick(files).rpartition("/")[2].partition(".")[0]
        return _bash(f"find . -type f -name '*{stem}*' -not -path './.git/*' | sort")

    def page(self) -> Made | None:
        """Show some lines with sed or head."""
        if not self._files:
            return None
        path, lines = self._pick(self._files), self._lengths.range_lines.at(self._draws.unit())
        if self._draws.chance(0.4):
            return _bash(f"head -n {lines} {path}")
        first = 1 + self._draws.below(self._seen.lines.get(path, 1))
        return _bash(f"sed -n '{first},{first + lines - 1}p' {path}")

    def measure(self) -> Made | None:
        """Count the lines of some files."""
        if not self._files:
            return None
        some = {self._pick(self._files): None for _ in range(1 + self._draws.below(6))}
        return _bash(f"wc -l {' '.join(some)}")

    def _finds(self) -> bool:
        """Draw find, or ls."""
        both = self._mix.find + self._mix.listing
        return self._draws.chance(self._mix.find / both if both else 0.5)

    def _weight(self, path: str) -> float:
        if path in self._seen.asked:
            return _ASKED_WEIGHT
        return 1.0 + min(len(self._seen.hits.get(path, ())), _MOST_HITS)

    def _pick(self, among: list[T]) -> T:
        return among[self._draws.below(len(among))]


def _bash(command: str) -> Made:
    return "bash", {"command": command}


def next_call(seen: Seen, tools: set[str], planned: int, settings: Settings, draws: Draws) -> Made | None:
    """Return the next call, one not made before where a few draws give one; None when nothing can be done."""
    choice = _Next(seen, settings, draws)
    if "bash" in tools and not seen.listed:
        return choice.look()
    fallback: Made | None = None
    for _ in range(_TRIES):
        made = _draw(choice, tools, planned, settings, draws)
        if made is None:
            continue
        fallback = made
        if made not in ((call.tool, call.given) for call in seen.calls):
            return made
    return fallback


def _draw(choice: _Next, tools: set[str], planned: int, settings: Settings, draws: Draws) -> Made | None:
    """Draw a kind of call by the mix, and then one of it; when there is none, one of another kind."""
    mix = settings.mix
    reads = mix.read if "bash" in tools else 1.0
    after = max(planned - 1, 1)  # the first call is a listing
    if "read" in tools and draws.chance(min(1.0, reads * planned / after)):
        kinds: list[Callable[[], Made | None]] = [choice.whole, choice.part]
        if not draws.chance(mix.whole):
            kinds.reverse()
    elif "bash" in tools:
        bash = (1 - mix.read) * planned
        looks = max(0.0, (mix.listing + mix.find) * bash - 1)
        weights = [mix.grep * bash, looks, mix.page * bash, mix.measure * bash]
        order: list[Callable[[], Made | None]] = [choice.grep, choice.look_again, choice.page, choice.measure]
        first = draws.index(weights) if sum(weights) else 0
        kinds = [order[first], choice.grep, choice.page, choice.look_again]
    else:
        return None
    for kind in kinds:
        if (made := kind()) is not None:
            return made
    return None
