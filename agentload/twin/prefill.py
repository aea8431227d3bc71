"""How does a prompt get through the model, quantum by quantum, and which lines tell of it?

The quantum is chosen before the slot waits for the model: what others do while it waits does not change it. Inside a
quantum the engine is called as often as absolute multiples of its chunk ask for; fewer than four tokens behind others
are run as decode steps, one by one.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from agentload.twin.agenda import Agenda
from agentload.twin.costs import Costs
from agentload.twin.diskkv import DiskCache, Store
from agentload.twin.events import EngineCall, Event, Progress, Quantum
from agentload.twin.logwriter import LogWriter
from agentload.twin.model import Model
from agentload.twin.options import Options
from agentload.twin.slots import cut
from agentload.twin.work import Work

_FEW: Final = 4  # tokens; fewer are run one by one


class PrefillLoop:
    """The slot thread's loop over quanta. `ended` is called when a prompt is through, or was stopped."""

    def __init__(
        self,
        agenda: Agenda,
        model: Model,
        costs: Costs,
        options: Options,
        disk: DiskCache,
        log: LogWriter,
        out: Callable[[Event], None],
        ended: Callable[[Work], None],
    ) -> None:
        self._agenda = agenda
        self._model = model
        self._costs = costs
        self._options = options
        self._disk = disk
        self._log = log
        self._out = out
        self._ended = ended

    def begin(self, work: Work) -> None:
        """Start at what is cached; at least one turn is taken even when that is all."""
        work.goals = [work.prompt_tokens]
        if work.cached == 0:
            anchor = self._disk.cold_anchor(work.job.anchor_tokens, work.prompt_tokens)
            if anchor is not None and anchor[0] < work.prompt_tokens:
                work.goals.insert(0, anchor[0])
                work.trimmed = anchor[1]
        self._model.prefilling += 1
        self._turn(work)

    def stop_waiting(self, work: Work) -> bool:
        """Give up before the next turn; False when a turn is being taken, which then ends at its next engine call."""
        if not self._model.withdraw(work.at.id):
            return False
        self._model.prefilling -= 1
        return True

    def _turn(self, work: Work) -> None:
        options = self._options
        work.mixed = self._model.active_generations > 0
        work.quantum_tokens = options.mixed_prefill_quantum if work.mixed else options.prefill_quantum
        work.target = min(work.position + work.quantum_tokens, work.goals[0])
        work.chosen_ns = self._agenda.now_ns
        self._model.want(work.at.id, partial(self._granted, work))

    def _granted(self, work: Work, switch_ns: int) -> None:
        now, tokens = self._agenda.now_ns, work.target - work.position
        work.quantum_begin_ns, work.quantum_start = now, work.position
        work.stepwise = 0 < tokens < _FEW and work.position > 0
        work.silent = work.stepwise or tokens == 0 or (work.position == 0 and tokens <= self._options.chunk_cap)
        if not work.silent:
            self._tell(work)
        if switch_ns:
            self._agenda.at(now + switch_ns, self._call, work)
        else:
            self._call(work)

    def _call(self, work: Work) -> None:
        now = self._agenda.now_ns
        if work.position == work.target:
            self._end_quantum(work)
            return
        if work.stepwise:
            tokens = work.target - work.position
            took = sum(self._costs.decode_step_ns(1, now, after_quantum=False) for _ in range(tokens))
        else:
            tokens = self._options.next_call(work.position, work.target)
            took = self._costs.engine_call_ns(work.position, tokens, now)
        self._agenda.at(
            now + took, self._called, work, EngineCall(work.name, work.position, tokens, now, now + took, work.stepwise)
        )

    def _called(self, work: Work, call: EngineCall) -> None:
        work.position += call.tokens
        work.calls += 1
        work.engine_ns += call.end_ns - call.begin_ns
        self._out(call)
        if not work.silent:
            self._tell(work)
        if work.stop is not None:
            self._end_quantum(work)
        else:
            self._call(work)

    def _end_quantum(self, work: Work) -> None:
        now = self._agenda.now_ns
        work.quanta += 1
        self._out(
            Quantum(
                work.name, work.at.id, work.quantum_start, work.target, work.position, work.quantum_tokens, work.mixed,
                work.chosen_ns, work.quantum_begin_ns, now,
            )
        )  # fmt: skip
        if work.stop is not None:
            self._over(work)
        elif work.position < work.goals[0]:
            self._turn(work)
            self._model.end_quantum()
        else:
            self._store(work)

    def _store(self, work: Work) -> None:
        """Stores that follow the end of a prompt, or of its anchor, hold the model."""
        cold = len(work.goals) > 1
        plan = None
        if cold or self._disk.continues_at(work.position):
            reason, trimmed = ("cold", work.trimmed) if cold else ("continued", 0)
            plan = self._disk.plan(cut(work.job.prompt, work.position), reason, trimmed)
        if plan is None:
            self._reached(work)
        else:
            now = self._agenda.now_ns
            self._agenda.at(now + plan.hold_ns, self._stored, work, plan, now)

    def _stored(self, work: Work, plan: Store, begin_ns: int) -> None:
        self._disk.commit(plan, work.name, begin_ns, self._agenda.now_ns)
        self._reached(work)

    def _reached(self, work: Work) -> None:
        work.goals.pop(0)
        if work.goals and work.stop is None:
            self._turn(work)
            self._model.end_quantum()
        else:
            self._over(work)

    def _over(self, work: Work) -> None:
        self._model.prefilling -= 1
        self._model.end_quantum()
        self._ended(work)

    def _tell(self, work: Work) -> None:
        """Write a chunk line, unless the last one says the same position."""
        now, done = self._agenda.now_ns, work.position - work.cached
        last = work.chunk
        if last is not None and last[0] == done:
            return
        since = None if last is None else (done - last[0], now - last[1])
        self._log.chunk(now, work.head, done, work.new_tokens, since, now - work.t0_ns)
        work.chunk = (done, now)
        self._out(Progress(now, work.name, work.position))
