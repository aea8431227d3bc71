"""Cached tokens of llama.cpp's server, when the line of a prompt's first batch is missing or stands elsewhere."""

import pytest

from agentload.core.records import LogFacts, LoggedRequest
from agentload.serverlogs import llamacpp

SLOT = "I slot   operator(): id  2 | task 41 | "
LAUNCH = "0.06.013.140 I slot launch_slot_: id  2 | task 41 | processing task, is_child = 0"
NEW = f"0.06.016.221 {SLOT}new prompt, n_ctx_slot = 1024, n_keep = 0, task.n_tokens = 631"
FIRST = f"0.06.016.380 {SLOT}cached n_tokens = 24, memory_seq_rm [24, end)"
SECOND = f"0.06.867.132 {SLOT}cached n_tokens = 152, memory_seq_rm [152, end)"
CANCELLED = (
    "0.07.016.532 W srv          stop: cancel task, id_task = 41",
    "0.07.600.716 I slot      release: id  2 | task 41 | stop processing: n_tokens = 280, truncated = 0",
)
RATES = "(    6.67 ms per token,   150.00 tokens per second)"
DRAFTED = "0.07.900.050 I slot print_timing: id  2 | task 41 | draft acceptance = 0.5"
FINISHED = (
    f"0.07.900.000 I slot print_timing: id  2 | task 41 | prompt eval time =    1600.00 ms /   607 tokens {RATES}",
    f"0.07.900.010 I slot print_timing: id  2 | task 41 |        eval time =     250.00 ms /    11 tokens {RATES}",
    "0.07.900.020 I slot print_timing: id  2 | task 41 |       total time =    1850.00 ms /   618 tokens",
    "0.07.900.100 I slot      release: id  2 | task 41 | stop processing: n_tokens = 641, truncated = 0",
)


def read(*lines: str, bulk: bool) -> LogFacts:
    reader = llamacpp.Reader(small=0 if bulk else 1 << 30)
    noise = "0.00.002.000 I srv  update_slots: all slots are idle"  # the last lines of a block are read one by one
    reader.feed("".join(f"{line}\n" for line in (noise, LAUNCH, *lines, *(noise,) * 9)).encode())
    return reader.close()


def only(facts: LogFacts) -> LoggedRequest:
    (one,) = facts.requests
    return one


@pytest.mark.parametrize("bulk", [True, False])
@pytest.mark.parametrize(
    "lines", [(NEW, FIRST, SECOND), (NEW, SECOND, FIRST), (FIRST, NEW, SECOND), (NEW, FIRST), (SECOND, FIRST, NEW)]
)
def test_the_first_batch_is_the_one_begun_with_its_prompt_wherever_its_line_stands(
    lines: tuple[str, ...], *, bulk: bool
) -> None:
    facts = read(*lines, *CANCELLED, bulk=bulk)
    assert (only(facts).prompt_tokens, only(facts).cached_tokens, only(facts).finish) == (631, 24, "cancelled")
    assert dict(only(facts).proofs)["cached_tokens"].line == 3 + lines.index(FIRST)
    assert facts.doubts == ()


@pytest.mark.parametrize("bulk", [True, False])
def test_the_second_batch_is_not_taken_for_the_first_whose_line_is_missing(*, bulk: bool) -> None:
    facts = read(NEW, SECOND, *CANCELLED, bulk=bulk)
    assert (only(facts).prompt_tokens, only(facts).cached_tokens, only(facts).new_prefill_tokens) == (631, None, None)
    (doubt,) = facts.doubts
    assert doubt.code == "cached-count-unknown"
    assert "the line of its first batch is missing, the first one there says 152" in doubt.message


@pytest.mark.parametrize("bulk", [True, False])
def test_without_its_prompt_line_no_batch_is_known_to_be_the_first(*, bulk: bool) -> None:
    facts = read(SECOND, *CANCELLED, bulk=bulk)
    assert (only(facts).prompt_tokens, only(facts).cached_tokens) == (None, None)
    assert [one.code for one in facts.doubts] == ["cached-count-unknown"]


@pytest.mark.parametrize("bulk", [True, False])
def test_what_the_end_of_a_request_says_stands_in_for_a_missing_first_batch(*, bulk: bool) -> None:
    facts = read(NEW, SECOND, *FINISHED, bulk=bulk)
    assert only(facts).cached_tokens == 641 - (11 - 1) - 607 == 24
    assert only(facts).prompt_tokens == 631
    assert facts.doubts == ()


@pytest.mark.parametrize("bulk", [True, False])
def test_a_first_batch_that_came_late_counts_when_the_prompts_size_says_the_same(*, bulk: bool) -> None:
    late = FIRST.replace("0.06.016.380", "0.06.060.000")  # a kept state was read back before it
    facts = read(NEW, late, SECOND, DRAFTED, *FINISHED, bulk=bulk)  # of a draft model the end tells nothing
    assert only(facts).cached_tokens == 631 - 607 == 24
    assert facts.doubts == ()
    lost = read(NEW, SECOND, DRAFTED, *FINISHED, bulk=bulk)
    assert only(lost).cached_tokens is None
    assert [one.code for one in lost.doubts] == ["cached-count-unknown"]


def test_without_times_the_order_tells() -> None:
    lines = [line.split(" I ", 1)[1] for line in (LAUNCH, NEW, FIRST, SECOND)]
    end = "slot      release: id  2 | task 41 | stop processing: n_tokens = 280, truncated = 0"
    for order, cached in ((lines, 24), ([lines[0], lines[3], lines[1]], None)):
        reader = llamacpp.Reader()
        reader.feed("".join(f"{line}\n" for line in (*order, end)).encode())
        assert only(reader.close()).cached_tokens == cached
