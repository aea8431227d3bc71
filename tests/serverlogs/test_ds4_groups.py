"""What is counted of ds4-server requests that no line tells apart, when some were cancelled or have lines of others?"""

from agentload.core.records import LogFacts
from agentload.serverlogs.ds4 import Reader

CTX = "0..6000:6000"
CHUNK = "prefill chunk {0}/6000 (1.0%) chunk=0.00 t/s avg=0.00 t/s {1:.3f}s"


def read(*lines: tuple[str, str]) -> LogFacts:
    reader = Reader(year=2026)
    for stamp, text in lines:
        reader.feed(f"0914 {stamp} ds4-server: chat ctx={text}\n".encode())
    return reader.close()


def test_chunks_that_are_of_one_that_was_done_are_not_counted_for_one_that_was_cancelled() -> None:
    # The first began at :12.5 and was cancelled after 2,048 tokens; the second one began at :13.05.
    facts = read(
        ("12:00:12", f"{CTX} prompt start"),
        ("12:00:13", f"{CTX} prompt start"),
        ("12:00:22", f"{CTX} {CHUNK.format(2048, 10.0)}"),
        ("12:00:23", f"{CTX} {CHUNK.format(2048, 10.24)}"),
        ("12:00:33", f"{CTX} {CHUNK.format(4096, 20.9)}"),  # of one that began in [12.1, 13.1): the first, it seems
        ("12:00:43", f"{CTX} prompt done 29.960s"),  # and this in [13.04, 14.04)
        ("12:00:48", "6000..6050:50 gen=50 decoding chunk=10.00 t/s avg=10.00 t/s 5.000s"),
        ("12:00:48", f"{CTX} gen=50 finish=stop 34.962s"),
    )
    assert sorted(one.new_prefill_tokens or 0 for one in facts.requests) == [2048, 6000]
    assert [(one.new_prefill_tokens, one.finish, one.group) for one in facts.requests] == [
        (2048, None, "boot 0 group 1"),
        (6000, "stop", "boot 0 group 1"),
    ]
    (told,) = (one for one in facts.doubts if one.code == "equal-requests")
    assert told.message.startswith(
        "line 3: the requests that begin in lines 1, 2 cannot be told apart: only their sums"
    )
    assert dict(facts.requests[0].proofs)["new_prefill_tokens"].line in (3, 4)


def test_as_many_were_so_far_as_there_are_lines_of_a_position() -> None:
    starts = [("12:00:12", f"{CTX} prompt start")] * 4
    chunks = [(1024, 5.0, "17")] * 3 + [(2048, 10.0, "22")] * 2 + [(4096, 20.0, "32")]
    facts = read(*starts, *((f"12:00:{at}", f"{CTX} {CHUNK.format(tokens, took)}") for tokens, took, at in chunks))
    told = [one.new_prefill_tokens for one in facts.requests]
    assert sorted(told, key=lambda tokens: tokens or 0) == [None, 1024, 2048, 4096]


def test_what_may_be_of_the_one_that_was_done_proves_nothing_of_the_other() -> None:
    chunks = [(1024, 5.0, "17"), (2048, 10.0, "22"), (4096, 20.0, "32")]
    facts = read(
        *[("12:00:12", f"{CTX} prompt start")] * 2,
        *((f"12:00:{at}", f"{CTX} {CHUNK.format(tokens, took)}") for tokens, took, at in chunks),
        ("12:00:42", f"{CTX} prompt done 30.000s"),
    )
    assert sorted(one.new_prefill_tokens or 0 for one in facts.requests) == [0, 6000]


def test_how_far_each_was_before_there_was_a_choice_is_kept() -> None:
    facts = read(
        ("12:00:10", f"{CTX} prompt start"),
        ("12:00:11", f"{CTX} prompt start"),
        ("12:00:13", f"{CTX} {CHUNK.format(1024, 3.5)}"),  # begun in [9.5, 10.5): the first one's
        ("12:00:21", f"{CTX} {CHUNK.format(4096, 10.5)}"),  # in [10.5, 11.5): either's
        ("12:00:23", f"{CTX} {CHUNK.format(4096, 12.5)}"),  # the same: of both, then
        ("12:00:31", f"{CTX} prompt done 20.500s"),
    )
    assert sorted(one.new_prefill_tokens or 0 for one in facts.requests) == [4096, 6000]


def test_a_finish_line_is_of_a_member_whose_prompt_is_done() -> None:
    finish = "chunk=1.00 t/s avg=1.00 t/s 10.000s"
    facts = read(
        ("11:59:59", "0..90:90 prompt start"),  # prefills for 25 s
        ("12:00:00", "0..90:90 prompt start"),
        ("12:00:00", "40..90:50 prompt start"),
        ("12:00:05", "0..90:90 prompt done 5.000s"),
        ("12:00:05", "40..90:50 prompt done 5.000s"),
        ("12:00:15", f"90..97:7 gen=7 decoding {finish}"),  # of the third, and it could be the second one's
        ("12:00:15", f"90..95:5 gen=5 decoding {finish}"),
        ("12:00:15", "0..90:90 gen=5 finish=stop 15.001s"),
        ("12:00:15", "40..90:50 gen=7 finish=stop 15.001s"),
        ("12:00:24", "0..90:90 prompt done 25.000s"),
        ("12:00:34", f"90..93:3 gen=3 decoding {finish}"),
        ("12:00:34", "0..90:90 gen=3 finish=stop 35.001s"),
    )
    assert [(one.prompt_tokens, one.new_prefill_tokens, one.decoded_tokens, one.finish) for one in facts.requests] == [
        (90, 90, 3, "stop"), (90, 90, 5, "stop"), (90, 50, 7, "stop")
    ]  # fmt: skip
    assert [one.code for one in facts.doubts] == ["equal-requests"]


def test_a_request_is_told_apart_from_more_that_were_cancelled_before_it_than_a_line_is_held_against() -> None:
    def minute(number: int, second: int) -> str:
        return f"12:{number % 60:02d}:{second:02d}" if number < 60 else f"13:{number % 60:02d}:{second:02d}"

    cancelled = [
        (minute(number, second), f"{CTX} {text}")
        for number in range(70)
        for second, text in ((10, "prompt start"), (20, CHUNK.format(2048, 10.0)))
    ]
    facts = read(
        *cancelled,
        (minute(70, 10), f"{CTX} prompt start"),
        (minute(70, 20), f"{CTX} {CHUNK.format(2048, 10.0)}"),
        (minute(70, 30), f"{CTX} {CHUNK.format(4096, 20.0)}"),
        (minute(70, 40), f"{CTX} prompt done 30.000s"),
    )
    assert [one.new_prefill_tokens for one in facts.requests] == [*[2048] * 70, 6000]
    assert {one.group for one in facts.requests} == {None}
    assert [one.code for one in facts.doubts] == ["request-without-end"]
