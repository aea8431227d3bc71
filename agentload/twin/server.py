"""What does a ds4-server in batched mode do with requests that arrive at given times? The simulated server itself.

    server = Server(Options(mixed_prefill_quantum=2048), profile.load("m3-ultra"), seed=7, start_ns=0)
    server.submit(Job("a0-t0", (Run("system", 3000),), output_tokens=200))
    while (due := server.next_ns()) is not None:
        for event in server.advance(due): ...

Time is virtual and moves only in `advance`. Requests may come at any time from now on. What comes out is in order, the
writes of one log line a few us apart. The same seed and calls give the same events.
"""

from collections import deque
from functools import partial
from typing import Final

from agentload.twin import work as works
from agentload.twin.agenda import MS_NS, Agenda
from agentload.twin.costs import Costs
from agentload.twin.diskkv import DiskCache, File, Store
from agentload.twin.events import Event, Finished, PrefillDone, Rejected, SlotGiven, Stopped, TokenOut
from agentload.twin.logwriter import LogWriter
from agentload.twin.model import Model
from agentload.twin.options import Options
from agentload.twin.prefill import PrefillLoop
from agentload.twin.profile import Profile
from agentload.twin.slots import Job, Slot, choose, common, cut
from agentload.twin.work import Phase, Work

_POLL_NS: Final = 100 * MS_NS  # the socket is looked at so often
_LINE_TOKENS: Final = 50  # a decode line every so many
_CANCELLED: Final = "cancelled"
_SHUTDOWN: Final = "shutdown requested"


class Server:
    """One process of a simulated ds4-server."""

    def __init__(
        self, options: Options, profile: Profile, *, seed: int, start_ns: int, boot: int = 0, noise: bool = True
    ) -> None:
        """`start_ns`: when it is ready. `boot`: number of this start. `noise=False`: expected costs, no draws."""
        self.options = options
        self._profile = profile
        self._events: list[Event] = []
        self._agenda = Agenda(start_ns)
        self._costs = Costs(profile, seed, start_ns, boot=boot, noise=noise)
        self._log = LogWriter(self._out)
        self._model = Model(self._agenda, self._costs, options, self._out, self._stepped)
        self._disk = DiskCache(options, self._costs, self._log, self._out)
        self._prefill = PrefillLoop(
            self._agenda, self._model, self._costs, options, self._disk, self._log, self._out, self._prefilled
        )
        self._slots = tuple(Slot(number) for number in range(options.batched_session))
        self._queue: deque[Work] = deque()
        self._open: dict[str, Work] = {}
        self._names: set[str] = set()
        self._draining = False
        self._agenda.at(start_ns, self._log.start, start_ns, options, profile)

    def _out(self, event: Event) -> None:
        self._events.append(event)

    # ---- what a driver does ----------------------------------------------------------------------------------------

    @property
    def now_ns(self) -> int:
        """Virtual time."""
        return self._agenda.now_ns

    @property
    def open_requests(self) -> int:
        """Requests that have arrived and are not over."""
        return len(self._open)

    def submit(self, job: Job, at_ns: int | None = None) -> None:
        """Let a request arrive, now or later.

        Raises:
            ValueError: that time has passed, or a request of that name was there before.
        """
        if job.request in self._names:
            raise ValueError(f"expected a new request name, got {job.request!r} again")
        self._agenda.at(self.now_ns if at_ns is None else at_ns, self._arrive, job)
        self._names.add(job.request)

    def cancel(self, request: str, at_ns: int | None = None) -> None:
        """Let the client of a request go away; the server sees it up to 100 ms later. One that is over stays so."""
        self._agenda.at(self.now_ns if at_ns is None else at_ns, self._went, request)

    def shutdown(self, at_ns: int | None = None) -> None:
        """Send the signal to stop."""
        self._agenda.at(self.now_ns if at_ns is None else at_ns, self._drain)

    def next_ns(self) -> int | None:
        """When something happens next; None: never, unless a request arrives."""
        return self._agenda.next_ns()

    def advance(self, to_ns: int) -> list[Event]:
        """Let time pass up to and with `to_ns`; return what came out."""
        self._agenda.advance(to_ns)
        events, self._events = self._events, []
        return events

    def run(self) -> list[Event]:
        """Let time pass until nothing is left to happen."""
        events: list[Event] = []
        while (due := self.next_ns()) is not None:
            events += self.advance(due)
        return events

    # ---- admission -------------------------------------------------------------------------------------------------

    def _arrive(self, job: Job) -> None:
        now = self._agenda.now_ns
        one = works.new(job, now, self.options.ctx)
        if self._draining or one.prompt_tokens >= self.options.ctx:
            reason = "shutting_down" if self._draining else "context_length_exceeded"
            self._out(Rejected(now, one.name, reason, one.prompt_tokens))
            return
        self._open[one.name] = one
        self._queue.append(one)
        self._dispatch()

    def _dispatch(self) -> None:
        while self._queue:
            slot = choose(self._slots, self._queue[0].job.prompt)
            if slot is None:
                return
            self._place(self._queue.popleft(), slot)

    def _place(self, one: Work, slot: Slot) -> None:
        now = self._agenda.now_ns
        one.slot, one.slot_ns, one.phase, slot.work = slot, now, Phase.OPENING, one
        self._out(SlotGiven(now, one.name, slot.id))
        same = common(slot.live, one.job.prompt)
        if 0 < slot.live_tokens == same:  # a prompt that goes on after it, or is it
            one.cached, one.source = slot.live_tokens, "memory"
            self._begin(one)
            return
        if slot.live_tokens:
            self._log.miss(now, slot.live_tokens, one.prompt_tokens, same)
        self._keep(slot, "evict", one.name, partial(self._look_up, one))

    def _keep(self, slot: Slot, reason: str, request: str, then: "partial[None]") -> None:
        """Store what a slot holds, if that is to be stored, and go on."""
        plan = self._disk.plan(slot.live, reason)
        if plan is None:
            then()
        else:
            self._model.lock.take(partial(self._keeping, plan, request, then))

    def _keeping(self, plan: Store, request: str, then: "partial[None]") -> None:
        now = self._agenda.now_ns
        self._agenda.at(now + plan.hold_ns, self._kept, plan, request, now, then)

    def _kept(self, plan: Store, request: str, begin_ns: int, then: "partial[None]") -> None:
        self._disk.commit(plan, request, begin_ns, self._agenda.now_ns)
        self._model.lock.give()
        then()

    def _look_up(self, one: Work) -> None:
        one.at.keep(())
        file = self._disk.find(one.job.prompt)
        if file is None or one.stop is not None:
            self._begin(one)
        else:
            self._model.lock.take(partial(self._load, one, file))

    def _load(self, one: Work, file: File) -> None:
        now = self._agenda.now_ns
        self._agenda.at(now + self._costs.load_ns(file.tokens), self._loaded, one, file, now)

    def _loaded(self, one: Work, file: File, begin_ns: int) -> None:
        self._disk.loaded(file, one.name, begin_ns, self._agenda.now_ns)
        one.cached, one.source = file.tokens, "disk"
        self._model.lock.give()
        self._begin(one)

    # ---- a request's way -------------------------------------------------------------------------------------------

    def _begin(self, one: Work) -> None:
        now = self._agenda.now_ns
        if one.stop is not None:
            one.at.keep(cut(one.job.prompt, one.cached))
            self._end(one, _CANCELLED if one.stop == _CANCELLED else "error", one.stop)
            return
        one.begin(now)
        self._log.prompt_start(now, one.head)
        self._prefill.begin(one)

    def _prefilled(self, one: Work) -> None:
        now = self._agenda.now_ns
        if one.stop is not None:
            self._stopped(one)
            return
        one.prefill_end_ns, one.logged, one.phase = now, (0, now), Phase.DECODE
        self._log.prompt_done(now, one.head, now - one.t0_ns)
        self._out(PrefillDone(now, one.name))
        self._model.began_decoding()
        if one.output_tokens == 0:
            self._written(one)
        else:
            self._agenda.at(now + self._costs.token_ns, self._model.submit, one.at.id, one.name)

    def _stepped(self, batch: tuple[int, ...], took_ns: int) -> None:
        now = self._agenda.now_ns
        if self.options.batch_log:
            self._log.decode_batch(now, len(batch), took_ns)
        for number in batch:
            one = self._slots[number].work
            assert isinstance(one, Work)
            self._token(one, now)

    def _token(self, one: Work, now: int) -> None:
        one.gen += 1
        self._out(TokenOut(now, one.name, one.gen))
        if one.stop == _CANCELLED:
            self._model.ended_decoding()
            self._stopped(one)
            return
        if one.gen - one.logged[0] == _LINE_TOKENS:
            self._tell(one)
        if one.gen == one.output_tokens or one.stop is not None:
            self._written(one)
        elif self._disk.continues_at(one.prompt_tokens + one.gen):
            one.at.keep(one.live())
            self._keep(one.at, "continued", one.name, partial(self._model.submit, one.at.id, one.name))
        else:
            self._agenda.at(now + self._costs.token_ns, self._model.submit, one.at.id, one.name)

    def _tell(self, one: Work) -> None:
        now, (gen, since_ns) = self._agenda.now_ns, one.logged
        began = one.prefill_end_ns or 0
        self._log.decoding(
            now, one.job.kind, one.prompt_tokens, one.gen, one.flags, (one.gen - gen, now - since_ns), now - began
        )
        one.logged = (one.gen, now)

    def _written(self, one: Work) -> None:
        """The last token was decoded."""
        now = self._agenda.now_ns
        if one.gen > one.logged[0]:
            self._tell(one)
        one.decode_end_ns, one.phase = now, Phase.ENDING
        one.at.keep(one.live())
        self._model.ended_decoding()
        self._agenda.at(now + self._costs.answer_end_ns, self._finish, one)

    def _finish(self, one: Work) -> None:
        now, job = self._agenda.now_ns, one.job
        finish = one.finish if one.stop is None else "error"
        markup = ""
        if finish == "tool_calls" and job.tool_calls:
            self._log.tool_calls(now, one.span, job.tool_calls)
            markup = " DSML_START DSML_END"
        flags = (" TOOLS" if job.tools else "") + markup
        self._log.finish(now, job.kind, one.span, one.gen, flags, finish, one.stop, now - one.t0_ns)
        self._end(one, finish, one.stop)

    def _end(self, one: Work, finish: str, error: str | None = None) -> None:
        """It leaves its slot, or the queue, and the next one comes."""
        now = self._agenda.now_ns
        self._out(Finished(now, one.name, finish, one.prompt_tokens, one.cached, one.new_tokens, one.gen, error))
        self._out(one.truth(now, finish))
        one.phase = Phase.OVER
        del self._open[one.name]
        if one.slot is not None:
            one.slot.work = None
        self._dispatch()
        if self._draining and not self._open:
            self._persist(0)

    # ---- going away ------------------------------------------------------------------------------------------------

    def _went(self, request: str) -> None:
        one = self._open.get(request)
        if one is None:
            return
        now = self._agenda.now_ns
        polls = -(-(now - one.arrival_ns) // _POLL_NS)
        self._agenda.at(max(now, one.arrival_ns + polls * _POLL_NS), self._stop, one, _CANCELLED)

    def _stop(self, one: Work, why: str) -> None:
        """End a request where it stands, without a line; what runs on the model first comes to its next boundary."""
        if one.phase in {Phase.ENDING, Phase.OVER} or one.stop is not None:
            return
        one.stop = why
        if one.phase is Phase.QUEUED:
            self._queue.remove(one)
            self._end(one, _CANCELLED if why == _CANCELLED else "error", why)
        elif one.phase is Phase.PREFILL and self._prefill.stop_waiting(one):
            self._stopped(one)

    def _stopped(self, one: Work) -> None:
        one.at.keep(one.live())
        self._end(one, _CANCELLED if one.stop == _CANCELLED else "error", one.stop)

    def _drain(self) -> None:
        if self._draining:
            return
        self._draining = True
        self._log.draining(self._agenda.now_ns)
        if not self._open:
            self._persist(0)
        for one in list(self._open.values()):
            self._stop(one, _SHUTDOWN)  # the last one to end lets the slots be stored

    def _persist(self, number: int) -> None:
        now = self._agenda.now_ns
        while number < len(self._slots):
            slot = self._slots[number]
            if self._disk.plan(slot.live, "shutdown") is not None:
                self._log.persisting(now, slot.id, slot.live_tokens)
                self._keep(slot, "shutdown", "", partial(self._persist, number + 1))
                return
            number += 1
        self._out(Stopped(now))
