"""Does each judgement of an answer say what its numbers mean, and what to do?"""

from typing import Any

import pytest

from agentload.core.records import Completion, ServerTimings, ToolCall, Usage
from agentload.run.doctor import answers
from agentload.run.doctor.finding import Finding, Level

MS = 1_000_000


def answer(
    tokens: int | None = 48,
    *,
    prompt: int | None = 350,
    cached: int | None = None,
    raw: dict[str, Any] | None = None,
    at: tuple[int, ...] = (),
    done: int = 2_000 * MS,
    **more: Any,
) -> Completion:
    """An answer sent at 0, whose pieces came at `at`."""
    usage = None if tokens is None else Usage(prompt, tokens, cached)
    first = at[0] if at else None
    fields = {"finish": "length", **more}
    return Completion("r", "a", 0, 0, first, first, done, 200, usage=usage, raw_usage=raw, token_ns=at, **fields)


def steady(count: int, first_ms: int = 500, step_ms: int = 30) -> tuple[int, ...]:
    return tuple((first_ms + step_ms * number) * MS for number in range(count))


FAILED = answer(None, error="HTTP 503: loading model")
CUT = answer(None, error="cut off: its time was over after 0 bytes of the answer's body")


def test_a_failed_chat_request_wastes_a_night_and_the_servers_words_are_shown() -> None:
    found = answers.chat(FAILED)
    assert found.level is Level.FAIL
    assert "HTTP 503: loading model" in found.found


def test_an_answer_that_was_cut_off_for_time_says_so() -> None:
    assert "--timeout" in answers.chat(CUT).advice


@pytest.mark.parametrize(("log_tells", "level"), [(False, Level.FAIL), (True, Level.WARN)])
def test_a_stream_without_usage_is_as_bad_as_nothing_else_has_the_counts(log_tells: bool, level: Level) -> None:
    found = answers.usage(answer(None), "vllm", log_tells=log_tells)
    assert found.level is level
    assert "--enable-force-include-usage" in found.advice


def test_usage_shows_its_numbers() -> None:
    found = answers.usage(answer(48), None, log_tells=False)
    assert (found.level, found.found) == (Level.OK, "in the stream: prompt 350, completion 48 tokens")


@pytest.mark.parametrize(
    ("software", "flag"),
    [("vllm", "--enable-prompt-tokens-details"), ("sglang", "--enable-cache-report"), (None, "--enable-cache-report")],
)
def test_a_count_that_is_null_is_not_zero_and_the_flag_that_adds_it_is_named(software: str | None, flag: str) -> None:
    null = answer(raw={"prompt_tokens": 350, "prompt_tokens_details": None})
    found = answers.cached(null, null, software, log_tells=False)
    assert found.level is Level.FAIL
    assert "prompt_tokens_details: null" in found.found
    assert "null is not 0" in found.found
    assert flag in found.advice


def test_a_missing_count_is_told_from_a_null_one() -> None:
    missing = answer(raw={"prompt_tokens": 350})
    assert "usage has no prompt_tokens_details" in answers.cached(missing, missing, None, log_tells=False).found


def test_a_missing_count_is_a_warning_where_the_log_has_it() -> None:
    missing = answer(raw={})
    assert answers.cached(missing, missing, "ds4", log_tells=True).level is Level.WARN


def test_what_the_server_said_the_second_time_is_shown() -> None:
    found = answers.cached(answer(cached=0), answer(cached=349), None, log_tells=False)
    assert found.level is Level.OK
    assert "cached 0, then 349 of 350 tokens" in found.found


def test_llamacpps_timings_stand_in_for_a_usage_without_the_count() -> None:
    timings = ServerTimings(cached_tokens=349, prompt_tokens=1, prompt_ms=1.0, decoded_tokens=48, decode_ms=1.0)
    found = answers.cached(answer(timings=timings), answer(timings=timings), "llamacpp", log_tells=False)
    assert "then 349 of 350" in found.found


def test_nothing_found_again_is_a_warning_with_the_flag_that_may_have_done_it() -> None:
    found = answers.cached(answer(cached=0), answer(cached=0), "sglang", log_tells=False)
    assert found.level is Level.WARN
    assert "--disable-radix-cache" in found.advice


def test_a_second_turn_that_is_found_again_is_enough_where_the_same_prompt_is_not() -> None:
    """ds4-server keeps prompt and answer together: the same prompt is shorter than what it keeps."""
    zero = answer(cached=0)
    found = answers.cached(zero, zero, "ds4", log_tells=False, onward=answer(prompt=443, cached=421))
    assert found.level is Level.OK
    assert "a second turn, as an agent's: 421 of 443" in found.found


def test_a_prompt_that_nobody_sent_cannot_be_cached() -> None:
    assert answers.cached(answer(cached=349), answer(cached=349), None, log_tells=False).level is Level.WARN


def test_tokens_that_come_as_they_are_made_are_a_stream() -> None:
    found = answers.streaming(answer(at=steady(48)))
    assert found.level is Level.OK
    assert "48 pieces with tokens for 48 tokens over 1.41 s of 2.00 s" in found.found


def test_the_first_answer_that_is_long_enough_tells_of_the_stream() -> None:
    short, long = answer(7, at=steady(7)), answer(64, at=steady(64))
    assert answers.streaming(short, FAILED, short, long).found.startswith("64 pieces with tokens for 64 tokens")
    alone = answers.streaming(short, FAILED)
    assert (alone.level, alone.found) == (Level.NOTE, "7 tokens are too few to tell")


def test_tokens_that_come_all_at_the_end_waste_a_night() -> None:
    end = tuple(1_990 * MS + 1_000 * number for number in range(48))
    found = answers.streaming(answer(at=end))
    assert found.level is Level.FAIL
    assert "all at once after 1.99 s" in found.found
    assert "proxy_buffering off" in found.advice


def test_tokens_in_a_few_bursts_are_a_warning() -> None:
    bursts = tuple((500 + 400 * (number // 16)) * MS for number in range(48))
    found = answers.streaming(answer(at=bursts))
    assert found.level is Level.WARN
    assert "in 3 bursts over 0.80 s" in found.found


def test_pieces_of_several_tokens_are_no_fault() -> None:
    found = answers.streaming(answer(tokens=48, at=steady(16, step_ms=90)))
    assert found.level is Level.NOTE
    assert "16 pieces with tokens for 48 tokens" in found.found


def test_an_answer_that_is_quicker_than_a_burst_can_be_told_from_is_left_open() -> None:
    quick = tuple(10 * MS + number for number in range(48))
    assert answers.streaming(answer(at=quick, done=20 * MS)).level is Level.NOTE


def test_the_first_token_and_the_gaps_are_shown() -> None:
    found = answers.speed(answer(at=steady(48)))
    assert found.level is Level.OK
    assert "first token after 0.50 s, then 30.0 ms between pieces (median), longest 30 ms" in found.found


def test_a_long_gap_among_short_ones_is_somebody_elses() -> None:
    late = (*steady(40), (500 + 30 * 39 + 1_500) * MS)
    assert answers.speed(answer(at=late)).level is Level.WARN


def test_a_first_token_after_half_a_minute_is_a_warning() -> None:
    assert answers.speed(answer(at=steady(8, first_ms=31_000))).level is Level.WARN


def called(name: str, arguments: str) -> Completion:
    return answer(finish="tool_calls", tool_calls=(ToolCall("c", name, arguments),))


def test_a_call_with_arguments_that_can_be_read_is_what_agents_need() -> None:
    found = answers.tool_calls([("auto", called("read", '{"path": "README.md"}'))], ("read",), None)
    assert (found.level, found.found) == (Level.OK, 'auto: read {"path": "README.md"}')


@pytest.mark.parametrize("bad", [called("read", '{"path": '), called("write", '{"path": "x"}'), called("read", "")])
def test_a_call_that_cannot_be_run_is_none(bad: Completion) -> None:
    found = answers.tool_calls([("auto", bad)], ("read",), "vllm")
    assert found.level is Level.FAIL
    assert "--tool-call-parser" in found.advice
    assert 'protocol = "json"' in found.advice


def test_text_in_place_of_a_call_is_shown() -> None:
    found = answers.tool_calls([("must", FAILED), ("may", answer(content="I cannot."))], ("read",), None)
    assert found.level is Level.FAIL
    assert "2 tries, no call; it said 'I cannot.'" in found.found


def test_a_model_that_was_still_thinking_is_only_a_warning() -> None:
    found = answers.tool_calls([("may", answer(reasoning="hm " * 9, finish="length"))], ("read",), None)
    assert found.level is Level.WARN
    assert "27 characters of thinking" in found.found


def test_ignore_eos_is_honoured_where_only_with_it_the_limit_is_reached() -> None:
    found = answers.ignore_eos(answer(8, finish="stop"), answer(64), 64)
    assert (found.level, found.found) == (Level.OK, "64 of 64 tokens; without it the model ended after 8")


def test_ignore_eos_that_is_not_heeded_is_a_warning() -> None:
    found = answers.ignore_eos(answer(8, finish="stop"), answer(8, finish="stop"), 64)
    assert found.level is Level.WARN
    assert "8 of 64 tokens" in found.found


def test_nothing_is_proven_where_the_model_goes_on_by_itself() -> None:
    assert answers.ignore_eos(answer(64), answer(64), 64).level is Level.NOTE


def test_a_server_that_refuses_ignore_eos_is_quoted() -> None:
    refused = answer(None, error="HTTP 400: unknown field ignore_eos")
    assert "unknown field" in answers.ignore_eos(answer(8), refused, 64).found


def test_json_actions_are_what_is_asked_for_with_protocol_json() -> None:
    assert answers.json_actions(answer(content='{"tool": "read"}'), "read").level is Level.OK
    assert answers.json_actions(answer(content="no"), None).level is Level.WARN


def test_what_a_server_calls_its_model_cannot_break_the_line_or_reach_the_terminal() -> None:
    line = Finding("endpoint", Level.OK, "model a\x1b[31m\nb\u202e", "give\r--model").line
    assert line == "OK    endpoint        model a\ufffd[31m b\ufffd -> give --model"
