"""Does the page say what derived/ says, hold all of itself, and show text from models as text?"""

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from agentload.analysis import account as accounts
from agentload.analysis.compare import compare
from agentload.artifacts.design import ExperimentDir
from agentload.report.html import render
from tests.analysis.experiments import Asked, Ran, design, ds4_log, whole
from tests.analysis.test_account import AGENT, answered, make, mark
from tests.analysis.test_compare import QUANTA, published_runs, speeds
from tests.analysis.test_evidence import events
from tests.report.pages import Element, parse, table

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>&lt;\"'"
MS = 1_000_000


def page_of(folder: ExperimentDir) -> tuple[dict[str, Any], Element, str]:
    found = compare(folder)
    text = render.experiment_page(found, folder.runs.joinpath)
    return found, parse(text), text


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Element, str]:
    return page_of(whole(QUANTA, tmp_path_factory.mktemp("table4") / "quanta", published_runs()))


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Element, str]:
    runs = {name: replace(ran, manifest={"simulated": True}) for name, ran in published_runs().items()}
    return page_of(whole(QUANTA, tmp_path_factory.mktemp("twin") / "quanta", runs))


def pictures(page: Element) -> list[Element]:
    return page.where(lambda one: one.tag == "svg" and one.attributes.get("role") == "img")


def figure_words(page: Element, name: str) -> str:
    section = page.where(lambda one: one.attributes.get("aria-labelledby") == name and one.tag == "section")
    return section[0].all("figcaption")[0].text


# ---- the answer ------------------------------------------------------------------------------------------------------


def test_the_answer_stands_first_with_its_grade(published: tuple[dict[str, Any], Element, str]) -> None:
    found, page, _ = published
    (answer,) = page.where(lambda one: one.attributes.get("id") == "answer")
    assert answer.attributes["data-outcome"] == "distinguished"
    assert [one.text for one in answer.where(lambda one: "badge" in one.attributes.get("class", "").split())] == [
        "distinguished",
        "evidence: confirmed",
    ]
    assert answer.all("h1")[0].text == found["headline"]["sentence"]
    assert answer.all("h1")[0].text.startswith("A (mixed_prefill_quantum=2048) is faster: 2.20x the prefill speed of B")


def test_requested_stands_against_what_is_in_force_with_the_line_that_proves_it(
    published: tuple[dict[str, Any], Element, str],
) -> None:
    row = table(published[1], "Settings that were asked for")[1]
    assert (row["variant"], row["setting"]) == ("B", "mixed_prefill_quantum (under test)")
    assert (row["requested"], row["in force"], row["verdict"]) == ("128", "128", "applied")
    assert row["what proves it"].startswith("02-B server.log:2: 0914 12:00:00 ds4-server: batched mode enabled")


def test_every_doubt_of_the_comparison_stands_there_with_its_advice(
    published: tuple[dict[str, Any], Element, str],
) -> None:
    found, page, _ = published
    told = page.where(lambda one: one.attributes.get("class") == "doubts")[0].text
    doubts = [*found["doubts"], *found["pairs"][0]["metrics"][0]["doubts"]]
    assert doubts
    for one in doubts:
        assert one["message"] in told
        assert one["advice"].rstrip(".") in told


def test_an_experiment_that_is_invalid_says_so_and_what_to_mend(tmp_path: Path) -> None:
    runs = {name: Ran({"s1": [Asked()]}, ds4_log(512)) for name in ("01-A", "02-B")}
    found, page, _ = page_of(whole(QUANTA, tmp_path / "quanta", runs))
    (answer,) = page.where(lambda one: one.attributes.get("id") == "answer")
    assert answer.attributes["data-outcome"] == "invalid"
    assert "evidence" not in answer.text
    assert "2048 was asked for, in force is 512" in answer.text
    fix = page.where(lambda one: one.attributes.get("aria-labelledby") == "fix")[0]
    assert [one.text for one in fix.all("li")] == found["headline"]["fix"]
    assert [row["counts"] for row in table(page, "Runs, in the order in which they ran")] == ["NO", "NO"]
    assert "Hollow: does not count (01-A, 02-B)." in figure_words(page, "speed-by-order")
    assert not page.where(lambda one: one.attributes.get("id") == "speed-by-context")  # of runs that count only


def test_a_night_that_was_cancelled_is_incomplete_and_not_invalid(tmp_path: Path) -> None:
    runs = speeds(QUANTA, {"01-A": 500.0}) | speeds(QUANTA, {"02-B": 200.0}, status="cancelled", why="signal 2")
    _, page, _ = page_of(whole(QUANTA, tmp_path / "quanta", runs))
    (answer,) = page.where(lambda one: one.attributes.get("id") == "answer")
    assert answer.attributes["data-outcome"] == "incomplete"
    assert answer.all("h1")[0].text.startswith("INCOMPLETE: ")


def test_the_page_of_a_cancelled_run_says_that_it_was_cut_short(tmp_path: Path) -> None:
    ran = speeds(QUANTA, {"01-A": 500.0}, status="cancelled", why="signal 2")
    path = whole(QUANTA, tmp_path / "quanta", ran).runs / "01-A"
    page = parse(render.run_page(path, accounts.load(path)))
    (answer,) = page.where(lambda one: one.attributes.get("id") == "answer")
    assert answer.attributes["data-outcome"] == "cancelled"
    assert answer.all("h1")[0].text.startswith("cancelled (signal 2): prefill 500.0 tok/s over 10,000 new tokens")
    assert "one run: no comparison" in answer.text


# ---- numbers and figures ---------------------------------------------------------------------------------------------


def test_each_runs_value_is_that_of_the_comparison(published: tuple[dict[str, Any], Element, str]) -> None:
    rows = table(published[1], "Speed of each run, in the order in which they ran")
    # Table 4: 139,599 tokens in 485.0 s; 214,270 in 1,735 s; 252,263 in 2,025 s; 190,262 in 722.0 s.
    assert [(row["run"], row["variant"], row["prefill speed, tok/s"]) for row in rows] == [
        ("01-A", "A 2048", "287.8"),
        ("02-B", "B 128", "123.5"),
        ("03-B", "B 128", "124.6"),
        ("04-A", "A 2048", "263.5"),
    ]


def test_points_stand_where_their_numbers_are(published: tuple[dict[str, Any], Element, str]) -> None:
    picture = next(
        one for one in pictures(published[1]) if one.all("title")[0].attributes["id"] == "speed-by-order-wide-t"
    )
    circles = picture.all("circle")
    hints = [one.all("title")[0].text for one in circles]
    assert hints == ["01-A, A 2048: 287.8 tok/s", "04-A, A 2048: 263.5 tok/s"]
    # The axis goes from 0 to 300 between y = 220 and y = 30: 190 pixels.
    assert [float(one.attributes["cy"]) for one in circles] == pytest.approx(
        [220 - 190 * 287.84 / 300, 220 - 190 * 263.52 / 300], abs=0.1
    )


def test_busy_times_of_the_time_lines_are_unions(published: tuple[dict[str, Any], Element, str]) -> None:
    rows = table(published[1], "Time lines: prefill above, decode below")
    assert [row["prefill busy s"] for row in rows] == ["485.0", "1,735.0", "2,025.0", "722.0"]
    # The second agent decodes from 0 on for as long as the first prefills, which then decodes for 1,000 s.
    assert [row["both s"] for row in rows] == ["485.0", "1,735.0", "2,025.0", "722.0"]
    assert [row["decode busy s"] for row in rows] == ["1,485.0", "2,735.0", "3,025.0", "1,722.0"]


def test_the_time_lines_begin_at_each_runs_first_marker_on_one_axis(
    published: tuple[dict[str, Any], Element, str],
) -> None:
    picture = next(one for one in pictures(published[1]) if one.all("title")[0].attributes["id"] == "time-lines-wide-t")
    lines = [one.attributes["d"] for one in picture.all("path", **{"class": "bars prefill"})]
    # 10 px to 746 px are 0 to 60 min; 485 s are 8.083 min: 99.2 px. 2,025 s: 414 px.
    assert lines[0] == "M10 0h99.2"
    assert lines[2] == "M10 0h414"


def test_a_sweep_has_its_values_on_a_log_axis(tmp_path: Path) -> None:
    planned = design(128, 512, 2048)
    values = {"A": 200.0, "B": 300.0, "C": 400.0}
    runs = speeds(planned, {step.run: values[step.variant] + step.position for step in planned.steps})
    _, page, _ = page_of(whole(planned, tmp_path / "sweep", runs))
    picture = next(one for one in pictures(page) if one.all("title")[0].attributes["id"] == "swept-wide-t")
    at = [float(one.attributes["cx"]) for one in picture.all("circle")]
    assert at[1] - at[0] == pytest.approx(at[2] - at[1], abs=0.11)  # 128 to 512 is as far as 512 to 2048
    rows = table(page, "Prefill speed by mixed_prefill_quantum")
    assert [row["mixed_prefill_quantum"] for row in rows] == ["128", "512", "2048"]


@pytest.mark.parametrize(
    ("values", "badges", "tone"),
    [
        # Ranges of the best two lie apart (500 to 501, 330 to 331); those of A and C do by the worst of C only.
        (
            {"A": (500.0, 501.0), "B": (330.0, 331.0), "C": (220.0, 330.5)},
            ["best two distinguished", "1 of 3 pairs distinguished"],
            "good",
        ),
        # B and C are far from A, and lie over one another.
        (
            {"A": (220.0, 221.0), "B": (500.0, 502.0), "C": (501.0, 500.5)},
            ["best two not distinguished", "2 of 3 pairs distinguished"],
            "dim",
        ),
        # None is: the outcome of the whole says it.
        ({"A": (500.0, 502.0), "B": (501.0, 500.5), "C": (500.2, 501.8)}, ["not distinguished"], "dim"),
    ],
)
def test_the_badge_of_a_sweep_says_what_holds_of_the_two_best(
    values: dict[str, tuple[float, float]], badges: list[str], tone: str, tmp_path: Path
) -> None:
    planned = design(2048, 512, 128, repeats=2)
    taken = {name: iter(told) for name, told in values.items()}
    runs = speeds(planned, {step.run: next(taken[step.variant]) for step in planned.steps})
    found, page, _ = page_of(whole(planned, tmp_path / "sweep", runs))
    (answer,) = page.where(lambda one: one.attributes.get("id") == "answer")
    shown = answer.where(lambda one: "badge" in one.attributes.get("class", "").split())
    assert [one.text for one in shown] == badges
    assert answer.attributes["class"] == f"answer {tone}"
    assert page.all("title")[0].text == f"quanta: {badges[0]}"
    assert answer.attributes["data-outcome"] == found["headline"]["outcome"]  # that of the whole stays


def test_two_values_are_no_sweep(published: tuple[dict[str, Any], Element, str]) -> None:
    assert not published[1].where(lambda one: one.attributes.get("id") == "swept")


def test_requests_without_a_count_are_left_out_and_said(tmp_path: Path) -> None:
    found = accounts.account(_run(tmp_path, AGENT).path)
    path = tmp_path / found["run"]
    page = parse(render.run_page(path, found))
    assert "1 of 3 requests are left out: their cached tokens are not known." in figure_words(page, "cached-by-turn")
    rows = table(page, "Cached against new tokens, by turn")
    assert [(row["turn"], row["cached"], row["new"], row["requests"]) for row in rows] == [
        ("0", "900", "100", "1"),
        ("1", "900", "100", "1"),
    ]
    work = table(page, "Work and speed; a dash is not known, never 0")[0]
    assert (work["agent"], work["requests"], work["cached"]) == ("all", "3", "1,800")


def _run(out: Path, agent: dict[str, Any]) -> Any:
    run = make(out, agents=({**agent, "requests": 3},))
    kind, done_ns, first = answered()
    second = {**first, "request": "a0-r1", "turn": 1, "t_sent": 1_200 * MS, "t_first_byte": 1_250 * MS}
    third = {**first, "request": "a0-r2", "turn": 2, "t_sent": 2_400 * MS, "t_first_byte": 2_450 * MS}
    second["t_first_token"], third["t_first_token"] = 1_700 * MS, 2_900 * MS
    third |= {"timings": None, "usage": {"prompt_tokens": 1000, "completion_tokens": 50, "cached_tokens": None}}
    first = {**first, "request": "a0-r0", "turn": 0}
    events(run, (kind, done_ns, first), (kind, 2_300 * MS, second), (kind, 3_300 * MS, third))
    mark(run, ("begin", 0), ("end", 4_000 * MS))
    return run


# ---- one file, for everybody -----------------------------------------------------------------------------------------


def test_text_from_tasks_and_models_appears_as_text(tmp_path: Path) -> None:
    found = accounts.account(_run(tmp_path, {**AGENT, "task": EVIL}).path)
    found["doubts"] = [{"code": "x", "message": EVIL + "\u202e", "advice": EVIL}]
    found["why"] = EVIL
    page = parse(render.run_page(tmp_path / found["run"], found))
    assert not page.all("script")
    assert not page.all("img")
    assert not page.where(lambda one: any(name.startswith("on") for name in one.attributes))
    assert table(page, "Agents: what they did")[0]["task"] == EVIL
    assert EVIL + "\ufffd" in page.where(lambda one: one.attributes.get("class") == "doubts")[0].text


def test_agents_names_in_pictures_are_text_too(tmp_path: Path) -> None:
    evil = '"><script>1</script>'
    folder = whole(QUANTA, tmp_path / "quanta", {"01-A": Ran({"s1": [Asked(evil, request="r")]}, ds4_log(2048))})
    found = accounts.load(folder.runs / "01-A")
    page = parse(render.run_page(folder.runs / "01-A", found))
    assert not page.all("script")
    lanes = next(one for one in pictures(page) if one.all("title")[0].attributes["id"] == "lanes-01-A-wide-t")
    assert any(one.text == evil for one in lanes.all("text"))


def test_nothing_is_loaded_and_nothing_runs(published: tuple[dict[str, Any], Element, str]) -> None:
    _, page, text = published
    (policy,) = page.all("meta", **{"http-equiv": "Content-Security-Policy"})
    assert policy.attributes["content"] == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    outside = page.where(lambda one: any(name in one.attributes for name in ("src", "srcset", "action", "xlink:href")))
    assert not outside
    assert not page.all("link")
    assert all(one.attributes["href"].startswith("#") for one in page.all("a"))
    assert not re.search(r"@import|url\(|https?://(?!www\.w3\.org/2000/svg)", text)


def test_links_have_a_target_and_every_id_is_there_once(published: tuple[dict[str, Any], Element, str]) -> None:
    ids = [one.attributes["id"] for one in published[1].where(lambda one: "id" in one.attributes)]
    assert len(set(ids)) == len(ids)
    assert {one.attributes["href"].removeprefix("#") for one in published[1].all("a")} <= set(ids)
    named = published[1].where(lambda one: "aria-labelledby" in one.attributes)
    assert {name for one in named for name in one.attributes["aria-labelledby"].split()} <= set(ids)


def test_every_picture_says_in_words_what_it_shows(published: tuple[dict[str, Any], Element, str]) -> None:
    shown = pictures(published[1])
    assert len(shown) >= 2 * 6
    for one in shown:
        assert one.all("title")[0].text
        assert re.search(r"\d", one.all("desc")[0].text)


def test_headings_go_down_one_level_at_a_time(published: tuple[dict[str, Any], Element, str]) -> None:
    levels = [int(one.tag[1]) for one in published[1].where(lambda one: one.tag in {"h1", "h2", "h3", "h4"})]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_simulated_stands_in_the_title_at_the_answer_in_every_picture_and_over_every_table(
    simulated: tuple[dict[str, Any], Element, str],
) -> None:
    _, page, _ = simulated
    assert page.all("title")[0].text.startswith("SIMULATED: ")
    assert "SIMULATED" in page.where(lambda one: one.attributes.get("id") == "answer")[0].text
    assert all(any(text.text == "SIMULATED" for text in one.all("text")) for one in pictures(page))
    assert all(one.all("desc")[0].text.startswith("SIMULATED: ") for one in pictures(page))
    captions = [one.text for one in page.all("p", **{"class": "caption"})]
    assert len(captions) == len(page.all("table"))
    assert all(one.startswith("SIMULATED ") for one in captions)


def test_what_was_measured_is_nowhere_called_simulated(published: tuple[dict[str, Any], Element, str]) -> None:
    assert "SIMULATED" not in published[1].all("body")[0].text


def test_the_same_files_give_the_same_page(tmp_path: Path) -> None:
    folder = whole(QUANTA, tmp_path / "quanta", published_runs())
    assert page_of(folder)[2] == page_of(folder)[2]


def test_the_terminals_report_is_on_the_page_to_copy(published: tuple[dict[str, Any], Element, str]) -> None:
    text = published[1].all("pre")[0].text
    assert "Runs, in the order in which they ran: work" in text
    assert "doubt (" in text


# ---- small and large -------------------------------------------------------------------------------------------------


def many(requests: int, agents: int) -> list[Asked]:
    """Agents that take turns without end; speeds and sizes differ from request to request."""
    made = []
    for number in range(requests):
        turn, agent = divmod(number, agents)
        new = 200 + number * 37 % 2_800
        speed = 150 + number * 101 % 350
        made.append(
            Asked(f"a{agent}", turn, turn * 30.0 + agent, new, turn * 700 % 110_000, new / speed, 100, 5 + number % 7)
        )
    return made


def test_one_agent_has_one_lane_and_no_overlap(tmp_path: Path) -> None:
    folder = whole(QUANTA, tmp_path / "quanta", {"01-A": Ran({"s1": many(12, 1)}, ds4_log(2048))})
    found = accounts.load(folder.runs / "01-A")
    page = parse(render.run_page(folder.runs / "01-A", found))
    assert [row["agent"] for row in table(page, "What each agent was at: 01-A")] == ["a0"]
    assert not page.where(lambda one: "overlap" in one.attributes.get("class", "").split())


def test_5000_requests_of_32_agents_are_a_small_page_that_says_what_it_left_out(tmp_path: Path) -> None:
    folder = whole(QUANTA, tmp_path / "quanta", {"01-A": Ran({"s1": many(5_000, 32)}, ds4_log(2048))})
    found = accounts.load(folder.runs / "01-A")
    text = render.run_page(folder.runs / "01-A", found)
    page = parse(text)
    assert len(text) < 500_000  # a sixth of what an experiment of six such runs may have
    lanes = table(page, "What each agent was at: 01-A")
    assert [row["agent"] for row in lanes] == [f"a{number}" for number in range(32)]
    picture = next(one for one in pictures(page) if one.all("title")[0].attributes["id"] == "speed-by-context-wide-t")
    drawn = len(picture.all("circle"))
    assert 300 < drawn <= 1_200
    assert f"Drawn are {drawn:,} of 5,000 requests" in figure_words(page, "speed-by-context")
    buckets = table(page, "Prefill speed by context")
    assert sum(int(row["requests, all"]) for row in buckets) == 5_000


def test_the_accounts_files_alone_are_enough(tmp_path: Path) -> None:
    folder = whole(QUANTA, tmp_path / "quanta", published_runs())
    found = compare(folder)
    for raw in folder.runs.glob("*/events.jsonl"):
        raw.unlink()
    assert render.experiment_page(found, folder.runs.joinpath).startswith("<!doctype html>")
    assert json.loads((folder.derived / "comparison.json").read_text())["experiment"] == "quanta"
