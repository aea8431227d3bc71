"""What a log of llama.cpp's server can hold beside whole requests in order."""

import pytest

from agentload.core.records import LogFacts
from agentload.serverlogs.llamacpp import FORMAT, Reader

START = b"""0.00.003.799 I srv          init: initializing ...
0.00.403.605 I cmn          init: llama threadpool init, n_threads = 1
0.00.468.965 I srv          init: model loaded
0.00.469.031 I srv          init: listening on http://127.0.0.1:18393
"""
LAUNCH = b"0.01.000.000 I slot launch_slot_: id  1 | task 7 | processing task, is_child = 0\n"
PROMPT = (
    b"0.02.000.000 I slot print_timing: id  1 | task 7 | prompt eval time =     600.00 ms /    90 tokens"
    b" (    6.67 ms per token,   150.00 tokens per second)\n"
)
EVAL = (
    b"0.02.000.100 I slot print_timing: id  1 | task 7 |        eval time =     300.00 ms /    11 tokens"
    b" (   30.00 ms per token,    33.33 tokens per second)\n"
)
TOTAL = b"0.02.000.120 I slot print_timing: id  1 | task 7 |       total time =     900.00 ms /   101 tokens\n"
RELEASE = b"0.02.000.200 I slot      release: id  1 | task 7 | stop processing: n_tokens = 150, truncated = 0\n"
WHOLE = LAUNCH + PROMPT + EVAL + TOTAL + RELEASE  # cached: 150 - 10 - 90 = 50


def read(data: bytes, stamps: list[int] | None = None) -> LogFacts:
    reader = FORMAT.reader(stamps)
    reader.feed(data)
    return reader.close()


def codes(facts: LogFacts) -> list[str]:
    return [doubt.code for doubt in facts.doubts]


def counts(facts: LogFacts) -> list[tuple[int | None, ...]]:
    return [(one.cached_tokens, one.new_prefill_tokens, one.decoded_tokens) for one in facts.requests]


def test_a_plain_request_raises_no_doubt() -> None:
    facts = read(START + WHOLE)
    assert (counts(facts), codes(facts), facts.lines.unknown) == ([(50, 90, 11)], [], 0)


def test_a_request_open_at_the_end_is_kept_with_what_is_known() -> None:
    (one,) = read(START + LAUNCH).requests
    assert (one.label, one.t_slot, one.t_end, one.finish, one.new_prefill_tokens) == (
        "slot 1 task 7",
        1_000_000_000,
        None,
        None,
        None,
    )


@pytest.mark.parametrize("small", [0, 1 << 20])
def test_times_that_go_back_without_a_start_up_line_are_told(small: int) -> None:
    # Another process's lines behind those of one that ran for 501.0002 s: its first request is of 1 s.
    late = WHOLE.replace(b"0.01.000", b"8.20.000").replace(b"0.02.000", b"8.21.000")
    reader = Reader(small=small)
    reader.feed(START + late + WHOLE.replace(b"task 7", b"task 8"))
    facts = reader.close()
    (doubt,) = facts.doubts
    assert doubt.code == "stamps-go-back"
    assert doubt.message.startswith("line 10: the stamp is 500.0 s earlier than that of a line before it")
    assert counts(facts) == [(50, 90, 11), (50, 90, 11)]


@pytest.mark.parametrize(
    ("between", "launched"),
    [(START, b"0.01.000.000"), (b"", b"0.01.000.200")],
    ids=["a start-up", "a second, not more"],
)
def test_times_that_go_back_by_a_second_or_at_a_start_are_not_told(between: bytes, launched: bytes) -> None:
    # The request before ended at 2.0002 s.
    facts = read(START + WHOLE + between + LAUNCH.replace(b"0.01.000.000", launched).replace(b"task 7", b"task 8"))
    assert (len(facts.requests), codes(facts)) == (2, [])


def test_a_restart_leaves_requests_open_and_may_use_their_numbers_again() -> None:
    facts = read(START + LAUNCH + START + WHOLE)
    assert [(one.boot, one.label, one.t_end) for one in facts.requests] == [
        (0, "slot 1 task 7", None),
        (1, "slot 1 task 7", 2_000_200_000),
    ]
    assert [(boot.first_line, boot.ready and boot.ready.line) for boot in facts.boots] == [(1, 4), (6, 9)]


def test_warnings_before_the_first_line_of_a_start_belong_to_it() -> None:
    early = (
        b"warn: LLAMA_ARG_UBATCH environment variable is set, but will be overwritten by command line argument -ub\n"
        b"0.00.003.844 W DEPRECATED: argument '-b' specified multiple times, use comma-separated values instead "
        b"(only last value will be used)\n"
    )
    facts = read(START + WHOLE + early + START + WHOLE, list(range(10**18, 10**18 + 20)))
    assert [boot.first_line for boot in facts.boots] == [1, 10]
    assert codes(facts) == ["environment-overwritten", "flag-given-twice"]
    assert facts.doubts[1].message.startswith("line 11: the server was given -b more than once")
    # The stamp of the early line is of the second start: it must not move the clock of the first.
    assert facts.requests[0].t_end == 10**18 + 8


def test_a_log_cut_at_the_front_gives_what_it_has_and_says_so() -> None:
    facts = read(PROMPT + EVAL + TOTAL + RELEASE)
    assert (counts(facts), codes(facts)) == ([(50, 90, 11)], ["log-cut-at-front"])
    assert facts.requests[0].t_slot is None


def test_lines_of_a_request_that_was_never_launched_are_not_used() -> None:
    facts = read(START + WHOLE + PROMPT.replace(b"task 7", b"task 8") + RELEASE.replace(b"id  1", b"id  0"))
    assert (counts(facts), facts.lines.unknown, codes(facts)) == ([(50, 90, 11)], 2, ["stray-request-line"])
    assert facts.doubts[0].message.endswith("(and 1 more such lines)")


@pytest.mark.parametrize("line", [LAUNCH, PROMPT, EVAL, TOTAL])
def test_a_line_told_twice_counts_once(line: bytes) -> None:
    changed = line.replace(b"  90 tokens", b"  91 tokens").replace(b"  11 tokens", b"  12 tokens")
    facts = read(START + LAUNCH + PROMPT + EVAL + TOTAL + changed + RELEASE)
    assert (counts(facts), facts.lines.unknown, codes(facts)) == ([(50, 90, 11)], 1, ["stray-request-line"])


def test_a_false_line_that_comes_before_the_true_one_is_doubted() -> None:
    false = EVAL.replace(b"  11 tokens", b"  99 tokens")
    facts = read(START + LAUNCH + PROMPT + false + EVAL + TOTAL + RELEASE)
    assert codes(facts) == ["stray-request-line", "cached-count-unknown", "timings-disagree"]


def test_a_slot_given_away_without_a_release_is_doubted() -> None:
    facts = read(START + LAUNCH + WHOLE.replace(b"task 7", b"task 9"))
    assert codes(facts) == ["slot-taken-twice"]
    assert [(one.label, one.t_end is None) for one in facts.requests] == [
        ("slot 1 task 7", True),
        ("slot 1 task 9", False),
    ]


def test_a_release_without_timings_and_without_a_reason_is_doubted() -> None:
    facts = read(START + LAUNCH + RELEASE)
    assert (facts.requests[0].finish, codes(facts)) == ("cancelled", ["timing-lines-missing"])
    cancel = b"0.01.500.000 W srv          stop: cancel task, id_task = 7\n"
    assert codes(read(START + LAUNCH + cancel + RELEASE)) == []


def test_a_client_that_leaves_after_its_answer_has_not_cancelled_it() -> None:
    cancel = b"0.02.000.150 W srv          stop: cancel task, id_task = 7\n"
    facts = read(START + LAUNCH + PROMPT + EVAL + TOTAL + cancel + RELEASE)
    assert (facts.requests[0].finish, counts(facts)) == (None, [(50, 90, 11)])


@pytest.mark.parametrize(
    "line",
    [
        b"W slot   operator(): id  1 | task 7 | slot context shift, n_keep = 4, n_left = 90, n_discard = 45\n",
        b"I slot print_timing: id  1 | task 7 | draft acceptance = 0.75 (3 accepted / 4 generated), mean len = 2.5\n",
    ],
)
def test_cached_tokens_are_unknown_where_their_arithmetic_does_not_hold(line: bytes) -> None:
    facts = read(START + LAUNCH + PROMPT + EVAL + TOTAL + b"0.02.000.150 " + line + RELEASE)
    assert counts(facts) == [(None, 90, 11)]
    assert facts.requests[0].prompt_tokens is None
    assert codes(facts) == ["cached-count-unknown"]


def test_a_debug_entry_may_hold_any_text_without_prefix() -> None:
    text = EVAL.split(b" I ", 1)[1].replace(b"11", b"99")
    entry = (
        b"0.01.100.000 D srv  operator(): prompt: 'please explain\n" + text + b"srv  init: initializing ...\nto me'\n"
    )
    facts = read(START + LAUNCH + entry + PROMPT + EVAL + TOTAL + RELEASE)
    assert (counts(facts), facts.lines.ignored, len(facts.boots), codes(facts)) == ([(50, 90, 11)], 4, 1, [])


def test_an_error_is_a_suspect_with_its_time_and_line() -> None:
    error = b"0.01.200.000 E srv  update_slots: failed to decode the batch, n_batch = 1, ret = -1\n"
    warning = (
        b"0.01.300.000 W slot   operator(): id  1 | task 7 | forcing full prompt re-processing due to lack of it\n"
    )
    facts = read(START + LAUNCH + error + warning + PROMPT + EVAL + TOTAL + RELEASE)
    assert [(at, proof.line) for at, proof, _ in facts.suspects] == [(1_200_000_000, 6), (1_300_000_000, 7)]
    assert facts.lines.unknown == 0


def test_a_second_context_does_not_overwrite_the_settings_of_the_first() -> None:
    first = (
        b"0.00.100.000 I llama_context: n_ubatch              = 512\n0.00.100.001 I llama_context: n_ctx    = 4096\n"
    )
    draft = (
        b"0.00.200.000 I llama_context: n_ubatch              = 128\n0.00.200.001 I llama_context: n_ctx    = 4096\n"
    )
    stated = {(one.name, one.value) for one in read(START + first + draft).settings}
    assert stated >= {("n_ubatch", 512), ("n_ubatch#2", 128), ("n_ctx", 4096)}
    assert "n_ctx#2" not in {name for name, _ in stated}


def test_a_context_that_the_server_rounded_is_a_doubt() -> None:
    line = b"0.01.860.716 W llama_context: n_ctx is not divisible by n_seq_max - rounding down to 8448\n"
    (doubt,) = read(START + line).doubts
    assert (doubt.code, "8448" in doubt.message) == ("context-size-rounded", True)


def test_stamps_of_another_log_are_doubted_and_a_torn_last_one_is_not() -> None:
    data = START + WHOLE
    assert codes(read(data, [10**18] * 8)) == []
    assert codes(read(data, [10**18] * 4)) == ["stamps-do-not-fit"]


def test_without_prefix_and_with_stamps_the_error_is_how_late_lines_were_seen_to_be() -> None:
    bare = b"".join(line.split(b" I ", 1)[1] for line in (START + WHOLE).splitlines(keepends=True))
    stamps = [10**18 + ms * 1_000_000 for ms in (0, 1, 2, 3, 1000, 2000, 2000, 2007, 2008)]
    facts = read(bare, stamps)
    assert facts.clock_error_ns == 7_000_000
    (one,) = facts.requests
    assert (one.decode_end, one.prefill_start) == (stamps[6], stamps[6] - 900_000_000)


def test_other_formats_do_not_look_like_this_one() -> None:
    foreign = [
        b"0817 14:01:07 ds4-server: chat ctx=0..4096:4096 prefill chunk 4096/4096",
        b"INFO 11-29 13:12:04 [loggers.py:123] Engine 000: Avg prompt throughput: 1.0 tokens/s",
        b"[2026-11-29 13:12:04] Decode batch. #running-req: 1, #token: 55, gen throughput (token/s): 1.0",
        b"n_ctx = 4096",
    ]
    assert FORMAT.looks_like(foreign) == 0
    assert FORMAT.looks_like((START + WHOLE).splitlines()) == 9
