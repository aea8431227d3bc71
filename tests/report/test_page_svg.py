"""Are pictures drawn where the numbers are, thinned the same way each time, and seen by everybody?"""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import agentload.report.html
from agentload.report.html.speed import Placed, thinned, value_of
from agentload.report.html.svg import Drawing, Scale, linear, logarithmic, plain
from agentload.report.html.views import View
from tests.report.pages import parse

CSS = (Path(agentload.report.html.__file__).parent / "page.css").read_text(encoding="utf-8")


# ---- axes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "count", "ticks"),
    [
        ([0, 41], 4, [0, 20, 40, 60]),
        ([288, 124], 5, [0, 100, 200, 300]),
        ([5], 5, [0, 1, 2, 3, 4, 5]),
        ([0], 4, [0, 0.25, 0.5, 0.75, 1]),
        ([], 2, [0, 0.5, 1]),
    ],
)
def test_a_linear_axis_has_round_ticks_from_0(values: list[float], count: int, ticks: list[float]) -> None:
    assert linear(values, count) == (ticks[0], ticks[-1], ticks)


def test_an_axis_without_zero_keeps_it_where_values_are_far_apart() -> None:
    assert linear([410, 409, 402], 4, zero=False)[2] == [402, 404, 406, 408, 410]
    assert linear([410, 214], 4, zero=False)[0] == 0
    assert linear([410, 410], 4, zero=False)[0] == 0


def test_a_log_axis_has_ticks_at_1_2_and_5() -> None:
    assert logarithmic([128, 4096]) == (100, 5000, [100, 200, 500, 1000, 2000, 5000])
    assert logarithmic([7, 7])[:2] == (5, 10)
    assert logarithmic([0, -1])[0] == 1  # 0 has no place there


@given(st.lists(st.floats(0, 1e9, allow_subnormal=False), min_size=1), st.integers(1, 9))
def test_a_linear_axis_holds_every_value(values: list[float], count: int) -> None:
    low, high, ticks = linear(values, count)
    assert low <= min(values)
    assert high >= max(values) * (1 - 1e-8)
    assert len(ticks) <= count + 3


@given(st.lists(st.floats(1e-6, 1e9), min_size=1))
def test_a_log_axis_holds_every_value(values: list[float]) -> None:
    low, high, _ = logarithmic(values)
    assert low <= min(values) * (1 + 1e-8)
    assert high >= max(values) * (1 - 1e-8)


def test_equal_factors_are_equally_far_apart_on_a_log_scale() -> None:
    scale = Scale(10, 1000, 0, 200, log=True)
    assert [scale(value) for value in (10, 100, 1000)] == pytest.approx([0, 100, 200])


# ---- marks -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0.5, 9)), min_size=1, max_size=200))
def test_bars_stand_where_they_are_however_many_stood_before(steps: list[tuple[float, float]]) -> None:
    boxes = []
    at = 0.0
    for gap, length in steps:
        boxes.append((at + gap, at + gap + length))
        at += gap + length
    drawing = Drawing(10, 10)
    drawing.bars(boxes, 0, 4, "prefill")
    place = 0.0
    for (begin, end), (move, length_told) in zip(
        boxes, re.findall(r"[Mm](\S+) 0h([\d.]+)", drawing.parts[0]), strict=True
    ):
        place += float(move)
        assert place == pytest.approx(begin, abs=0.11)
        place += float(length_told)
        assert place == pytest.approx(end, abs=0.61)  # half a pixel is the least that is drawn


def test_labels_are_escaped_and_stay_in_the_picture() -> None:
    drawing = Drawing(100, 20)
    drawing.text(60, 10, "<b>a label that is much too long</b>")
    page = parse(str(drawing.done("x", "wide", "t", "d", "")))
    (text,) = page.all("text")
    assert text.text.startswith("<b>")
    assert text.text.endswith("\u2026")
    assert not page.all("b")


def test_marks_that_turn_text_around_are_shown_as_unknown() -> None:
    assert plain("a\u202eb\x07c\td\u200f") == "a\ufffdb\ufffdc d\ufffd"


# ---- thinning --------------------------------------------------------------------------------------------------------


def points(count: int) -> list[Placed]:
    view = View("r", 0, "", True, {}, [], [], [], [])
    other = View("r", 1, "", True, {}, [], [], [], [])
    return [
        (number * 37 % 600 + 0.25, number * 61 % 300 + 0.5, (view, other)[number % 2], number * 7 % 1000, str(number))
        for number in range(count)
    ]


def test_few_points_are_all_drawn() -> None:
    assert thinned(points(50), 50) == points(50)


def test_many_are_thinned_the_same_way_each_time_and_the_largest_stays() -> None:
    kept = thinned(points(5_000), 300)
    assert kept == thinned(points(5_000), 300)
    assert 100 < len(kept) <= 300
    assert {one[2].variant for one in kept} == {0, 1}
    assert max(one[3] for one in kept) == max(one[3] for one in points(5_000))


@pytest.mark.parametrize(
    ("label", "value"),
    [("q=2048", 2048), ("x=1e3", 1000), ("effort=high", None), ("q=0", None), ("q=nan", None), ("q=inf", None)],
)
def test_only_numbers_above_0_are_values_of_a_sweep(label: str, value: float | None) -> None:
    assert value_of(label) == value


# ---- contrast --------------------------------------------------------------------------------------------------------


def colours(scheme: str) -> dict[str, str]:
    blocks = re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)
    chosen = {"light": blocks[0], "dark": blocks[1]}[scheme]
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", chosen))


def luminance(colour: str) -> float:
    """WCAG 2.2, "relative luminance"."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_contrast_is_computed_as_wcag_has_it() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)  # the well-known near miss


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_have_the_contrast_of_wcag_aa_and_marks_that_of_graphics(scheme: str) -> None:
    named = colours(scheme)
    words = ("ink", "dim", "link", "good", "warn", "bad", "sim")
    marks = (*(f"v{at}" for at in range(8)), "prefill", "decode", "overlap", "tool", "queued", "waits", "cached", "new")
    for name in words:
        for ground in ("bg", "panel"):
            assert contrast(named[name], named[ground]) >= 4.5, (scheme, name, ground)
    for name in marks:
        assert contrast(named[name], named["bg"]) >= 3, (scheme, name)


def test_both_schemes_name_the_same_colours() -> None:
    assert colours("light").keys() == colours("dark").keys()
    assert set(re.findall(r"var\(--([\w-]+)\)", CSS)) - {"c"} <= colours("light").keys()
