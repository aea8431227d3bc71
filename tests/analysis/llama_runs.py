"""How does a test write a run on llama.cpp's server: its log word for word, and the answers with the same timings?"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentload.artifacts import rundir, schemas
from agentload.artifacts.jsonlines import JsonLinesWriter
from agentload.artifacts.rundir import EventLog, RunDir
from tests.analysis.test_account import AGENT
from tests.analysis.test_evidence import MANIFEST

S = 1_000_000_000
BOOT_NS = 1_700_000_000 * S  # when the server's clock was 0
START = "0.00.000.001 I srv          init: initializing ...\n"
READY = "0.00.500.000 I srv          init: model loaded\n"


@dataclass(frozen=True)
class Served:
    """One request, as the server had it. Times are seconds of its clock."""

    agent: str
    turn: int
    slot: int
    task: int
    at_s: float
    new: int
    cached: int = 0
    prefill_s: float = 1.0
    decoded: int = 10
    decode_s: float = 1.0
    chosen: str = "selected slot by LRU, t_last = -1"
    more: str = ""  # a further line of this task, after its launch

    @property
    def name(self) -> str:
        return f"{self.agent}-r{self.turn}"

    @property
    def end_s(self) -> float:
        return self.at_s + self.prefill_s + self.decode_s


def _stamp(at_s: float) -> str:
    micros = round(at_s * 1_000_000)
    return f"{micros // 60_000_000}.{micros // 1_000_000 % 60:02d}.{micros // 1000 % 1000:03d}.{micros % 1000:03d}"


def _lines(one: Served) -> list[tuple[float, str]]:
    head = f"id  {one.slot} | task {one.task} | "
    rates = "(    1.00 ms per token,  1000.00 tokens per second)"
    prompt_ms, eval_ms = one.prefill_s * 1000, one.decode_s * 1000
    tokens, held = one.new + one.decoded, one.cached + one.new + one.decoded - 1
    begin = [
        f"I slot get_availabl: id  {one.slot} | task -1 | {one.chosen}",
        f"I slot launch_slot_: {head}processing task, is_child = 0",
        *([f"W slot update_slots: {head}{one.more}"] if one.more else []),
    ]
    end = [
        f"I slot print_timing: {head}prompt eval time = {prompt_ms:.2f} ms / {one.new} tokens {rates}",
        f"I slot print_timing: {head}       eval time = {eval_ms:.2f} ms / {one.decoded} tokens {rates}",
        f"I slot print_timing: {head}      total time = {prompt_ms + eval_ms:.2f} ms / {tokens} tokens",
        f"I slot      release: {head}stop processing: n_tokens = {held}, truncated = 0",
    ]
    return [*((one.at_s, line) for line in begin), *((one.end_s, line) for line in end)]


def log_of(served: Sequence[Served]) -> str:
    """The server's log; what was told at one time stays together."""
    lines = [line for one in served for line in _lines(one)]
    told = "".join(f"{_stamp(at)} {text}\n" for at, text in sorted(lines, key=lambda line: line[0]))
    return START + READY + told


def write(
    out: Path,
    served: Sequence[Served],
    *,
    log: str | None = None,
    argv: Sequence[str] = ("llama-server",),
    boots_ns: Sequence[int] = (),
    talks: dict[str, list[dict[str, Any]]] | None = None,
    software: str | None = "llamacpp",
) -> RunDir:
    """Write the run.

    Args:
        log: the server's, where it is not that of one start with all of these requests.
        boots_ns: for each request, when the start that it was served by had its clock at 0.
        talks: by agent, events of messages.jsonl.
    """
    run = rundir.create(out, "llama", "2026-01-01T000000Z", "0000")
    names = sorted({one.agent for one in served})
    run.write_manifest(
        MANIFEST.model_copy(
            update={
                "run": run.name,
                "status": "success",
                "agents": [{**AGENT, "agent": name} for name in names],
                "server": {"kind": "launch", "argv": list(argv), "software": software},
                "scenario": {"limits": {}},
            }
        )
    )
    if log != "":
        run.server_log.write_text(log_of(served) if log is None else log)
    boots = list(boots_ns) or [BOOT_NS] * len(served)
    ends = [boot + round(one.end_s * S) for boot, one in zip(boots, served, strict=True)]
    marks = JsonLinesWriter(run.markers_path, schemas.MARKERS)
    for action, t_ns in (("begin", BOOT_NS), ("end", max(ends) + S)):
        place = {"where": "sidecar", "inode": 1, "offset": 0 if action == "begin" else 10**6}
        marks.append({"action": action, "segment": "s1", "run": run.name, "condition": "c", "t": t_ns, **place})
    marks.close()
    events = EventLog(run.events_path)
    for one, end in zip(served, ends, strict=True):
        _done(events, one, end)
    events.close()
    for agent, history in (talks or {}).items():
        path = run.messages_path(agent)
        path.parent.mkdir(parents=True)
        writer = JsonLinesWriter(path, schemas.MESSAGES)
        for event in history:
            writer.append(event)
        writer.close()
    return run


def _done(events: EventLog, one: Served, end: int) -> None:
    first = end - round(one.decode_s * S)
    events.emit(
        "request_done",
        end,
        request=one.name,
        agent=one.agent,
        turn=one.turn,
        t_sent=end - round((one.prefill_s + one.decode_s) * S),
        t_first_byte=first,
        t_first_token=first,
        status=200,
        finish="stop",
        error=None,
        server_id=None,
        model="m",
        comments=0,
        chunk_ns=[],
        chunks_without_token=[],
        tool_call_ids=[],
        usage={
            "prompt_tokens": one.new + one.cached,
            "completion_tokens": one.decoded,
            "cached_tokens": one.cached,
        },
        timings={
            "cached_tokens": one.cached,
            "prompt_tokens": one.new,
            "prompt_ms": round(one.prefill_s * 1000, 2),
            "decoded_tokens": one.decoded,
            "decode_ms": round(one.decode_s * 1000, 2),
        },
        notes=[],
    )


def message(number: int, role: str, **fields: Any) -> dict[str, Any]:
    """A message of a conversation."""
    return {"event": "message", "t": 1, "number": number, "message": {"role": role, **fields}}


def asked(name: str, messages: int, choice: str | None = None) -> dict[str, Any]:
    """A request was sent."""
    return {"event": "request", "t": 1, "request": name, "messages": messages, "tool_choice": choice}


def answer(name: str, content: str, **fields: Any) -> dict[str, Any]:
    """Its answer."""
    return {
        "event": "answer", "t": 1, "request": name, "content": content, "reasoning": "", "tool_calls": [],
        "error": None, **fields,
    }  # fmt: skip


def grown(agent: str, turns: int = 2) -> list[dict[str, Any]]:
    """A conversation that only grows."""
    events = [message(1, "system", content="s"), message(2, "user", content="task")]
    for turn in range(turns):
        name = f"{agent}-r{turn}"
        if turn:
            said = message(2 * turn + 1, "assistant", content=f"said {turn - 1}")
            events += [said, message(2 * turn + 2, "user", content=f"more {turn}")]
        events += [asked(name, 2 * turn + 2), answer(name, f"said {turn}")]
    return events
