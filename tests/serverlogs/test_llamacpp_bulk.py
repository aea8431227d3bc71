"""What is read of a llama.cpp log in bulk is what is read line by line, whatever stands in it, wherever it is cut."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.core import markers
from agentload.core.records import LogFacts
from agentload.serverlogs import llamacpp
from tests.serverlogs.edits import changed

MARKER = markers.render("begin", "s1", "r1", "a", 1_790_000_000_000_000_000).decode()
WHO = "id  1 | task 7 | "
PROMPT = "new prompt, n_ctx_slot = 4096, n_keep = 0, task.n_tokens"
RATES = "(    6.67 ms per token,   150.00 tokens per second)"
RARE = [
    "0.00.000.100 I srv          init: initializing ...",
    f"0.01.000.000 I slot launch_slot_: {WHO}processing task, is_child = 0",
    f"0.01.000.000 I slot launch_slot_: {WHO}processing task, is_child = 1",
    f"0.01.000.000 I slot launch_slot_: {WHO}processing task",
    f"0.02.000.000 I slot print_timing: {WHO}prompt eval time =     600.00 ms /    90 tokens {RATES}",
    f"0.02.000.100 I slot print_timing: {WHO}       eval time =     300.00 ms /    11 tokens {RATES}",
    f"0.02.000.120 I slot print_timing: {WHO}      total time =     900.00 ms /   101 tokens",
    f"0.02.000.000 I slot print_timing: {WHO}",
    f"       eval time =     300.00 ms /    11 tokens {RATES}",
    f"0.02.000.200 I slot      release: {WHO}stop processing: n_tokens = 150, truncated = 0",
    f"0.01.500.000 I slot   operator(): {WHO}cached n_tokens = 50, memory_seq_rm [50, end)",
    f"0.01.500.000 I slot   operator(): {WHO}n_tokens = 50, memory_seq_rm [50, end)",
    f"0.01.900.000 I slot   operator(): {WHO}cached n_tokens = 178, memory_seq_rm [178, end)",
    f"0.01.500.000 I slot   operator(): {WHO}new prompt, n_ctx_slot = 4096, n_keep = 0, task.n_tokens = 140",
    "0.01.500.000 W srv          stop: cancel task, id_task = 7",
    "0.01.500.000 E srv  update_slots: failed to decode the batch",
    f"0.01.500.000 E slot update_slots: {WHO}failed to find free space in the KV cache",
    "warn: LLAMA_ARG_BATCH environment variable is set, but will be overwritten by command line argument -b",
    "0.01.700.000 ",
    "0.01.700.000 I ",
    "0.01.700.000 D ",
    f"I slot      release: {WHO}stop processing: n_tokens = 150, truncated = 0",
    "[53409] 0.01.000.000 I srv          init: initializing ...",
    f"[53409] 0.01.000.000 I slot launch_slot_: {WHO}processing task, is_child = 0",
    "0.01.700.000 I srv          init: chat template, example_format: 'one",
    MARKER,
]
PLAIN = [
    "0.01.100.000 I srv  update_slots: all slots are idle",
    "0.01.100.000 I srv  server_strea: conv_id= (empty=1)",
    "0.01.100.000 I srv  log_server_r: done request: POST /v1/chat/completions 127.0.0.1 200",
    f"0.01.200.000 I slot print_timing: {WHO}prompt processing, n_tokens =    768, progress = 0.63, t = 4.70 s",
    f"0.01.300.000 I slot print_timing: {WHO}   graphs reused =         61",
    "0.01.300.000 I slot get_availabl: id  1 | task -1 |  - checking sim = 0.847 (795/939) > 0.100",
    "0.01.400.000 D srv  operator(): prompt: 'please",
    "0.01.400.000 D que  post: new task, id = 1",
    "go on", "", "\r", "1. a list", "12.34. not a time", "2026- no marker", "\ttop_k = 40, top_p = 0.950", "\0hole",
    "\x1b[0m0.01.100.000 I srv  update_slots: all slots are idle",
    "0.01.600.000 I nobody knows this",
    "0.01.100.000 I srv  update_slots: all slots are idle\r",
    "srv  init: model loaded",
]  # fmt: skip


def read(reader: llamacpp.Reader, data: bytes, cuts: list[int], *, bulk: bool) -> LogFacts:
    if not bulk:
        reader._walker._bulk = None
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        reader.feed(data[start:end])
    return reader.close()


NUMBER = st.sampled_from(["0", "7", "07", "50", "99999999", "999999999", "1234567890123", ""])
RATE = st.sampled_from(["6.67", "150.00", "inf", "-nan", "1", "7.", ".", "12/3", "123456789.00"])
MS = st.sampled_from(["600.00", "  600.00", "0.01", "12345678.99", "123456789.00", "1.5", "1.555", "7", "x", ""])
STAMP = st.sampled_from(
    ["0.01.000.000"] * 4
    + ["0.02.999.999", "9.59.999.999", "10.00.000.000", "1234567.00.000.001", "12345678.00.000.001", "0.60.000.000"]
    + ["0.01.00.000", "0.1.000.000", ".01.000.000", "0.01.000,000", "0:01.000.000", "\xb2.01.000.000"]
)  # fmt: skip
LEVEL = st.sampled_from([" I "] * 6 + [" W ", " E ", " D ", " i ", " I", "  I ", ""])
NAME = st.sampled_from([
    "print_timing", "     release", "launch_slot_", "  operator()", "a", "a b c d e f ", "a|bcdefghijk", " " * 12,
    "eleven_char", "thirteen_char", "a: id  1 | t",
])  # fmt: skip
SLOT = st.sampled_from([
    *(f"id  {k} | task {task} | " for k in (0, 1) for task in (4, 5, 6, 7)), "id 1 | task 7 | ", "id  1 | task -1 | ",
    "id  1 | task 7 |", "id  1 | task  7 | ", "id  123456789 | task 7 | ", "id  x | task 7 | ",
    "id  1 | task 1234567890 | ", "id  1 | ",
])  # fmt: skip


@st.composite
def like(draw: st.DrawFn) -> str:
    """Draw a line that is, or nearly is, one of those that most logs are full of."""
    n, m, took = draw(NUMBER), draw(NUMBER), draw(MS)
    rates = f"({' ' * draw(st.integers(0, 9))}{draw(RATE)} ms per token, {draw(RATE)} tokens per second)"
    text = draw(
        st.sampled_from([
            "processing task", "processing task, is_child = 0", "processing task, is_child = 1",
            f"prompt eval time = {took} ms / {n} tokens {rates}",
            f"eval time = {took} ms / {' ' * int(m or 0) if len(m) < 3 else m}{n} tokens {rates}",
            f"total time = {took} ms / {n} tokens",
            f"stop processing: n_tokens = {n}, truncated = {m}", f"stop processing: n_past = {n}, truncated = 0",
            f"cached n_tokens = {n}, memory_seq_rm [{m}, end)", f"kv cache rm [{n}, end)",
            f"new prompt, n_ctx_slot = {n}, n_keep = {m}, task.n_tokens = {n}",
            f"graphs reused = {' ' * int(m or 0) if len(m) < 3 else m}{n}",
            "selected slot by LRU, t_last = -1", "selected slot", "- checking", "- checking sim", "stopped by limit",
            "all slots are idle", "all slots are idle.", "conv_id=", "request: x", "", "initializing ...",
            "prompt processing progress, n_tokens = 4", "prompt processing progress, n_past = 4", "init sampler, took",
        ])
    )  # fmt: skip
    who = draw(st.one_of(SLOT.map("slot {{name}}: {}".format), st.sampled_from(["srv  {name}: ", "que  {name}:"])))
    line = draw(STAMP) + draw(LEVEL) + who.format(name=draw(NAME)) + " " * draw(st.integers(0, 9)) + text
    end = draw(st.sampled_from([""] * 12 + [" ", "\r", "\0", "\x1b[0m", "\r\r"]))
    return line[: draw(st.integers(0, len(line)))] if draw(st.integers(0, 19)) == 0 else line + end


def story(rounds: int, *, debug: bool = False) -> list[str]:
    """Return the lines of rounds of two requests at once, at verbosity 4 or, with debug lines, 5."""
    lines = ["0.00.000.100 I srv          init: initializing ...", "0.00.000.200 I srv          init: model loaded"]
    for number in range(rounds):
        tasks = [(slot, 4 + 2 * number + slot) for slot in (0, 1)]
        at = f"0.{number + 1:02d}"
        for slot, task in tasks:
            who = f"id  {slot} | task {task} | "
            lines += [
                f"{at}.100.26{slot} I slot get_availabl: id  {slot} | task -1 | selected slot by LRU, t_last = -1",
                f"{at}.200.37{slot} I slot launch_slot_: {who}processing task, is_child = 0",
                *([f"{at}.200.100 D srv  operator(): prompt: {task}", "1. go on", "", "and on"] if debug else []),
                f"{at}.210.48{slot} I slot   operator(): {who}{PROMPT} = {140 + slot}",
                *(f"{at}.22{k}.000 I slot   operator(): {who}cached n_tokens = {kept}, memory_seq_rm [{kept}, end)"
                  for k, kept in enumerate((50, 80))),
            ]  # fmt: skip
        for slot, task in tasks:
            who = f"id  {slot} | task {task} | "
            timing = f"{at}.900.59{slot} I slot print_timing: {who}"
            lines += [
                f"{timing}prompt eval time =     300.00 ms / {90 + slot:5d} tokens {RATES}",
                f"{timing}       eval time =     200.50 ms /    11 tokens {RATES}",
                f"{timing}      total time =     500.50 ms / {101 + slot:5d} tokens",
                f"{timing}   graphs reused =         61",
                f"{at}.901.69{slot} I slot      release: {who}stop processing: n_tokens = {150 + slot}, truncated = 0",
            ]
        lines += ["0.40.000.000 I srv  update_slots: all slots are idle"]
    return lines


ODD = st.one_of(like(), like(), st.sampled_from(RARE + PLAIN), st.integers(-30, -1), st.none())


@settings(max_examples=200, deadline=None)
@given(
    edits=st.lists(st.tuples(st.integers(0, 60), ODD, st.booleans()), max_size=12),
    newline=st.sampled_from(["\n", "\n", "\n", "\r\n"]),
    debug=st.booleans(),
    end=st.sampled_from(["elsewhere", "0.50.000.000 I srv  update_slots: all slots are idle"]),
    data=st.data(),
)
def test_a_llamacpp_log_that_was_changed_here_and_there_in_bulk_is_the_same(
    edits: list[tuple[int, str | int | None, bool]], newline: str, debug: bool, end: str, data: st.DataObject
) -> None:
    lines = changed(story(3, debug=debug), edits)
    whole = newline.join([*lines, *[end] * 12]).encode("latin-1")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=3)))
    bulk = read(llamacpp.Reader(small=0), whole, cuts, bulk=True)
    assert bulk == read(llamacpp.Reader(), whole, [], bulk=False)


@pytest.mark.parametrize("odd", RARE + PLAIN)
def test_an_odd_line_anywhere_in_bulk_is_the_same(odd: str) -> None:
    lines = [*story(1, debug=True), *["0.50.000.000 I srv  update_slots: all slots are idle"] * 12]
    for place in range(2, 26, 2):
        whole = "".join(line + "\n" for line in [*lines[:place], odd, *lines[place:]]).encode()
        bulk = read(llamacpp.Reader(small=0), whole, [], bulk=True)
        assert bulk == read(llamacpp.Reader(), whole, [], bulk=False)


def test_the_story_is_understood_in_bulk() -> None:
    lines = [*story(3, debug=True), *["0.50.000.000 I srv  update_slots: all slots are idle"] * 12]
    whole = "".join(line + "\n" for line in lines).encode()
    found = read(llamacpp.Reader(small=0), whole, [], bulk=True)
    assert [
        (one.label, one.cached_tokens, one.new_prefill_tokens, one.decoded_tokens, one.t_slot, one.t_end)
        for one in found.requests
    ] == [
        (f"slot {slot} task {4 + 2 * number + slot}", 50, 90 + slot, 11,
         (number + 1) * 10**9 + 200_370_000 + slot * 1_000, (number + 1) * 10**9 + 901_690_000 + slot * 1_000)
        for number in range(3) for slot in (0, 1)
    ]  # fmt: skip
    # Of each request eight lines; its debug entry has four, and three more say nothing of it.
    assert (found.lines.understood, found.lines.ignored, found.lines.unknown) == (2 + 6 * 8, 6 * (4 + 2) + 3 + 12, 0)
    assert found.doubts == ()
    assert [proof.line for name, proof in found.requests[0].proofs if name == "t_slot"] == [4]
