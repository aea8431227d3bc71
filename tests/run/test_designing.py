"""Is the design the order that the protocol asks for, can two be told apart, and what is foretold of one?"""

from typing import Any

import pytest

from agentload.artifacts.design import Design, ExperimentDir
from agentload.run import designing, experiment, experiment_file, foretelling
from agentload.run.foretelling import Expected

TWIN = {"scenario": {"server": {"kind": "twin"}}, "vary": {"mixed_prefill_quantum": [2048, 128]}}
REQUEST = {"scenario": {"server": {"kind": "twin"}}, "vary": {"request.reasoning_effort": ["high", "low"]}}
SWEEP = {"scenario": {"server": {"kind": "twin"}}, "vary": {"mixed_prefill_quantum": [2048, 512, 128]}}


def designed(fields: dict[str, Any], **more: Any) -> Design:
    return designing.design(experiment_file.from_fields(fields | more), expected_s=None)


def launched(**limits: Any) -> dict[str, Any]:
    scenario = {
        "agents": 2,
        "stagger_s": 10.0,
        "limits": limits,
        "server": {"launch": "ds4-server --port {port} -c {q}"},
    }
    return {"scenario": scenario, "vary": {"q": [32768, 65536]}, "repeats": 2}


def order(planned: Design) -> str:
    return "".join(step.variant for step in planned.steps)


def test_two_values_run_in_reversed_blocks_each_start_a_run_of_its_own() -> None:
    planned = designed(TWIN, repeats=2)
    assert order(planned) in ("ABBA", "BAAB")  # the seed decides which
    assert {order(designed(TWIN, repeats=2, seed=seed)) for seed in range(20)} == {"ABBA", "BAAB"}
    assert [step.run for step in planned.steps] == [f"0{index + 1}-{name}" for index, name in enumerate(order(planned))]
    assert [(step.boot, step.segment) for step in planned.steps] == [(0, None), (1, None), (2, None), (3, None)]
    assert (planned.kind, planned.sets, planned.repeats, planned.simulated) == ("restart", 1, 2, True)


def test_three_starts_of_each_are_the_standard_and_one_for_request_parameters() -> None:
    assert (designed(TWIN).repeats, len(designed(TWIN).steps)) == (3, 6)
    assert (designed(REQUEST).repeats, designed(REQUEST).sets, len(designed(REQUEST).steps)) == (1, 3, 6)


def test_request_parameters_alternate_inside_one_start_as_segments_of_one_run() -> None:
    planned = designed(REQUEST, repeats=2, sets=2)
    assert [(step.run, step.segment) for step in planned.steps] == [
        *(("01", f"s{number}") for number in (1, 2, 3, 4)),
        *(("02", f"s{number}") for number in (1, 2, 3, 4)),
    ]
    # Four blocks over two starts: A B B A, then B A A B (or with A and B in each other's place).
    assert order(planned) in ("ABBABAAB", "BAABABBA")
    assert [one.request for one in planned.variants] == [{"reasoning_effort": "high"}, {"reasoning_effort": "low"}]


def test_three_values_run_in_rounds_that_rotate() -> None:
    planned = designed(SWEEP, repeats=3)
    rounds = [order(planned)[start : start + 3] for start in (0, 3, 6)]
    assert all(sorted(one) == ["A", "B", "C"] for one in rounds)
    assert all(sorted(one[place] for one in rounds) == ["A", "B", "C"] for place in range(3))


def test_numbers_of_runs_have_as_many_digits_as_the_last() -> None:
    assert designed(TWIN, repeats=50).steps[0].run.startswith("001-")
    assert designed(TWIN, repeats=49).steps[0].run.startswith("01-")


def test_a_design_is_the_same_when_it_is_read_from_its_file(tmp_path: Any) -> None:
    fields = launched(wall_s=60.0) | {"proof": [{"setting": "a", "line": "a=(\\d+)"}], "cooldown_s": 3}
    planned = designing.design(experiment_file.from_fields(fields), expected_s=12.5)
    folder = ExperimentDir(tmp_path)
    folder.write_design(planned)
    assert folder.read_design() == planned


def test_the_scenario_of_a_step_is_the_one_that_was_asked_for() -> None:
    planned = designed(launched(wall_s=60.0))
    steps = experiment.planned_runs(planned)["01-" + planned.steps[0].variant]
    found = experiment.scenario_of(planned, steps)
    given = experiment_file.from_fields(launched(wall_s=60.0)).scenario
    assert (found.agents, found.stagger_s, found.condition) == (2, 10.0, planned.steps[0].variant)
    assert found.limits is not None
    assert given.limits is not None
    assert (
        found.limits.model_dump(exclude_unset=True) == given.limits.model_dump(exclude_unset=True) == {"wall_s": 60.0}
    )


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, []),
        ({"name": "another"}, []),
        (
            {"vary": {"mixed_prefill_quantum": [1024, 128]}},
            ["mixed_prefill_quantum=2048,128 there, mixed_prefill_quantum=1024,128 here"],
        ),
        ({"vary": {"ctx": [65536, 32768]}}, ["mixed_prefill_quantum=2048,128 there, ctx=65536,32768 here"]),
        ({"repeats": 4, "seed": 1}, ["seed 0 there, 1 here", "repeats 3 there, 4 here"]),
        ({"metric": "ttft_s"}, ["metric prefill_tok_s there, ttft_s here"]),
        ({"cooldown_s": 5}, ["cooldown_s 0.0 there, 5.0 here"]),
        (
            {"scenario": {"server": {"kind": "twin", "set": {"ctx": 65536}}}},
            ["server.set.ctx nothing there, 65536 here"],
        ),
        ({"scenario": {"agents": 2, "server": {"kind": "twin"}}}, ["agents 3 there, 2 here"]),
        ({"proof": [{"setting": "a", "line": "(a)"}]}, ["proofs there is not as here"]),
    ],
)
def test_another_design_is_told_by_what_differs(fields: dict[str, Any], said: list[str]) -> None:
    assert designing.differences(designed(TWIN), designed(TWIN | fields)) == said


def test_another_command_behind_the_same_values_is_told() -> None:
    other = launched()
    other["scenario"] = other["scenario"] | {"server": {"launch": "other-server --port {port} -c {q}"}}
    (first, *_) = designing.differences(designed(launched()), designed(other))
    assert first == "server.launch ds4-server --port {port} -c 32768 there, other-server --port {port} -c 32768 here"


def test_what_was_foretold_makes_no_other_design() -> None:
    planned = designed(TWIN)
    later = planned.model_copy(update={"expected_s": 7.0, "name": "renamed"})
    assert designing.differences(planned, later) == []
    assert designing.digest(planned) == designing.digest(later)
    assert designing.digest(planned) != designing.digest(designed(TWIN, seed=1))


def test_a_launched_experiment_takes_at_most_its_starts_and_the_agents_limit() -> None:
    """4 starts: up to 300 s each, a warm-up of 2 x 2 pairs at up to 10 s, 600 s of wall and 10 s of stagger."""
    planned = designed(launched(wall_s=600.0, tool_calls=10) | {"cooldown_s": 5})
    told = foretelling.expected(planned)
    assert told.high_s == 4 * (300 + 4 * 10 + 600 + 10) + 3 * 5
    # 10 s, 4 x 0.5 s, and 10 calls at 20 s with the stagger.
    assert told.low_s == 4 * (10 + 4 * 0.5 + 10 * 20 + 10) + 3 * 5
    assert told.middle_s == (told.low_s + told.high_s) / 2
    assert "the agents' limit of 10 min (--wall) is an upper bound" in told.basis


def test_an_embedded_run_takes_about_8_minutes_or_less_when_its_limit_is_less() -> None:
    scenario = {"server": {"args": ["-ub", "{q}"]}, "warmup": {"concurrency": [1]}}
    fields = {"scenario": scenario, "vary": {"q": [512, 8]}, "repeats": 1}
    assert foretelling.expected(designed(fields)).high_s == 2 * (60 + 40 + 480)
    scenario["limits"] = {"wall_s": 60.0}
    assert foretelling.expected(designed(fields)).high_s == 2 * (60 + 40 + 60 + 30)


def test_a_server_that_runs_already_has_no_start_and_segments_add_up() -> None:
    scenario = {
        "agents": 1,
        "warmup": {},
        "limits": {"wall_s": 100.0},
        "server": {"base_url": "http://127.0.0.1:1/v1"},
    }
    fields = {"scenario": scenario, "vary": {"request.reasoning_effort": ["high", "low"]}}
    assert foretelling.expected(designed(fields)).high_s == 10 + 6 * 100


def test_a_twin_takes_seconds_in_either_workload() -> None:
    agents = foretelling.expected(designed(TWIN))
    assert (agents.low_s, agents.high_s) == pytest.approx((6 * 3 * 0.8, 6 * 3 * 6.0))
    fixed = foretelling.expected(designed(TWIN | {"workload": "fixed"}))
    assert fixed.high_s < agents.high_s


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "0 s"), (119, "119 s"), (120, "2 min"), (7199, "120 min"), (7200, "2.0 h"), (86_400, "24.0 h")],
)
def test_a_duration_is_said_as_people_say_it(seconds: float, said: str) -> None:
    assert foretelling.duration(seconds) == said


def test_the_plan_says_order_proofs_what_a_verdict_needs_and_how_long_it_takes() -> None:
    planned = designed(TWIN, repeats=3)
    lines = foretelling.plan(planned, Expected(60, 600, "as long as it takes"), ["mind the gap"])
    assert lines[0] == (
        "experiment: SIMULATED; mixed_prefill_quantum=2048,128; A is mixed_prefill_quantum=2048, "
        "B is mixed_prefill_quantum=128; workload agents, seed 0"
    )
    assert lines[1] == (
        f"order: {' '.join(order(planned))}: 6 starts of the server, each with a fresh process, 3 of each variant"
    )
    assert lines[2] == "settings that must be proven at each start: mixed_prefill_quantum = 2048 (A), 128 (B)"
    assert lines[3] == "WARNING: mind the gap"
    # PROTOCOL section 4: c(3) = 0.55; false claims about 2 %, and 10 % by disjoint ranges alone.
    assert "on prefill_tok_s; 3 starts a side" in lines[4]
    assert "a gap of 0.55 times the wider range; equals are called distinguished in 2." in lines[4]
    assert lines[4].endswith("(disjoint ranges alone: 10.0%)")
    assert lines[5] == "expected: 60 s to 10 min (as long as it takes)"


def test_the_plan_says_that_one_start_a_side_gives_no_verdict() -> None:
    lines = foretelling.plan(designed(TWIN, repeats=1), Expected(1, 1, "x"))
    assert "verdict: none can come of one of the starts a side: a range needs two; give --repeat 3" in lines
    assert lines[-1] == "expected: 1 s (x)"


def test_the_plan_of_request_parameters_says_that_restarts_stay_out_and_of_a_sweep_how_many_pairs() -> None:
    said = "\n".join(foretelling.plan(designed(REQUEST), Expected(1, 2, "x")))
    assert "alternating inside one start (3 sets): request parameters need no restart" in said
    assert "proven at each start: none, they travel with each request" in said
    assert "3 segments a side" in said
    assert "and here are 3 pairs" in "\n".join(foretelling.plan(designed(SWEEP), Expected(1, 2, "x")))


def test_an_experiment_that_nobody_named_is_named_by_time_and_chance_and_a_simulated_one_by_its_design() -> None:
    simulated = designed(TWIN)
    assert designing.name_of(simulated, "2026", "3f2a") == f"ab-{designing.digest(simulated)}"
    assert designing.name_of(designed(launched()), "2026-11-29T131204Z", "3f2a") == "2026-11-29T131204Z-ab-3f2a"
