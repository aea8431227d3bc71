"""Which prefixes are on disk, which has to go when it is full, and how long does the engine stand still for it?

Files are prefixes of prompts, found by text, shared by all slots. Score of a file, the lowest of which goes first:
(decayed hits + 1) * tokens / size, hits halving every six hours, stored anchors twice as dear. Left out because no
published version says enough of them: `skipped`, `replaced incompatible file`, and files of another server.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import exp2
from typing import Final

from agentload.twin.agenda import SECOND_NS
from agentload.twin.costs import Costs
from agentload.twin.events import DiskWork
from agentload.twin.logwriter import LogWriter
from agentload.twin.options import Options
from agentload.twin.slots import Runs, common, total

_HALF_LIFE_NS: Final = 6 * 3600 * SECOND_NS
_ANCHOR_WEIGHT: Final = 2
_TEXT_BYTES: Final = 3.93  # a token; a posted log: 96,648 bytes for 24,576 tokens


@dataclass(frozen=True, slots=True)
class File:
    """One stored prefix."""

    runs: Runs
    tokens: int
    mib: float
    path: str
    anchor: bool
    hits: float = 0.0
    used_ns: int = 0

    def hits_at(self, now_ns: int) -> float:
        """Return the hits, decayed."""
        return self.hits * exp2((self.used_ns - now_ns) / _HALF_LIFE_NS)

    def score(self, now_ns: int) -> float:
        """Return what it is worth."""
        worth = (self.hits_at(now_ns) + 1) * self.tokens / self.mib
        return worth * _ANCHOR_WEIGHT if self.anchor else worth


@dataclass(frozen=True, slots=True)
class Store:
    """A store that is about to be made."""

    file: File
    reason: str
    trimmed: int
    hold_ns: int
    save_ns: int


class DiskCache:
    """The disk KV cache of one server; without a directory it stores and finds nothing."""

    def __init__(self, options: Options, costs: Costs, log: LogWriter, out: Callable[[DiskWork], None]) -> None:
        self._options = options
        self._costs = costs
        self._log = log
        self._out = out
        self.files: list[File] = []

    @property
    def on(self) -> bool:
        """Whether there is one."""
        return self._options.kv_disk_dir is not None

    def cold_anchor(self, anchor_tokens: int | None, prompt_tokens: int) -> tuple[int, int] | None:
        """Where a cold prompt is cut for its store, and how many tokens before the anchor that is; None: it is not."""
        options = self._options
        least = options.kv_cache_min_tokens
        if not self.on or anchor_tokens is None or not least <= prompt_tokens <= options.kv_cache_cold_max_tokens:
            return None
        kept = min(anchor_tokens, prompt_tokens) - options.kv_cache_boundary_trim_tokens
        aligned = kept - kept % options.kv_cache_boundary_align_tokens
        kept = aligned if aligned >= least else kept
        return (kept, min(anchor_tokens, prompt_tokens) - kept) if kept >= least else None

    def continues_at(self, tokens: int) -> bool:
        """Whether a live length is one at which a continued store is made."""
        return self.on and tokens > 0 and tokens % self._options.continued_interval == 0

    def plan(self, runs: Runs, reason: str, trimmed: int = 0) -> Store | None:
        """Return the store to make; None when it is too short, too large, or there already."""
        tokens = total(runs)
        mib = self._costs.file_mib(tokens)
        if (
            not self.on
            or tokens < self._options.kv_cache_min_tokens
            or mib > self._options.kv_disk_space_mb
            or any(one.tokens == tokens == common(one.runs, runs) for one in self.files)
        ):
            return None
        name = hashlib.sha1(repr(runs).encode(), usedforsecurity=False).hexdigest()
        file = File(runs, tokens, mib, f"{self._options.kv_disk_dir}/{name}.kv", anchor=reason == "cold")
        return Store(file, reason, trimmed, *self._costs.store_ns(tokens))

    def commit(self, store: Store, request: str, begin_ns: int, now_ns: int) -> None:
        """It was made: drop others for it where the budget asks for that."""
        file = replace(store.file, used_ns=now_ns)
        while self.files and sum(one.mib for one in self.files) + file.mib > self._options.kv_disk_space_mb:
            worst = min(self.files, key=lambda one: one.score(now_ns))
            self.files.remove(worst)
            self._log.dropped(now_ns, worst.tokens, round(worst.hits), worst.mib, worst.path)
        self.files.append(file)
        self._log.stored(now_ns, file.tokens, store.trimmed, store.reason, file.mib, store.save_ns)
        self._out(DiskWork("store", store.reason, request, file.tokens, begin_ns, now_ns))

    def find(self, prompt: Runs) -> File | None:
        """Return the longest stored prefix of a prompt."""
        found = [one for one in self.files if common(one.runs, prompt) == one.tokens]
        return max(found, key=lambda one: one.tokens, default=None)

    def loaded(self, file: File, request: str, begin_ns: int, now_ns: int) -> None:
        """It was read; what is longer than a cold prompt may be is taken off the disk."""
        consumed = file.tokens > self._options.kv_cache_cold_max_tokens
        if file in self.files:
            self.files.remove(file)
            if not consumed:
                self.files.append(replace(file, hits=file.hits_at(now_ns) + 1, used_ns=now_ns))
        self._log.loaded(
            now_ns, file.tokens, round(_TEXT_BYTES * file.tokens), now_ns - begin_ns, file.path, consumed=consumed
        )
        self._out(DiskWork("load", "hit", request, file.tokens, begin_ns, now_ns))
