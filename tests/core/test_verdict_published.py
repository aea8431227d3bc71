"""Do the two field reports' restarts get the verdicts that they should?

Numbers copied by hand from the reports as PROTOCOL gives them. Report B prints a median and [min, max] of three boots:
those three are taken as the restarts. Busy seconds of report A are printed whole, so speeds are good to 0.1 %.
"""

import itertools

import pytest

from agentload.core.separation import Outcome
from agentload.core.verdict import MetricVerdict, RunValue, judge

# Report A, table 4: new prefill tokens and seconds of the prefill union; run in the order A B, then B A.
REPORT_A = [
    ("q2048", 139_599, 485, 0, 0),
    ("q128", 214_270, 1735, 1, 0),
    ("q128", 252_263, 2025, 2, 1),
    ("q2048", 190_262, 722, 3, 1),
]

# Report B: tok/s of three boots as (min, median, max).
REPORT_B = {
    "c1": {
        "seqs 6 k 5": (58, 58.1, 59),
        "seqs 8 k 5": (52, 58.2, 59),
        "seqs 12 k 5": (52, 54.6, 59),
        "seqs 8 k 3": (51, 51.4, 52),
        "seqs 8 k 7": (51, 52.6, 58),
    },
    "c4": {
        "seqs 6 k 5": (115, 117.1, 118),
        "seqs 8 k 5": (114, 114.3, 116),
        "seqs 12 k 5": (115, 116.1, 117),
        "seqs 8 k 3": (108, 112.9, 114),
        "seqs 8 k 7": (106, 106.4, 108),
    },
    "c8": {
        "seqs 6 k 5": (120, 121.7, 126),
        "seqs 8 k 5": (158, 163.8, 169),
        "seqs 12 k 5": (156, 165.8, 167),
        "seqs 8 k 3": (157, 160.9, 165),
        "seqs 8 k 7": (138, 139.3, 142),
    },
}


def report_b(level: str, first: str, second: str) -> MetricVerdict:
    runs = [RunValue(name, value) for name, values in REPORT_B[level].items() for value in values]
    return judge(f"{level}_tok_s", runs, first, second, higher_is_better=True)


def test_report_a_is_distinguished_with_a_ratio_of_2_20() -> None:
    runs = [
        RunValue(name, amount=tokens, base=busy_s, position=position, block=block)
        for name, tokens, busy_s, position, block in REPORT_A
    ]
    verdict = judge("prefill_tok_s", runs, "q2048", "q128", higher_is_better=True)
    assert verdict.outcome is Outcome.DISTINGUISHED
    assert verdict.decision.gap == pytest.approx(138.9, abs=0.2)
    assert verdict.decision.wider_range == pytest.approx(24.2, abs=0.2)
    assert verdict.decision.separation == pytest.approx(5.7, abs=0.05)
    assert verdict.decision.needed == 3.2
    assert verdict.first.pooled == pytest.approx(273.2, abs=0.2)
    assert verdict.second.pooled == pytest.approx(124.1, abs=0.05)
    assert verdict.ratio == pytest.approx(2.20, abs=0.005)
    assert (verdict.better, verdict.published_agrees, verdict.refusals) == ("q2048", True, ())


def test_report_a_with_wider_runs_is_a_consistent_direction() -> None:
    runs = [RunValue("q2048", value) for value in (316.0, 237.0)]
    runs += [RunValue("q128", value) for value in (123.5, 124.6)]
    verdict = judge("prefill_tok_s", runs, "q2048", "q128")
    assert verdict.outcome is Outcome.CONSISTENT_DIRECTION
    assert verdict.decision.separation == pytest.approx(1.4, abs=0.05)  # (237 - 124.6) / (316 - 237)
    assert verdict.decision.published is Outcome.DISTINGUISHED
    assert not verdict.published_agrees
    assert verdict.greater == "q2048"


@pytest.mark.parametrize(
    ("level", "first", "second", "outcome"),
    [
        ("c8", "seqs 6 k 5", "seqs 8 k 5", Outcome.DISTINGUISHED),
        ("c1", "seqs 6 k 5", "seqs 8 k 5", Outcome.NOT_DISTINGUISHED),
        ("c8", "seqs 8 k 5", "seqs 12 k 5", Outcome.NOT_DISTINGUISHED),
        ("c8", "seqs 8 k 5", "seqs 8 k 7", Outcome.DISTINGUISHED),
        ("c8", "seqs 8 k 3", "seqs 8 k 5", Outcome.NOT_DISTINGUISHED),
    ],
)
def test_report_b_verdicts(level: str, first: str, second: str, outcome: Outcome) -> None:
    verdict = report_b(level, first, second)
    assert verdict.outcome is outcome
    assert verdict.published_agrees


def test_report_b_six_to_eight_sequences_gain_35_percent() -> None:
    verdict = report_b("c8", "seqs 6 k 5", "seqs 8 k 5")
    assert verdict.better == "seqs 8 k 5"
    assert verdict.lead == pytest.approx(0.35, abs=0.005)
    assert verdict.first.pooled_by == "median"


def test_report_b_seven_drafts_lose_15_to_18_percent_at_c8() -> None:
    verdict = report_b("c8", "seqs 8 k 7", "seqs 8 k 5")
    assert verdict.better == "seqs 8 k 5"
    assert verdict.ratio is not None
    assert 0.145 <= 1 - verdict.ratio <= 0.185


def test_report_b_exactly_one_pair_is_distinguished_at_c1() -> None:
    pairs = list(itertools.combinations(REPORT_B["c1"], 2))
    ours = [pair for pair in pairs if report_b("c1", *pair).outcome is Outcome.DISTINGUISHED]
    published = [pair for pair in pairs if report_b("c1", *pair).decision.published is Outcome.DISTINGUISHED]
    assert ours == published == [("seqs 6 k 5", "seqs 8 k 3")]


def test_report_b_without_a_claim_there_is_no_percentage() -> None:
    verdict = report_b("c1", "seqs 6 k 5", "seqs 8 k 5")
    assert (verdict.lead, verdict.greater, verdict.better) == (None, None, None)


def test_report_b_two_pairs_at_c4_are_apart_by_less_than_the_rule_asks() -> None:
    # [108, 114] against [115, 118] and [115, 117]: gap 1, wider range 6, 0.17 < c(3) = 0.55
    for other in ("seqs 6 k 5", "seqs 12 k 5"):
        verdict = report_b("c4", "seqs 8 k 3", other)
        assert verdict.outcome is Outcome.CONSISTENT_DIRECTION
        assert verdict.decision.separation == pytest.approx(1 / 6)


def test_single_boots_of_one_configuration_get_no_verdict() -> None:
    # the same configuration booted four times gave 44.4 to 58.1: any two of them differ by up to 31 %
    verdict = judge("c1_tok_s", [RunValue("one", 44.4), RunValue("other", 58.1)], "one", "other")
    assert verdict.outcome is Outcome.NO_VERDICT
    assert [doubt.code for doubt in verdict.doubts] == ["too-few-restarts"]
