"""What are the agents asked to do, and can their answers be told from noise?

A task carries facts that were checked against its corpus: each has patterns that a right answer matches, and the
lines of the corpus that prove it. The score says whether an agent did real work; it is no grade of a model.
"""

import posixpath
import random
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, field_validator, model_validator

from agentload.agents import datafiles
from agentload.agents.datafiles import DataModel, Text
from agentload.errors import UsageError

Line = Annotated[int, Field(gt=0)]


ANY: Final = "any"  # the corpus of tasks that fit every repository, the user's own included: nothing to check them by


class Evidence(DataModel):
    """A line of the corpus that proves a fact; `text` stands on it."""

    path: Text
    line: Line
    text: Text


class Fact(DataModel):
    """Something that a right answer says. All patterns (regular expressions, case ignored) must match the answer."""

    id: Text
    fact: Text
    patterns: Annotated[tuple[Text, ...], Field(min_length=1)]
    evidence: Annotated[tuple[Evidence, ...], Field(min_length=1)]

    @field_validator("patterns")
    @classmethod
    def _patterns_compile(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
        return patterns

    def found_in(self, answer: str) -> bool:
        """Tell whether every pattern matches somewhere in `answer`; a pattern may match over a line's end."""
        return all(re.search(pattern, answer, re.IGNORECASE | re.DOTALL) for pattern in self.patterns)


class Read(DataModel):
    """A file that an agent that does the task is likely to open, and the lines that matter in it (first, last)."""

    path: Text
    lines: tuple[Line, Line] | None = None


class Expectations(DataModel):
    """What a real attempt looks like: below it, the run says "too little work"."""

    tool_calls: tuple[Line, Line]  # usual range of an able model
    min_facts: Annotated[int, Field(ge=0)]
    min_opened: Annotated[float, Field(ge=0, le=1)]  # share of the likely files


class Task(DataModel):
    """One task: one TOML file."""

    id: Text
    title: Text
    corpus: Text
    kind: Literal["trace", "audit", "inventory"]
    prompt: Text
    expectations: Expectations
    facts: tuple[Fact, ...] = ()
    likely_reads: tuple[Read, ...] = ()

    @model_validator(mode="after")
    def _only_a_task_on_any_corpus_has_no_facts(self) -> "Task":
        if self.corpus != ANY and not (self.facts and self.likely_reads):
            raise ValueError(f"expected facts and likely_reads, only a task with corpus = {ANY!r} has none")
        return self

    @model_validator(mode="after")
    def _facts_are_told_apart(self) -> "Task":
        ids = [fact.id for fact in self.facts]
        if len(set(ids)) != len(ids):
            raise ValueError(f"expected fact ids that differ, there are {', '.join(ids)}")
        if self.expectations.min_facts > len(ids):
            raise ValueError(f"expectations.min_facts is {self.expectations.min_facts}, there are {len(ids)} facts")
        return self


@dataclass(frozen=True, slots=True)
class Opened:
    """Which of the likely files an agent opened (each file once, in the task's order)."""

    opened: tuple[str, ...]
    missed: tuple[str, ...]

    @property
    def share(self) -> float:
        """Opened files as a share of the likely ones, 0..1; 0 when the task names none."""
        likely = len(self.opened) + len(self.missed)
        return len(self.opened) / likely if likely else 0.0


def names(folder: Path | None = None) -> list[str]:
    """Names of the tasks of `folder` (default: the shipped ones), sorted."""
    return datafiles.names(folder or datafiles.shipped("tasks"))


def load(name: str, folder: Path | None = None) -> Task:
    """Load a task by name from `folder` (default: the shipped ones).

    Raises:
        UsageError: there is none of that name.
        InputError: its file is not as it should be.
    """
    return datafiles.load_named(folder or datafiles.shipped("tasks"), name, Task, "task", "id")


def for_corpus(corpus: str, folder: Path | None = None) -> list[Task]:
    """Load the tasks on `corpus`, by id."""
    return [task for task in (load(name, folder) for name in names(folder)) if task.corpus == corpus]


def assign(tasks: Sequence[Task], agents: int, seed: int) -> tuple[Task, ...]:
    """Give each of `agents` agents a task: all different while there are enough, else each as often as can be.

    The same ids, number and seed give the same order, in whatever order `tasks` come.

    Raises:
        UsageError: there is no task, or no agent.
    """
    if agents < 1 or not tasks:
        raise UsageError(f"expected at least one agent and one task, there are {agents} and {len(tasks)}")
    draw = random.Random(seed)  # noqa: S311  # reproducible on purpose; nothing secret hangs on it
    given: list[Task] = []
    while len(given) < agents:
        deck = sorted(tasks, key=lambda task: task.id)
        draw.shuffle(deck)
        given += deck
    return tuple(given[:agents])


def assign_tracks(tasks: Sequence[Task], agents: int, length: int, seed: int) -> tuple[tuple[Task, ...], ...]:
    """Give each of `agents` agents `length` tasks, the first as `assign` does.

    None comes twice to an agent while there are enough, and each as often as the others, as far as can be. A longer
    track begins as a shorter one does.

    Raises:
        UsageError: there is no task, or no agent.
    """
    tracks = [[task] for task in assign(tasks, agents, seed)]
    deck = assign(tasks, len(tasks), seed)
    used = Counter(track[0].id for track in tracks)
    for _ in range(length - 1):
        for track in tracks:
            had = Counter(task.id for task in track)
            chosen = min(deck, key=lambda task: (had[task.id], used[task.id]))
            used[chosen.id] += 1
            track.append(chosen)
    return tuple(map(tuple, tracks))


def score(task: Task, answer: str) -> tuple[str, ...]:
    """Return the ids of the facts that `answer` (the agent's final message) states, in the task's order."""
    return tuple(fact.id for fact in task.facts if fact.found_in(answer))


def opened(task: Task, paths: Iterable[str]) -> Opened:
    """Compare the paths that an agent opened, relative to its checkout or absolute, with the likely ones."""
    seen = ["/" + posixpath.normpath(path).lstrip("/") for path in paths]
    likely = tuple(dict.fromkeys(read.path for read in task.likely_reads))
    hit = {path for path in likely if any(one.endswith("/" + path) for one in seen)}
    return Opened(tuple(path for path in likely if path in hit), tuple(path for path in likely if path not in hit))
