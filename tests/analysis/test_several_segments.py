"""Is an account right of a run that has several segments under one start of the server?"""

from pathlib import Path
from typing import Any

from agentload.analysis import account as accounts
from agentload.artifacts.rundir import EventLog
from tests.analysis.experiments import START_S, Asked, Ran, S, design, ds4_log, open_folder, write
from tests.analysis.test_account import AGENT

PLANNED = design(2048, 128)
FIRST = [Asked("a0", 0, 0.0, 1000, 0, 2.0, 10, 8.0, request="s1-a0-r0")]
SECOND = [Asked("a0", 0, 0.0, 3000, 0, 3.0, 10, 8.0, request="s2-a0-r0")]


def account(tmp_path: Path, ran: Ran) -> dict[str, Any]:
    return accounts.account(write(open_folder(tmp_path / "e", PLANNED), "01-A", ran, 0).path)


def test_each_segment_has_its_own_requests_and_speeds(tmp_path: Path) -> None:
    first, second = account(tmp_path, Ran({"s1": FIRST, "s2": SECOND}))["segments"]
    assert (first["whole"]["new_prefill_tokens"], second["whole"]["new_prefill_tokens"]) == (1000, 3000)
    assert (first["whole"]["prefill_tok_s"], second["whole"]["prefill_tok_s"]) == (500.0, 1000.0)


def test_cpu_seconds_are_those_between_a_segments_own_samples(tmp_path: Path) -> None:
    """Samples at the ends of both segments; over the whole run it would be 8 CPU-s."""
    segments = account(tmp_path, Ran({"s1": FIRST, "s2": SECOND}, cpu_s=4.0))["segments"]
    assert [one["server_cpu_s"] for one in segments] == [4.0, 4.0]
    assert [one["sampled_ns"] for one in segments] == [11 * S, 12 * S]


def test_a_segment_without_samples_of_its_own_has_no_cpu_seconds(tmp_path: Path) -> None:
    folder = open_folder(tmp_path / "e", PLANNED)
    run = write(folder, "01-A", Ran({"s1": FIRST, "s2": SECOND}), 0)
    sample = {"rss_bytes": 1, "processes": 1, "host_busy_s": 9.0, "host_free_bytes": 1}
    log = EventLog(run.path / "more.jsonl")
    log.emit("sample", START_S * S, where="begin", cpu_s=0.0, **sample)
    log.emit("sample", (START_S + 1) * S, where="end", cpu_s=2.0, **sample)
    log.close()
    lines = (run.path / "more.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)[1:]
    with run.events_path.open("a", encoding="utf-8") as events:
        events.writelines(lines)
    found = accounts.account(run.path)["segments"]
    assert [one["server_cpu_s"] for one in found] == [2.0, None]


def test_an_agents_name_in_two_segments_is_two_agents(tmp_path: Path) -> None:
    begins = {"s1": START_S * S, "s2": (START_S + 12) * S}
    agents = [
        {**AGENT, "segment": name, "planned": begin, "started": begin + late}
        for (name, begin), late in zip(begins.items(), (5, 9), strict=True)
    ]
    found = account(tmp_path, Ran({"s1": FIRST, "s2": SECOND}, agents=agents))["agents"]
    assert [one["start_late_ns"] for one in found] == [5, 9]
    assert [one["t_first_request"] for one in found] == [begins["s1"], begins["s2"]]


def test_settings_are_held_against_the_api_and_the_process_table_too(tmp_path: Path) -> None:
    server = {
        "argv": ["./serve.sh"],
        "software": "llamacpp",
        "api": {"GET /props": {"total_slots": 2}},
        "commands": [{"pid": 7, "argv": ["llama-server", "-np", "3"], "serves": True}],
    }
    log = "0.00.003.799 I srv          init: initializing ...\n"
    (setting,) = account(tmp_path, Ran({"s1": FIRST}, log, server=server))["settings"]
    assert (setting["name"], setting["requested"], setting["applied"]) == ("n_slots", 3, 2)
    assert (setting["verdict"], setting["source"]) == ("mismatch", "GET /props total_slots")


def test_without_a_readable_log_the_api_alone_proves(tmp_path: Path) -> None:
    server = {"argv": ["llama-server", "-np", "2"], "api": {"GET /props": {"total_slots": 2}}}
    (setting,) = account(tmp_path, Ran({"s1": FIRST}, "hello\n", server=server))["settings"]
    assert (setting["verdict"], setting["source"]) == ("applied", "GET /props total_slots")


def test_no_server_starts_in_a_log_of_one_boot(tmp_path: Path) -> None:
    assert account(tmp_path, Ran({"s1": FIRST}, ds4_log(2048)))["server_starts"] == []
