"""The walker hands over the lines of a file as they are, wherever its bytes were cut."""

import re

from hypothesis import given
from hypothesis import strategies as st

from agentload.core import markers
from agentload.serverlogs.lines import Bulk, Kind, LineWalker, Skip

MARKER = markers.render("end", "s 1", "r1", "-ub 8", 1_795_971_897_123_456_789)
PIECES = st.sampled_from(
    [b"\n", b"\r\n", b"\r", b"\0", b"a", b"noise", b"noise\n", b"noise\nnoise\nnoise\n", b"\xff", MARKER, b"\n\n"]
)


def plainly(data: bytes) -> list[tuple[int, int, bytes]]:
    """(number, offset, text) of every line, a byte at a time: the definition of a line."""
    found, number, start = [], 1, 0
    for at in range(len(data) + 1):
        if at == len(data) and start == at:
            break
        if at == len(data) or data[at : at + 1] == b"\n":
            text = data[start:at].removesuffix(b"\r")
            holes = len(text) - len(text.lstrip(b"\0"))
            found.append((number, start + holes, text.lstrip(b"\0")))
            number, start = number + 1, at + 1
    return found


def skipping(pattern: bytes, *, unknown: bool = False) -> Bulk:
    """Count stretches of lines that match; hand over the line after them."""
    lines = re.compile(rb"(?:" + pattern + rb"\n)*+")

    def bulk(block: bytes, at: int) -> Skip:
        found = lines.match(block, at)
        end = at if found is None else found.end()
        count = block.count(b"\n", at, end)
        return Skip(end, count, count if unknown else 0, block.find(b"\n", end) + 1 or end)

    return bulk


def walk(data: bytes, cuts: list[int], bulk: Bulk | None) -> tuple[LineWalker, list[tuple[int, int, bytes]]]:
    seen = []

    def take(number: int, offset: int, text: bytes) -> Kind:
        seen.append((number, offset, text))
        return Kind.IGNORED if text == b"noise" else Kind.UNKNOWN

    walker = LineWalker(take, bulk)
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        walker.feed(data[start:end])
    walker.close()
    return walker, seen


@given(st.lists(PIECES, max_size=30), st.data())
def test_each_line_comes_whole_with_its_number_and_offset(pieces: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(pieces)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    walker, seen = walk(whole, cuts, None)
    lines = plainly(whole)
    assert seen == [line for line in lines if line[2] not in (b"", MARKER)]
    assert [(m.proof.line, m.proof.offset) for m in walker.markers if m.proof] == [
        line[:2] for line in lines if line[2] == MARKER
    ]
    count = walker.tally.count()
    assert count.total == walker.lines == len(lines)
    assert count.markers == sum(text == MARKER for _, _, text in lines)
    assert walker.size == len(whole)


@given(st.lists(PIECES, max_size=30), st.data())
def test_noise_in_bulk_gives_the_same_counts_as_line_by_line(pieces: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(pieces)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    one, every = walk(whole, [], None)
    bulk, some = walk(whole, cuts, skipping(rb"noise"))
    assert bulk.tally.count() == one.tally.count()
    assert bulk.markers == one.markers
    assert [line for line in some if line[2] != b"noise"] == [line for line in every if line[2] != b"noise"]
    assert set(some) <= set(every)


@given(st.lists(PIECES, max_size=30))
def test_unknown_lines_in_bulk_are_counted_as_unknown(pieces: list[bytes]) -> None:
    whole = b"".join(pieces)
    one, bulk = walk(whole, [], None)[0].tally, walk(whole, [], skipping(rb"a", unknown=True))[0].tally
    assert (bulk.unknown, bulk.ignored, bulk.markers) == (one.unknown, one.ignored, one.markers)
