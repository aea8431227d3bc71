"""Does a fit to a log give back the costs that made it, and does it say what the log cannot tell?

The logs are the simulated server's, whose costs are known: those of its profile, with its noise of 0.5 % a call. Reader
and writer of the log share no code, and the fit knows nothing of the profile but what it keeps.
"""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from agentload.analysis import costlines, fit
from agentload.analysis.costlines import Call, CostLines, Step
from agentload.analysis.fit import Fit
from agentload.core.records import LogFacts
from agentload.errors import InputError
from agentload.serverlogs.ds4 import Reader
from agentload.twin import profile as profiles
from agentload.twin.costs import Costs
from agentload.twin.options import Options
from agentload.twin.replay import draw_plan, play
from agentload.twin.truth import line_times, log_bytes

NOON_NS = 1_795_953_600_000_000_000
TRUE = profiles.load("m3-ultra")
OTHER = profiles.load("m3-ultra-agents")  # the base: what is not fitted must come from it
FITTED_STEPS = ("decode.idle_s", "decode.idle_row_s", "decode.after_quantum_s", "decode.after_quantum_row_s")


@cache
def played(quantum: int, *, batch_log: bool = False, agents: int = 3) -> tuple[bytes, LogFacts]:
    plan = draw_plan([12, 15, 20][:agents], 55_000 * agents, 6500 * agents, [0.6, 0.2, 0.2][:agents], 7)
    options = Options(mixed_prefill_quantum=quantum, batch_log=batch_log)
    events = tuple(play(plan, options, TRUE, seed=7, start_ns=NOON_NS, stagger_s=15))
    reader = Reader(line_times(events))
    reader.feed(log_bytes(events))
    return log_bytes(events), reader.close()


def fitted(tmp_path: Path, quantum: int, *, batch_log: bool = False, agents: int = 3) -> Fit:
    data, facts = played(quantum, batch_log=batch_log, agents=agents)
    log = tmp_path / "server.log"
    log.write_bytes(data)
    return fit.of_log(log, facts, OTHER, "mine", "a run")


def seconds(found: Fit, name: str) -> float:
    (value,) = (one.value for one in found.fitted if one.name == name)
    return value


# ---- what made the log comes back ----------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_log", [False, True], ids=["lines of 50 tokens", "a line for each step"])
def test_decode_steps_come_back_within_two_percent(tmp_path: Path, batch_log: bool) -> None:
    """Without a line for each step, those after a quantum are told from the calls that follow them."""
    found = fitted(tmp_path, 128, batch_log=batch_log)
    for name in ("idle", "after_quantum"):
        base, row = seconds(found, f"decode.{name}_s"), seconds(found, f"decode.{name}_row_s")
        held = TRUE.decode.model_dump()
        for rows in (1, 2, 3):
            expected = held[f"{name}_s"]["value"] + rows * held[f"{name}_row_s"]["value"]
            assert base + rows * row == pytest.approx(expected, rel=0.02), (name, rows)


@pytest.mark.parametrize(("quantum", "sizes"), [(128, (64, 128)), (2048, (512, 1024, 2048))])
def test_engine_calls_come_back_within_two_percent_at_sizes_and_contexts_that_the_run_had(
    tmp_path: Path, quantum: int, sizes: tuple[int, ...]
) -> None:
    true = Costs(TRUE, 0, 0, noise=False)
    new = Costs(fitted(tmp_path, quantum).profile, 0, 0, noise=False)
    for position in (10_000, 40_000, 90_000):
        for tokens in sizes:
            expected = true.engine_call_ns(position, tokens, 0)
            assert new.engine_call_ns(position, tokens, 0) == pytest.approx(expected, rel=0.02), (position, tokens)


def test_the_residuals_are_the_noise_that_was_in_the_log(tmp_path: Path) -> None:
    """0.5 % a call and step, and up to 1 ms of the line's resolution."""
    found = fitted(tmp_path, 128, batch_log=True)
    rest = {one.name: one for one in found.residuals}
    assert rest["decode steps right after a quantum"].rms == pytest.approx(0.005, abs=0.001)
    assert rest["engine calls after a decode step"].rms == pytest.approx(0.005, abs=0.002)
    assert all(abs(one.bias) < 0.005 for one in found.residuals)


def test_a_fit_to_calls_made_by_hand_is_exact() -> None:
    """Calls of 128 and 2,048 tokens at 3 and 2 ms a token, 1e-5 ms more for each of context; steps of 100 + 10 ms."""
    calls = [
        Call(position, tokens, rows, tokens * (ms + 1e-5 * (position + tokens / 2)) + (100 + 10 * rows if rows else 0))
        for tokens, ms in ((128, 3.0), (2048, 2.0))
        for rows in (0, 1, 3)
        for position in range(0, 120_000, 12_000)
    ]
    steps = [Step(rows, 50, 20.2 + 5 * rows, after_quantum=False) for rows in (1, 2, 4) for _ in range(5)]
    found = fit.of_costs(CostLines(calls=calls, steps=steps), TRUE, "mine", "by hand")
    made = found.profile
    curve = dict(zip(made.prefill.per_token_ms.at_tokens, made.prefill.per_token_ms.value, strict=True))
    assert (curve[128], curve[2048]) == pytest.approx((3.0, 2.0))
    # No call has 64 or 4,096 tokens: as the base has them (4.2 and 1.79, less 0.11 at no context), scaled.
    assert (curve[64], curve[4096]) == pytest.approx((3.0 * 4.09 / 3.11, 2.0 * 1.68 / 1.77))
    assert "prefill.per_token_ms at 64, 4096: too few calls; the base's, scaled to meet the fit" in found.kept
    assert made.prefill.context_ms_per_token2.value == pytest.approx(1e-5)
    assert (made.prefill.scale.value, made.prefill.context_zero_tokens.value) == (1, 0)
    assert made.decode.after_quantum_s.value == pytest.approx(0.1)
    assert made.decode.after_quantum_row_s.value == pytest.approx(0.01)
    assert made.decode.idle_s.value == pytest.approx(0.02)  # of 20.2 ms, 0.2 are the host's work on a token
    assert made.decode.idle_row_s.value == pytest.approx(0.005)
    assert max(one.rms for one in found.residuals) < 1e-9


# ---- what it cannot tell -------------------------------------------------------------------------------------------


def test_one_agent_alone_tells_nothing_of_others_and_the_base_is_kept(tmp_path: Path) -> None:
    found = fitted(tmp_path, 128, agents=1)
    kept = "\n".join(found.kept)
    assert "decode.idle_s, decode.idle_row_s: two numbers of rows are needed" in kept
    assert "decode.after_quantum_s, decode.after_quantum_row_s: nobody decoded meanwhile" in kept
    assert found.profile.decode == OTHER.decode
    assert found.profile.prefill.switch_s == OTHER.prefill.switch_s
    assert not {one.name for one in found.fitted} & set(FITTED_STEPS)


def by_profile(position: int, tokens: int, times: float) -> float:
    """What a call takes by the published costs, ms, on a machine `times` as slow."""
    curve = {128: 3.22, 512: 2.67, 1024: 2.18}
    return times * tokens * (curve[tokens] + 1e-5 * (position + tokens / 2 - 11_000))


def test_context_is_not_fitted_where_all_calls_have_the_same() -> None:
    calls = [Call(50_000 + at, tokens, 0, tokens * 2.5) for at in range(20) for tokens in (512, 1024)]
    found = fit.of_costs(CostLines(calls=calls), TRUE, "mine", "by hand")
    assert any(one.startswith("prefill.context_ms_per_token2") for one in found.kept)
    assert found.profile.prefill.context_ms_per_token2.value == TRUE.prefill.context_ms_per_token2.value
    new = Costs(found.profile, 0, 0, noise=False)
    assert new.engine_call_ns(50_010, 512, 0) == pytest.approx(512 * 2.5e6, rel=1e-3)


def test_a_context_that_would_make_calls_cheaper_is_not_believed() -> None:
    calls = [
        Call(position, tokens, 0, by_profile(0, tokens, 1.0) - position * 1e-4)
        for tokens in (512, 1024)
        for position in range(0, 100_000, 10_000)
    ]
    found = fit.of_costs(CostLines(calls=calls), TRUE, "mine", "by hand")
    assert found.profile.prefill.context_ms_per_token2.value == TRUE.prefill.context_ms_per_token2.value


def test_calls_of_one_size_tell_how_much_slower_than_the_base_the_machine_is() -> None:
    calls = [Call(at * 5000, 512, 0, by_profile(at * 5000, 512, 1.25)) for at in range(20)]
    found = fit.of_costs(CostLines(calls=calls), TRUE, "mine", "by hand")
    assert found.profile.prefill.scale.value == pytest.approx(1.25)
    assert found.profile.prefill.per_token_ms == TRUE.prefill.per_token_ms
    assert any("too few for a curve" in one for one in found.kept)


def test_steps_that_cannot_be_told_from_the_calls_after_them_are_not_fitted() -> None:
    """Every call has one decoding request before it: the step, 0.127 + 0.014 s, is taken from the base."""
    calls = [
        Call(at * 5000, tokens, 1, by_profile(at * 5000, tokens, 1.1) + 141.0)
        for at in range(20)
        for tokens in (128, 512)
    ]
    found = fit.of_costs(CostLines(calls=calls), TRUE, "mine", "by hand")
    kept = "decode.after_quantum_s, decode.after_quantum_row_s: they cannot be told from the calls that follow"
    assert kept in found.kept
    assert found.profile.decode.after_quantum_s == TRUE.decode.after_quantum_s
    new = Costs(found.profile, 0, 0, noise=False)
    assert new.engine_call_ns(50_000, 128, 0) == pytest.approx(1e6 * by_profile(50_000, 128, 1.1), rel=1e-6)


def test_too_few_calls_leave_prefill_as_it_was() -> None:
    steps = [Step(rows, 50, 20.0 + rows, after_quantum=False) for rows in (1, 2)]
    found = fit.of_costs(CostLines(calls=[Call(0, 128, 0, 400.0)], steps=steps), TRUE, "mine", "by hand")
    assert found.profile.prefill == TRUE.prefill
    assert any(one.startswith("prefill: 1 engine calls are too few") for one in found.kept)


def test_a_log_without_batched_mode_is_refused(tmp_path: Path) -> None:
    data, facts = played(128)
    log = tmp_path / "server.log"
    log.write_bytes(data)
    single = replace(facts, settings=tuple(one for one in facts.settings if "quantum" not in one.name))
    with pytest.raises(InputError, match=r"batched mode.*without prefill_quantum, mixed_prefill_quantum"):
        fit.of_log(log, single, TRUE, "mine", "a run")


# ---- the lines -----------------------------------------------------------------------------------------------------


def test_what_tells_nothing_is_counted(tmp_path: Path) -> None:
    left = dict(fitted(tmp_path, 128).left_out)
    assert left["calls while two prompts or more prefill"] > 0
    assert left["decode lines while somebody prefills"] > 0


def test_two_requests_with_the_same_integers_are_left_out() -> None:
    head = b"1129 12:00:00 ds4-server: chat ctx=100..5000:4900 "
    chunk = b"prefill chunk 0/4900 (0.0%) chunk=0.00 t/s avg=0.00 t/s 0.000s"
    lines = [head + b"prompt start", head + b"prompt start", head + chunk]
    reader = Reader(None)
    reader.feed(b"".join(line + b"\n" for line in lines))
    found = costlines.read(lines, reader.close(), 2048, 128, 4096)
    assert found.left_out["requests with the integers of another one"] == 2
    assert found.calls == []


# ---- the file ------------------------------------------------------------------------------------------------------


def test_the_file_is_a_profile_that_says_of_each_value_where_it_is_from(tmp_path: Path) -> None:
    found = fitted(tmp_path, 128)
    read = profiles.parse(found.toml(), "mine.toml")
    assert read == found.profile
    assert (read.name, read.decode.idle_s.kind) == ("mine", "fitted")
    assert read.decode.idle_s.source.startswith("a run: least squares over ")
    assert read.disk == OTHER.disk
    assert np.isfinite([one.value for one in found.fitted]).all()
