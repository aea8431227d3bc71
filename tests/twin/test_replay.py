"""Plans have the totals they were asked for, and agents do one thing after the other."""

from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.twin import profile as profiles
from agentload.twin.events import Request
from agentload.twin.options import Options
from agentload.twin.replay import draw_plan, play
from agentload.twin.truth import log_bytes
from tests.twin.worlds import SECOND, only

PROFILE = profiles.load("m3-ultra")


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 30), st.floats(0.1, 3)), min_size=1, max_size=6),
    st.integers(10_000, 300_000),
    st.integers(5_000, 50_000),
    st.integers(0, 1000),
)
def test_a_plan_has_exactly_the_tokens_and_requests_asked_for(
    agents: list[tuple[int, float]], new_tokens: int, written_tokens: int, seed: int
) -> None:
    counts, shares = [count for count, _ in agents], [share for _, share in agents]
    plan = draw_plan(counts, new_tokens, written_tokens, shares, seed)
    assert [len(turns) for turns in plan] == counts
    assert sum(turn.new_tokens for turns in plan for turn in turns) == new_tokens
    assert sum(turn.written_tokens for turns in plan for turn in turns) == written_tokens
    assert all(turn.new_tokens > 0 and turn.written_tokens > 0 and turn.tool_ns >= 0 for t in plan for turn in t)


def test_agents_start_15_s_apart_and_send_when_their_tool_is_done() -> None:
    plan = draw_plan([4, 4, 4], 30_000, 1_500, (1, 1, 1), 3)
    ended = {one.request: one for one in only(Request, play(plan, Options(), PROFILE, seed=3))}
    assert [ended[f"a{agent}-t0"].arrival_ns for agent in range(3)] == [0, 15 * SECOND, 30 * SECOND]
    for agent, turns in enumerate(plan):
        for number, turn in enumerate(turns[:-1]):
            sent = ended[f"a{agent}-t{number + 1}"].arrival_ns
            assert sent == ended[f"a{agent}-t{number}"].end_ns + turn.tool_ns
    assert all(ended[f"a{agent}-t{n}"].cache_source == "memory" for agent in range(3) for n in range(1, 4))
    assert {one.new_prefill_tokens for one in ended.values()} == {turn.new_tokens for t in plan for turn in t}


def test_the_same_seed_gives_the_same_log_and_another_one_another() -> None:
    plan = draw_plan([3, 3], 12_000, 600, (1, 1), 1)
    logs = [log_bytes(play(plan, Options(), PROFILE, seed=seed)) for seed in (1, 1, 2)]
    assert logs[0] == logs[1]
    assert logs[0] != logs[2]
