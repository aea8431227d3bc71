"""Does the terminal give the answer first, then what it rests on, and what would change it?"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentload.analysis.compare import compare
from agentload.report.comparison_terminal import render
from tests.analysis.experiments import Asked, Ran, design, ds4_log, whole
from tests.analysis.test_compare import QUANTA, alternating, published_runs, speeds, thinking


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return compare(whole(QUANTA, tmp_path_factory.mktemp("table4") / "quanta", published_runs()))


def flowing(found: dict[str, Any]) -> str:
    """The report, its lines joined."""
    return " ".join(render(found).split())


def row(text: str, first: str) -> list[str]:
    """The cells of the first table row that begins with `first`."""
    line = next(line for line in text.splitlines() if line.split()[:1] == [first])
    return [cell for cell in line.split("  ") if cell]


def cells(text: str, first: str) -> list[str]:
    return [cell.strip() for cell in row(text, first)]


def test_the_first_words_are_the_answer(published: dict[str, Any]) -> None:
    said = flowing(published)
    assert said.startswith("A (mixed_prefill_quantum=2048) is faster: 2.20x the prefill speed of B (")
    assert "experiment quanta: mixed_prefill_quantum, A = mixed_prefill_quantum=2048, B = " in said
    assert "4 of 4 restarts of the plan have ended, 4 count" in said
    assert "the repeat is the restart: every value comes from a start of its own" in said
    assert "SIMULATED" not in said


def test_a_simulated_comparison_says_so_first(published: dict[str, Any]) -> None:
    assert render({**published, "simulated": True}).startswith("SIMULATED: A (mixed_prefill_quantum=2048) is faster")


def test_runs_stand_as_in_table_4(published: dict[str, Any]) -> None:
    text = render(published)
    assert cells(text, "01-A") == ["01-A", "A 2048", "yes", "0", "2", "139,599", "169,299", "1,486"]
    second = text.partition("Runs: speed")[2]
    assert cells(second, "01-A") == ["01-A", "485.0", "287.8", "29.2", "32.6 %", "99.9 %"]
    assert cells(second.partition("overlap")[2], "01-A") == ["01-A", "100.0 %", "-"]  # 80 columns do not hold them all
    assert cells(second, "03-B")[:3] == ["03-B", "2,025", "124.6"]


def test_each_metric_has_both_sides_ratio_verdict_and_grade(published: dict[str, Any]) -> None:
    text = render(published).partition("A against B")[2]
    assert cells(text, "prefill_tok_s") == [
        *("prefill_tok_s", "273.3 [263.5 to 287.8]", "124.1 [123.5 to 124.6]", "2.20", "distinguished", "confirmed"),
    ]
    assert cells(text, "equal_work_s")[-1] == "estimate"
    assert "prefill_tokens_per_cpu_s" not in text  # nobody sampled the server's CPU time


def test_the_rule_its_false_claims_and_the_order_are_told(published: dict[str, Any]) -> None:
    said = flowing(published)
    assert "rule: gap 138.9 / wider range 24.3 = 5.7, a claim needs 3.2 at these counts" in said
    assert "the published rule (ranges apart or not) agrees: distinguished" in said
    assert "equals would be called distinguished in 2.0 % of such experiments" in said
    assert "by the published rule 33.3 %" in said
    assert "order: running first in a block is worth" in said
    assert "equal work at the pooled speeds, an ESTIMATE (165,000 new prefill + 20,000 decoded tokens" in said
    assert "A 1,289 s, B 2,256 s, B/A 1.75" in said


def test_settings_are_told_with_the_proving_line_word_for_word(published: dict[str, Any]) -> None:
    said = flowing(published)
    assert (
        "A: mixed_prefill_quantum (under test): requested 2048, in force 2048: applied by 01-A server.log:2 "
        '"0914 12:00:00 ds4-server: batched mode enabled resident_sessions=6 prefill_quantum=2048 '
        'mixed_prefill_quantum=2048 decode_coalesce_us=2000", and in 1 more' in said
    )
    assert "further settings by default" in said


def test_prose_fits_80_columns_and_nothing_is_left_to_change(published: dict[str, Any]) -> None:
    text = render(published)
    prose = [line for line in text.splitlines() if "  " not in line.strip()]
    assert max(len(line) for line in prose if '"' not in line) <= 80
    assert "What would change the answer" not in text


def test_without_a_valid_pair_it_begins_with_invalid_and_what_to_fix(tmp_path: Path) -> None:
    wrong = {name: replace(ran, log=ds4_log(512)) for name, ran in published_runs().items()}
    said = flowing(compare(whole(QUANTA, tmp_path / "e", wrong)))
    assert said.startswith(
        "INVALID: no valid pair: mixed_prefill_quantum: 2048 was asked for, in force is 512 (server.log:2: "
    )
    assert "to fix: find what sets it (a wrapper script, a limit of the server), or ask for the value in force" in said
    assert "01-A does not count (setting-mismatch): mixed_prefill_quantum: 2048 was asked for" in said
    assert " NO 0 2 139,599 " in said


def test_what_is_not_distinguished_says_what_would_change_it(tmp_path: Path) -> None:
    runs = speeds(QUANTA, {"01-A": 100.0, "02-B": 101.0, "03-B": 99.0, "04-A": 100.5})
    said = flowing(compare(whole(QUANTA, tmp_path / "e", runs)))
    assert said.startswith("not distinguished: prefill speed of A (")
    assert "rule: ranges overlap by 1.000; the published rule (ranges apart or not) agrees: not distinguished" in said
    assert "What would change the answer: - more repeats cannot change this: the ranges overlap" in said


def test_an_unfinished_one_says_so(tmp_path: Path) -> None:
    runs = published_runs()
    said = flowing(compare(whole(QUANTA, tmp_path / "e", {name: runs[name] for name in ("01-A", "02-B", "03-B")})))
    assert "doubt (not-complete): 1 of 4 restarts of the plan were not run yet. resume the experiment." in said
    assert "doubt (too-few-restarts): a verdict needs 2 valid restarts a side, there are 1 and 2." in said
    assert "- at least 1 more restart a side is needed before there is a spread to judge by" in said


def test_request_parameters_are_told_as_sets(tmp_path: Path) -> None:
    planned = thinking()
    ran = alternating(planned, {"A": (73.0, 72.0, 74.0), "B": (58.0, 57.0, 59.0)})
    said = flowing(compare(whole(planned, tmp_path / "e", ran)))
    assert said.startswith(
        "A (effort=off) is faster: 1.26x the prefill speed of B (effort=high), distinguished at 3 sets"
    )
    assert "the repeat is the set" in said
    assert "01/s1 A off yes" in said
    assert "restarts a side" not in said


def test_a_sweep_shows_every_variant_and_pair(tmp_path: Path) -> None:
    planned = design(2048, 512, 128, repeats=2)
    values = {"A": (500.0, 501.0), "B": (330.0, 331.0), "C": (220.0, 330.5)}
    taken = {name: iter(told) for name, told in values.items()}
    text = render(
        compare(whole(planned, tmp_path / "e", speeds(planned, {s.run: next(taken[s.variant]) for s in planned.steps})))
    )
    decides = text.partition("prefill_tok_s in tok/s: prefill speed, decides")[2]
    assert cells(decides, "A")[:5] == ["A", "mixed_prefill_quantum=2048", "2", "500.5", "500.0 to 501.0"]
    assert cells(decides, "A/B")[:5] == ["A/B", "1.51", "169.00", "3.2", "distinguished: A is better"]
    assert cells(decides, "B/C")[2] == "overlap"
    assert "- A/C: at the spread seen" in " ".join(text.split())


def test_single_runs_have_no_range_that_could_overlap(tmp_path: Path) -> None:
    planned = design(2048, 512, 128, repeats=1)
    taken = {"A": 500.0, "B": 330.0, "C": 220.0}
    text = render(
        compare(whole(planned, tmp_path / "e", speeds(planned, {s.run: taken[s.variant] for s in planned.steps})))
    )
    decides = text.partition("prefill speed, decides")[2]
    assert cells(decides, "A/B")[:5] == ["A/B", "1.52", "-", "-", "one run a side: no verdict"]
    assert "overlap" not in decides.partition("pairs")[2].partition("equal_work_s in")[0]


def test_the_answer_names_a_metric_that_got_worse(tmp_path: Path) -> None:
    """B prefills 1,000 tokens in 1 s against 2 s, and decodes 101 in 20 s against 10 s.

    Without its first token A's decode is 100 / 10 s, B's 100 / 20 s, ranges of 0.01 tok/s: distinguished the other way.
    """
    planned = design(2048, 512, repeats=2)

    def ran(quantum: int, prefill_s: float, decode_s: float) -> Ran:
        asked = [Asked("a0", 1, 0.0, 1000, 500, prefill_s, 0, 0.0), Asked("a1", 1, 0.0, 0, 500, 0.0, 101, decode_s)]
        return Ran({"s1": asked}, ds4_log(quantum))

    took = {"A": iter(((2.0, 10.0), (2.001, 10.01))), "B": iter(((1.0, 20.0), (1.001, 20.01)))}
    runs = {one.run: ran({"A": 2048, "B": 512}[one.variant], *next(took[one.variant])) for one in planned.steps}
    found = compare(whole(planned, tmp_path / "e", runs))
    assert found["headline"]["price"][0] == "decode speed is 4.999 against 9.995 tok/s of A, distinguished"
    assert "; the price: decode speed is 4.999 against" in flowing(found)


def test_the_fixed_workload_shows_each_concurrency(tmp_path: Path) -> None:
    planned = design(
        *(131_072, 65_536), setting="ctx", repeats=2, workload="fixed", metric="decode_tok_s",
        variants=tuple(
            {"name": name, "label": name, "scenario": {"fixed": {"concurrency": [1, 4]}}, "expected": {}}
            for name in ("A", "B")
        ),
    )  # fmt: skip

    def ran(four: float) -> Ran:
        return Ran(
            {
                f"c{at_once}-r1": [Asked("r0", 0, 0.0, 350, 0, 1.0, 513, 512 / speed, request=f"c{at_once}-r1-r0")]
                for at_once, speed in ((1, 30.0), (4, four))  # 512 after the first one
            },
            ds4_log(2048),
        )

    runs = {"01-A": ran(90.0), "02-B": ran(60.0), "03-B": ran(60.5), "04-A": ran(90.5)}
    text = render(compare(whole(planned, tmp_path / "e", runs)))
    assert " ".join(text.split()).startswith("A is faster: 1.50x the decode speed at concurrency 4 of B, distinguished")
    rounds = text.partition("median of the rounds at each concurrency")[2]
    assert cells(rounds, "run") == ["run", "decode_tok_s_c4", "decode_tok_s_c1", "ttft_s_c1"]
    assert cells(rounds, "01-A") == ["01-A", "90.0", "30.0", "1.000"]
