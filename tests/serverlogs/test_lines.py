"""Whole lines with their places, whatever the pieces they come in."""

import re

from hypothesis import given
from hypothesis import strategies as st

from agentload.core import markers
from agentload.serverlogs import lines as lines_module
from agentload.serverlogs.lines import Bulk, Kind, LineWalker, Skip

MARKER = markers.render("begin", "s1", "r1", "default", 1_795_971_897_123_456_789)
NOISE = re.compile(rb"(?:noise.*\n)*+")


def skip_noise(block: bytes, at: int) -> Skip:
    """Count stretches of lines that begin with noise, hand over the one after them."""
    found = NOISE.match(block, at)
    end = at if found is None else found.end()
    return Skip(end, block.count(b"\n", at, end), 0, block.find(b"\n", end) + 1 or end)


class Taker:
    """Keeps what it was handed; knows lines that begin with a letter of its own."""

    def __init__(self) -> None:
        self.taken: list[tuple[int, int, bytes]] = []

    def __call__(self, number: int, offset: int, text: bytes) -> Kind:
        self.taken.append((number, offset, text))
        return {b"u": Kind.UNDERSTOOD, b"n": Kind.IGNORED}.get(text[:1], Kind.UNKNOWN)


def walk(*pieces: bytes, bulk: Bulk | None = None) -> tuple[LineWalker, Taker]:
    taker = Taker()
    walker = LineWalker(taker, bulk)
    for piece in pieces:
        walker.feed(piece)
    walker.close()
    return walker, taker


def test_lines_have_numbers_from_one_and_the_offset_of_their_first_byte() -> None:
    walker, taker = walk(b"u1\nu22\n\nu3")
    assert taker.taken == [(1, 0, b"u1"), (2, 3, b"u22"), (4, 8, b"u3")]
    count = walker.tally.count()
    assert (count.understood, count.ignored, count.unknown, count.total) == (3, 1, 0, 4)
    assert (walker.lines, walker.size) == (4, 10)


def test_a_carriage_return_is_no_part_of_a_line_and_counts_in_the_offset() -> None:
    _, taker = walk(b"u1\r\nu2\r\n\r\nu3\r\n")
    assert taker.taken == [(1, 0, b"u1"), (2, 4, b"u2"), (4, 10, b"u3")]


def test_a_hole_of_nul_bytes_stands_before_the_line_and_is_no_part_of_it() -> None:
    walker, taker = walk(b"u1\n" + bytes(1000) + b"u2\n" + bytes(7) + b"\n")
    assert taker.taken == [(1, 0, b"u1"), (2, 1003, b"u2")]
    assert walker.tally.count().unknown == 1  # the line of nothing but NUL


def test_a_byte_order_mark_is_no_part_of_the_first_line_and_counts_in_the_offset() -> None:
    mark = b"\xef\xbb\xbf"
    for bulk in (None, skip_noise):
        for pieces in ((mark + b"u1\nu2\n",), (mark[:1], mark[1:] + b"u1", b"\nu2")):
            _, taker = walk(*pieces, bulk=bulk)
            assert taker.taken == [(1, 3, b"u1"), (2, 6, b"u2")]
    _, taker = walk(b"u1\n" + mark + b"u2\n")  # two files put together: in the middle it is one of the line's bytes
    assert taker.taken == [(1, 0, b"u1"), (2, 3, mark + b"u2")]


def test_a_hole_longer_than_any_line_hides_nothing_behind_it() -> None:
    size = lines_module.MAX_LINE_BYTES + 5
    for pieces in (
        (bytes(size) + b"u1\n",),
        (bytes(7), bytes(size - 7), b"u", b"1\nu2"),
        (b"\n", bytes(size), b"u1\n"),
    ):
        begins = size + len(pieces[0]) * (pieces[0] == b"\n")
        walker, taker = walk(*pieces)
        assert taker.taken[0] == (1 + (pieces[0] == b"\n"), begins, b"u1")
        assert walker.tally.count().unknown == 0
    walker, taker = walk(b"u1\n", bytes(9), bytes(9))  # nothing behind it
    assert (taker.taken, walker.tally.count().unknown, walker.size) == ([(1, 0, b"u1")], 1, 21)


def test_markers_are_counted_and_not_handed_over() -> None:
    walker, taker = walk(b"u1\n" + MARKER + b"\r\nu2\n" + MARKER)
    assert [text for _, _, text in taker.taken] == [b"u1", b"u2"]
    assert [marker.proof and marker.proof.line for marker in walker.markers] == [2, 4]
    assert walker.markers[0].proof is not None
    assert walker.markers[0].proof.offset == 3
    assert walker.tally.count().markers == 2


def test_what_only_looks_like_a_marker_is_a_line() -> None:
    walker, taker = walk(b"x " + MARKER + b"\n" + MARKER + b" \n")
    assert (len(taker.taken), walker.markers) == (2, [])


def test_the_first_five_unknown_lines_are_shown_cut_to_two_hundred_characters() -> None:
    walker, _ = walk(b"".join(b"\xff%d" % number + b"x" * 300 + b"\n" for number in range(9)))
    count = walker.tally.count()
    assert count.unknown == 9
    assert [proof.line for proof, _ in count.examples] == [1, 2, 3, 4, 5]
    assert {len(text) for _, text in count.examples} == {200}


def test_a_line_longer_than_is_kept_moves_what_follows_by_its_whole_length() -> None:
    long = b"u" * (lines_module.MAX_LINE_BYTES + 1000)
    walker, taker = walk(long[:5], long[5:], b"\nu2\n")
    assert [(number, offset, len(text)) for number, offset, text in taker.taken] == [
        (1, 0, lines_module.MAX_LINE_BYTES),
        (2, len(long) + 1, 2),
    ]
    assert walker.size == len(long) + 4


def test_a_held_back_line_is_counted_when_the_reader_says_so() -> None:
    walker = LineWalker(lambda *_: None)
    walker.feed(b"a\nb\n")
    assert walker.tally.count().total == 0
    walker.tally.add(Kind.UNKNOWN, 1, 0, b"a")
    assert walker.tally.count().unknown == 1


LINES = st.lists(
    st.sampled_from(
        [
            b"noise",
            b"noise and more",
            b"u1",
            b"n",
            b"?",
            b"",
            b"\r",
            b"noise\r",
            b"\x00u",
            MARKER,
            b"x" + MARKER,
            b"\xfe",
        ]
    ),
    max_size=40,
)


@given(LINES, st.booleans(), st.data())
def test_where_the_bytes_are_cut_changes_nothing(lines: list[bytes], ends: bool, data: st.DataObject) -> None:
    whole = b"\n".join(lines) + (b"\n" if ends and lines else b"")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=10)))
    cut = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    once, first = walk(whole)
    pieces, second = walk(*cut)
    assert first.taken == second.taken
    assert once.tally.count() == pieces.tally.count()
    assert once.markers == pieces.markers
    physical = whole.count(b"\n") + (0 if whole.endswith(b"\n") or not whole else 1)
    assert once.tally.count().total == once.lines == physical
    for number, offset, text in first.taken:
        assert whole[offset : offset + len(text)] == text
        assert whole[:offset].count(b"\n") == number - 1


@given(LINES, st.data())
def test_counting_noise_in_bulk_gives_the_same_counts_and_places(lines: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(line + b"\n" for line in lines)
    at = data.draw(st.integers(0, len(whole)))
    plain, all_of_them = walk(whole)
    bulk, some = walk(whole[:at], whole[at:], bulk=skip_noise)
    assert bulk.tally.count() == plain.tally.count()
    assert bulk.markers == plain.markers
    missing = set(all_of_them.taken) - set(some.taken)
    assert set(some.taken) <= set(all_of_them.taken)
    assert all(text.startswith(b"noise") for _, _, text in missing)


def test_of_a_stretch_of_noise_no_line_is_handed_over_and_those_around_keep_their_places() -> None:
    _, taker = walk(b"u1\n" + b"noise\n" * 5 + b"u2\nnoise\nnoise\nu3\n", bulk=skip_noise)
    assert [(number, offset) for number, offset, _ in taker.taken] == [(1, 0), (7, 33), (10, 48)]
