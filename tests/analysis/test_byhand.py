"""Do runs that were made by hand say what the same runs of an experiment say, and are unlike ones refused?"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agentload.analysis import byhand, compare
from agentload.artifacts.design import ExperimentDir
from agentload.artifacts.rundir import RunDir
from agentload.errors import InputError
from tests.analysis.experiments import Ran, beside, design, ds4_log, whole, work, write
from tests.program import program

# Prefill speed: 1,000 tokens in 5 s and in 5.05 s at quantum 2048, in 10 s and 10.1 s at 128.
BUSY_S = {"01-A": (2048, 5.0), "02-B": (128, 10.0), "03-B": (128, 10.1), "04-A": (2048, 5.05)}


def ran(quantum: int, busy_s: float, **fields: Any) -> Ran:
    requests = [*work(1000, busy_s), beside(busy_s)][:2]
    return Ran({"s1": requests}, log=ds4_log(quantum), **fields)


def four(path: Path, **fields: Any) -> ExperimentDir:
    planned = design(2048, 128)
    return whole(planned, path, {name: ran(*values, **fields) for name, values in BUSY_S.items()})


def paths(folder: ExperimentDir, *names: str) -> list[Path]:
    return [folder.runs / name for name in names or sorted(BUSY_S)]


def loose(path: Path, runs: Mapping[str, Ran]) -> list[Path]:
    """Runs that no experiment planned, one after the other."""
    folder = ExperimentDir(path)
    folder.runs.mkdir(parents=True)
    return [write(folder, name, one, position).path for position, (name, one) in enumerate(runs.items())]


def changed(path: Path, **fields: Any) -> None:
    """Change a manifest; `scenario` and `server` are added to what stands there."""
    run = RunDir(path)
    manifest = run.read_manifest()
    for name in ("scenario", "server", "corpus", "host"):
        if name in fields:
            fields[name] = getattr(manifest, name) | fields[name]
    run.write_manifest(manifest.model_copy(update=fields))


# ---- alike -----------------------------------------------------------------------------------------------------------


def test_the_sides_are_the_values_that_each_log_proves(tmp_path: Path) -> None:
    found = byhand.compared(byhand.read(paths(four(tmp_path))))
    assert (found["factor"], [one["label"] for one in found["variants"]]) == (
        "mixed_prefill_quantum",
        ["mixed_prefill_quantum=2048", "mixed_prefill_quantum=128"],
    )
    assert [(run["run"], run["variant"], run["block"]) for run in found["runs"]] == [
        *(("01-A", "A", 0), ("02-B", "B", 0), ("03-B", "B", 1), ("04-A", "A", 1)),
    ]


def test_numbers_and_verdict_are_those_of_the_same_runs_as_an_experiment(tmp_path: Path) -> None:
    folder = four(tmp_path)
    planned = compare.compare(folder)
    found = byhand.compared(byhand.read(paths(folder)))
    assert found["pairs"] == planned["pairs"]
    assert found["runs"] == planned["runs"]
    assert found["headline"] == planned["headline"]
    (pair,) = found["pairs"]
    row = pair["metrics"][0]
    assert row["first"]["values"] == pytest.approx([1000 / 5, 1000 / 5.05])
    assert row["ratio"] == pytest.approx((2000 / 10.05) / (2000 / 20.1))
    # 198.0 to 200 against 99.0 to 100: the gap 98 is 49 times the wider range 2, 3.2 is needed at 2 against 2.
    assert (row["outcome"], row["grade"]["grade"]) == ("distinguished", "confirmed")


def test_they_are_put_in_the_order_in_which_they_began(tmp_path: Path) -> None:
    folder = four(tmp_path)
    mixed = byhand.read(paths(folder, "04-A", "02-B", "01-A", "03-B"))
    assert [one.manifest.run for one in mixed] == ["01-A", "02-B", "03-B", "04-A"]


def test_an_order_that_was_never_reversed_gives_no_verdict(tmp_path: Path) -> None:
    given = loose(tmp_path, {"r1": ran(2048, 5.0), "r2": ran(2048, 5.05), "r3": ran(128, 10.0), "r4": ran(128, 10.1)})
    found = byhand.compared(byhand.read(given))
    row = found["pairs"][0]["metrics"][0]
    assert (row["outcome"], [one["code"] for one in row["refusals"]]) == ("no verdict", ["order-not-reversed"])
    assert row["forecast"]["sentence"] == (
        "no more of the same restarts: the values are apart by enough, but a doubt bars the verdict; do what it advises"
    )
    assert compare.exit_code(found) == 1


def test_of_a_server_that_agentload_did_not_start_nothing_is_confirmed(tmp_path: Path) -> None:
    found = byhand.compared(byhand.read(paths(four(tmp_path, server={"kind": "endpoint"}))))
    row = found["pairs"][0]["metrics"][0]
    assert (row["outcome"], row["grade"]["grade"]) == ("distinguished", "estimate")
    assert row["grade"]["reason"].endswith("; taking it that each run had a start of the server to itself")
    assert "restarts-not-known" in {one["code"] for one in found["doubts"]}
    assert '"grade": "confirmed"' not in json.dumps(found)


def test_that_nobody_planned_them_is_said(tmp_path: Path) -> None:
    found = byhand.compared(byhand.read(paths(four(tmp_path))))
    assert found["doubts"][0]["code"] == "made-by-hand"


def test_without_a_setting_that_differs_request_parameters_are_the_sides(tmp_path: Path) -> None:
    given = loose(tmp_path, {"r1": ran(128, 5.0), "r2": ran(128, 5.0)})
    changed(given[1], scenario={"request": {"think": False}})
    found = byhand.compared(byhand.read(given))
    assert [one["label"] for one in found["variants"]] == ["request.think=not given", "request.think=False"]


def test_without_those_the_condition_that_each_run_was_given_is(tmp_path: Path) -> None:
    given = loose(tmp_path, {"r1": ran(128, 5.0), "r2": ran(128, 5.0)})
    changed(given[1], scenario={"condition": "fan off"})
    found = byhand.compared(byhand.read(given))
    assert [one["label"] for one in found["variants"]] == ["condition=default", "condition=fan off"]


def test_several_settings_at_once_are_told_as_such(tmp_path: Path) -> None:
    flags = {"argv": ["ds4-server", "--mixed-prefill-quantum", "2048", "--power", "80"]}
    given = loose(tmp_path, {"r1": ran(128, 5.0), "r2": ran(2048, 5.0, server=flags)})
    found = byhand.compared(byhand.read(given))
    assert found["factor"] == "mixed_prefill_quantum, power"
    assert "several-settings" in {one["code"] for one in found["doubts"]}


def test_a_run_that_does_not_count_is_left_out_with_its_reason(tmp_path: Path) -> None:
    runs = {name: ran(*values) for name, values in BUSY_S.items()}
    runs["04-A"] = ran(*BUSY_S["04-A"], status="cancelled", why="interrupted")
    found = byhand.compared(byhand.read(loose(tmp_path, runs)))
    assert [run["valid"] for run in found["runs"]] == [True, True, True, False]
    assert found["runs"][3]["reasons"][0]["code"] == "run-cancelled"


# ---- unlike ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"corpus": {"commit": "d" * 40}}, "corpus commit: tiny cccccccccccc in r1; tiny dddddddddddd in r2"),
        ({"scenario": {"agents": 4}}, "agents: 3 in r1; 4 in r2"),
        ({"scenario": {"stagger_s": 0.0}}, "stagger_s: 15.0 in r1; 0.0 in r2"),
        ({"scenario": {"limits": {"turns": 9}}}, "limits.turns: 100 in r1; 9 in r2"),
        ({"server": {"model": "other"}}, "model: m in r1; other in r2"),
        ({"server": {"software": "llamacpp"}}, "server software: ds4 in r1; llamacpp in r2"),
        ({"host": {"cores": 8}}, "machine: x86_64, 2 cores, 16 GiB in r1; x86_64, 8 cores, 16 GiB in r2"),
        (
            {
                "server": {
                    "identity": {"binary": {"path": "/b/ds4", "size": 7, "mtime_ns": 2, "header_sha256": "b" * 64}}
                }
            },
            "server program: ds4 (7 bytes, aaaaaaaaaaaa) in r1; ds4 (7 bytes, bbbbbbbbbbbb) in r2",
        ),
    ],
)
def test_unlike_runs_are_refused_in_one_line_each(fields: dict[str, Any], said: str, tmp_path: Path) -> None:
    given = loose(tmp_path, {"r1": ran(2048, 5.0), "r2": ran(128, 10.0)})
    binary = {"path": "/a/ds4", "size": 7, "mtime_ns": 1, "header_sha256": "a" * 64}
    for path in given:
        changed(
            path,
            scenario={"agents": 3, "stagger_s": 15.0, "limits": {"turns": 100}},
            server={"model": "m", "software": "ds4", "identity": {"binary": binary}},
            host={"machine": "x86_64", "cores": 2, "memory_bytes": 16 << 30},
        )
    changed(given[1], **fields)
    for options in ((), ("--anyway",)):  # none of these is harmless
        done = program("compare", *map(str, given), *options)
        first, last = done.stderr.splitlines()
        assert (done.returncode, done.stdout, first) == (2, "", f"unlike: {said}")
        assert last == (
            "agentload: expected runs that are alike but for the setting that is compared, they differ in 1 more thing"
        )


def test_other_tasks_are_unlike_whoever_has_them(tmp_path: Path) -> None:
    agents = [[{"agent": f"a{at}", "task": task} for at, task in enumerate(tasks)] for tasks in ("xy", "yx", "xz")]
    given = loose(tmp_path, {f"r{at}": ran(128 * (at + 1), 5.0) for at in range(3)})
    manifests = [RunDir(path).read_manifest() for path in given]
    runs = byhand.read(given)
    alike = [
        byhand.ByHand(one.run, manifest.model_copy(update={"agents": each}), one.account, one.begin_ns)
        for one, manifest, each in zip(runs, manifests, agents, strict=True)
    ]
    assert byhand.differences(alike[:2]) == []
    assert [one.sentence for one in byhand.differences(alike)] == ["tasks: x, y in r0, r1; x, z in r2"]


def test_a_run_that_was_killed_is_of_the_same_simulated_machine_and_is_made_again(tmp_path: Path) -> None:
    # Its first manifest is all that it has: the profile stands in the scenario only.
    runs = loose(tmp_path, {"r1": ran(2048, 5.0), "r2": ran(128, 10.0, status="started")})
    changed(runs[0], simulated=True, server={"simulated": {"profile": "m3-ultra"}})
    changed(runs[1], simulated=True, scenario={"server": {"profile": "m3-ultra"}})
    found = byhand.read(runs)
    assert byhand.differences(found) == []
    answer = byhand.compared(found)["headline"]
    assert answer["sentence"].startswith("INCOMPLETE: no valid pair: it has not ended: its writer was killed")
    assert answer["fix"] == ["run it again, and take that run instead"]


def test_simulated_runs_stand_in_the_order_given_only_where_their_clock_is_simulated_too(tmp_path: Path) -> None:
    folder = four(tmp_path)
    backwards = paths(folder)[::-1]
    for path in backwards:  # as against `agentload twin serve`: the log alone says that it is simulated
        log = path / "server.log"
        log.write_text("ds4: simulated by agentload: no machine was measured\n" + log.read_text())
    runs = byhand.read(backwards)
    assert all(one.account["simulated"] for one in runs)
    found = byhand.compared(runs)
    assert [run["run"] for run in found["runs"]] == sorted(BUSY_S)
    assert "order-as-given" not in {one["code"] for one in found["doubts"]}
    for path in backwards:
        changed(path, simulated=True)
    found = byhand.compared(byhand.read(backwards))
    assert [run["run"] for run in found["runs"]] == sorted(BUSY_S, reverse=True)
    assert "order-as-given" in {one["code"] for one in found["doubts"]}


def test_harmless_differences_pass_with_anyway_and_are_said_with_the_result(tmp_path: Path) -> None:
    folder = four(tmp_path)
    changed(folder.runs / "04-A", scenario={"seed": 9})
    for name in ("01-A", "02-B", "03-B"):
        changed(folder.runs / name, scenario={"seed": 0})
    given = [str(path) for path in paths(folder)]
    refused = program("compare", *given)
    assert (refused.returncode, refused.stdout) == (2, "")
    first, last = refused.stderr.splitlines()
    assert first == "unlike (harmless): seed: 0 in 01-A, 02-B, 03-B; 9 in 04-A"
    assert last.endswith("they differ in 1 more thing; with --anyway each would pass")
    done = program("compare", *given, "--anyway")
    text = " ".join(done.stdout.split())
    assert (done.returncode, done.stderr) == (0, "")
    assert "let pass as harmless (--anyway): seed: 0 in 01-A, 02-B, 03-B; 9 in 04-A" in text


# ---- what cannot be compared -----------------------------------------------------------------------------------------


def test_what_nothing_tells_apart_is_refused(tmp_path: Path) -> None:
    given = loose(tmp_path, {"r1": ran(128, 5.0), "r2": ran(128, 5.0)})
    with pytest.raises(InputError, match=r"^nothing tells r1, r2 apart: no setting that is proven, .* --condition"):
        byhand.compared(byhand.read(given))


def test_one_run_and_the_same_run_twice_are_refused(tmp_path: Path) -> None:
    (path,) = loose(tmp_path, {"r1": ran(128, 5.0)})
    with pytest.raises(InputError, match="expected two runs or more, got 1"):
        byhand.read([path])
    with pytest.raises(InputError, match="expected each run once, run r1 was given before"):
        byhand.read([path, path])
    with pytest.raises(InputError, match="expected a run directory"):
        byhand.read([path, tmp_path / "none"])


def test_a_run_of_several_conditions_is_refused(tmp_path: Path) -> None:
    given = loose(tmp_path, {"r1": ran(128, 5.0), "r2": ran(2048, 5.0)})
    changed(given[0], scenario={"parts": [{"segment": "s1"}, {"segment": "s2"}]})
    with pytest.raises(InputError, match="expected a run of one part"):
        byhand.read(given)


# ---- the command -----------------------------------------------------------------------------------------------------


def test_the_command_prints_the_report_of_ab_or_json_and_writes_nothing(tmp_path: Path) -> None:
    folder = four(tmp_path)
    given = [str(path) for path in paths(folder)]
    done = program("compare", *given)
    text = " ".join(done.stdout.split())
    assert (done.returncode, done.stderr) == (0, "")
    assert text.startswith("A (mixed_prefill_quantum=2048) is faster: 2.00x the prefill speed of B")
    assert "runs made by hand: mixed_prefill_quantum, A = mixed_prefill_quantum=2048" in text
    assert 'server.log:2 "0914 12:00:00 ds4-server: batched mode enabled' in text
    as_json = program("compare", *given, "--json")
    assert json.loads(as_json.stdout) == byhand.compared(byhand.read(paths(folder)))
    assert not folder.derived.exists()


def test_another_metric_may_decide_and_an_unknown_one_is_refused(tmp_path: Path) -> None:
    folder = four(tmp_path)
    given = [str(path) for path in paths(folder)]
    other = program("compare", *given, "--metric", "decode_tok_s", "--json")
    assert json.loads(other.stdout)["metric"] == "decode_tok_s"
    wrong = program("compare", *given, "--metric", "speed")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith("agentload: --metric: ")
