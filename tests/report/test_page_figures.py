"""Do the figures that few runs have show their numbers: gaps, acceptance, memory, lanes, diagnosis?"""

from pathlib import Path
from typing import Any

import pytest

from agentload.report.html import said_diagnosis, speed, times, work
from agentload.report.html.figure import About, Figure
from agentload.report.html.views import View
from tests.analysis.planted import Talk, plant
from tests.report.pages import Element, parse

ABOUT = About(simulated=False)
S = 1_000_000_000


def drawn(figure: Figure | None) -> Element:
    assert figure is not None
    return parse(str(figure.wide))


def view(**fields: Any) -> View:
    told: dict[str, Any] = {
        "name": "01-A",
        "variant": 0,
        "label": "A 1",
        "counts": True,
        "account": {"lines": {"format": "vllm"}},
        "segments": [{"segment": "s1", "begin_ns": 0, "end_ns": 100 * S}],
        "requests": [],
        "phases": [],
        "samples": [],
    }
    return View(**(told | fields))


def phase(agent: str | None, kind: str, start: float, end: float | None) -> dict[str, Any]:
    ends = None if end is None else round(end * S)
    return {"agent": agent, "phase": kind, "start": round(start * S), "end": ends}


def asked(agent: str, sent: float | None, began: float | None, token: float | None, source: str) -> dict[str, Any]:
    def at(value: float | None) -> int | None:
        return None if value is None else round(value * S)

    return {
        "agent": agent,
        "t_sent": at(sent),
        "prefill_start": at(began),
        "t_first_token": at(token),
        "prefill_source": source,
    }


def test_gaps_stand_on_a_log_axis() -> None:
    row = {"variant": "A", "label": "q=128", "load": "d3", "decoders": 3, "gap_s": 0.5}
    rows = [row | {"gap_p99_s": 1.0, "gap_longest_s": 2.0}, {**row, "decoders": 0}]
    figure = work.gaps(ABOUT, rows)
    assert figure is not None
    assert figure.table is not None
    assert figure.table.rows == (("A 128 d3", "0.500", "1.000", "2.000"),)
    picture = drawn(figure)
    (circle,) = picture.all("circle")
    (line,) = picture.all("line", **{"class": "range v0"})
    # 0.5 to 2 is the whole axis, and 1 its middle.
    assert float(circle.attributes["cx"]) == float(line.attributes["x1"])
    assert float(line.attributes["x2"]) == 760 - 16


def test_there_are_no_gaps_without_decoders() -> None:
    assert work.gaps(ABOUT, [{"load": "d0", "decoders": 0, "gap_s": None}]) is None


def speculating(parts: list[float]) -> dict[str, Any]:
    told = {"segment": "s1", "speculation": {"acceptance_by_position": parts}}
    whole = {"segment": None, "speculation": {"acceptance_by_position": [0.0]}}
    return {"lines": {"format": "vllm"}, "statistics": {"parts": [whole, told]}}


def test_acceptance_is_that_of_the_segment_by_position() -> None:
    figure = work.acceptance(ABOUT, [view(account=speculating([0.9, 0.5, 0.25])), view()])
    assert figure is not None
    assert figure.table is not None
    assert figure.table.rows == (("01-A", "A 1", "90.0%", "50.0%", "25.0%"),)
    # The axis goes from 0 at y = 200 to 1 at y = 30.
    assert [float(one.attributes["cy"]) for one in drawn(figure).all("circle")] == [47, 115, 157.5]


def test_without_speculation_there_is_no_figure_of_it() -> None:
    assert work.acceptance(ABOUT, [view()]) is None


def test_memory_shows_the_lowest_of_what_is_thinned_out() -> None:
    gib = 1 << 30
    samples = [
        {"t": number * S // 100, "host_free_bytes": (4 if number != 5_555 else 1) * gib, "device_free_bytes": None}
        for number in range(10_000)
    ]
    figure = work.memory(ABOUT, [view(samples=samples)])
    assert figure is not None
    assert figure.table is not None
    assert figure.table.rows == (("01-A", "A 1", "machine", "1.00"),)
    (line,) = [one for one in drawn(figure).all("path") if one.attributes["class"] == "line v0"]
    heights = [float(point.split(",")[1]) for point in line.attributes["d"].removeprefix("M").split()]
    assert len(heights) <= 301
    assert max(heights) == 200 - 170 / 4  # 1 of 4 GiB: lowest, drawn at its height


def test_a_lane_has_queued_prefill_decode_and_tool() -> None:
    phases = [
        phase("a0", "prefill", 10, 20),
        phase("a0", "decode", 20, 50),
        phase("a0", "tool", 50, 51),
        phase("a0", "tool", 60, None),  # broken off
        phase(None, "prefill", 70, 80),  # not ours
    ]
    figure = times.lanes(ABOUT, view(phases=phases, requests=[asked("a0", 4, 10, 20, "log")]))
    assert figure is not None
    assert figure.table is not None
    assert figure.table.rows == (("a0", "6.0", "10.0", "30.0", "1.0"),)
    # 100 s are drawn on (746 - left) pixels.
    left = 2 * 12 * 0.56 + 12
    (prefill,) = drawn(figure).all("path", **{"class": "bars prefill"})
    begin, length = prefill.attributes["d"].removeprefix("M").split(" 0h")
    assert float(begin) == pytest.approx(left + (746 - left) / 10, abs=0.06)
    assert float(length) == pytest.approx((746 - left) / 10, abs=0.11)


def test_a_wait_whose_reason_nobody_knows_is_not_called_queued() -> None:
    rows = [asked("a0", 1, None, 9, "client"), asked("a0", 20, 20, 30, "client"), asked("a0", None, 40, 41, "log")]
    figure = times.lanes(ABOUT, view(phases=[phase("a0", "decode", 9, 12)], requests=rows))
    assert figure is not None
    assert figure.table is not None
    assert figure.table.rows[0][1] == "-"
    assert [one.look for one in figure.legend] == ["bar decode", "bar waits"]


def test_agents_stand_in_the_order_of_their_numbers() -> None:
    phases = [phase(f"a{number}", "decode", 1, 2) for number in (10, 2, 0)]
    figure = times.lanes(ABOUT, view(phases=phases))
    assert figure is not None
    assert figure.table is not None
    assert [row[0] for row in figure.table.rows] == ["a0", "a2", "a10"]


def test_overlap_is_of_prefill_and_decode_and_nothing_else() -> None:
    phases = [phase("a0", "prefill", 0, 10), phase("a1", "decode", 5, 20), phase("a1", "tool", 0, 30)]
    assert times.overlap(view(phases=phases)).pairs() == [(5 * S, 10 * S)]


def test_a_run_without_a_begin_marker_has_no_time_lines() -> None:
    assert times.time_lines(ABOUT, [view(segments=[], phases=[phase("a0", "decode", 1, 2)])]) is None


def test_prompts_that_all_begin_at_0_are_not_drawn_by_context() -> None:
    row = {"context_start": 0, "prefill_start": 0, "prefill_end": S, "new_prefill_tokens": 10, "request": "r"}
    assert speed.by_context(ABOUT, [view(requests=[row, row])]) is None


# ---- diagnosis -------------------------------------------------------------------------------------------------------


def test_a_planted_theft_of_a_slot_stands_on_the_page_with_the_line_that_shows_it(tmp_path: Path) -> None:
    a0, a1, a2 = Talk("a0", 700), Talk("a1", 900), Talk("a2", 800)
    a0.ask(1, 50)
    a1.ask(2, 50)
    a2.ask(60, 50)
    a0.ask(100, 50, 300)
    run = plant(tmp_path, [a0, a1, a2], batched_session=2).run
    found = said_diagnosis.of_runs([("01-A", run.path)])
    assert found is not None
    (told,) = found.again
    assert told.startswith("a0-r1: 5,750 of 5,750 tokens again. its slot was taken by another request: a2-r0 of a2")
    assert "live kv cache miss live=5750 prompt=5800 common=5000" in told
    assert any("--batched-session" in one for one in found.tries)
    causes = next(one for one in found.tables if one.caption == "Why contexts were prefilled again")
    assert causes.rows[0][:3] == ("its slot was taken by another request", "1", "5,750")


def test_a_flag_whose_values_the_runs_differ_in_is_said_to_have_been_tried(tmp_path: Path) -> None:
    runs = []
    for name, quantum in (("01-A", 2048), ("02-B", 128)):
        a0, a1 = Talk("a0", 700), Talk("a1", 900)
        a0.ask(1, 2000)
        a1.ask(40, 20, 0)
        a1.ask(80, 20, 60_000)
        runs.append((name, plant(tmp_path / name, [a0, a1], mixed_prefill_quantum=quantum).run.path))
    alone, both = said_diagnosis.of_runs(runs[:1]), said_diagnosis.of_runs(runs)
    assert alone is not None
    assert both is not None
    (one,) = [told for told in both.tries if "--mixed-prefill-quantum" in told]
    assert one.endswith("These runs had it at 2048 and 128: the table above has what each lost")
    assert "These runs" not in " ".join(alone.tries)


def test_a_run_whose_raw_files_are_gone_has_no_diagnosis_and_says_why(tmp_path: Path) -> None:
    found = said_diagnosis.of_runs([("01-A", tmp_path / "nothing")])
    assert found is not None
    assert found.tables == []
    assert found.missing[0].startswith("01-A: no diagnosis: expected a run directory")


# ---- a sweep of probes -----------------------------------------------------------------------------------------------


def test_each_load_of_a_probes_sweep_is_a_line_below_the_ceiling() -> None:
    def row(value: int, load: str, speed: float) -> dict[str, Any]:
        label = f"mixed_prefill_quantum={value}"
        return {"label": label, "load": load, "prefill_tok_s": speed, "low_tok_s": speed - 10, "high_tok_s": speed + 10}

    rows = [row(2048, "d0", 500.0), row(128, "d0", 500.0), row(128, "d3", 200.0), row(2048, "d3", 450.0)]
    found = {"factor": "mixed_prefill_quantum", "probe_sweep": {"rows": rows, "ceiling_tok_s": 550.0}}
    figure = speed.swept(ABOUT, found)
    assert figure is not None
    assert figure.table is not None
    assert [row[:3] for row in figure.table.rows] == [
        ("128", "load d0", "500.0"),
        ("2048", "load d0", "500.0"),
        ("128", "load d3", "200.0"),
        ("2048", "load d3", "450.0"),
    ]
    # The axis goes from 0 at y = 260 to 600 at y = 30: 550 tok/s stand at 49.2.
    (ceiling,) = drawn(figure).all("line", **{"class": "ceiling"})
    assert float(ceiling.attributes["y1"]) == pytest.approx(260 - 230 * 550 / 600, abs=0.06)
    assert [one.words for one in figure.legend] == ["load d0", "load d3"]
