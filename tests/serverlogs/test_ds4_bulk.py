"""What is read of a ds4 log in bulk is what is read line by line, whatever stands in it and wherever bytes are cut."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.core import markers
from agentload.core.records import LogFacts
from agentload.serverlogs import ds4
from tests.serverlogs.edits import changed

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
    "ds4: 12345678 ds4-server: chat ctx=90..97:7 gen=7 decoding chunk=0.70 t/s avg=0.70 t/s 0.300s",
    "agentload: segment ", "ds4: CUDA using managed KV cache for ctx=4096 bytes=1",
]  # fmt: skip


def read(reader: ds4.Reader, data: bytes, cuts: list[int], *, bulk: bool) -> LogFacts:
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


DS4_CTX = st.tuples(st.integers(0, 30), st.integers(1, 90)).map(lambda ctx: f"{ctx[0]}..{sum(ctx)}:{ctx[1]}")
DS4_FLAGS = st.sampled_from(
    ["", " TOOLS", " THINKING", " RESPPROTO TOOLS THINKING", " DSML_START", " DSML_END", " NEW_FLAG", " TOOLs", " "]
)
DS4_RATE = st.sampled_from(["0.70", "123456.78", "inf", "-nan", "1", "7.", ".", "12/3"])
DS4_S = st.sampled_from(["0.100", "0.300", "7.000", "12345678.999", "123456789.000", "1.5", "x", "0.300s", ""])
DS4_STAMP = st.sampled_from(
    [AT] * 8 + [f"0914 12:00:{s:02d} " for s in range(1, 9)]
    + [f"{day} 00:00:00 " for day in ("0229", "0301", "0101", "1305")]
    + ["0914 13:30:00 ", "0914 11:59:58 ", "0914_12:00:00 "]
)  # fmt: skip
DS4_N = st.sampled_from(["0", "7", "07", "50", "99999999", "999999999", "1234567890", ""])


@st.composite
def ds4_like(draw: st.DrawFn) -> str:
    """Draw a line that is, or nearly is, one of those that most logs are full of."""
    ctx, flags = draw(st.one_of(st.sampled_from(["0..90:90"] * 4 + ["90..97:7", "97..99:2"]), DS4_CTX)), draw(DS4_FLAGS)
    rates, took, number = f"chunk={draw(DS4_RATE)} t/s avg={draw(DS4_RATE)} t/s", draw(DS4_S), draw(DS4_N)
    reason = draw(st.sampled_from(["stop", "length", "tool_calls", "error", 'error error="x"', "other"]))
    status = draw(st.sampled_from(["ok", "0", "failed", "ok "]))
    text = draw(
        st.sampled_from([
            f"chat ctx={ctx}{flags} prompt start",
            f"chat ctx={ctx}{flags} prompt done {took}s",
            f"chat ctx={ctx}{flags} prefill chunk {number}/90 ({draw(DS4_RATE)}%) {rates} {took}s",
            f"chat ctx={ctx} gen={number}{flags} decoding {rates} {took}s",
            f"chat ctx={ctx}{flags} decoding {rates} {took}s",
            f"chat ctx={ctx} gen={number}{flags} finish={reason} {took}s",
            f"completion ctx={ctx}{flags} prompt start",
            f"decode batch count={number} elapsed={took} ms status={status}",
        ])
    )  # fmt: skip
    line = draw(DS4_STAMP) + SERVER + text
    end = draw(st.sampled_from([""] * 12 + [" ", "\r", "\0", "\x1b[0m", "\r\r"]))
    return line[: draw(st.integers(0, len(line)))] if draw(st.integers(0, 19)) == 0 else line + end


@pytest.mark.parametrize("foreign", [0, 40])
@settings(max_examples=250, deadline=None)
@given(lines=mixed(DS4_RARE, DS4_PLAIN), data=st.data())
def test_a_ds4_log_in_bulk_is_the_same(foreign: int, lines: list[str], data: st.DataObject) -> None:
    # With foreign lines all around it few lines of a block are the server's.
    text = ["elsewhere"] * foreign + lines + ["elsewhere"] * foreign
    whole = "".join(line + "\n" for line in text).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=3)))
    assert read(ds4.Reader(small=0), whole, cuts, bulk=True) == read(ds4.Reader(), whole, [], bulk=False)


def story(rounds: int, scale: int = 1) -> list[str]:
    """Return the lines of rounds of two requests at once, among decode steps and other programs' lines.

    With a `scale` of a thousand more than half an hour lies between many of them.
    """
    lines = []
    for number in range(rounds):
        for second, ctx, base, flags in ((0, "0..90:90", 90, " TOOLS"), (1, "10..110:100", 110, " TOOLS THINKING")):
            new, start = int(ctx.rpartition(":")[2]), 20 * number + second
            rate = "chunk=9.70 t/s avg=9.70 t/s"
            said = f"decoding {rate}"
            texts = [
                (0, f"chat ctx={ctx}{flags} prompt start"),
                *((2 * k, f"chat ctx={ctx}{flags} prefill chunk {at}/{new} (1.0%) {rate} {2 * k * scale}.400s")
                  for k, at in enumerate((0, 40, new))),
                (5, f"chat ctx={ctx}{flags} prompt done {5 * scale - 1}.900s"),
                *((5 + k, f"chat ctx={base + 5 * k - 5}..{base + 5 * k}:5 gen={5 * k}{flags} {said} {k * scale}.250s")
                  for k in range(1, 5)),
                (9, f"chat ctx={ctx} gen=20{flags} finish=stop {9 * scale}.200s"),
                (7, f"decode batch count={second + 1} elapsed=9.{number:03d} ms status=ok"),
            ]  # fmt: skip
            lines += [((start + at) * scale, f"{SERVER}{text}") for at, text in texts]
    stamped = [
        f"0914 {at // 3600:02d}:{at // 60 % 60:02d}:{at % 60:02d} {text}"
        for at, text in sorted(lines, key=lambda one: one[0])
    ]
    return [line for each in stamped for line in (each, "ds4: expert cache hit", "elsewhere")[: 1 + len(each) % 3]]


ODD = st.one_of(ds4_like(), ds4_like(), st.sampled_from(DS4_RARE + DS4_PLAIN), st.integers(-99, -1), st.none())


@settings(max_examples=300, deadline=None)
@given(
    edits=st.lists(st.tuples(st.integers(0, 160), ODD, st.booleans()), max_size=12),
    scale=st.sampled_from([1, 1, 1, 1000]),
    newline=st.sampled_from(["\n", "\n", "\r\n"]),
    received=st.booleans(),
    year=st.sampled_from([None, 2026, 2028]),
    data=st.data(),
)
def test_a_ds4_log_that_was_changed_here_and_there_in_bulk_is_the_same(
    edits: list[tuple[int, str | int | None, bool]],
    scale: int,
    newline: str,
    received: bool,
    year: int | None,
    data: st.DataObject,
) -> None:
    lines = changed(story(4, scale), edits)
    whole = newline.join([*lines, *["elsewhere"] * 30]).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=3)))
    stamps = [1_790_000_000_000_000_000 + 50_000_000 * line for line in range(len(lines) + 30)] if received else None
    bulk = read(ds4.Reader(stamps, year, small=0), whole, cuts, bulk=True)
    assert bulk == read(ds4.Reader(stamps, year), whole, [], bulk=False)


REST = ["elsewhere"] * 30


def set_by(line: str, by_s: int) -> str:
    second = sum(int(text) * unit for text, unit in zip(line[5:13].split(":"), (3600, 60, 1), strict=True)) + by_s
    return f"0914 {second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}{line[13:]}"


def both(lines: list[str], stamps: list[int] | None = None) -> tuple[LogFacts, LogFacts]:
    whole = "".join(line + "\n" for line in lines).encode()
    bulk = read(ds4.Reader(stamps, 2026, small=0), whole, [], bulk=True)
    return bulk, read(ds4.Reader(stamps, 2026), whole, [], bulk=False)


@pytest.mark.parametrize("scale", [1, 1000])
def test_a_ds4_log_without_any_one_line_or_what_follows_it_in_bulk_is_the_same(scale: int) -> None:
    lines = story(2, scale)
    for place in range(len(lines)):
        bulk, by_line = both([*lines[:place], *lines[place + 1 :], *REST])
        assert bulk == by_line
        bulk, by_line = both([*REST, *lines[:place], *REST])
        assert bulk == by_line


@pytest.mark.parametrize("scale", [1, 1000])
@pytest.mark.parametrize("by_s", [3600, -3600, -90, -2700, 300])
def test_a_ds4_log_whose_clock_is_set_anywhere_in_bulk_is_the_same(scale: int, by_s: int) -> None:
    lines = story(2, scale)
    for place in range(len(lines)):
        later = [set_by(line, by_s) if line.startswith("0914") else line for line in lines[place:]]
        bulk, by_line = both([*REST, *lines[:place], *later, *REST])
        assert bulk == by_line


@pytest.mark.parametrize("bulk", [True, False])
def test_a_line_of_the_engine_that_holds_one_of_the_server_is_the_engines_with_receive_stamps_too(bulk: bool) -> None:
    told = f"ds4: 12345678 {DS4_RARE[2].removeprefix(AT)}"
    lines = [DS4_RARE[0], told, *["ds4: expert cache"] * 400]  # enough for what is read in bulk
    facts = read(ds4.Reader([1_000_000_000] * len(lines), small=0), "\n".join(lines).encode() + b"\n", [], bulk=bulk)
    assert (facts.lines.understood, facts.lines.ignored) == (1, 401)
    assert [one.decoded_tokens for one in facts.requests] == [None]


def test_requests_that_cannot_be_told_apart_in_bulk_are_the_same() -> None:
    start, done = (f"{AT}{SERVER}chat ctx=0..90:90 prompt {what}" for what in ("start", "done 1.5s"))
    edits: list[tuple[int, str | int | None, bool]] = [
        (0, start, True), (1, "", False), (42, done, True), (104, start, False), (0, start, False), (0, None, False),
        (0, None, False), (0, start, False), (6, start, False),
    ]  # fmt: skip
    lines = changed(story(4), edits)
    bulk, by_line = both([*lines, *REST], [10**18 + 50_000_000 * line for line in range(len(lines) + 30)])
    assert bulk == by_line
    assert "equal-requests" in {one.code for one in by_line.doubts}


def test_a_request_of_which_all_chunks_and_all_decode_lines_are_usual_is_read_in_five_steps() -> None:
    reader = ds4.Reader(year=2026, small=0)
    reader.feed("".join(line + "\n" for line in [*REST, *story(4), *REST]).encode())
    assert reader._block is not None
    assert len(reader._block.taken) == 2 * 8
    assert list(reader._block.events) == []


def test_the_story_is_understood() -> None:
    whole = "".join(line + "\n" for line in story(4)).encode()
    found = read(ds4.Reader(year=2026, small=0), whole, [], bulk=True)
    assert [(one.cached_tokens, one.prompt_tokens, one.decoded_tokens, one.finish) for one in found.requests] == [
        (0, 90, 20, "stop"), (10, 110, 20, "stop"),
    ] * 4  # fmt: skip
    assert sum(one.steps for one in found.decode_batches) == 8
    assert found.doubts == ()
