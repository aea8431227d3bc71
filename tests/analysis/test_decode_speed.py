"""Are the tokens of a decode speed those that were decoded in its time?

Logs as the servers write them, made up here, with the speeds worked out beside them.
"""

from pathlib import Path
from typing import Any

import pytest

from agentload.analysis import logfile

READY = """\
0914 12:00:02 ds4-server: batched mode enabled resident_sessions=6 prefill_quantum=2048 mixed_prefill_quantum=2048
0914 12:00:02 ds4-server: listening on http://127.0.0.1:8000
0914 12:10:00 ds4-server: chat ctx=0..1000:1000 prompt start
0914 12:10:02 ds4-server: chat ctx=0..1000:1000 prompt done 2.000s
0914 12:10:07 ds4-server: chat ctx=1000..1050:50 gen=50 decoding chunk=10.00 t/s avg=10.00 t/s 5.000s
"""
AGAIN = """\
0914 12:10:07 ds4-server: unterminated tool call; continuing with model-visible tool error
0914 12:10:07 ds4-server: tool-error continuation appended 30 tokens
0914 12:10:14 ds4-server: chat ctx=1080..1130:50 gen=50 decoding chunk=10.00 t/s avg=10.00 t/s 5.000s
0914 12:10:15 ds4-server: chat ctx=1130..1140:10 gen=60 decoding chunk=10.00 t/s avg=10.00 t/s 6.000s
"""
NEXT = """\
0914 12:20:00 ds4-server: chat ctx=0..9000:9000 prompt start
0914 12:20:02 ds4-server: chat ctx=0..9000:9000 prompt done 2.000s
0914 12:20:06 ds4-server: chat ctx=9000..9020:20 gen=20 decoding chunk=5.00 t/s avg=5.00 t/s 4.000s
0914 12:20:06 ds4-server: chat ctx=0..9000:9000 gen=20 finish=stop 6.000s
"""
LLAMACPP = """\
0.00.002.726 I srv  llama_server: initializing ...
0.03.027.375 I srv  llama_server: listening on http://127.0.0.1:18080
"""
TASK = """\
0.0{n}.000.000 I slot launch_slot_: id  0 | task {n} | processing task, is_child = 0
0.0{n}.900.000 I slot print_timing: id  0 | task {n} | prompt eval time =     500.00 ms /   100 tokens (    5.00 ms per token,   200.00 tokens per second)
0.0{n}.900.000 I slot print_timing: id  0 | task {n} |        eval time = {ms:>10} ms / {tokens:>5} tokens (    1.00 ms per token,     1.00 tokens per second)
0.0{n}.900.090 I slot      release: id  0 | task {n} | stop processing: n_tokens = {end}, truncated = 0
"""  # noqa: E501  # a line of the server has its length


def whole(tmp_path: Path, text: str) -> dict[str, Any]:
    log = tmp_path / "server.log"
    log.write_text(text)
    found: dict[str, Any] = logfile.read_file(log).found
    return found


def speed(found: dict[str, Any]) -> tuple[int, int, float | None, int]:
    of = found["segments"][0]["whole"]
    return of["decoded_tokens"], of["decode_speed_tokens"], of["decode_tok_s"], of["decode_left_out"]


def finish(gen: int, how: str) -> str:
    return f"0914 12:10:22 ds4-server: chat ctx=0..1000:1000 gen={gen} finish={how}\n"


@pytest.mark.parametrize(
    ("ended", "tokens"),
    [
        (finish(50, "stop 7.000s"), 50),
        (finish(200, "stop 22.000s"), 200),
        (finish(99, 'error error="client stream write failed" 11.950s'), 99),
        ("", 50),
    ],
    ids=["whole", "lines-lost", "no-partial-line", "no-end"],
)
def test_tokens_that_no_decode_line_of_ds4_has_are_counted_and_not_divided_by_another_ones_time(
    tmp_path: Path, ended: str, tokens: int
) -> None:
    # The only decode line has 50 tokens in 5 s.
    assert speed(whole(tmp_path, READY + ended)) == (tokens, 50, 10.0, 0)


@pytest.mark.parametrize("gen", [60, 110], ids=["last-pass", "both-passes"])
def test_a_decode_of_ds4_in_two_passes_is_in_no_speed_for_its_time_holds_what_came_between(
    tmp_path: Path, gen: int
) -> None:
    # 50 tokens in 5 s and 60 in 6 s, and 2 s in which the appended ones were computed: 13 s. Then 20 tokens in 4 s.
    found = whole(tmp_path, READY + AGAIN + finish(gen, "stop 15.000s") + NEXT)
    assert speed(found) == (gen + 20, 20, 5.0, 1)
    assert found["segments"][0]["whole"]["decode_union_ns"] == 17_000_000_000


def test_the_first_token_of_llama_cpp_is_not_of_its_eval_time(tmp_path: Path) -> None:
    # 1 token in 0.01 ms, 2 in 100 ms, 5 in 200 ms: none, 1 and 4 after the first one, in 0.30001 s.
    tasks = ((4, "0.01", 1), (5, "100.00", 2), (6, "200.00", 5))
    text = "".join(TASK.format(n=n, ms=ms, tokens=tokens, end=99 + tokens) for n, ms, tokens in tasks)
    decoded, timed, tok_s, left_out = speed(whole(tmp_path, LLAMACPP + text))
    assert (decoded, timed, left_out) == (8, 5, 0)
    assert tok_s == pytest.approx(5 / 0.30001)


def test_an_answer_of_one_token_alone_has_no_speed(tmp_path: Path) -> None:
    found = whole(tmp_path, LLAMACPP + TASK.format(n=4, ms="0.01", tokens=1, end=100))
    assert speed(found) == (1, 0, 0.0, 0)
