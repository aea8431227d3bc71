"""Does every reason why a run does not count bar it, with the line that proves it, and nothing else?"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentload.analysis import account as accounts
from agentload.analysis import validity
from agentload.analysis.validity import Seen
from agentload.artifacts.alive import Hold
from agentload.artifacts.design import Design
from agentload.artifacts.rundir import RunDir
from agentload.core.records import Completion, Doubt
from tests.analysis.experiments import Asked, Ran, S, beside, design, ds4_log, open_folder, work, write
from tests.analysis.test_account import AGENT
from tests.analysis.test_evidence import MANIFEST, done

PLANNED = design(2048, 128)
SCHEDULER = (
    "0914 12:00:00 ds4-server: batched mode enabled resident_sessions=6 prefill_quantum=2048 mixed_prefill_quantum={} "
    "decode_coalesce_us=2000"
)
GOOD = Ran({"s1": work(10_000, 40.0)}, ds4_log(2048))
LLAMA = "0.00.003.799 I srv          init: initializing ...\n0.00.469.031 I srv          init: listening on http://x\n"


def reasons(tmp_path: Path, ran: Ran, planned: Design = PLANNED, variant: str = "A") -> list[Doubt]:
    step = next(one for one in planned.steps if one.variant == variant)
    run = write(open_folder(tmp_path / "exp", planned), step.run, ran, step.position)
    return validity.reasons(accounts.account(run.path), run, planned, step)


def only(found: Sequence[Doubt], code: str) -> Doubt:
    """The only reason there is."""
    assert [one.code for one in found] == [code]
    return found[0]


def test_a_run_with_the_server_that_was_asked_for_counts(tmp_path: Path) -> None:
    assert reasons(tmp_path, GOOD) == []


# ---- settings --------------------------------------------------------------------------------------------------------


def test_another_value_in_force_is_a_mismatch_and_its_line_is_quoted(tmp_path: Path) -> None:
    found = only(reasons(tmp_path, replace(GOOD, log=ds4_log(128))), "setting-mismatch")
    assert found.message == (
        f'mixed_prefill_quantum: 2048 was asked for, in force is 128 (server.log:2: "{SCHEDULER.format(128)}")'
    )


def test_a_flag_that_a_wrapper_gives_twice_is_named_with_both_values_and_the_line(tmp_path: Path) -> None:
    argv = ["ds4-server", "--mixed-prefill-quantum", "2048", "--mixed-prefill-quantum", "128"]
    server = {"argv": ["./serve.sh"], "commands": [{"pid": 77, "argv": argv, "serves": True}]}
    found = only(reasons(tmp_path, replace(GOOD, log=ds4_log(128), server=server)), "setting-duplicate")
    assert "mixed_prefill_quantum was given more than once, in force is 128" in found.message
    assert "2048, 128 in pid 77 argv" in found.message
    assert f'"{SCHEDULER.format(128)}"' in found.message
    assert found.advice.startswith("give it once")


def test_a_setting_under_test_that_nothing_proves_is_unreadable(tmp_path: Path) -> None:
    planned = design(4, 8, setting="threads")
    found = only(reasons(tmp_path, GOOD, planned), "setting-unreadable")
    assert found.message == "threads: 4 was asked for, and neither log, API nor behaviour proves it"
    assert "[[proof]]" in found.advice


def test_one_that_is_not_under_test_may_be_unproven(tmp_path: Path) -> None:
    server = {"argv": ["ds4-server", "--threads", "8", "--mixed-prefill-quantum", "2048"]}
    assert reasons(tmp_path, replace(GOOD, server=server)) == []


@pytest.mark.parametrize(("told", "code"), [("4", None), ("8", "setting-mismatch")])
def test_the_designs_own_pattern_proves_a_setting_that_no_profile_knows(
    told: str, code: str | None, tmp_path: Path
) -> None:
    planned = design(4, 8, setting="threads", proofs=({"setting": "threads", "line": r"using (\d+) threads"},))
    log = ds4_log(2048) + "using 2 threads\n" + f"using {told} threads\n"  # the last one counts
    found = reasons(tmp_path, replace(GOOD, log=log), planned)
    assert [one.code for one in found] == ([] if code is None else [code])
    if code is not None:
        assert found[0].message == 'threads: 4 was asked for, in force is 8 (server.log:5: "using 8 threads")'


def test_the_api_proves_what_no_line_of_a_server_without_a_reader_can(tmp_path: Path) -> None:
    planned = design(2, 3, setting="n_slots")
    server = {"argv": ["llama-server"], "software": "llamacpp", "api": {"GET /props": {"total_slots": 2}}}
    ran = replace(GOOD, log=LLAMA, server=server)
    assert reasons(tmp_path, ran, planned) == []
    found = only(reasons(tmp_path / "b", ran, planned, "B"), "setting-mismatch")
    assert "n_slots: 3 was asked for, in force is 2 (GET /props total_slots)" in found.message


@pytest.mark.parametrize(
    ("asked", "cached", "valid"), [(False, 0, True), (False, 40, False), (True, 40, True), (True, 0, False)]
)
def test_prompt_caching_is_proven_by_the_cached_tokens_of_later_turns(
    *, asked: bool, cached: int, valid: bool, tmp_path: Path
) -> None:
    planned = design(asked, not asked, setting="cache_prompt")
    flags = [] if asked else ["--no-cache-prompt"]
    requests = [Asked("a0", 0), Asked("a0", 1, 5.0, cached=cached), Asked("a0", 2, 10.0, cached=0)]
    ran = Ran({"s1": requests}, LLAMA, server={"argv": ["llama-server", *flags], "software": "llamacpp"})
    found = reasons(tmp_path, ran, planned)
    if valid:
        assert found == []
    else:
        used = 1 if cached else 0
        assert f"(behaviour: {used} of 2 later turns reused cached tokens)" in only(found, "setting-mismatch").message


@pytest.mark.parametrize("carried", ["high", "low", None])
def test_a_request_parameter_must_be_in_every_request(carried: str | None, tmp_path: Path) -> None:
    names = ({"name": one, "label": one, "scenario": {}, "expected": {}, "request": {"effort": one}} for one in "AB")
    wanted = tuple({**one, "request": {"effort": "high"}} if one["name"] == "A" else one for one in names)
    planned = design(variants=wanted, setting="effort", kind="request", repeats=1, sets=2)
    first = next(one for one in planned.steps if one.variant == "A")
    sent = {"a0": {"other": 1} if carried is None else {"effort": carried}}
    ran = replace(GOOD, segments={str(first.segment): work(10_000, 40.0)}, sent=sent)
    found = reasons(tmp_path, ran, planned)
    assert [one.code for one in found] == ([] if carried == "high" else ["setting-mismatch"])


# ---- the server ------------------------------------------------------------------------------------------------------


def test_a_server_that_starts_again_between_the_markers_is_named_by_its_line(tmp_path: Path) -> None:
    step = PLANNED.steps[0]
    log = ds4_log(2048)
    again = ds4_log(2048)
    folder = open_folder(tmp_path / "exp", PLANNED)
    run = write(folder, step.run, replace(GOOD, log=log + again), 0)
    text = run.markers_path.read_text(encoding="utf-8")
    begin, end = len(log.encode()), len((log + again).encode())
    told = text.replace('"offset":null', f'"offset":{begin}', 1).replace('"offset":null', f'"offset":{end}', 1)
    run.markers_path.write_text(told, encoding="utf-8")
    account = accounts.account(run.path)
    assert account["server_starts"] == [4]
    found = only(validity.reasons(account, run, PLANNED, step), "restart-in-mid-run")
    assert '(server.log:4: "0914 12:00:00 ds4-server: context buffers' in found.message


def test_a_start_before_the_markers_is_none(tmp_path: Path) -> None:
    step = PLANNED.steps[0]
    log = ds4_log(128) + ds4_log(2048)
    run = write(open_folder(tmp_path / "exp", PLANNED), step.run, replace(GOOD, log=log), 0)
    offset = len(log.encode())
    text = run.markers_path.read_text(encoding="utf-8").replace('"offset":null', f'"offset":{offset}')
    run.markers_path.write_text(text, encoding="utf-8")
    account = accounts.account(run.path)
    assert account["server_starts"] == []
    assert validity.reasons(account, run, PLANNED, step) == []


def test_a_crashed_server_is_told_with_its_last_lines(tmp_path: Path) -> None:
    log = ds4_log(2048, "out of memory")
    ran = replace(GOOD, log=log, status="error", why="the server ended with exit code 137")
    found = only(reasons(tmp_path, ran), "run-error")
    assert found.message.startswith("it ended as error: the server ended with exit code 137; the server's last lines: ")
    assert found.message.endswith('"0914 12:00:00 ds4-server: out of memory"')


@pytest.mark.parametrize(("status", "code"), [("cancelled", "run-cancelled"), ("started", "run-not-ended")])
def test_a_run_that_was_broken_off_does_not_count(status: Any, code: str, tmp_path: Path) -> None:
    found = only(reasons(tmp_path, replace(GOOD, status=status, why=None)), code)
    assert found.message.startswith(
        "it ended as cancelled" if status == "cancelled" else "it has not ended: its writer"
    )
    assert found.advice == "`agentload ab DIR` runs it again"


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        ("cancelled", "run it again, and take that run instead"),
        ("started", "run it again, and take that run instead"),
        ("error", "mend what it says, then run it again, and take that run instead"),
        ("invalid", "see its manifest, mend that, run it again"),
    ],
)
def test_a_run_of_no_experiment_is_not_resumed_but_made_again(status: Any, advice: str, tmp_path: Path) -> None:
    step = PLANNED.steps[0]
    folder = open_folder(tmp_path / "exp", PLANNED)
    run = write(folder, step.run, replace(GOOD, status=status, why=None), 0)
    folder.design_path.unlink()
    (found,) = validity.reasons(accounts.account(run.path), run, PLANNED, step)
    assert found.advice == advice


def test_a_run_that_is_at_work_is_waited_for(tmp_path: Path) -> None:
    step = PLANNED.steps[0]
    run = write(open_folder(tmp_path / "exp", PLANNED), step.run, replace(GOOD, status="started"), 0)
    hold = Hold(run.path)
    found = only(validity.reasons(accounts.account(run.path), run, PLANNED, step), "run-not-ended")
    hold.release()
    assert (found.message, found.advice) == ("it has not ended: it is at work", "wait for its end")


def test_a_log_of_no_known_format_proves_nothing(tmp_path: Path) -> None:
    planned = design(1, 2, setting="x", proofs=({"setting": "x", "line": "x is (.)"},))
    ran = replace(GOOD, log="hello\nx is 1\n", server={"argv": ["./serve.sh"]})
    assert "no line of server.log (2 lines)" in only(reasons(tmp_path, ran, planned), "log-unknown").message
    known = replace(ran, server={"argv": ["vllm", "serve", "m"], "software": "vllm"})
    assert "log-unknown" in {one.code for one in reasons(tmp_path / "vllm", known, planned)}
    other = replace(ran, server={"argv": ["./serve.sh"], "software": "another"})
    assert reasons(tmp_path / "another", other, planned) == []  # there is no reader of such a log: its API tells


# ---- the work --------------------------------------------------------------------------------------------------------


def test_agents_below_the_minimum_make_a_run_too_little(tmp_path: Path) -> None:
    why = "a0 did too little work: 1 tool calls (at least 6)"
    found = only(reasons(tmp_path, replace(GOOD, status="partial", why=why)), "too-little-work")
    assert found.message == f"it is not whole: {why}"


def test_too_little_work_in_one_segment_leaves_the_others(tmp_path: Path) -> None:
    planned = design(variants=_requests(), setting="x", kind="request", repeats=1, sets=1)
    limits = {"scenario": {"limits": {"min_tool_calls": 1, "min_growth_tokens": 0}}}
    lazy, busy = {**AGENT, "segment": "s1", "tool_calls": 0}, {**AGENT, "segment": "s2", "tool_calls": 3}
    segments = {"s1": work(10_000, 40.0), "s2": [replace(one, request=f"s2-{one.name}") for one in work(10_000, 40.0)]}
    ran = Ran(segments, ds4_log(2048), status="partial", why="too little", agents=(lazy, busy), manifest=limits)
    run = write(open_folder(tmp_path / "exp", planned), "01", ran, 0)
    account = accounts.account(run.path)
    first, second = (validity.reasons(account, run, planned, step) for step in planned.steps)
    assert [one.code for one in first] == ["too-little-work"]
    assert second == []


def _requests() -> tuple[dict[str, Any], ...]:
    return tuple({"name": one, "label": one, "scenario": {}, "expected": {}} for one in "AB")


def test_requests_of_others_between_the_markers_taint_it(tmp_path: Path) -> None:
    step = PLANNED.steps[0]
    start = "0914 12:00:00 ds4-server: chat ctx=0..4750:4750 TOOLS prompt start\n"
    done = "0914 12:00:25 ds4-server: chat ctx=0..4750:4750 TOOLS prompt done 25.131s\n"
    log = ds4_log(2048) + start + done
    run = write(open_folder(tmp_path / "exp", PLANNED), step.run, replace(GOOD, log=log, times=(-5, -5, -5, 1, 26)), 0)
    found = only(validity.reasons(accounts.account(run.path), run, PLANNED, step), "foreign-traffic")
    assert found.message == "1 request between the markers that none of our agents sent"


def test_requests_of_ours_that_were_cut_off_at_work_are_no_strangers(tmp_path: Path) -> None:
    """Two agents reach the end of their time with a request at work each; the log has both, and no end of them."""
    step = PLANNED.steps[0]
    start = "0914 12:00:00 ds4-server: chat ctx=0..{0}:{0} TOOLS prompt start\n"
    for strangers in (0, 1):
        log = ds4_log(2048) + "".join(start.format(4750 + one) for one in range(2 + strangers))
        times = (-5, -5, -5, 20, 21, 22)[: 5 + strangers]
        folder = open_folder(tmp_path / f"exp{strangers}", PLANNED)
        run = write(folder, step.run, replace(GOOD, log=log, times=times), 0)
        with run.events_path.open("a") as file:
            for agent in ("a2", "a3"):
                # Sent 19 s after the begin marker, cut off 30 s after it.
                sent = 1_019 * S
                one = Completion(f"{agent}-r0", agent, 0, sent, None, None, sent + 11 * S, None, error="cut off")
                kind, at, fields = done(one)
                file.write(json.dumps({"event": kind, "t": at, **fields}) + "\n")
        account = accounts.account(run.path)
        assert account["segments"][0]["whole"]["matches"]["server_only"] == 2 + strangers
        assert (account["requests"]["perhaps_ours"], account["segments"][0]["perhaps_ours"]) == (2, 2)
        found = validity.reasons(account, run, PLANNED, step)
        assert [one.message for one in found] == [
            "1 request between the markers that none of our agents sent"
        ] * strangers


@pytest.mark.parametrize(("decode_s", "exercised"), [(1.9, False), (2.1, True)])
def test_a_flag_that_needs_decode_beside_prefill_must_have_had_5_percent_of_it(
    decode_s: float, *, exercised: bool, tmp_path: Path
) -> None:
    """40 s of prefill: 5 % are 2 s."""
    busy = [Asked("a0", 1, 0.0, 10_000, 500, 40.0, 100, 10.0), beside(decode_s)]
    for variant, quantum in (("A", 2048), ("B", 128)):
        found = reasons(tmp_path / variant, Ran({"s1": busy}, ds4_log(quantum)), variant=variant)
        assert [one.code for one in found] == ([] if exercised else ["flag-not-exercised"])
        if not exercised:
            assert "that was 4.8% of the prefill time, under 5%" in found[0].message


def test_another_setting_needs_no_decode_beside_it(tmp_path: Path) -> None:
    planned = design(131_072, 65_536, setting="ctx")
    assert reasons(tmp_path, Ran({"s1": [Asked(new=10_000, prefill_s=40.0)]}, ds4_log(2048)), planned) == []


# ---- state that was left over ----------------------------------------------------------------------------------------

SYSTEM = "You are an agent. " * 100  # 1,800 characters
OWN = "Find out how errors are reported, and where. " * 20  # 900 characters: at least 113 tokens
OTHER = "What do the tests of the parser cover, and what not? " * 20


def first_turns(first_cached: int, second_cached: int, **fields: Any) -> Ran:
    """Two agents' first requests of 700 tokens."""
    requests = [
        Asked("a0", 0, 0.0, 700 - first_cached, first_cached, 40.0, 100, 10.0),
        Asked("a1", 0, 1.0, 700 - second_cached, second_cached, 1.0, 100, 60.0),
    ]
    return Ran({"s1": requests}, ds4_log(2048), messages={"a0": SYSTEM + OWN, "a1": SYSTEM + OTHER}, **fields)


@pytest.mark.parametrize(
    ("first", "second", "hit"),
    [
        (0, 0, None),
        (1, 0, "a0-r0"),  # nothing was there before the first one
        (0, 500, None),  # the system prompt, which a0 had brought in
        (0, 567, None),  # 700 - 1,060 / 8: so much may be in common at most
        (0, 568, "a1-r0"),
        (0, 699, "a1-r0"),
    ],
)
def test_a_first_turn_may_only_find_what_this_run_brought_in(
    first: int, second: int, hit: str | None, tmp_path: Path
) -> None:
    found = reasons(tmp_path, first_turns(first, second))
    if hit is None:
        assert found == []
    else:
        told = only(found, "first-turn-cache-hit")
        assert told.message.startswith(f"{hit} is the first request of its conversation and found ")
        assert "{kv_dir}" in told.advice


@pytest.mark.parametrize(("cached", "hit"), [(64, False), (65, True)])
def test_after_a_warm_up_the_first_one_may_share_the_templates_opening(
    cached: int, *, hit: bool, tmp_path: Path
) -> None:
    ran = first_turns(cached, 0, manifest={"scenario": {"limits": {}, "warmup": {"concurrency": [1]}}})
    assert [one.code for one in reasons(tmp_path, ran)] == (["first-turn-cache-hit"] if hit else [])


def test_a_later_segment_must_not_find_the_earlier_ones_prompts(tmp_path: Path) -> None:
    planned = design(variants=_requests(), setting="x", kind="request", repeats=1, sets=1)
    again = [Asked("a0", 0, 0.0, 100, 600, 40.0, request="s2-a0-r0"), beside(40.0)]
    segments = {"s1": [Asked("a0", 0, 0.0, 700, 0, 40.0)], "s2": again}
    ran = Ran(segments, ds4_log(2048), messages={"s1-a0": SYSTEM, "s2-a0": SYSTEM})
    run = write(open_folder(tmp_path / "exp", planned), "01", ran, 0)
    account = accounts.account(run.path)
    found = [[one.code for one in validity.reasons(account, run, planned, step)] for step in planned.steps]
    assert found == [[], ["first-turn-cache-hit"]]


# ---- compilation and cold starts -------------------------------------------------------------------------------------

JIT = "WARNING CuTeDSL JIT compilation during inference: W4A16FusedMoeKernel. This causes a latency spike\n"


@pytest.mark.parametrize(("at_s", "tainted"), [(-3, False), (20, True), (500, False)])
def test_a_compilation_line_taints_only_while_a_request_is_at_work(at_s: int, *, tainted: bool, tmp_path: Path) -> None:
    ran = replace(GOOD, log=ds4_log(2048) + JIT, times=(-9, -9, -9, at_s))
    found = reasons(tmp_path, ran)
    if tainted:
        told = only(found, "compiled-while-serving")
        assert told.message == f'server.log:4: "{JIT.strip()}" came while a0-r1 was at work'
    else:
        assert found == []


def test_a_cold_first_request_is_held_against_later_equal_ones(tmp_path: Path) -> None:
    """Report B: 3.51 s cold, 0.38 s warm."""
    first = Asked("a0", 1, 0.0, 350, 0, 3.51)
    later = [Asked("a0", turn, 5.0 * turn, 350, 0, 0.38) for turn in (2, 3, 4)]
    planned = design(131_072, 65_536, setting="ctx")
    found = only(reasons(tmp_path, Ran({"s1": [first, *later]}, ds4_log(2048)), planned), "cold-first-request")
    assert found.message == (
        "a0-r1, the first measured request, waited 3.51 s for its first token; by 3 later ones of about as many new "
        "tokens it would have been 0.38 s"
    )


@pytest.mark.parametrize(
    ("first_s", "tokens", "later"),
    [
        (1.1, 350, 3),  # 2.9 times
        (0.5, 350, 1),  # one later request alone tells nothing
        (3.51, 3500, 3),  # ten times the tokens: no equal ones
    ],
)
def test_a_slower_first_request_alone_is_no_reason(first_s: float, tokens: int, later: int, tmp_path: Path) -> None:
    requests = [Asked("a0", 1, 0.0, tokens, 0, first_s)]
    requests += [Asked("a0", 2 + number, 10.0 + 5 * number, 350, 0, 0.38) for number in range(later)]
    planned = design(131_072, 65_536, setting="ctx")
    assert reasons(tmp_path, Ran({"s1": requests}, ds4_log(2048)), planned) == []


@pytest.mark.parametrize(("first", "cold"), [("d0k3-r1", False), ("d0-r1", True)])
def test_a_first_cold_prompt_is_held_against_those_under_its_load(first: str, *, cold: bool, tmp_path: Path) -> None:
    """3.51 s beside 0.38 s: one that came with two others waits for them, one that came alone as the later ones did."""

    def prompt(load: str, repeat: int, took_s: float) -> dict[str, list[Asked]]:
        segment = f"{load}-r{repeat}"
        return {segment: [Asked("p0", 0, 0.0, 350, 0, took_s, 1, 0.1, f"{segment}-p0-t0")]}

    segments = {**prompt(first.partition("-")[0], 1, 3.51)}
    for repeat in (2, 3, 4):
        segments |= prompt("d0", repeat, 0.38)
    asked = {"limits": {}, "workload": "probe", "probe": {"prompt_tokens": 350, "decoders": [0], "prompts": [1, 3]}}
    ran = Ran(segments, ds4_log(2048), manifest={"scenario": asked})
    found = reasons(tmp_path, ran, design(131_072, 65_536, setting="ctx", workload="probe"))
    assert [one.code for one in found] == ["cold-first-request"] * cold


# ---- between runs ----------------------------------------------------------------------------------------------------


def seen(name: str, **manifest: Any) -> Seen:
    simulated = manifest.pop("simulated", False)
    update = {"versions": {"agentload": "0.1.0"}, **manifest}
    return Seen(name, (name.partition("-")[2],), MANIFEST.model_copy(update=update), simulated=simulated)


def binary(path: str, digest: str) -> Mapping[str, Any]:
    return {"kind": "launch", "identity": {"binary": {"path": path, "size": 5, "mtime_ns": 9, "header_sha256": digest}}}


def test_runs_with_one_binary_model_corpus_and_version_can_be_compared() -> None:
    runs = [seen(name, server=binary("/bin/s", "aa")) for name in ("01-A", "02-B", "03-B", "04-A")]
    assert validity.across(runs) == {}


def test_a_binary_that_changed_names_all_runs_and_bars_the_smaller_group() -> None:
    runs = [seen(name, server=binary("/bin/s", "aa")) for name in ("01-A", "02-B", "03-B")]
    found = validity.across([*runs, seen("04-A", server=binary("/bin/s", "bb"))])
    assert list(found) == ["04-A"]
    (doubt,) = found["04-A"]
    assert doubt.code == "binary-changed"
    assert "01-A, 02-B, 03-B: /bin/s (5 bytes, mtime 9, header aa)" in doubt.message
    assert "04-A: /bin/s (5 bytes, mtime 9, header bb)" in doubt.message


def test_where_neither_group_is_larger_none_counts() -> None:
    runs = [seen("01-A", server=binary("/bin/s", "aa")), seen("02-B", server=binary("/bin/s", "bb"))]
    assert set(validity.across(runs)) == {"01-A", "02-B"}


def test_variants_may_be_commands_with_binaries_of_their_own() -> None:
    runs = [seen(name, server=binary(f"/bin/{name[-1]}", name[-1])) for name in ("01-A", "02-B", "03-B", "04-A")]
    assert validity.across(runs) == {}


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"corpus": {"name": "tiny", "commit": "d" * 40}}, "corpus-changed"),
        ({"versions": {"agentload": "0.2.0"}}, "agentload-changed"),
        ({"simulated": True}, "simulated-mixed"),
    ],
)
def test_what_else_must_be_equal_between_runs(changed: dict[str, Any], code: str) -> None:
    found = validity.across([seen("01-A"), seen("02-B"), seen("03-B", **changed)])
    assert {name: [one.code for one in doubts] for name, doubts in found.items()} == {"03-B": [code]}


def test_a_run_directory_of_a_hand_made_run_begins_at_its_place(tmp_path: Path) -> None:
    run: RunDir = write(open_folder(tmp_path / "exp", PLANNED), "01-A", GOOD, 1)
    (segment,) = accounts.account(run.path)["segments"]
    assert segment["begin_ns"] == 2000 * S
