"""How does a test plant a cause? A simulated server, requests at times that the test chose, and a run's raw files.

The server is the twin's own, under virtual time and with round costs (tests.twin.worlds); its log, the client's stamps
and truth.jsonl are what came out of it. Conversations are written down as agents write them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentload.analysis.truth import TRUTH
from agentload.artifacts import rundir, schemas
from agentload.artifacts.jsonlines import JsonLinesWriter
from agentload.artifacts.rundir import EventLog, RunDir
from agentload.twin import truth
from agentload.twin.events import Event, Finished, Quantum, Request, TokenOut
from agentload.twin.options import Options
from agentload.twin.server import Server
from agentload.twin.slots import Job, Run, Runs
from tests.analysis.test_account import AGENT
from tests.analysis.test_evidence import MANIFEST
from tests.twin.worlds import SECOND, only, round_profile

EPOCH_NS = 1_767_225_600 * SECOND  # 2026-01-01
SYSTEM = Run("system and tools", 5000)


@dataclass
class Talk:
    """One agent's conversation: what its next request sends, and what it has sent so far."""

    agent: str
    task_tokens: int
    runs: Runs = ()
    turns: int = 0
    messages: list[dict[str, Any]] = field(default_factory=list)
    sent: list[tuple[int, Job, int]] = field(default_factory=list)  # (at ns, job, messages)
    rewritten: dict[int, dict[str, Any]] = field(default_factory=dict)  # turn -> its task as it is sent from then on

    def ask(self, at_s: float, output_tokens: int, new_tokens: int = 0, *, task: str = "", told: bool = True) -> None:
        """Send its next request: the first one its task, later ones the answer before and a tool's result.

        `task`: its task has these words from now on, in the messages too unless they are not `told`.
        """
        name = f"{self.agent}-r{self.turns}"
        if self.turns == 0:
            self.runs = (SYSTEM, Run(f"task of {self.agent}", self.task_tokens))
            self._say(("system", "You are an agent."), ("user", f"the task of {self.agent}"))
        else:
            before = self.sent[-1][1]
            self.runs = (*before.prompt, Run(before.written, before.output_tokens), Run(f"new in {name}", new_tokens))
            if task:
                self.runs = (self.runs[0], Run(task, self.task_tokens), *self.runs[2:])
                if told:
                    self.rewritten[self.turns] = {"role": "user", "content": task}
            self._say(("assistant", f"said in {before.request}"), ("user", f"new in {name}"))
        job = Job(name, self.runs, output_tokens, anchor_tokens=SYSTEM.tokens)
        self.sent.append((EPOCH_NS + round(at_s * SECOND), job, len(self.messages)))
        self.turns += 1

    def _say(self, *messages: tuple[str, str]) -> None:
        self.messages += [{"role": role, "content": text} for role, text in messages]


@dataclass(frozen=True)
class Planted:
    """A run that was made, and what the server did in truth."""

    run: RunDir
    requests: dict[str, Request]
    quanta: list[Quantum]
    log: list[str]  # its lines

    def line(self, number: int) -> str:
        return self.log[number - 1]


def plant(out: Path, talks: Sequence[Talk], **options: Any) -> Planted:
    """Let the requests come, and write the run."""
    server = Server(Options(**options), round_profile(), seed=0, start_ns=EPOCH_NS)
    for talk in talks:
        for at_ns, job, _ in talk.sent:
            server.submit(job, at_ns)
    events = server.run()
    run = rundir.create(out, "planted", "2026-01-01T000000Z", "0000")
    _write(run, talks, events, server.options)
    log = truth.log_bytes(events).decode().splitlines()
    return Planted(run, {one.request: one for one in only(Request, events)}, only(Quantum, events), log)


def _write(run: RunDir, talks: Sequence[Talk], events: Sequence[Event], options: Options) -> None:
    agents = [{**AGENT, "agent": talk.agent, "requests": talk.turns} for talk in talks]
    server = {"kind": "twin", "argv": ["ds4-server"], "log_format": "ds4"}
    run.write_manifest(
        MANIFEST.model_copy(
            update={
                "run": run.name,
                "status": "success",
                "simulated": True,
                "agents": agents,
                "server": server,
                "scenario": {"limits": {}},
            }
        )
    )
    run.server_log.write_bytes(truth.log_bytes(events))
    run.server_times.write_text("".join(f"{at}\n" for at in truth.line_times(events)))
    told = [truth.header(options, "round", 0, 0), *truth.lines(events)]
    (run.path / TRUTH).write_text("".join(f"{line}\n" for line in told))
    done = {one.request: one for one in only(Finished, events)}
    tokens: dict[str, list[int]] = {}
    for one in only(TokenOut, events):
        tokens.setdefault(one.request, []).append(one.at_ns)
    marks = JsonLinesWriter(run.markers_path, schemas.MARKERS)
    ends = max(one.at_ns for one in done.values()) + SECOND
    for action, t_ns in (("begin", EPOCH_NS + SECOND // 2), ("end", ends)):
        place = {"where": "sidecar", "inode": None, "offset": None}
        marks.append({"action": action, "segment": "s1", "run": run.name, "condition": "c", "t": t_ns, **place})
    marks.close()
    log = EventLog(run.events_path)
    for talk in talks:
        history = _history(run, talk)
        for turn, (at_ns, job, messages) in enumerate(talk.sent):
            _ended(log, talk.agent, turn, at_ns, done[job.request], tokens[job.request])
            if turn in talk.rewritten:
                history.append({"event": "message", "t": at_ns, "number": 2, "message": talk.rewritten[turn]})
            for number in range(talk.sent[turn - 1][2] if turn else 0, messages):
                history.append({"event": "message", "t": at_ns, "number": number + 1, "message": talk.messages[number]})
            who = {"request": job.request, "agent": talk.agent, "turn": turn}
            history.append({"event": "request", "t": at_ns, **who, "messages": messages, "tool_choice": None})
            said: dict[str, Any] = {
                "content": f"said in {job.request}",
                "reasoning": "",
                "tool_calls": [],
                "error": None,
            }
            history.append({"event": "answer", "t": done[job.request].at_ns, **who, **said})
        history.close()
    log.close()


def _history(run: RunDir, talk: Talk) -> JsonLinesWriter:
    path = run.messages_path(talk.agent)
    path.parent.mkdir(parents=True)
    return JsonLinesWriter(path, schemas.MESSAGES)


def _ended(log: EventLog, agent: str, turn: int, sent_ns: int, one: Finished, tokens: Sequence[int]) -> None:
    log.emit(
        "request_done",
        one.at_ns,
        request=one.request,
        agent=agent,
        turn=turn,
        t_sent=sent_ns,
        t_first_byte=tokens[0],
        t_first_token=tokens[0],
        status=200,
        finish=one.finish,
        error=None,
        server_id=None,
        model="m",
        comments=0,
        chunk_ns=list(tokens),
        chunks_without_token=[],
        tool_call_ids=[],
        usage={
            "prompt_tokens": one.prompt_tokens,
            "completion_tokens": one.decoded_tokens,
            "cached_tokens": one.cached_tokens,
        },
        timings=None,
        notes=[],
    )
