"""Costs: every value has a source, and a call costs what the formula says."""

import re
from importlib import resources

import pytest

from agentload.errors import InputError, UsageError
from agentload.twin import profile as profiles
from agentload.twin.costs import Costs
from agentload.twin.profile import Profile

MS = 1_000_000


def text_of(name: str) -> str:
    return (resources.files("agentload.twin") / "profiles" / f"{name}.toml").read_text(encoding="utf-8")


def quiet(name: str) -> Costs:
    return Costs(profiles.load(name), seed=0, start_ns=0, noise=False)


@pytest.mark.parametrize("name", ["m3-ultra", "m3-ultra-agents"])
def test_every_value_of_a_profile_says_where_it_comes_from(name: str) -> None:
    text = text_of(name)
    values, kinds = len(re.findall(r"(?m)^value = ", text)), len(re.findall(r"(?m)^kind = ", text))
    assert values == kinds == len(re.findall(r'(?m)^source = ".{10,}"$', text)) > 15
    assert profiles.load(name).name == name
    assert name in profiles.names()


def test_a_value_without_a_source_is_refused_and_named() -> None:
    broken = text_of("m3-ultra").replace('source = "the table as it stands"', "", 1)
    with pytest.raises(InputError, match=r"profile mine: prefill\.scale\.source: Field required"):
        profiles.parse(broken, "mine")
    with pytest.raises(InputError, match="profile mine: expected TOML"):
        profiles.parse("schema = ", "mine")
    with pytest.raises(UsageError, match="there is m3-ultra, m3-ultra-agents"):
        profiles.load("m4")


def test_the_agents_profile_differs_in_two_costs_and_says_that_they_are_fitted() -> None:
    """PROTOCOL section 7: prefill x 1.5, and 0.40 s for a decode step after a quantum."""
    plain, agents = profiles.load("m3-ultra"), profiles.load("m3-ultra-agents")
    assert (plain.prefill.scale.value, agents.prefill.scale.value, agents.prefill.scale.kind) == (1.0, 1.5, "fitted")
    assert agents.decode.after_quantum_s.value == 0.40
    assert agents.decode.after_quantum_s.kind == "fitted"
    back = agents.model_copy(update={"name": plain.name, "about": plain.about})
    back = back.model_copy(
        update={
            "prefill": agents.prefill.model_copy(update={"scale": plain.prefill.scale}),
            "decode": agents.decode.model_copy(update={"after_quantum_s": plain.decode.after_quantum_s}),
        }
    )
    assert back == plain


@pytest.mark.parametrize(
    ("tokens", "position", "ms"),
    [
        (2048, 11_000 - 1024, 2048 * 1.88),  # no context term
        (128, 11_000 - 64, 128 * 3.22),
        (256, 11_000 - 128, 256 * (3.22 + 2.67) / 2),  # half way in log2
        (8192, 11_000 - 4096, 8192 * 1.79),  # level above 4096
        (32, 11_000 - 16, 32 * 5.18),  # below 64 the line goes on: 4.2 + 0.98
        (1000, 100_500, 1000 * (2.67 + (2.18 - 2.67) * 0.965784 + 1.0e-5 * 90_000)),
    ],
)
def test_an_engine_call_costs_what_the_formula_says(tokens: int, position: int, ms: float) -> None:
    assert quiet("m3-ultra").engine_call_ns(position, tokens, 0) / MS == pytest.approx(ms, rel=1e-5)


def test_a_decode_step_costs_more_after_a_quantum() -> None:
    costs = quiet("m3-ultra")
    assert costs.decode_step_ns(3, 0, after_quantum=False) == 86 * MS
    assert costs.decode_step_ns(3, 0, after_quantum=True) == 169 * MS


def noisy(profile: Profile, *, boot_sd: float, call_sd: float, drift: float, boot: int = 0) -> Costs:
    def value(number: float) -> profiles.Value:
        return profiles.Value(value=number, kind="assumed", source="a number for a test")

    noise = profile.noise.model_copy(
        update={"boot_sd": value(boot_sd), "call_sd": value(call_sd), "drift_per_hour": value(drift)}
    )
    return Costs(profile.model_copy(update={"noise": noise}), seed=5, start_ns=0, boot=boot)


def test_a_boot_is_as_fast_or_slow_as_a_whole_and_drift_grows_with_the_hours() -> None:
    profile = profiles.load("m3-ultra")
    plain = quiet("m3-ultra").engine_call_ns(0, 2048, 0)
    boots = [noisy(profile, boot_sd=0.1, call_sd=0, drift=0, boot=boot) for boot in range(200)]
    factors = [costs.engine_call_ns(0, 2048, 0) / plain for costs in boots]
    assert [costs.engine_call_ns(0, 2048, 0) / plain for costs in boots] == factors
    mean = sum(factors) / len(factors)
    spread = (sum((one - mean) ** 2 for one in factors) / (len(factors) - 1)) ** 0.5
    assert mean == pytest.approx(1.0, abs=0.03)  # 4 standard errors of 0.1 / sqrt(200)
    assert spread == pytest.approx(0.1, rel=0.25)
    drifting = noisy(profile, boot_sd=0, call_sd=0, drift=0.02)
    assert drifting.engine_call_ns(0, 2048, 2 * 3600 * 1000 * MS) / plain == pytest.approx(1.04)
