"""Are requests of ds4-server that no line tells apart each counted once, however many there are?"""

from agentload.serverlogs.ds4 import Reader
from agentload.serverlogs.ds4_equal import first, swapped
from agentload.serverlogs.ds4_request import Open

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
    assert swapped(groups, [alone, of_one, groups[2][1], of_other], 7) == [of_other]
    assert [one.gen for one in (*groups[2], *groups[4])] == [3, 4, 7, 5]
    assert swapped(groups, [alone, of_one], 7) == []
