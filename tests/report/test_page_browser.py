"""Does a real browser without a network show the page whole: its values, both schemes, a phone, paper, the keyboard?"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from agentload.analysis import account as accounts
from agentload.analysis.compare import compare
from agentload.report.html import render
from tests.analysis.experiments import Ran, ds4_log, whole
from tests.analysis.test_account import AGENT
from tests.analysis.test_compare import QUANTA, published_runs
from tests.report import chromium
from tests.report.chromium import Browser
from tests.report.test_page import EVIL, many

PROGRAM: Final = chromium.found()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason=f"there is none of {', '.join(chromium.NAMES)} on PATH")

# Labels of one picture that stand over each other, and those that leave it.
COLLIDING = """
[...document.querySelectorAll('svg[role=img]')].filter(svg => svg.getBoundingClientRect().width > 0).flatMap(svg => {
  const whole = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll('text')].map(one => [one.textContent, one.getBoundingClientRect()]);
  const name = svg.querySelector('title').id;
  const out = texts.filter(([_, box]) => box.left < whole.left - 1 || box.right > whole.right + 1
    || box.top < whole.top - 1 || box.bottom > whole.bottom + 1).map(([words]) => name + ': ' + words);
  const over = texts.flatMap(([words, a], at) => texts.slice(at + 1).filter(([_, b]) => a.left < b.right - 1
    && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3)
    .map(([other]) => name + ': ' + words + ' | ' + other));
  return [...out, ...over];
})
"""
ROWS = """
name => [...document.querySelector(`table[aria-label="${name}"]`).querySelectorAll('tbody tr')]
  .map(row => [...row.children].map(cell => cell.textContent))
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    out = tmp_path_factory.mktemp("pages")
    folder = whole(QUANTA, out / "quanta", published_runs())
    (out / "experiment.html").write_text(
        render.experiment_page(compare(folder), folder.runs.joinpath), encoding="utf-8"
    )
    hostile = [{**AGENT, "agent": f"a{number}", "task": EVIL} for number in range(32)]
    runs = {"01-A": Ran({"s1": many(640, 32)}, ds4_log(2048), agents=hostile, manifest={"simulated": True})}
    path = whole(QUANTA, out / "large", runs).runs / "01-A"
    (out / "run.html").write_text(render.run_page(path, accounts.load(path)), encoding="utf-8")
    return {"experiment": out / "experiment.html", "run": out / "run.html", "folder": folder.path}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert PROGRAM is not None
    with chromium.browser(PROGRAM, tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.mark.parametrize("name", ["experiment", "run"])
@pytest.mark.parametrize("width", [1100, 360])
def test_the_page_asks_for_nothing_and_nothing_is_wrong_with_it(
    browser: Browser, files: dict[str, Path], name: str, width: int
) -> None:
    browser.look(width=width)
    browser.open(files[name])
    assert browser.requests() == [files[name].resolve().as_uri()]
    assert browser.complaints() == []
    assert browser.value("document.scripts.length") == 0
    assert browser.value("document.compatMode") == "CSS1Compat"


def test_values_on_the_page_are_those_of_the_comparison(browser: Browser, files: dict[str, Path]) -> None:
    found = compare_json(files["folder"])
    browser.look()
    browser.open(files["experiment"])
    assert browser.value("document.querySelector('h1').textContent") == found["headline"]["sentence"]
    rows = browser.value(f"({ROWS})('Runs, in the order in which they ran')")
    assert [row[0] for row in rows] == [run["run"] for run in found["runs"]]
    for row, run in zip(rows, found["runs"], strict=True):
        assert int(row[5].replace(",", "")) == run["new_prefill_tokens"]
        assert float(row[7]) == pytest.approx(run["prefill_tok_s"], abs=0.05)


def compare_json(folder: Path) -> dict[str, Any]:
    from_disk: dict[str, Any] = json.loads((folder / "derived" / "comparison.json").read_text())
    return from_disk


def test_points_stand_at_the_height_of_their_values(browser: Browser, files: dict[str, Path]) -> None:
    found = compare_json(files["folder"])
    browser.look()
    browser.open(files["experiment"])
    marks = browser.value(
        """[...document.querySelectorAll('svg.wide:has(#speed-by-order-wide-t) .point')].map(one => {
          const box = one.getBoundingClientRect();
          return [one.textContent.split(',')[0], box.top + box.height / 2] })"""
    )
    grid = browser.value(
        """[...document.querySelectorAll('svg.wide:has(#speed-by-order-wide-t) .grid')]
          .map(one => one.getBoundingClientRect().top)"""
    )
    bottom, top = max(grid), min(grid)  # 0 and 300 tok/s
    values = {run["run"]: run["values"]["prefill_tok_s"] for run in found["runs"]}
    assert sorted(name for name, _ in marks) == sorted(values)
    for name, y in marks:
        assert (bottom - y) / (bottom - top) * 300 == pytest.approx(values[name], rel=0.02)


@pytest.mark.parametrize("name", ["experiment", "run"])
@pytest.mark.parametrize("width", [360, 700, 1100])
def test_no_label_stands_over_another_or_leaves_its_picture(
    browser: Browser, files: dict[str, Path], name: str, width: int
) -> None:
    browser.look(width=width)
    browser.open(files[name])
    assert browser.value(COLLIDING) == []


def test_a_label_over_another_would_be_found(browser: Browser, files: dict[str, Path]) -> None:
    browser.look()
    browser.open(files["experiment"])
    browser.value("(one => one.after(one.cloneNode(true)))(document.querySelector('svg.wide text'))")
    browser.value(
        "document.querySelector('#time-lines-wide-t').parentElement.querySelector('text').setAttribute('x', 900)"
    )
    assert len(browser.value(COLLIDING)) == 2


@pytest.mark.parametrize("name", ["experiment", "run"])
def test_a_phone_scrolls_down_only_and_has_pictures_of_its_own(
    browser: Browser, files: dict[str, Path], name: str
) -> None:
    browser.look(width=360)
    browser.open(files[name])
    assert browser.value("document.documentElement.scrollWidth") == 360
    shown = "[...document.querySelectorAll('svg.{}')].filter(one => one.getBoundingClientRect().width > 0).length"
    assert browser.value(shown.format("wide")) == 0
    assert browser.value(shown.format("narrow")) > 0
    sizes = browser.value(
        """[...document.querySelectorAll('svg.narrow .t')].filter(one => one.getBoundingClientRect().width > 0)
          .map(one => one.getBoundingClientRect().height)"""
    )
    assert min(sizes) >= 10  # CSS pixels, as tall as print


def test_a_dark_screen_gets_a_dark_page_and_paper_a_light_one(browser: Browser, files: dict[str, Path]) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    label = "getComputedStyle(document.querySelector('svg .t')).fill"
    seen = {}
    for name, dark, media in (("light", False, "screen"), ("dark", True, "screen"), ("paper", True, "print")):
        browser.look(dark=dark, media=media)
        browser.open(files["experiment"])
        seen[name] = (browser.value(ground), browser.value(label))
    assert seen["light"] == seen["paper"] == ("rgb(255, 255, 255)", "rgb(27, 31, 36)")
    assert seen["dark"] == ("rgb(20, 23, 27)", "rgb(230, 234, 238)")


def test_what_is_folded_is_on_paper_all_the_same(browser: Browser, files: dict[str, Path]) -> None:
    height = """[...document.querySelectorAll('details table')].map(one => one.getBoundingClientRect().height)"""
    browser.look(width=794, media="print")
    browser.open(files["experiment"])
    assert min(browser.value(height)) > 20
    assert browser.value("document.documentElement.scrollWidth") == 794


def test_the_keyboard_reaches_the_answer_and_every_folded_part(browser: Browser, files: dict[str, Path]) -> None:
    browser.look()
    browser.open(files["experiment"])
    reached = []
    for _ in range(80):
        for kind in ("keyDown", "keyUp"):
            browser.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
        reached.append(browser.value("document.activeElement.tagName + ' ' + document.activeElement.textContent"))
        if reached[-1].startswith("BODY"):
            break
    assert reached[0] == "A To the answer"
    folded = browser.value(
        """[...document.querySelectorAll('summary')]
          .filter(one => !one.parentElement.parentElement.closest('details:not([open])')).length"""
    )
    assert folded > 5
    assert sum(one.startswith("SUMMARY") for one in reached) == folded


def test_a_table_is_copied_as_text_with_tabs(browser: Browser, files: dict[str, Path]) -> None:
    browser.look()
    browser.open(files["experiment"])
    copied = browser.value(
        """(() => { const s = getSelection();
          s.selectAllChildren(document.querySelector('table[aria-label="Runs, in the order in which they ran"]'));
          return s.toString() })()"""
    )
    lines = copied.strip().splitlines()
    assert lines[0].split("\t")[:3] == ["run", "variant", "counts"]
    assert lines[1].split("\t")[:6] == ["01-A", "A 2048", "yes", "2", "0", "139,599"]


def test_hostile_text_is_shown_and_not_obeyed(browser: Browser, files: dict[str, Path]) -> None:
    browser.look()
    browser.open(files["run"])
    rows = browser.value(f"({ROWS})('Agents: what they did')")
    assert rows[0][1] == EVIL
    assert browser.value("document.images.length") == 0
    assert browser.complaints() == []
