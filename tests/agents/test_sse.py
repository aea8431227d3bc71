"""Are the same events found however the bytes are cut, and is each stamped when it was complete?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.agents.sse import Event, SseParser


def parse(*pieces: bytes) -> list[tuple[int, str, bytes]]:
    """Feed the pieces with their positions as stamps."""
    parser = SseParser()
    return [(e.t_ns, e.name, e.data) for i, piece in enumerate(pieces) for e in parser.feed(i, piece)]


def test_two_events_in_one_piece_share_its_stamp() -> None:
    assert parse(b"data: a\n\ndata: b\n\n") == [(0, "message", b"a"), (0, "message", b"b")]


def test_an_event_is_stamped_by_the_piece_that_brings_its_blank_line() -> None:
    assert parse(b"da", b"ta: a\n", b"\ndata: b", b"\n\n") == [(2, "message", b"a"), (3, "message", b"b")]


def test_a_line_feed_that_follows_a_carriage_return_in_the_next_piece_delays_nothing() -> None:
    assert parse(b"data: a\r\n\r", b"\ndata: b\r\n", b"\r\n") == [(0, "message", b"a"), (2, "message", b"b")]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        pytest.param(b"data: a\ndata: b\n\n", [("message", b"a\nb")], id="several data lines are joined"),
        pytest.param(b"data:a\n\n", [("message", b"a")], id="the space is optional"),
        pytest.param(b"data:  a\n\n", [("message", b" a")], id="only one space is dropped"),
        pytest.param(b"data: a\r\rdata: b\r\r", [("message", b"a"), ("message", b"b")], id="bare carriage returns"),
        pytest.param(b"data\n\n", [("message", b"")], id="a data line without a colon is empty data"),
        pytest.param(b"event: error\ndata: x\n\n", [("error", b"x")], id="a named event"),
        pytest.param(b"event: lost\n\ndata: x\n\n", [("message", b"x")], id="a name without data is no event"),
        pytest.param(b"id: 7\nretry: 10\ndata: x\n\n", [("message", b"x")], id="id and retry are skipped"),
        pytest.param(b"\xef\xbb\xbfdata: x\n\n", [("message", b"x")], id="a byte order mark at the start"),
        pytest.param(b"\n\n\ndata: x\n\n", [("message", b"x")], id="blank lines before an event"),
        pytest.param(b'error: {"m":1}\n\n', [("error", b'{"m":1}')], id="an old llama.cpp error line"),
        pytest.param(b"data: torn", [], id="an event without its blank line is none"),
    ],
)
def test_a_stream_gives_the_events_of_the_standard(stream: bytes, events: list[tuple[str, bytes]]) -> None:
    assert [(name, data) for _, name, data in parse(stream)] == events


def test_comments_are_counted_and_are_no_events() -> None:
    parser = SseParser()
    assert parser.feed(1, b": keepalive\n\n: prefill\n\n:\n\ndata: x\n: inside\n\n") == [Event(1, "message", b"x")]
    assert parser.comments == 4


def test_what_is_left_of_a_torn_stream_can_be_seen() -> None:
    parser = SseParser()
    parser.feed(1, b'data: a\n\ndata: {"to')
    assert parser.rest == b'data: {"to'


PIECES = st.lists(
    st.sampled_from([b"a", b"{}", b"data: ", b"data", b"event: error", b":", b" ", b"\n", b"\r", b"\r\n", b"\n\n"]),
    max_size=40,
)


@given(PIECES, st.data())
def test_any_cutting_of_any_stream_gives_the_same_events_and_comments(parts: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(parts)
    whole = SseParser()
    expected = [(e.name, e.data) for e in whole.feed(0, stream)]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    cut = SseParser()
    found = [
        (e.name, e.data)
        for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)
        for e in cut.feed(0, stream[begin:end])
    ]
    assert found == expected
    assert (cut.comments, cut.rest) == (whole.comments, whole.rest)


TEXTS = st.lists(st.binary(max_size=12).map(lambda b: b.translate(None, b"\r\n")), min_size=1, max_size=8)


@given(TEXTS, st.sampled_from([b"\n", b"\r\n", b"\r"]), st.data())
def test_each_stamp_is_of_the_piece_that_completes_the_event(
    texts: list[bytes], newline: bytes, data: st.DataObject
) -> None:
    stream, complete_at = b"", []
    for text in texts:
        stream += b"data: " + text + newline
        complete_at.append(len(stream))  # the first byte of the blank line's end completes the event
        stream += newline
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    ends = [*cuts, len(stream)]
    found = parse(*(stream[begin:end] for begin, end in zip([0, *cuts], ends, strict=True)))
    assert [payload for _, _, payload in found] == texts
    assert [stamp for stamp, _, _ in found] == [
        next(i for i, end in enumerate(ends) if end > offset) for offset in complete_at
    ]
