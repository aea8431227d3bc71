"""Does a run with the simulated server leave what a real one leaves, the same each time, and is its account true?

Real git, sandbox, tools and corpus; server, model and time are simulated.
"""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import polars as pl
import pytest

from agentload.agents import workspace
from agentload.analysis import account as accounts
from agentload.analysis.truth import TRUTH
from agentload.artifacts.rundir import RunDir
from agentload.core import markers
from agentload.errors import ArtifactError, UsageError
from agentload.report import terminal
from agentload.run import runner, scenario
from agentload.run.twinned import EPOCH_NS, READY_NS, TwinLog
from agentload.twin import truth
from agentload.twin.events import LogWrite, Request
from agentload.twin.virtual_clock import VirtualClock
from tests.confined import UNCOMPILED
from tests.run.runs import AGENTLOAD, Made, environment, make, only_run
from tests.twin.worlds import only

MS = 1_000_000
SECOND = 1_000_000_000


def twin(**fields: Any) -> dict[str, Any]:
    """Three agents on the tiny corpus, 15 s apart, with at most 12 tool calls each."""
    server = {"kind": "twin", **fields.pop("server", {})}
    return {"corpus": "tiny", "seed": 7, "server": server, "limits": {"tool_calls": 12}, **fields}


def truths(run: RunDir) -> list[Request]:
    with (run.path / TRUTH).open(encoding="utf-8") as lines:
        return only(Request, truth.read(lines)[1])


def rows(run: RunDir) -> list[dict[str, Any]]:
    return pl.read_parquet(run.derived / "requests.parquet").to_dicts()


@pytest.fixture(scope="module")
def made(cache_dir: Path, tiny: workspace.Repository, tmp_path_factory: pytest.TempPathFactory) -> Made:
    done = anyio.run(make, tmp_path_factory.mktemp("runs"), cache_dir, twin())
    accounts.account(done.run.path)
    return done


def contents(run: RunDir) -> dict[str, bytes]:
    """Every file of a run but the manifest, whose block of host facts and versions is no part of what is compared."""
    files = sorted(path for path in run.path.rglob("*") if path.is_file() and path != run.manifest_path)
    return {path.relative_to(run.path).as_posix(): path.read_bytes() for path in files}


def test_the_run_directory_has_all_that_a_real_run_has_and_the_truth(made: Made) -> None:
    assert [name for name in contents(made.run) if not name.startswith("derived")] == [
        *(f"agents/a{number}/messages.jsonl" for number in range(3)),
        "events.jsonl",
        "markers.jsonl",
        "scenario.toml",
        "server.log",
        "server.log.times",
        "truth.jsonl",
    ]
    assert made.run.name.startswith("2026-01-01T000000Z-run-")


def test_every_surface_says_that_it_is_simulated(made: Made) -> None:
    manifest = made.run.read_manifest()
    account = json.loads((made.run.derived / "account.json").read_bytes())
    first = json.loads((made.run.path / TRUTH).read_text(encoding="utf-8").partition("\n")[0])
    assert (manifest.simulated, account["simulated"], first["simulated"]) == (True, True, True)
    assert manifest.server["kind"] == account["server"]["kind"] == "twin"
    assert account["server"]["base_url"] == "simulated:m3-ultra"
    assert terminal.render(account).startswith("SIMULATED ")
    assert made.said[0] == "server: --server twin: everything is SIMULATED, no server runs"


def test_the_same_scenario_gives_the_same_bytes_and_another_seed_other_work(
    made: Made, cache_dir: Path, tmp_path: Path
) -> None:
    again = anyio.run(make, tmp_path / "again", cache_dir, twin())
    accounts.account(again.run.path)
    assert again.run.name == made.run.name
    assert contents(again.run) == contents(made.run)
    first, second = (one.run.read_manifest().dump() for one in (made, again))
    for block in ("host", "versions"):
        del first[block], second[block]
    assert first == second

    other = anyio.run(make, tmp_path / "other", cache_dir, twin(seed=8))
    assert other.run.name != made.run.name
    calls = [[one["call"] for one in run.events("tool_started")] for run in (made, other)]
    assert not set(calls[0]) & set(calls[1])


def test_a_quantum_changes_the_times_and_no_word_of_what_the_agents_do(
    made: Made, cache_dir: Path, tmp_path: Path
) -> None:
    other = anyio.run(make, tmp_path, cache_dir, twin(server={"set": {"mixed_prefill_quantum": 2048}, "boot": 1}))

    def words(run: Made) -> list[list[Any]]:
        return [
            [one["message"].get("content") for one in run.history(f"a{number}") if one["event"] == "message"]
            for number in range(3)
        ]

    assert words(other) == words(made)
    end, faster = made.markers()[1]["t"], other.markers()[1]["t"]
    assert faster < end
    assert b" mixed_prefill_quantum=2048 " in other.run.server_log.read_bytes()


def test_nothing_of_this_machine_stands_in_what_the_agents_read(made: Made) -> None:
    for number in range(3):
        text = made.run.messages_path(f"a{number}").read_text(encoding="utf-8")
        assert "/agentload-" not in text  # the temporary folder
        assert str(made.run.path) not in text


def test_a_second_run_of_the_same_scenario_into_the_same_folder_is_refused(made: Made, cache_dir: Path) -> None:
    with pytest.raises(ArtifactError, match=r"expected nothing there: this very scenario was run.*change --seed"):
        anyio.run(make, made.run.path.parent, cache_dir, twin())


def test_every_request_is_matched_with_the_log_and_counted_as_the_truth_has_it(made: Made) -> None:
    by_name = {one.request: one for one in truths(made.run)}
    found = rows(made.run)
    assert len(found) == len(by_name) == 3 * 13
    for row in found:
        true = by_name[row["request"]]
        assert row["match"] in ("exact", "unique")
        counted = [row[name] for name in ("prompt_tokens", "cached_tokens", "new_prefill_tokens", "decoded_tokens")]
        assert counted == [true.prompt_tokens, true.cached_tokens, true.new_prefill_tokens, true.decoded_tokens]
        assert true.prefill_start_ns is not None
        assert true.prefill_end_ns is not None
        assert true.decode_end_ns is not None
        # The log tells durations to the millisecond, the end of decode by two of them, and a line has its stamp some us
        # after what it tells of.
        assert abs(row["prefill_start"] - true.prefill_start_ns) <= MS
        assert abs(row["prefill_end"] - true.prefill_end_ns) <= MS
        assert abs(row["decode_end"] - true.decode_end_ns) <= 2 * MS


def test_the_account_has_no_doubt_and_every_line_of_the_log_is_understood(made: Made) -> None:
    account = json.loads((made.run.derived / "account.json").read_bytes())
    assert made.run.read_manifest().status == account["status"] == "success"
    assert account["doubts"] == []
    assert account["lines"]["unknown"] == 0
    assert account["usage_check"]["decoded_tokens"]["remainder"] == 0
    (segment,) = account["segments"]
    assert (segment["straddles_begin"], segment["straddles_end"]) == ([], [])
    assert segment["whole"]["requests"] == len(truths(made.run))


def test_each_line_of_the_log_has_a_stamp_that_never_steps_back_and_markers_stand_between(made: Made) -> None:
    log = made.run.server_log.read_bytes()
    stamps = [int(one) for one in made.run.server_times.read_text(encoding="ascii").split()]
    lines = log.split(b"\n")
    assert lines.pop() == b""
    assert len(stamps) == len(lines)
    assert stamps == sorted(stamps)
    marked = [(number, line) for number, line in enumerate(lines) if b" agentload: segment " in line]
    read = [markers.parse(line, None) for _, line in marked]
    for written, one, (number, line) in zip(made.markers(), read, marked, strict=True):
        assert one is not None
        assert (one.action, one.at_ns, one.run) == (written["action"], written["t"], made.run.name)
        assert stamps[number] == one.at_ns
        assert log[written["offset"] :].startswith(line)
        assert written["inode"] is None
    assert made.markers()[0]["t"] == EPOCH_NS + READY_NS
    # All that comes after the end marker is the server's own end.
    assert len(lines) - 1 - marked[1][0] == 1
    assert lines[-1].endswith(b"ds4-server: shutdown requested, draining requests")


def test_a_tool_takes_a_time_that_was_drawn_and_agents_start_15_s_apart(made: Made) -> None:
    started = {(one["agent"], one["call"]): one["t"] for one in made.events("tool_started")}
    took = [one["t"] - started[one["agent"], one["call"]] for one in made.events("tool_done")]
    assert 0.5 * SECOND < sorted(took)[len(took) // 2] < 2 * SECOND  # the median of the draws is 1 s
    begin = made.markers()[0]["t"]
    assert [one["t"] - begin for one in made.events("agent_started")] == [5 * MS, 15 * SECOND, 30 * SECOND]


def test_32_agents_on_6_slots_all_end_with_queueing_in_sight_and_every_request_accounted_for(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    limits = {"tool_calls": 1, "min_tool_calls": 0, "min_growth_tokens": 0, "answer_tokens": 1000, "final_tokens": 300}
    made = anyio.run(make, tmp_path, cache_dir, twin(agents=32, stagger_s=1, limits=limits))
    account = accounts.account(made.run.path)
    true = truths(made.run)
    assert made.run.read_manifest().status == "success"
    assert {one["end"] for one in account["agents"]} == {"wrapped_up"}
    assert len(true) == len(rows(made.run)) == 32 * 2
    assert all(row["match"] in ("exact", "unique") for row in rows(made.run))
    # No more than six are at work at once, and many a one waited for a slot: longer than a whole answer takes.
    spans = [(one.slot_ns, one.end_ns) for one in true if one.slot_ns is not None]
    assert max(sum(begin <= at < end for begin, end in spans) for at, _ in spans) == 6
    waits = sorted(one.slot_ns - one.arrival_ns for one in true if one.slot_ns is not None)
    assert waits[0] == 0
    assert waits[len(waits) // 2] > 10 * SECOND
    # What the client sees of it: its answers take as much longer than the server worked.
    by_name = {one.request: one for one in true}
    for row in rows(made.run):
        one = by_name[row["request"]]
        assert one.slot_ns is not None
        assert row["t_done"] - row["t_sent"] >= one.slot_ns - one.arrival_ns


def test_an_agent_whose_time_is_over_is_cut_off_in_virtual_time(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    limits = {"wall_s": 60.0, "min_tool_calls": 0, "min_growth_tokens": 0}
    made = anyio.run(make, tmp_path, cache_dir, twin(agents=2, limits=limits))
    manifest = made.run.read_manifest()
    begin = made.markers()[0]["t"]
    ended = {one["agent"]: one["t"] for one in made.events("agent_done")}
    assert [one["end"] for one in manifest.agents] == ["out_of_time", "out_of_time"]
    assert ended == {"a0": begin + 60 * SECOND + 5 * MS, "a1": begin + 75 * SECOND}
    # The end marker waited for what the server had still to do with the cut requests: up to 100 ms, and a step of it.
    assert made.markers()[1]["t"] - ended["a1"] < 11 * SECOND
    assert {one.finish for one in truths(made.run)} <= {"tool_calls", "cancelled"}
    accounts.account(made.run.path)


def test_a_run_that_is_cancelled_ends_soon_and_says_so(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    async def go() -> None:
        with anyio.CancelScope() as scope:

            def say(line: str) -> None:
                if line == "a1 started":
                    scope.cancel()

            await runner.run(scenario.from_fields(twin(), ""), tmp_path, environment(cache_dir), say)

    anyio.run(go)
    run = only_run(tmp_path)
    manifest = run.read_manifest()
    assert (manifest.status, manifest.simulated) == ("cancelled", True)
    assert [one["end"] for one in manifest.agents] == ["cancelled"] * 3
    assert accounts.account(run.path)["status"] == "cancelled"


def test_without_native_tool_calls_or_with_a_real_server_beside_it_the_twin_is_refused() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        (twin(protocol="json"), r"protocol: the twin's model only makes native tool calls, got 'json'"),
        (twin(server={"base_url": "http://127.0.0.1:1/v1"}), r"server\.base_url: the twin is simulated, and no server"),
        (twin(server={"launch": "ds4-server"}), r"server\.launch: the twin is simulated"),
        (
            twin(server={"set": {"mixed_prefil_quantum": 128}}),
            r"^server\.set\.mixed_prefil_quantum: .* no option 'mixed_prefil_quantum': expected mixed_prefill_quantum",
        ),
        (twin(server={"set": {"ctx": "many"}}), r"^server\.set\.ctx: .* got 'many'"),
        (
            {"server": {"base_url": "http://127.0.0.1:1/v1", "kind": "endpoint", "boot": 1}},
            r"server\.profile, server\.set, server\.boot: expected the twin",
        ),
    ]
    for fields, message in cases:
        with pytest.raises(UsageError, match=message):
            scenario.resolve(scenario.from_fields(fields, ""))


@pytest.mark.parametrize(
    ("server", "message"),
    [
        ({"profile": "m4"}, r"no profile named 'm4': there is m3-ultra, m3-ultra-agents"),
        ({"model": "gpt"}, r"--model: the simulated server has scripted, .*, got 'gpt'"),
    ],
)
def test_a_profile_or_a_model_that_is_not_there_is_told_before_anything_is_made(
    server: dict[str, str], message: str, cache_dir: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=message):
        anyio.run(make, tmp_path / "runs", cache_dir, twin(server=server))
    assert not (tmp_path / "runs").exists()


def test_a_twins_scenario_is_resolved_with_its_options_typed_and_is_the_same_when_resolved_again() -> None:
    once = scenario.resolve(scenario.from_fields({"server": {"kind": "twin", "set": {"ctx": "65536"}}}, ""))
    assert (once.server.profile, once.server.model, once.server.boot) == ("m3-ultra", "scripted-field-report", 0)
    assert once.server.set == {"ctx": 65536}
    assert (once.corpus, once.known_paths, once.temperature) == ("standard", False, None)
    assert scenario.resolve(scenario.from_fields(once.dump(), "")) == once


def log_files(folder: Path) -> tuple[Path, Path, Path]:
    return folder / "log", folder / "times", folder / "truth"


def clocked(act: Callable[[VirtualClock], None]) -> None:
    async def go() -> None:
        act(VirtualClock(50))

    anyio.run(go)


def test_a_log_writes_whole_lines_with_the_time_at_which_each_was_whole(tmp_path: Path) -> None:
    def act(clock: VirtualClock) -> None:
        log = TwinLog(*log_files(tmp_path), "{}", clock)
        log.take([LogWrite(10, b"0101 00:00:00 "), LogWrite(12, b"ds4-server: a"), LogWrite(14, b"\n")])
        assert log.write_marker(b"marker") == 28
        log.take([LogWrite(60, b"ds4: b\n")])
        log.close()

    clocked(act)
    files = [path.read_bytes() for path in log_files(tmp_path)]
    assert files == [b"0101 00:00:00 ds4-server: a\nmarker\nds4: b\n", b"14\n50\n60\n", b"{}\n"]


TOO_LARGE = """
import resource
from pathlib import Path
from agentload.errors import ArtifactError
from agentload.run.twinned import TwinLog
from agentload.twin.virtual_clock import VirtualClock

resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
log = TwinLog(Path("log"), Path("times"), Path("truth"), "t" * 10_001, VirtualClock(50))
try:
    log.write_marker(b"marker")
except ArtifactError as error:
    print(error)
"""


def test_what_cannot_be_written_is_named_and_not_the_log(tmp_path: Path) -> None:
    done = subprocess.run(
        [*UNCOMPILED, "-c", TOO_LARGE], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600
    )
    assert (done.stderr, done.stdout) == ("", "truth: marker cannot be written: File too large\n")
    assert [(tmp_path / name).stat().st_size for name in ("log", "truth")] == [0, 10_000]


def test_a_run_whose_truth_is_above_the_limit_of_a_files_size_names_it(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    """At 200 or 400 kB, by the shell: the truth of this run has 490 kB, its events 80, everything else less."""
    asked = ("--server", "twin", "--corpus", "tiny", "--agents", "1", "--tool-calls", "3", "--out", str(tmp_path))
    done = subprocess.run(
        ["sh", "-c", 'ulimit -S -f 400; exec "$@"', "sh", *AGENTLOAD, "run", *asked],
        env=environment(cache_dir),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    manifest = only_run(tmp_path).read_manifest()
    assert (manifest.status, manifest.why) == ("partial", "truth.jsonl could not be written: File too large"), done


def test_a_log_that_cannot_be_written_keeps_why_and_takes_no_marker(tmp_path: Path) -> None:
    def act(clock: VirtualClock) -> None:
        log = TwinLog(*log_files(tmp_path), "{}", clock)
        log.close()  # a closed file refuses every byte, as a full disk does
        log.take([LogWrite(10, b"line\n")])
        assert log.failure is not None
        with pytest.raises(ArtifactError, match="log: marker cannot be written: "):
            log.write_marker(b"marker")

    clocked(act)
    with pytest.raises(ArtifactError, match="log: cannot be created: File exists"):
        clocked(lambda clock: TwinLog(*log_files(tmp_path), "{}", clock).close())
