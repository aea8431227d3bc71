"""Whose turn is it on the model? The arbiter between prefill quanta and decode batches.

One thing runs at a time. A prefill may start when nothing runs and no decode is pending; prefills take turns in order
of slots. The decode coordinator waits until all that decode have submitted, or 2 ms, and then for the model. After a
batch nothing is pending for a moment, so a waiting prefill gets in; after a quantum the pending decodes come first:
quantum and decode batch strictly alternate.
"""

from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from agentload.twin.agenda import Agenda
from agentload.twin.costs import Costs
from agentload.twin.events import DecodeStep
from agentload.twin.options import Options

_US_NS: Final = 1000

Begin = Callable[[int], None]  # takes the ns that the change of slots costs


class Lock:
    """The engine's own lock (`inference_mu`): held by every run of the model, and every store and load."""

    def __init__(self) -> None:
        self._held = False
        self._waiting: deque[Callable[[], None]] = deque()

    def take(self, then: Callable[[], None]) -> None:
        """Call `then` as soon as it is free, in order of asking."""
        if self._held:
            self._waiting.append(then)
        else:
            self._held = True
            then()

    def give(self) -> None:
        """Let the next one have it."""
        if self._waiting:
            self._waiting.popleft()()
        else:
            self._held = False


class _Coordinator(Enum):
    IDLE = auto()  # nothing is pending
    COALESCING = auto()
    READY = auto()  # waits for the model
    RUNNING = auto()


class Model:
    """The model, its lock, and who waits for it. `stepped` is called with the slots of each batch, at its end."""

    def __init__(
        self,
        agenda: Agenda,
        costs: Costs,
        options: Options,
        out: Callable[[DecodeStep], None],
        stepped: Callable[[tuple[int, ...], int], None],
    ) -> None:
        self._agenda = agenda
        self._costs = costs
        self._slots = options.batched_session
        self._coalesce_ns = options.decode_coalesce_us * _US_NS
        self._out = out
        self._stepped = stepped
        self.lock = Lock()
        self.active_generations = 0  # between end of prefill and end of decode
        self.prefilling = 0
        self._busy = False
        self._waiting: dict[int, Begin] = {}
        self._last_prefill_slot = -1
        self._pending: dict[int, str] = {}
        self._state = _Coordinator.IDLE
        self._round = 0  # of coalescing
        self._quantum_was_last = False

    # ---- prefill ---------------------------------------------------------------------------------------------------

    def want(self, slot: int, begin: Begin) -> None:
        """Wait for a turn; `begin` is called when it has come, and `end_quantum` ends it."""
        self._waiting[slot] = begin
        self._arbitrate()

    def withdraw(self, slot: int) -> bool:
        """Stop waiting; False when the turn has come already."""
        return self._waiting.pop(slot, None) is not None

    def end_quantum(self) -> None:
        """The turn is over. Who wants another one says so first."""
        self._busy = False
        self._quantum_was_last = True
        self.lock.give()
        self._arbitrate(prefill_first=bool(self._pending and self._waiting) and self._costs.prefill_first())

    def _next_prefill(self) -> int:
        return min(self._waiting, key=lambda slot: ((slot - self._last_prefill_slot - 1) % self._slots, slot))

    def _start_quantum(self) -> None:
        slot = self._next_prefill()
        begin = self._waiting.pop(slot)
        changed = self._last_prefill_slot not in {-1, slot} and self.prefilling > 1
        self._last_prefill_slot, self._busy = slot, True
        self.lock.take(lambda: begin(self._costs.switch_ns(self._agenda.now_ns) if changed else 0))

    # ---- decode ----------------------------------------------------------------------------------------------------

    def began_decoding(self) -> None:
        """One request more decodes."""
        self.active_generations += 1

    def ended_decoding(self) -> None:
        """One less does: those that are left may be all there already."""
        self.active_generations -= 1
        self._check_coalesced()

    def submit(self, slot: int, request: str) -> None:
        """Take a sampled token into the next batch."""
        self._pending[slot] = request
        if self._state is _Coordinator.IDLE:
            self._coalesce()
        else:
            self._check_coalesced()

    def _coalesce(self) -> None:
        self._state = _Coordinator.COALESCING
        self._round += 1
        if not self._check_coalesced():
            self._agenda.at(self._agenda.now_ns + self._coalesce_ns, self._waited, self._round)

    def _waited(self, coalescing: int) -> None:
        if self._state is _Coordinator.COALESCING and self._round == coalescing:
            self._state = _Coordinator.READY
            self._arbitrate()

    def _check_coalesced(self) -> bool:
        if self._state is _Coordinator.COALESCING and len(self._pending) >= min(self._slots, self.active_generations):
            self._state = _Coordinator.READY
            self._arbitrate()
            return True
        return False

    def _start_batch(self) -> None:
        batch = tuple(sorted(self._pending))
        names = tuple(self._pending[slot] for slot in batch)
        self._state, self._busy = _Coordinator.RUNNING, True
        self.lock.take(lambda: self._run_batch(batch, names))

    def _run_batch(self, batch: tuple[int, ...], names: tuple[str, ...]) -> None:
        now = self._agenda.now_ns
        after = self._quantum_was_last
        took = self._costs.decode_step_ns(len(batch), now, after_quantum=after)
        self._agenda.at(now + took, self._end_batch, batch, DecodeStep(now, now + took, names, after))

    def _end_batch(self, batch: tuple[int, ...], step: DecodeStep) -> None:
        for slot in batch:
            del self._pending[slot]
        self._busy, self._quantum_was_last, self._state = False, False, _Coordinator.IDLE
        self._out(step)
        self.lock.give()
        if self._pending:  # who came while the batch ran
            self._coalesce()
        self._arbitrate()  # the waiting prefill is quicker than the threads that the batch wakes
        self._stepped(batch, step.end_ns - step.begin_ns)

    # ---- who is next -----------------------------------------------------------------------------------------------

    def _arbitrate(self, *, prefill_first: bool = False) -> None:
        if self._busy:
            return
        if self._waiting and (prefill_first or not self._pending):
            self._start_quantum()
        elif self._state is _Coordinator.READY:
            self._start_batch()
