"""Shapes of llama.cpp's log that other builds and ways to start it write; what is expected was worked out by hand."""

import pytest

from agentload.core.records import LogFacts, LoggedRequest
from agentload.serverlogs.llamacpp import FORMAT

RATES = "(    6.67 ms per token,   150.00 tokens per second)"


def read(text: str, piece: int = 1 << 20, stamps: list[int] | None = None) -> LogFacts:
    data = text.encode()
    reader = FORMAT.reader(stamps)
    for start in range(0, len(data), piece):
        reader.feed(data[start : start + piece])
    assert reader.open_requests() == 0
    return reader.close()


def counts(facts: LogFacts) -> list[tuple[int | None, ...]]:
    """Prompt, cached, new and decoded tokens of each request."""
    return [(r.prompt_tokens, r.cached_tokens, r.new_prefill_tokens, r.decoded_tokens) for r in facts.requests]


def codes(facts: LogFacts) -> list[str]:
    return [doubt.code for doubt in facts.doubts]


# A build of early 2025, without prefix: the release comes first, then the timings as one entry of several lines.
OLD_START = """\
build: 4404 (0827b2c1) with cc (Debian 12.2.0-14) 12.2.0 for x86_64-linux-gnu
system info: n_threads = 8, n_threads_batch = 8, total_threads = 16

main: HTTP server is listening, hostname: 127.0.0.1, port: 8080, http threads: 15
main: loading model
srv    load_model: loading model '/models/small.gguf'
llama_context: n_batch       = 2048
srv          init: initializing slots, n_slots = 2
slot         init: id  0 | task -1 | new slot n_ctx_slot = 2048
slot         init: id  1 | task -1 | new slot n_ctx_slot = 2048
main: model loaded
main: chat template, chat_template: {%- for message in messages -%}
{{- message.content -}}
{%- endfor -%}, example_format: '<|user|>
Hello'
main: server is listening on http://127.0.0.1:8080 - starting the main loop
srv  update_slots: all slots are idle
request: GET /health 127.0.0.1 200
"""
OLD_REQUESTS = f"""\
srv  params_from_: Chat format: Content-only
slot launch_slot_: id  0 | task 0 | processing task
slot update_slots: id  0 | task 0 | new prompt, n_ctx_slot = 2048, n_keep = 0, n_prompt_tokens = 895
slot update_slots: id  0 | task 0 | kv cache rm [0, end)
slot update_slots: id  0 | task 0 | prompt processing progress, n_past = 512, n_tokens = 512, progress = 0.572067
slot update_slots: id  0 | task 0 | kv cache rm [512, end)
slot update_slots: id  0 | task 0 | prompt processing progress, n_past = 895, n_tokens = 383, progress = 1.000000
slot update_slots: id  0 | task 0 | prompt done, n_past = 895, n_tokens = 383
slot      release: id  0 | task 0 | stop processing: n_past = 930, truncated = 0
slot print_timing: id  0 | task 0 |\x20
prompt eval time =    5970.00 ms /   895 tokens {RATES}
       eval time =    1080.00 ms /    36 tokens {RATES}
      total time =    7050.00 ms /   931 tokens
srv  update_slots: all slots are idle
srv  log_server_r: request: POST /v1/chat/completions 127.0.0.1 200
slot launch_slot_: id  0 | task 37 | processing task
slot update_slots: id  0 | task 37 | new prompt, n_ctx_slot = 2048, n_keep = 0, n_prompt_tokens = 990
slot update_slots: id  0 | task 37 | kv cache rm [930, end)
slot update_slots: id  0 | task 37 | prompt processing progress, n_past = 990, n_tokens = 60, progress = 0.060606
slot update_slots: id  0 | task 37 | prompt done, n_past = 990, n_tokens = 60
slot      release: id  0 | task 37 | stop processing: n_past = 999, truncated = 0
slot print_timing: id  0 | task 37 |
prompt eval time =     400.00 ms /    60 tokens {RATES}
       eval time =     270.00 ms /    10 tokens {RATES}
      total time =     670.00 ms /    70 tokens
srv  update_slots: all slots are idle
"""
OLD_COUNTS = [(895, 0, 895, 36), (990, 930, 60, 10)]  # 930 - 35 - 895 = 0; 999 - 9 - 60 = 930, and both say so


@pytest.mark.parametrize("piece", [1 << 20, 11])
def test_an_older_builds_log_without_prefix_is_read_whole(piece: int) -> None:
    facts = read(OLD_START + OLD_REQUESTS, piece)
    assert (counts(facts), codes(facts), facts.lines.examples) == (OLD_COUNTS, [], ())
    assert [(one.label, one.finish, one.prefill_ms, one.decode_ms, one.t_end) for one in facts.requests] == [
        ("slot 0 task 0", None, 5970.0, 1080.0, None),
        ("slot 0 task 37", None, 400.0, 270.0, None),
    ]
    settings = {one.name: (one.value, one.proof.line) for one in facts.settings}
    assert settings["build"] == ("4404 (0827b2c1)", 1)
    assert (settings["n_slots"], settings["n_batch"]) == ((2, 8), (2048, 7))
    assert [(boot.first_line, boot.ready and boot.ready.line) for boot in facts.boots] == [(1, 16)]
    proofs = {name: proof.line for name, proof in facts.requests[1].proofs}
    first = OLD_START.count("\n")
    assert {name: proofs[name] - first for name in ("prompt_tokens", "cached_tokens", "new_prefill_tokens")} == {
        "prompt_tokens": 17, "cached_tokens": 18, "new_prefill_tokens": 23
    }  # fmt: skip
    assert (proofs["decoded_tokens"] - first, proofs["t_end"] - first) == (24, 21)


def test_two_starts_of_an_older_build_in_one_file_are_two_boots() -> None:
    facts = read(2 * (OLD_START + OLD_REQUESTS))
    lines = (OLD_START + OLD_REQUESTS).count("\n")
    assert [(boot.first_line, boot.ready and boot.ready.line) for boot in facts.boots] == [
        (1, 16), (lines + 1, lines + 16)
    ]  # fmt: skip
    assert (counts(facts), codes(facts)) == (2 * OLD_COUNTS, [])
    assert [one.boot for one in facts.requests] == [0, 0, 1, 1]


def test_a_start_that_ended_before_its_first_request_is_a_boot_of_its_own() -> None:
    facts = read(OLD_START + OLD_START + OLD_REQUESTS)
    assert [one.boot for one in facts.requests] == [1, 1]
    assert len(facts.boots) == 2


# The timings as one entry in a log with prefix: only its first line has one.
ENTRY = f"""\
0.00.003.799 I srv          init: initializing ...
0.00.469.031 I srv          init: listening on http://127.0.0.1:18393
0.01.000.000 I slot launch_slot_: id  1 | task 7 | processing task
0.04.000.000 I slot print_timing: id  1 | task 7 | n_decoded =    140, tg =  13.64 t/s
0.05.000.000 I slot print_timing: id  1 | task 7 |\x20
prompt eval time =     600.00 ms /    90 tokens {RATES}
       eval time =    3000.00 ms /   192 tokens {RATES}
      total time =    3600.00 ms /   282 tokens
0.05.000.300 I slot      release: id  1 | task 7 | stop processing: n_tokens = 331, truncated = 0
"""


def test_timings_in_one_entry_have_the_time_of_its_first_line() -> None:
    facts = read(ENTRY)
    (one,) = facts.requests
    # 331 - 191 - 90 = 50 cached; decoding ended at 5.000 s and took 3.0 s, prefill before it 0.6 s
    assert (counts(facts), codes(facts), facts.lines.unknown) == ([(140, 50, 90, 192)], [], 0)
    assert (one.decode_end, one.decode_start, one.prefill_start) == (5_000_000_000, 2_000_000_000, 1_400_000_000)
    assert one.t_end == 5_000_300_000


def test_an_older_release_before_its_timings_has_its_times_too() -> None:
    lines = ENTRY.splitlines(keepends=True)
    lines.insert(4, lines.pop())
    lines[4] = lines[4].replace("0.05.000.300", "0.04.999.990")
    (one,) = read("".join(lines)).requests
    assert (one.cached_tokens, one.decode_end, one.t_end, one.finish) == (50, 5_000_000_000, 4_999_990_000, None)


def test_a_line_below_an_entry_that_is_none_of_its_kind_ends_it() -> None:
    lines = ENTRY.splitlines(keepends=True)
    lines.insert(6, "some other program's line\n")
    facts = read("".join(lines))
    assert (facts.lines.unknown, facts.requests[0].decode_ms) == (3, None)  # that one, and the two after it
    assert codes(facts) == ["timing-lines-missing"]


# ---- draft models and shifted contexts -----------------------------------------------------------------------------


def test_with_a_draft_model_cached_tokens_are_what_the_first_line_of_the_prompt_says() -> None:
    draft = "draft acceptance rate = 0.81944 (  118 accepted /   144 generated)\n"
    bare = ENTRY.replace("282 tokens\n", "282 tokens\n" + draft)
    facts = read(bare)
    assert (counts(facts), codes(facts), facts.lines.unknown) == (
        [(None, None, 90, 192)], ["cached-count-unknown"], 0
    )  # fmt: skip
    at = "0.01.000.100 I slot   operator(): id  1 | task 7 | "
    told = bare.replace(
        "processing task\n",
        f"processing task\n{at}new prompt, n_ctx_slot = 4096, n_keep = 0, task.n_tokens = 140\n"
        f"{at}cached n_tokens = 50, memory_seq_rm [50, end)\n{at}cached n_tokens = 114, memory_seq_rm [114, end)\n",
    )
    facts = read(told)
    assert (counts(facts), codes(facts)) == ([(140, 50, 90, 192)], [])


@pytest.mark.parametrize(
    "line",
    [
        "slot print_timing: id  1 | task 7 | draft acceptance = 0.65959 ( 59 accepted /  90 generated), mean = 4.30",
        "statistics ngram-map-k: #calls(b,g,a) = 10 730 0, #gen drafts = 0, #acc drafts = 0",
        "slot print_timing: id  1 | task 7 | statistics draft: #calls(b,g,a) = 10 727 727",
    ],
)
def test_what_newer_builds_say_of_drafts_is_known(line: str) -> None:
    whole = ENTRY.replace("0.05.000.300 I slot", f"0.05.000.200 I {line}\n0.05.000.300 I slot")
    assert read(whole).lines.unknown == 0


@pytest.mark.parametrize("function", ["slot update_slots", "slot   operator()"])
def test_a_context_shift_leaves_cached_tokens_unknown_and_all_else_as_it_was(function: str) -> None:
    shift = (
        f"0.03.000.000 W {function}: id  1 | task 7 | slot context shift, n_keep = 0, n_left = 300, n_discard = 150\n"
    )
    facts = read(
        ENTRY.replace("0.04.000.000", shift + "0.04.000.000", 1).replace("331, truncated = 0", "181, truncated = 1")
    )
    (one,) = facts.requests
    assert (counts(facts), codes(facts), facts.lines.unknown) == (
        [(None, None, 90, 192)], ["cached-count-unknown"], 0
    )  # fmt: skip
    assert (one.truncated, one.decode_start) == (True, 2_000_000_000)


# ---- several servers -----------------------------------------------------------------------------------------------


def _tagged(port: int, text: str) -> list[str]:
    return [f"[{port}] {line}" for line in text.splitlines(keepends=True)]


def request(slot: int, task: int, second: int, cached: int) -> str:
    """One request of 90 new and 11 decoded tokens, of 0.6 and 0.3 s; its release is at second + 1."""
    who = f"id {slot:2d} | task {task} |"
    timing = f"0.{second + 1:02d}.000.000 I slot print_timing: {who}"
    end = f"0.{second + 1:02d}.000.200 I slot      release: {who}"
    return (
        f"0.{second:02d}.000.000 I slot launch_slot_: {who} processing task, is_child = 0\n"
        f"{timing} prompt eval time =     600.00 ms /    90 tokens {RATES}\n"
        f"{timing}        eval time =     300.00 ms /    11 tokens {RATES}\n"
        f"{timing}       total time =     900.00 ms /   101 tokens\n"
        f"{end} stop processing: n_tokens = {cached + 100}, truncated = 0\n"
    )


START = "0.00.003.799 I srv          init: initializing ...\n0.00.469.031 I srv          init: listening on http://127.0.0.1:1\n"


def test_servers_that_another_one_starts_are_told_apart_by_their_tags_line_by_line() -> None:
    # Both use slot 0 and task 3 at the same time, and their lines take turns; the outer server writes beside them.
    one, two = _tagged(53409, START + request(0, 3, 1, 50)), _tagged(42751, START + request(0, 3, 1, 700))
    outer = ["0.00.001.000 I srv          init: initializing ...\n"]
    lines = [*outer, *(line for pair in zip(one, two, strict=True) for line in pair)]
    lines.insert(9, "0.09.000.000 I srv  proxy_reques: proxying request to model small on port 42751\n")
    facts = read("".join(lines), 13)
    assert (counts(facts), codes(facts), facts.lines.unknown) == ([(140, 50, 90, 11), (790, 700, 90, 11)], [], 0)
    assert [(boot.index, boot.first_line) for boot in facts.boots] == [(0, 1), (1, 2), (2, 3)]
    assert [request.boot for request in facts.requests] == [1, 2]
    assert facts.requests[0].t_end == 2_000_200_000


def test_a_file_of_tagged_lines_only_has_as_many_starts_as_servers() -> None:
    lines = _tagged(53409, START + request(1, 3, 1, 50) + request(1, 9, 5, 60))
    facts = read("".join(lines))
    assert FORMAT.looks_like([line.rstrip("\n").encode() for line in lines]) == 12  # 2 of the start, 5 a request
    assert (len(facts.boots), counts(facts)) == (1, [(140, 50, 90, 11), (150, 60, 90, 11)])


def test_starts_one_after_another_with_and_without_prefix_in_one_file() -> None:
    bare = "".join(line.split(" I ", 1)[1] + "\n" for line in (START + request(0, 3, 1, 20)).splitlines())
    facts = read(START + request(0, 3, 1, 50) + bare + START + request(0, 3, 1, 80))
    assert counts(facts) == [(140, 50, 90, 11), (110, 20, 90, 11), (170, 80, 90, 11)]
    assert [one.t_end is None for one in facts.requests] == [False, True, False]
    assert (codes(facts), facts.lines.unknown) == ([], 0)


def test_the_first_of_many_equal_requests_is_still_known_when_its_number_comes_again() -> None:
    many = "".join(request(0, task, at, 50) for at, task in ((1, 0), (3, 40_000), (5, 80_000)))
    facts = read(START + many + request(0, 40_000, 9, 70))
    assert len(facts.requests) == 3
    assert facts.lines.unknown == 5
    assert codes(facts) == ["stray-request-line"]


def label(one: LoggedRequest) -> str:
    return one.label


def test_requests_come_in_order_of_their_release_though_one_waits_for_timings() -> None:
    cut = "0.02.000.000 I slot      release: id  1 | task 4 | stop processing: n_tokens = 9, truncated = 0\n"
    launch = "0.01.000.000 I slot launch_slot_: id  1 | task 4 | processing task, is_child = 0\n"
    cancel = "0.01.500.000 W srv          stop: cancel task, id_task = 4\n"
    facts = read(START + launch + cancel + cut + request(0, 5, 3, 0))
    assert [(label(one), one.finish) for one in facts.requests] == [
        ("slot 1 task 4", "cancelled"),
        ("slot 0 task 5", None),
    ]
