"""How does a test make an experiment's directory by hand: a design, and runs whose numbers it chose?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentload.artifacts import schemas
from agentload.artifacts.design import Design, ExperimentDir, Step, Value, Variant
from agentload.artifacts.jsonlines import JsonLinesWriter
from agentload.artifacts.rundir import EventLog, RunDir, Status, create_at
from agentload.core.crossover import request_order, restart_order
from tests.analysis.test_account import AGENT
from tests.analysis.test_evidence import MANIFEST

S = 1_000_000_000
START_S = 1_000  # of the first run; each further one begins so much later
FLAG = "mixed_prefill_quantum"


@dataclass(frozen=True)
class Asked:
    """One request: when it was sent (s after the begin marker), and what the answer's timings say of it."""

    agent: str = "a0"
    turn: int = 1
    at_s: float = 0.0
    new: int = 1000
    cached: int = 0
    prefill_s: float = 1.0
    decoded: int = 10
    decode_s: float = 1.0
    request: str | None = None

    @property
    def name(self) -> str:
        return self.request or f"{self.agent}-r{self.turn}"


def beside(busy_s: float, decoded: int = 100) -> Asked:
    """Another agent that decodes as long as a prefill of `busy_s` that begins at 0 takes, and prefills nothing."""
    return Asked("a1", 1, 0.0, 0, 500, 0.0, decoded, busy_s)


def work(new: int, busy_s: float, decoded: int = 100, decode_s: float = 10.0) -> list[Asked]:
    """New tokens in so many seconds of prefill, another agent decoding meanwhile."""
    return [Asked("a0", 1, 0.0, new, 500, busy_s, decoded, decode_s), beside(busy_s)]


@dataclass(frozen=True)
class Ran:
    """One run: requests by segment, the server's log, and what its manifest says."""

    segments: Mapping[str, Sequence[Asked]]
    log: str | None = None
    times: Sequence[int] | None = None  # receive stamps of its lines, seconds after START_S of the run
    status: Status = "success"
    why: str | None = None
    server: Mapping[str, Any] = field(default_factory=dict)
    manifest: Mapping[str, Any] = field(default_factory=dict)
    agents: Sequence[Mapping[str, Any]] = (AGENT,)
    cpu_s: float | None = None  # of the server's process, in each segment
    messages: Mapping[str, str] = field(default_factory=dict)  # folder below agents/ -> text of the first prompt
    sent: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # folder -> request parameters it sent


def ds4_log(quantum: int, *more: str) -> str:
    """ds4-server's start-up lines; the scheduler's stands in line 2."""
    context = "ctx=131072, backend=metal, prefill_chunk=4096, raw_kv_rows=4352, compressed_kv_rows=32770"
    scheduler = f"resident_sessions=6 prefill_quantum=2048 mixed_prefill_quantum={quantum} decode_coalesce_us=2000"
    lines = (
        f"context buffers 3301.15 MiB ({context})",
        f"batched mode enabled {scheduler}",
        "listening on http://127.0.0.1:8000",
    )
    return "".join(f"0914 12:00:00 ds4-server: {line}\n" for line in (*lines, *more))


def variants(name: str, *values: Value) -> tuple[Variant, ...]:
    """A, B, ...: one a value of the setting."""
    return tuple(
        Variant(name=chr(65 + index), label=f"{name}={value}", scenario={}, expected={name: value})
        for index, value in enumerate(values)
    )


def design(
    *values: Value, setting: str = FLAG, repeats: int = 2, sets: int = 1, kind: str = "restart", **fields: Any
) -> Design:
    """The design of an experiment on one setting; seed 0."""
    told = fields.pop("variants", None)
    made = variants(setting, *values) if told is None else tuple(Variant.model_validate(one) for one in told)
    names = [one.name for one in made]
    order = restart_order(names, repeats, 0) if kind == "restart" else request_order(names, sets, 0, boots=repeats)
    return Design.model_validate(
        {
            "name": "quanta",
            "seed": 0,
            "repeats": repeats,
            "sets": sets,
            "kind": kind,
            "workload": "agents",
            "factor": setting,
            "metric": "prefill_tok_s",
            "variants": made,
            "steps": tuple(_step(one, kind, sets * len(made)) for one in order),
            **fields,
        }
    )


def _step(one: Any, kind: str, in_boot: int) -> Step:
    restart = kind == "restart"
    return Step(
        position=one.position,
        block=one.block,
        place=one.place,
        boot=one.boot,
        variant=one.variant,
        run=f"{one.position + 1:02d}-{one.variant}" if restart else f"{one.boot + 1:02d}",
        segment=None if restart else f"s{one.position % in_boot + 1}",
    )


def open_folder(path: Path, planned: Design) -> ExperimentDir:
    """An experiment's directory with its design."""
    folder = ExperimentDir(path)
    folder.runs.mkdir(parents=True)
    folder.write_design(planned)
    return folder


def write(folder: ExperimentDir, name: str, ran: Ran, position: int) -> RunDir:
    """Write one run's raw files; runs begin in the order of their positions."""
    run = create_at(folder.runs / name)
    begin = (START_S * (position + 1)) * S
    variant = name.partition("-")[2] or "A"
    server = {"kind": "launch", "argv": ["ds4-server"], **ran.server}
    run.write_manifest(
        MANIFEST.model_copy(
            update={
                "run": name,
                "status": ran.status,
                "why": ran.why,
                "agents": [dict(one) for one in ran.agents],
                "scenario": {"limits": {}},
                "server": server,
                "versions": {"agentload": "0.1.0"},
                **ran.manifest,
            }
        )
    )
    events, marks = EventLog(run.events_path), JsonLinesWriter(run.markers_path, schemas.MARKERS)
    for number, (segment, requests) in enumerate(ran.segments.items()):
        end = begin + round(S * (1 + max((one.at_s + one.prefill_s + one.decode_s for one in requests), default=0)))
        for action, t_ns in (("begin", begin), ("end", end)):
            place = {"where": "sidecar", "inode": None, "offset": None}
            marks.append({"action": action, "segment": segment, "run": name, "condition": variant, "t": t_ns, **place})
        if ran.cpu_s is not None:
            events.emit("sample", begin, where="begin", **_sample(number * ran.cpu_s))
        for one in requests:
            _emit(events, one, begin)
        if ran.cpu_s is not None:
            events.emit("sample", end, where="end", **_sample((number + 1) * ran.cpu_s))
        begin = end + S
    events.close()
    marks.close()
    if ran.log is not None:
        run.server_log.write_text(ran.log, encoding="utf-8")
    if ran.times is not None:
        stamps = "".join(f"{START_S * (position + 1) * S + at * S}\n" for at in ran.times)
        run.server_times.write_text(stamps, encoding="utf-8")
    for where in {**ran.messages, **ran.sent}:
        _talk(run, where, ran.messages.get(where, ""), ran.sent.get(where, {}))
    return run


def _sample(cpu_s: float) -> dict[str, Any]:
    return {"cpu_s": cpu_s, "rss_bytes": 1, "processes": 1, "host_busy_s": cpu_s, "host_free_bytes": 1}


def _emit(events: EventLog, one: Asked, begin: int) -> None:
    sent = begin + round(one.at_s * S)
    first = sent + round(one.prefill_s * S)
    done = first + round(one.decode_s * S)
    events.emit(
        "request_done",
        done,
        request=one.name,
        agent=one.agent,
        turn=one.turn,
        t_sent=sent,
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
        usage={"prompt_tokens": one.new + one.cached, "completion_tokens": one.decoded, "cached_tokens": one.cached},
        timings={
            "cached_tokens": one.cached,
            "prompt_tokens": one.new,
            "prompt_ms": one.prefill_s * 1000,
            "decoded_tokens": one.decoded,
            "decode_ms": one.decode_s * 1000,
        },
        notes=[],
    )


def _talk(run: RunDir, where: str, text: str, sent: Mapping[str, Any]) -> None:
    path = run.path / "agents" / where / "messages.jsonl"
    path.parent.mkdir(exist_ok=True)
    writer = JsonLinesWriter(path, schemas.MESSAGES)
    messages = [{"role": "system", "content": text}, {"role": "assistant", "content": "I see."}]
    for number, message in enumerate(messages, 1):
        writer.append({"event": "message", "t": number, "number": number, "message": message})
    writer.append({"event": "request", "t": 3, "request": f"{where}-r0", "extra": dict(sent)})
    writer.close()


def whole(planned: Design, path: Path, runs: Mapping[str, Ran]) -> ExperimentDir:
    """An experiment with these runs, by their names."""
    folder = open_folder(path, planned)
    places = {step.run: step.position for step in reversed(planned.steps)}
    for name, ran in runs.items():
        write(folder, name, ran, places[name])
    return folder
