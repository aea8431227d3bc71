"""What did a server count in a segment? Events in, hand-counted sums out."""

from typing import Any

import pytest

from agentload.analysis.metrics_deltas import segment
from agentload.artifacts.events import MetricsSeen
from agentload.report import metrics_lines

S = 1_000_000_000


def seen(at_s: int, values: dict[str, float], where: str = "periodic", name: str = "s", **fields: Any) -> MetricsSeen:
    fields = {"software": "vllm", "accepted_at": [], "began_s": 5.0, "took_ns": 1, **fields}
    return MetricsSeen.model_validate(
        {"event": "metrics", "t": at_s * S, "segment": name, "where": where, "values": values, **fields}
    )


def test_a_segment_has_what_was_counted_between_its_two_ends() -> None:
    looks = [
        seen(1, {"prompt_tokens": 100.0, "generation_tokens": 7.0, "running": 0.0}, "begin"),
        seen(2, {"prompt_tokens": 250.0, "generation_tokens": 9.0, "running": 4.0, "waiting": 2.0}),
        seen(3, {"prompt_tokens": 400.0, "generation_tokens": 27.0, "running": 0.0}, "end"),
        seen(4, {"prompt_tokens": 900.0}, "begin", "another"),
    ]
    found, doubts = segment(looks, "s")
    assert found is not None
    assert (found["begin_ns"], found["end_ns"], found["looks"], found["whole"]) == (S, 3 * S, 3, True)
    assert found["prompt_tokens"] == {"all": 300, "computed": None, "cached": None, "transferred": None}
    assert (found["generation_tokens"], found["running_peak"], found["waiting_peak"]) == (20, 4, 2)
    assert (found["queue_seconds"], found["speculation"]) == (None, None)
    assert doubts == ()


def test_one_look_tells_no_difference() -> None:
    assert segment([seen(1, {"prompt_tokens": 100.0}, "begin")], "s") == (None, ())
    assert segment([], "s") == (None, ())


@pytest.mark.parametrize(
    "values",
    [
        (100.0, 10.0, 400.0),  # between the first two
        (100.0, 200.0, 40.0),
    ],
)
def test_counters_that_began_anew_are_noticed_also_when_they_have_grown_past_the_first_look(
    values: tuple[float, ...],
) -> None:
    found, doubts = segment([seen(at, {"prompt_tokens": one}) for at, one in enumerate(values)], "s")
    assert found is not None
    assert (found["restarted"], found["prompt_tokens"]["all"]) == (True, None)
    assert [one.code for one in doubts] == ["metrics-restarted"]
    text = " ".join(metrics_lines.of_segment({"metrics": found, "whole": {}}))
    assert "began anew" in text


def test_overlap_by_looks_is_of_those_in_which_one_request_prefilled() -> None:
    phases = [(1.0, 2.0), (1.0, 0.0), (0.0, 3.0), (2.0, 1.0), (1.0, 1.0)]
    looks = [
        seen(at, {"prefilling": prefill, "decoding": decode}, software="ds4")
        for at, (prefill, decode) in enumerate(phases)
    ]
    found, _ = segment(looks, "s")
    assert found is not None
    assert found["sampled"] == {
        "busy": None,
        "several": None,
        "tells_phases": True,
        "prefilling": 4,
        "both": 3,
        "overlap": 0.75,
    }
    text = " ".join(metrics_lines.of_segment({"metrics": found, "whole": {"overlap": 0.5}}))
    assert "overlap by looks: 75.0 %" in text
    assert "exact: 50.0 %" in text


def test_a_server_that_tells_no_phases_has_no_overlap_by_looks_and_that_is_said() -> None:
    found, _ = segment([seen(at, {"running": one}) for at, one in enumerate((0.0, 1.0, 3.0, 2.0))], "s")
    assert found is not None
    assert (found["sampled"]["busy"], found["sampled"]["several"], found["sampled"]["overlap"]) == (3, 2, None)
    text = " ".join(metrics_lines.of_segment({"metrics": found, "whole": {}}))
    assert "several requests ran in 2 of 3 looks" in text
    assert "no overlap by looks" in text


def test_both_lengths_of_speculation_are_told_in_words() -> None:
    # The real vLLM of the samples: 64 tokens, 3 of them first ones, in 22 steps; 45 accepted tokens in 19 drafts.
    names = ("generation_tokens", "first_token_requests", "decode_steps", "drafts", "draft_tokens", "accepted_tokens")
    end = dict(zip(names, (64.0, 3.0, 22.0, 19.0, 45.0, 45.0), strict=True))
    found, _ = segment(
        [seen(1, dict.fromkeys(names, 0.0), accepted_at=[0, 0, 0]), seen(2, end, accepted_at=[19, 13, 13])], "s"
    )
    assert found is not None
    assert found["speculation"]["acceptance_by_position"] == [1.0, 13 / 19, 13 / 19]
    assert found["speculation"]["effective_length"] == 61 / 22
    assert found["speculation"]["nominal_length"] == 1 + 45 / 19
    text = " ".join(metrics_lines.of_segment({"metrics": found, "whole": {}}))
    assert "effective length 2.77, nominal length 3.37, accepted by position 1.00 0.68 0.68" in text
