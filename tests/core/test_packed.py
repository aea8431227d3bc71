"""Requests in bulk come back as they were."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.core.packed import Packed, Packer, flat, pack, shifted, whole
from agentload.core.records import LoggedRequest, Proof

NUMBERS = st.none() | st.integers(-(1 << 70), 1 << 70)
TEXTS = st.none() | st.text(max_size=8)
REQUESTS = st.builds(
    LoggedRequest,
    boot=st.integers(0, 9),
    label=st.text(max_size=12),
    slot=NUMBERS,
    prompt_tokens=NUMBERS,
    cached_tokens=NUMBERS,
    new_prefill_tokens=NUMBERS,
    decoded_tokens=NUMBERS,
    t_slot=NUMBERS,
    prefill_start=NUMBERS,
    prefill_end=NUMBERS,
    decode_start=NUMBERS,
    decode_end=NUMBERS,
    t_end=NUMBERS,
    prefill_ms=st.none() | st.floats(0, 1e9),
    decode_ms=st.none() | st.floats(0, 1e9),
    finish=TEXTS,
    tool_call_ids=st.lists(st.text(max_size=5), max_size=3).map(tuple),
    truncated=st.booleans(),
    proofs=st.lists(
        st.tuples(st.text(max_size=5), st.builds(Proof, st.integers(1, 1 << 40), st.integers(0, 1 << 50))), max_size=4
    ).map(tuple),
    group=TEXTS,
)


def numbered(number: int) -> LoggedRequest:
    return LoggedRequest(
        0, f"n{number}", None, number, 0, number, 1, None, number, None, None, None, None, None, None, "stop",
        proofs=(("t_end", Proof(number, 10 * number)),),
    )  # fmt: skip


@settings(max_examples=50)
@given(st.lists(REQUESTS, min_size=1, max_size=20))
def test_what_was_packed_comes_back_equal(requests: list[LoggedRequest]) -> None:
    many = pack([*requests, numbered(7)], few=1)
    assert isinstance(many, Packed)
    assert list(many) == [*requests, numbered(7)]


def test_few_come_back_as_a_tuple_in_the_order_of_their_keys() -> None:
    packer = Packer()
    for key in (3, 1, 2, 1):
        packer.add(key, flat(numbered(key)))
    assert packer.close() == (numbered(1), numbered(1), numbered(2), numbered(3))
    assert pack(()) == ()


def test_many_come_back_one_by_one_from_either_end_and_in_slices() -> None:
    count = 3_001
    packer = Packer(few=100)
    for number in range(count - 1):  # in pairs that ended the other way round
        packer.add(number ^ 1, flat(numbered(number ^ 1)))
    packer.add(count - 1, flat(numbered(count - 1)))
    many = packer.close()
    assert isinstance(many, Packed)
    assert len(many) == count
    assert (many[0], many[-1], many[1_234]) == (numbered(0), numbered(count - 1), numbered(1_234))
    assert list(many[2_999:]) == [numbered(2_999), numbered(3_000)]
    assert all(one.prompt_tokens == number for number, one in enumerate(many))


def test_a_million_requests_would_take_less_than_a_hundred_megabytes() -> None:
    count = 5_120
    many = pack(map(numbered, range(count)), few=0)
    assert isinstance(many, Packed)
    assert sum(map(len, many._blocks)) / count < 100


def test_times_move_and_what_is_no_time_does_not() -> None:
    moved = whole(shifted(flat(numbered(5)), 100))
    assert moved == replace(numbered(5), prefill_start=105)
    assert numbered(5).prefill_start == 5
