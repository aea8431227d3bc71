"""What ends a night cleanly, what is an outcome of a run, and what is the next night told?

Real git, sandbox and tools; the servers are simulated, or programs that fail.
"""

import os
import signal
import socket
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import anyio
import pytest

from agentload.agents import workspace
from agentload.artifacts import jsonlines, schemas
from agentload.artifacts.alive import Hold
from agentload.artifacts.design import Design, ExperimentDir, Step
from agentload.artifacts.journal import Resumed, RunDone, RunLeftOut, RunSetAside, RunStarted, Stopped, Waiting
from agentload.artifacts.rundir import RunDir
from agentload.clock import SystemClock
from agentload.core.records import Doubt
from agentload.errors import ArtifactError, UsageError
from agentload.run import experiment, runner
from tests.run import nights
from tests.run.runs import AGENTLOAD, environment

SECOND = 1_000_000_000
EXITS = {"kind": "launch", "launch": f"{sys.executable} -c 'raise SystemExit(\"no such flag: -q\")' --port {{port}}"}


class Standing:
    """A clock that stands still, as long as nobody sleeps."""

    def __init__(self, now_ns: int) -> None:
        self._now_ns = now_ns

    def now_ns(self) -> int:
        return self._now_ns

    async def sleep_until(self, t_ns: int) -> None:
        self._now_ns = max(self._now_ns, t_ns)


def two() -> Design:
    return nights.restarts(nights.twin(2048), nights.twin(128))


def carry_out(
    design: Design, path: Path, cache_dir: Path, at: dict[str, Callable[[], None]], **options: object
) -> tuple[experiment.Outcome, list[str]]:
    """A night in which something is done once a line is said that holds a text."""
    said: list[str] = []
    left = dict(at)

    def say(line: str) -> None:
        said.append(line)
        for text in [text for text in left if text in line]:
            left.pop(text)()

    async def do() -> experiment.Outcome:
        chosen = {"clock": SystemClock(), "reasons": nights.counts, **options}
        return await experiment.carry_out(design, ExperimentDir(path), environment(cache_dir), say, **chosen)  # type: ignore[arg-type]  # of tests

    outcome = anyio.run(do)
    assert not left, said
    return outcome, said


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_in_mid_run_cancels_it_and_says_how_to_go_on_and_the_next_night_sets_it_aside(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    path = tmp_path / "night"
    outcome, said = carry_out(two(), path, cache_dir, {"01-B: a0 started": interrupt})
    assert outcome == experiment.Outcome(2, 0, "a signal asked for it", (), 0)
    assert said[-1] == f"stopped: a signal asked for it; `agentload ab {path}` goes on where it was"
    assert [one.event for one in nights.events(path)] == ["experiment_started", "run_started", "stopped"]
    state = experiment.status(ExperimentDir(path))
    assert [(one.run, one.status, one.why) for one in state.runs] == [
        ("01-B", "cancelled", "interrupted by a signal"),
        ("02-A", "to do", None),
    ]
    assert (state.done, state.at_work, state.left_s) == (0, False, None)

    outcome, said = carry_out(two(), path, cache_dir, {})
    assert (outcome.done, outcome.ran) == (2, 2)
    (aside,) = nights.events(path, "run_set_aside")
    assert aside == RunSetAside(event="run_set_aside", t=aside.t, run="01-B", to="01-B.1", why="it was interrupted")
    assert RunDir(path / "runs" / "01-B.1").read_manifest().status == "cancelled"
    started = [(one.run, one.attempt) for one in nights.events(path) if isinstance(one, RunStarted)]
    assert started == [("01-B", 1), ("01-B", 2), ("02-A", 1)]


def test_whoever_has_a_run_done_is_told_of_a_signal_that_came_while_it_lasted(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    design = two()
    heard: list[str] = []
    scenario = experiment.scenario_of(design, design.steps[:1])

    def say(line: str) -> None:
        if line == "a0 started" and not heard:
            interrupt()

    async def do() -> None:
        await runner.run(scenario, tmp_path, environment(cache_dir), say, signalled=lambda: heard.append("a signal"))

    anyio.run(do)
    assert heard == ["a signal"]


def test_a_signal_while_a_run_is_accounted_for_ends_the_night_after_that_run(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    def reasons(*_: object) -> list[Doubt]:
        interrupt()
        return []

    outcome, said = carry_out(two(), tmp_path / "night", cache_dir, {}, reasons=reasons)
    assert (outcome.done, outcome.stopped) == (1, "a signal asked for it")
    assert [one.event for one in nights.events(tmp_path / "night")][-2:] == ["run_done", "stopped"]
    assert not any(line.startswith("run 2") for line in said)


@pytest.mark.parametrize(("foretold_s", "begun"), [(400.0, True), (402.0, False)])
def test_a_run_that_is_not_expected_to_end_before_the_deadline_is_not_begun(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path, foretold_s: float, begun: bool
) -> None:
    """Two runs of 200 s or 201 s; 200 s are left, and on this clock a run takes no time."""
    path, now = tmp_path / "night", 1_700_000_000 * SECOND
    design = two().model_copy(update={"expected_s": foretold_s})
    outcome, said = carry_out(design, path, cache_dir, {}, clock=Standing(now), until_ns=now + 200 * SECOND)
    assert (outcome.done, outcome.stopped is None) == ((2, True) if begun else (0, False))
    if not begun:
        why = "01-B is not begun: it takes about 3:21 and would end 0:01 after the deadline (--until)"
        assert nights.events(path)[-1] == Stopped(event="stopped", t=now, why=why)
        assert said == [f"stopped: {why}; `agentload ab {path}` goes on where it was"]
        assert not (path / "runs" / "01-B").exists()


def test_a_variant_that_never_starts_is_an_outcome_and_is_asked_twice_in_a_night_and_the_other_goes_on(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    path = tmp_path / "night"
    design = nights.restarts(nights.twin(128), EXITS, repeats=3, cooldown_s=45.0)
    assert nights.names(design) == ["01-B", "02-A", "03-A", "04-B", "05-A", "06-B"]
    outcome, said = carry_out(design, path, cache_dir, {}, clock=Standing(1_700_000_000 * SECOND))
    waits = [(one.seconds, one.why) for one in nights.events(path) if isinstance(one, Waiting)]
    assert waits == [(45.0, "cooldown")] * 4  # between the five runs that were tried; no time passes in them
    assert (outcome.done, outcome.stopped, outcome.failed, outcome.ran) == (3, None, ("01-B", "04-B", "06-B"), 5)
    state = {one.run: one for one in experiment.status(ExperimentDir(path)).runs}
    assert [state[name].status for name in state] == ["error", "success", "success", "error", "success", "left out"]
    assert "no such flag: -q" in (state["01-B"].why or "")
    (left,) = nights.events(path, "run_left_out")
    assert isinstance(left, RunLeftOut)
    assert (left.run, left.why) == ("06-B", state["06-B"].why)
    assert left.why.startswith("variant=B never started: 2 of 2 attempts failed, the last: not ready: ")
    assert said[-1] == f"01-B, 04-B, 06-B failed: `agentload ab {path}` runs what failed again"

    outcome, _ = carry_out(design, path, cache_dir, {}, clock=Standing(1_700_001_000 * SECOND))
    assert (outcome.done, outcome.failed, outcome.ran) == (3, ("01-B", "04-B", "06-B"), 2)
    aside = [(one.run, one.to) for one in nights.events(path) if isinstance(one, RunSetAside)]
    assert aside == [("01-B", "01-B.1"), ("04-B", "04-B.1")]


def test_what_keeps_every_run_from_its_directory_is_the_error_of_the_night(cache_dir: Path, tmp_path: Path) -> None:
    design = nights.restarts(nights.twin(2048) | {"profile": "nobodys"}, nights.twin(128) | {"profile": "nobodys"})
    with pytest.raises(UsageError, match="nobodys"):
        carry_out(design, tmp_path / "night", cache_dir, {})
    *_, stopped = nights.events(tmp_path / "night")
    assert isinstance(stopped, Stopped)
    assert "nobodys" in stopped.why


def test_a_port_that_somebody_else_has_ends_the_night_before_the_run(cache_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "night"
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        command = f"{sys.executable} --port {other.getsockname()[1]}"  # any program that is there
        servers = ({"kind": "launch", "launch": f"{command} --mixed-prefill-quantum {quantum}"} for quantum in (1, 2))
        outcome, _ = carry_out(nights.restarts(*servers), path, cache_dir, {}, clock=Standing(SECOND))
    assert outcome.stopped is not None
    assert outcome.stopped.startswith(f"port {other_port(command)} is taken by another program: ")
    assert [one.event for one in nights.events(path)] == ["experiment_started", "waiting", "stopped"]
    assert list((path / "runs").iterdir()) == []


def other_port(command: str) -> str:
    return command.rpartition(" ")[2]


def kill_server(run: RunDir) -> None:
    """kill -9 of the server that the run's events tell of."""
    (pid,) = [
        one["pid"] for _, one in jsonlines.read(run.events_path, schemas.EVENTS) if one["event"] == "server_started"
    ]
    os.kill(pid, signal.SIGKILL)


def test_kill_9_of_the_server_is_an_outcome_and_the_night_goes_on_and_the_next_one_makes_the_run_again(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    path = tmp_path / "night"
    # With as slow a machine the first request takes 8 s: the kill comes before its end.
    words = [*(f"'{word}'" for word in AGENTLOAD), "twin serve --speed 60 --port {port} --mixed-prefill-quantum"]
    slow, fast = (
        {"kind": "launch", "launch": " ".join([*words, quantum]).replace("--speed 60", f"--speed {speed}")}
        for quantum, speed in (("128", 60), ("2048", 2000))
    )
    design = nights.restarts(fast, slow)
    assert nights.names(design) == ["01-B", "02-A"]
    outcome, _ = carry_out(
        design, path, cache_dir, {"01-B: a0 started": lambda: kill_server(RunDir(path / "runs" / "01-B"))}
    )
    assert (outcome.done, outcome.stopped, outcome.failed) == (1, None, ("01-B",))
    crashed = next(one for one in nights.events(path) if isinstance(one, RunDone))
    assert (crashed.run, crashed.status) == ("01-B", "error")
    assert "signal 9" in (crashed.why or "")
    assert "server.log" in (crashed.why or "")
    assert "server.log" in crashed.files

    outcome, _ = carry_out(design, path, cache_dir, {})
    assert (outcome.done, outcome.ran) == (2, 1)
    (aside,) = [one for one in nights.events(path) if isinstance(one, RunSetAside)]
    assert aside.why == f"it ended in an error: {crashed.why}"
    assert "signal 9" in str(RunDir(path / "runs" / "01-B.1").read_manifest().why)


THINKING = {"chat_template_kwargs": {"enable_thinking": True}}


def alternating() -> Design:
    """A B B A in one boot of the twin; B thinks."""
    steps = (
        Step(position=at, block=at // 2, place=at % 2, boot=3, variant=name, run="01", segment=f"s{at + 1}")
        for at, name in enumerate("ABBA")
    )
    first, second = nights.restarts(nights.twin(128), nights.twin(128)).variants
    return nights.restarts(nights.twin(128), nights.twin(128)).model_copy(
        update={
            "kind": "request",
            "sets": 2,
            "steps": tuple(steps),
            "variants": (first, second.model_copy(update={"request": THINKING})),
        }
    )


def test_a_request_experiment_is_one_boot_with_a_segment_for_each_step() -> None:
    design = alternating()
    ((name, steps),) = experiment.planned_runs(design).items()
    found = experiment.scenario_of(design, steps)
    assert name == "01"
    assert [(one.segment, one.condition, one.request) for one in found.parts] == [
        ("s1", "A", {}),
        ("s2", "B", THINKING),
        ("s3", "B", THINKING),
        ("s4", "A", {}),
    ]
    assert (found.server.boot, found.seed) == (3, 3)


def test_variants_that_are_request_parameters_alternate_inside_one_run(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    path = tmp_path / "night"
    design = alternating()
    outcome, _ = carry_out(design, path, cache_dir, {})
    assert outcome == experiment.Outcome(1, 1, None, (), 1)
    manifest = RunDir(path / "runs" / "01").read_manifest()
    assert [(one["segment"], one["condition"]) for one in manifest.segments] == [
        ("s1", "A"),
        ("s2", "B"),
        ("s3", "B"),
        ("s4", "A"),
    ]
    (state,) = experiment.status(ExperimentDir(path)).runs
    assert (state.run, state.variants, state.status) == ("01", ("A", "B", "B", "A"), "success")


@pytest.mark.parametrize(
    ("program", "where"), [("no-such-server-of-ours", "on the PATH"), ("./no-such/serve.sh", "there")]
)
def test_a_program_that_is_not_there_ends_a_night_before_its_first_start(
    program: str, where: str, cache_dir: Path, tmp_path: Path
) -> None:
    servers = [{"kind": "launch", "launch": f"{program} --port {{port}} --quantum {at}"} for at in (1, 2)]
    with pytest.raises(UsageError, match=rf"^--launch: expected a program .*, '{program}' is not {where}$"):
        carry_out(nights.restarts(*servers), tmp_path / "night", cache_dir, {})
    assert not ExperimentDir(tmp_path / "night").journal_path.exists()


def test_two_experiments_on_one_directory_are_one_line(cache_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "night"
    path.mkdir()
    other = Hold(path)
    with pytest.raises(ArtifactError, match=rf"^{path}: is being written by another agentload$"):
        carry_out(two(), path, cache_dir, {})
    other.release()


def test_the_status_tells_what_is_running_and_how_long_the_rest_takes(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    path = tmp_path / "night"
    design = two().model_copy(update={"expected_s": 300.0})
    states: list[experiment.Status] = []
    now = 1_700_000_000 * SECOND

    def look() -> None:
        states.append(experiment.status(ExperimentDir(path), now + 50 * SECOND))

    clock = Standing(now)
    carry_out(
        design, path, cache_dir, {"01-B: a0 started": look, "run 2 of 2": look, "02-A: a0 started": look}, clock=clock
    )
    assert [[one.status for one in state.runs] for state in states] == [
        ["running", "to do"],
        ["success", "to do"],
        ["success", "running"],
    ]
    # Foretold are 150 s each, of which 50 are over; the first run then took no time on this clock.
    assert [(state.done, state.left_s, state.at_work) for state in states] == [
        (0, 250.0, True),
        (1, 0.0, True),
        (1, 0.0, True),
    ]
    after = experiment.status(ExperimentDir(path))
    assert (after.done, after.total, after.at_work, after.left_s) == (2, 2, False, 0.0)
    assert after.last is not None
    assert after.last.event == "experiment_done"


def test_an_experiment_that_never_began_has_all_to_do(tmp_path: Path) -> None:
    folder = ExperimentDir(tmp_path)
    folder.write_design(two())
    state = experiment.status(folder)
    assert ([one.status for one in state.runs], state.left_s, state.last) == (["to do", "to do"], None, None)


def test_each_night_says_who_wrote_it(cache_dir: Path, tiny: workspace.Repository, tmp_path: Path) -> None:
    path = tmp_path / "night"
    now = 1_700_000_000 * SECOND
    for _ in range(2):
        carry_out(two().model_copy(update={"expected_s": 60.0}), path, cache_dir, {}, clock=Standing(now), until_ns=now)
    first, _, second, _ = nights.events(path)
    assert first.event == "experiment_started"
    assert isinstance(second, Resumed)
    assert (second.pid, second.version) == (os.getpid(), version("agentload"))


def test_a_scenario_of_a_server_that_cannot_be_is_refused_before_anything_is_written(
    cache_dir: Path, tmp_path: Path
) -> None:
    design = nights.restarts({"kind": "twin", "sets": {}}, nights.twin(128))
    with pytest.raises(UsageError, match=r"^design.json: variant A: server.sets: there is no such key"):
        carry_out(design, tmp_path / "night", cache_dir, {})
    assert not (tmp_path / "night" / "journal.jsonl").exists()
