"""What is counted in bulk is counted as it would be line by line, whatever stands in it and wherever bytes are cut."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.core import markers
from agentload.core.records import LogFacts
from agentload.serverlogs import ds4, llamacpp

MARKER = markers.render("begin", "s1", "r1", "a", 1_790_000_000_000_000_000).decode()
AT = "0914 12:00:00 "
SERVER = "ds4-server: "

DS4_RARE = [
    f"{AT}{SERVER}chat ctx=0..90:90 prompt start",
    f"{AT}{SERVER}chat ctx=0..90:90 prompt done 0.100s",
    f"{AT}{SERVER}chat ctx=90..97:7 gen=7 decoding chunk=0.70 t/s avg=0.70 t/s 0.300s",
    f"{AT}{SERVER}chat ctx=0..90:90 gen=7 finish=stop 0.500s",
    f"{AT}{SERVER}kv cache stored tokens=9 trimmed=0 reason=cold key=k save=1.0 ms",
    f"{AT}{SERVER}invalid tool call; continuing with model-visible tool error dsml_snippet: <x>",
    f"{AT}{SERVER}decode batch count=2 elapsed=9.100 ms status=ok",
    f"{SERVER}chat ctx=0..90:90 prompt start",  # the second half of a torn line
    f"{SERVER}out of memory",
    f"{AT}{SERVER}chat ctx=0..90:90 prompt startds4: one",
    MARKER,
    f"{AT}{MARKER}",
    f"{AT}{SERVER}chat ctx=0..90:90 prompt start{MARKER}",
]
DS4_PLAIN = [
    "ds4: expert cache hit", "ds4: Metal device Apple M5, 128.00 GiB RAM", "ds4: allocation failed",
    "ds4: CUDA backend initialized on NVIDIA L40S (sm_89) dev=0", "ds4:", "ds4", "a foreign line", f"{AT}GET / 200",
    AT, f"{AT}ds4: torn", "x ds4: y", "", "\r", "ds4: cr\r", "\0ds4: nul", "\x1b[36mds4: colour\x1b[0m",
    "agentload: segment ", "ds4: CUDA using managed KV cache for ctx=4096 bytes=1",
]  # fmt: skip

WHO = "id  1 | task 7 | "
RATES = "(    6.67 ms per token,   150.00 tokens per second)"
LLAMA_RARE = [
    "0.00.000.100 I srv          init: initializing ...",
    f"0.01.000.000 I slot launch_slot_: {WHO}processing task, is_child = 0",
    f"0.01.000.000 I slot launch_slot_: {WHO}processing task",
    f"0.02.000.000 I slot print_timing: {WHO}prompt eval time =     600.00 ms /    90 tokens {RATES}",
    f"0.02.000.100 I slot print_timing: {WHO}       eval time =     300.00 ms /    11 tokens {RATES}",
    f"0.02.000.120 I slot print_timing: {WHO}      total time =     900.00 ms /   101 tokens",
    f"0.02.000.000 I slot print_timing: {WHO}",
    f"       eval time =     300.00 ms /    11 tokens {RATES}",
    f"0.02.000.200 I slot      release: {WHO}stop processing: n_tokens = 150, truncated = 0",
    f"0.01.500.000 I slot   operator(): {WHO}cached n_tokens = 50, memory_seq_rm [50, end)",
    "0.01.500.000 W srv          stop: cancel task, id_task = 7",
    "0.01.500.000 E srv  update_slots: failed to decode the batch",
    "warn: LLAMA_ARG_BATCH environment variable is set, but will be overwritten by command line argument -b",
    "0.01.700.000 ",
    f"I slot      release: {WHO}stop processing: n_tokens = 150, truncated = 0",
    "[53409] 0.01.000.000 I srv          init: initializing ...",
    MARKER,
]
LLAMA_PLAIN = [
    "0.01.100.000 I srv  update_slots: all slots are idle",
    f"0.01.200.000 I slot print_timing: {WHO}prompt processing, n_tokens =    768, progress = 0.63, t = 4.70 s",
    f"0.01.300.000 I slot print_timing: {WHO}   graphs reused =         61",
    "0.01.400.000 D srv  operator(): prompt: 'please",
    "0.01.400.000 D que  post: new task, id = 1",
    "go on", "", "\r", "1. a list", "\ttop_k = 40, top_p = 0.950", "\0hole",
    "\x1b[0m0.01.100.000 I srv  update_slots: all slots are idle",
    "0.01.600.000 I nobody knows this",
    "0.01.100.000 I srv  update_slots: all slots are idle\r",
    "srv  init: model loaded",
]  # fmt: skip


def read(reader: ds4.Reader | llamacpp.Reader, data: bytes, cuts: list[int], *, bulk: bool) -> LogFacts:
    if not bulk:
        reader._walker._bulk = None
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        reader.feed(data[start:end])
    return reader.close()


def mixed(rare: list[str], plain: list[str]) -> st.SearchStrategy[list[str]]:
    """Mostly lines that carry nothing, so that bulk is worth it."""
    some = st.lists(st.sampled_from(plain), max_size=14)
    return st.lists(st.tuples(some, st.sampled_from(rare)), max_size=8).map(
        lambda parts: [line for before, one in parts for line in (*before, one)]
    )


@pytest.mark.parametrize("foreign", [0, 40])
@settings(max_examples=250)
@given(lines=mixed(DS4_RARE, DS4_PLAIN), data=st.data())
def test_a_ds4_log_in_bulk_is_the_same(foreign: int, lines: list[str], data: st.DataObject) -> None:
    # With foreign lines all around it few lines of a block are the server's.
    text = ["elsewhere"] * foreign + lines + ["elsewhere"] * foreign
    whole = "".join(line + "\n" for line in text).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=3)))
    assert read(ds4.Reader(), whole, cuts, bulk=True) == read(ds4.Reader(), whole, [], bulk=False)


@settings(max_examples=400)
@given(lines=mixed(LLAMA_RARE, LLAMA_PLAIN), data=st.data())
def test_a_llamacpp_log_in_bulk_is_the_same(lines: list[str], data: st.DataObject) -> None:
    whole = "".join(line + "\n" for line in [LLAMA_RARE[0], *lines]).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=3)))
    assert read(llamacpp.Reader(), whole, cuts, bulk=True) == read(llamacpp.Reader(), whole, [], bulk=False)
