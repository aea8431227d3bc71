"""Are requests of ds4-server that no line tells apart each counted once, however many there are?"""

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from agentload.serverlogs.ds4 import Reader
from agentload.serverlogs.ds4_equal import Index, Indices, first, swapped
from agentload.serverlogs.ds4_request import Anchor, Open

SECOND_NS = 1_000_000_000
MOST = 64  # requests that a line is held against
TEXTS = (
    ("00", "chat ctx=0..90:90 prompt start"),
    ("05", "chat ctx=0..90:90 prompt done 5.000s"),
    ("15", "chat ctx=90..97:7 gen=7 decoding chunk=0.70 t/s avg=0.70 t/s 10.000s"),
    ("20", "chat ctx=0..90:90 gen=7 finish=stop 20.000s"),
)


def opened(number: int, *, gen: int = 0, group: int | None = None, gone: bool = False) -> Open:
    one = Open(0, number, (number, 0), b"0..90:90", 0, 90, 90)
    one.gen, one.group, one.gone = gen, group, gone
    return one


def test_more_equal_requests_than_are_compared_are_each_counted_once() -> None:
    count = 3 * MOST
    reader = Reader()
    for second, text in TEXTS:
        reader.feed(f"0914 12:00:{second} ds4-server: {text}\n".encode() * count)
    facts = reader.close()
    assert facts.lines.understood == 4 * count
    assert [(one.new_prefill_tokens, one.decoded_tokens, one.finish) for one in facts.requests] == [
        (90, 7, "stop")
    ] * count
    assert {one.group for one in facts.requests} == {"boot 0 group 1"}
    # Every line proves something of one request only.
    ends = [dict(one.proofs)["t_end"].line for one in facts.requests]
    assert sorted(ends) == list(range(3 * count + 1, 4 * count + 1))


def test_the_oldest_are_held_against_a_line_and_no_more_are_looked_at() -> None:
    those = [opened(number) for number in range(MOST + 2)]
    coming = iter(those)
    assert first(coming) == those[:MOST]
    assert next(coming) is those[MOST]


def test_those_that_seem_to_have_ended_come_only_where_there_are_no_others() -> None:
    gone = [opened(number, gone=True) for number in range(MOST + 1)]
    here = opened(MOST + 1)
    assert first([*gone, here]) == [here]
    assert first(gone) == gone[:MOST]
    assert first([]) == []


def test_a_member_gets_the_decode_lines_of_another_of_its_own_group() -> None:
    alone, of_one, of_other = opened(1), opened(2, gen=3, group=2), opened(4, gen=5, group=4)
    groups = {2: [of_one, opened(3, gen=4, group=2)], 4: [of_other, opened(5, gen=7, group=4)]}
    assert swapped(groups, [alone, of_one, groups[2][1], of_other], 7) == [of_other, groups[4][1]]
    assert [one.gen for one in (*groups[2], *groups[4])] == [3, 4, 7, 5]
    assert swapped(groups, [alone, of_one], 7) == []


def test_of_very_many_only_one_of_each_state_is_asked_whether_it_is_wanted() -> None:
    index = Index[int]()
    those = [opened(number) for number in range(10 * MOST)]
    for one in those:
        index.add(90, one)
    for one in those[:-3]:
        one.gen = 7
        index.moved(90, one)
    asked = []

    def is_new(one: Open) -> bool:
        asked.append(one)
        return one.gen == 0

    assert list(index.those(90, is_new)) == those[-3:]
    assert len(asked) == 5  # one that has decoded, one that has not, and each of the three that are given


def test_a_request_is_found_by_its_state_in_the_order_in_which_it_came_whatever_the_others_do() -> None:
    index = Index[bytes]()
    those = [opened(number) for number in range(2 * MOST)]
    for one in those:
        index.add(b"0..90:90", one)
    for one in reversed(those):
        one.chunk, one.chunked = 40, (1, 1)
        index.moved(b"0..90:90", one)
    assert list(index.those(b"0..90:90", lambda one: one.chunk == 40)) == those
    for one in those[::2]:
        index.drop(b"0..90:90", one)
    assert list(index.those(b"0..90:90", lambda one: one.chunk == 40)) == those[1::2]
    assert index.of == {b"0..90:90": those[1::2]}
    for one in those[1::2]:
        index.drop(b"0..90:90", one)
    assert index.of == {}


def test_of_very_many_only_those_that_began_near_a_time_are_looked_at() -> None:
    index = Index[bytes]()
    those = [opened(number) for number in range(2 * MOST)]
    for one in those:
        index.add(b"0..90:90", one)
        one.begin.add(one.number * 2 * SECOND_NS)
    asked = []

    def all_are(one: Open) -> bool:
        asked.append(one)
        return True

    # At most four seconds before and after 101 s: from 97 to 105 s.
    assert [one.number for one in index.near(b"0..90:90", all_are, 101 * SECOND_NS)] == [49, 50, 51, 52]
    assert len(asked) == 5  # one for all that are in its state, and each of the four
    assert list(index.near(b"0..8:8", all_are, 0)) == []


def has_generated(gen: int, one: Open) -> bool:
    return one.gen == gen


def is_before(chunk: int, one: Open) -> bool:
    return one.done_ns is None and one.chunk < chunk


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 400), st.sampled_from((0, 7, 50))), max_size=120))
def test_what_an_index_gives_is_what_going_through_all_gives(steps: list[tuple[int, int, int]]) -> None:
    index = Index[int]()
    those = [opened(number) for number in range(2 * MOST)]
    for one in those:
        index.add(90, one)
    came = len(those)
    for what, at, gen in steps:
        if what == 0:
            those.append(opened(came, gen=gen))
            index.add(90, those[-1])
            came += 1
        elif what == 1:
            del_from = at % len(those)
            for one in those[del_from : del_from + 20]:
                index.drop(90, one)
            del those[del_from : del_from + 20]
        elif those:
            one = those[at % len(those)]
            if what == 2:
                one.done_ns = gen
            elif what == 3:
                one.chunk, one.chunked = gen, (1, 1)
            elif what == 4:
                one.first_decode = Anchor()
            one.gen = gen if what > 3 else one.gen
            index.moved(90, one)
        if not those:
            break
        assert list(index.those(90, partial(has_generated, gen))) == [one for one in those if one.gen == gen]
        assert list(index.those(90, partial(is_before, gen))) == [one for one in those if is_before(gen, one)]


def test_no_group_is_gone_through_for_decode_lines_that_no_request_was_given() -> None:
    by = Indices()
    one, other = opened(1, gen=5, group=1), opened(2, gen=7, group=1)
    for each in (one, other):
        by.add(each)
    nothing: dict[int, list[Open]] = {}  # would give nothing: which request it is does not come to be asked
    assert by.swapped(nothing, [one], 90, 6) == []
    assert by.swapped({1: [one, other]}, [one], 90, 7) == [one]
    assert (one.gen, other.gen) == (7, 5)


def test_a_second_pass_is_found_where_it_begins_and_stays_in_its_place_under_its_span() -> None:
    by = Indices()
    those = [opened(number, gen=7) for number in range(2 * MOST)]
    for each in those:
        by.add(each)
    one = those[3]
    by.base.drop(90, one)
    one.base, one.earlier_gen, one.gen, one.first_decode = 110, 7, 0, Anchor()
    by.passed(one)
    one.gen = 5  # what reads it without a word to the index
    assert list(by.base.those(110, lambda each: each.gen == 5)) == [one]
    assert list(by.ctx.those(b"0..90:90", lambda each: each.gen in (5, 7))) == those
    assert list(by.ctx.those(b"0..90:90", lambda each: each.gen == 5)) == [one]


def test_of_two_that_began_a_second_apart_the_lines_are_of_the_one_that_they_put_between_both() -> None:
    ctx = "ds4-server: chat ctx=3000..6000:3000"
    lines = (
        f"0914 12:00:12 {ctx} prompt start",  # and cancelled at once
        f"0914 12:00:13 {ctx} prompt start",
        f"0914 12:00:14 {ctx} prefill chunk 0/3000 (0.0%) chunk=0.00 t/s avg=0.00 t/s 0.200s",  # begun 13.8 .. 14.8
        f"0914 12:00:24 {ctx} prefill chunk 2048/3000 (68.3%) chunk=1.00 t/s avg=1.00 t/s 10.240s",  # 13.76 .. 14.76
        f"0914 12:00:28 {ctx} prompt done 15.000s",  # begun 13 .. 14: between :12.5 and :13.9, nearer to the latter
        "0914 12:00:33 ds4-server: chat ctx=6000..6050:50 gen=50 decoding chunk=11.00 t/s avg=11.00 t/s 4.545s",
        f"0914 12:00:33 {ctx} gen=50 finish=stop 19.548s",
    )
    reader = Reader()
    reader.feed("".join(line + "\n" for line in lines).encode())
    one, other = reader.close().requests
    assert (one.new_prefill_tokens, one.decoded_tokens, one.finish) == (None, None, None)
    assert (other.new_prefill_tokens, other.decoded_tokens, other.finish) == (3000, 50, "stop")
