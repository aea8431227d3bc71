"""Requests in bulk come back as they were."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.core.packed import Mapped, Packed, Packer, came, flat, mapped, pack, shifted, told, values, whole
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
    decode_untimed_tokens=NUMBERS,
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


def test_those_kept_until_they_were_too_many_come_back_with_the_later_ones() -> None:
    packer = Packer(few=1_000)  # no whole number of blocks
    for key in range(2_500, 0, -1):
        packer.add(key, flat(numbered(key)))
    assert list(packer.close()) == [numbered(key) for key in range(1, 2_501)]


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


def test_the_time_of_arrival_moves_too_and_values_that_end_earlier_have_their_defaults() -> None:
    came = replace(numbered(5), t_arrived=1, server_id="c-1")
    assert whole(shifted(flat(came), 100)) == replace(came, prefill_start=105, t_arrived=101)
    assert whole(shifted(flat(numbered(5))[:-2], 100)) == replace(numbered(5), prefill_start=105)


def test_a_field_of_which_some_are_unknown_comes_back_from_thousands_in_any_order() -> None:
    requests = [replace(numbered(number), t_end=None if number % 3 else number) for number in range(1_500)]
    packer = Packer(few=1)
    for number, request in enumerate(requests):
        packer.add(-number, flat(request))
    many = packer.close()
    assert many[1_499] == requests[0]
    assert list(many) == requests[::-1]


def test_values_leave_the_rest_packed_and_are_those_of_the_objects() -> None:
    requests = [numbered(number) for number in range(700)]
    expected = [(number, f"n{number}") for number in range(700)]
    assert list(values(requests, "prefill_start", "label")) == expected
    assert list(values(pack(requests, few=1), "prefill_start", "label")) == expected


def test_last_fields_that_were_left_out_have_their_defaults() -> None:
    packer = Packer(few=0)
    packer.add(0, flat(numbered(1))[:-3])  # up to the proofs' neighbours
    packer.add(1, flat(numbered(2)))
    assert list(packer.close()) == [numbered(1), numbered(2)]


def test_what_is_made_of_packed_requests_is_made_one_by_one_and_of_few_at_once() -> None:
    made: list[str] = []

    def label(request: LoggedRequest) -> str:
        made.append(request.label)
        return request.label

    lazy = mapped(pack([numbered(1), numbered(2)], few=1), label, (1, 0))
    assert isinstance(lazy, Mapped)
    assert not made
    assert lazy[0] == "n2"
    assert made == ["n2"]
    assert list(mapped(lazy, str.upper)) == ["N2", "N1"]
    assert mapped((numbered(3), numbered(4)), label) == ("n3", "n4")


UNTOLD = LoggedRequest(
    boot=0,
    label="r1",
    slot=None,
    prompt_tokens=None,
    cached_tokens=None,
    new_prefill_tokens=None,
    decoded_tokens=None,
    t_slot=None,
    prefill_start=None,
    prefill_end=None,
    decode_start=None,
    decode_end=None,
    t_end=None,
    prefill_ms=None,
    decode_ms=None,
    finish=None,
    server_id="r1",
)


def test_of_a_request_that_came_its_id_and_its_time_are_known() -> None:
    proof = (("t_arrived", Proof(7, 900)),)
    assert whole(came(0, "r1", 5_000, (7, 900))) == replace(UNTOLD, t_arrived=5_000, proofs=proof)
    assert whole(came(0, "r1", None, (7, 900))) == UNTOLD


def test_what_a_line_tells_is_proven_by_it_and_what_is_told_last_counts_and_stands_last() -> None:
    first = told(came(0, "r1", 5_000, (7, 900)), (8, 990), {"finish": "stop", "t_end": 6_000, "prompt_tokens": None})
    assert whole(first) == replace(
        UNTOLD,
        t_arrived=5_000,
        finish="stop",
        t_end=6_000,
        proofs=(("t_arrived", Proof(7, 900)), ("finish", Proof(8, 990)), ("t_end", Proof(8, 990))),
    )
    second = whole(told(first, (9, 1_080), {"finish": "length"}))
    assert (second.finish, second.t_end) == ("length", 6_000)
    assert second.proofs == (("t_arrived", Proof(7, 900)), ("t_end", Proof(8, 990)), ("finish", Proof(9, 1_080)))
