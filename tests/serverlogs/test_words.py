"""What is looked for in a whole block at once is found wherever it stands."""

import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.core.records import Proof
from agentload.serverlogs import ds4, formats
from agentload.serverlogs.words import PAD, CrowdedError, cut

LINES = st.lists(st.lists(st.sampled_from([b"a", b"\t", b"\r", b"\0", b"\x1b", b"\xff"]), max_size=4).map(b"".join))


@settings(max_examples=200)
@given(LINES)
def test_a_block_is_cut_as_line_by_line(lines: list[bytes]) -> None:
    last = b"x" * (PAD + 64 * len(lines))
    block = b"".join(line + b"\n" for line in lines) + last + b"\n"
    found = cut(block)
    texts = [line.removesuffix(b"\r") for line in lines]
    starts, ends = found.starts.tolist(), found.ends.tolist()
    assert [block[start:end] for start, end in zip(starts, ends, strict=False)] == [*texts, last]
    assert starts[-1] == len(block)
    assert found.odd.tolist() == [any(byte in text for byte in b"\r\0\x1b") for text in texts] + [False]
    assert found.blank.tolist() == [not text for text in texts] + [False]


@pytest.mark.parametrize("trouble", [b"failed", b"out of memory"])
def test_trouble_of_the_engine_is_found_at_any_place_of_a_block(trouble: bytes) -> None:
    chatter = b"ds4: expert cache layer=7 hit=1 staged in 0.118 ms\n" * 40
    for shift in range(9):
        head = b"ds4: expert cache " + b"0" * shift + b"\n"
        line = b"ds4: expert cache " + trouble + b" 7\n"
        reader = ds4.Reader(small=0)
        reader.feed(head + chatter + line + chatter)
        facts = reader.close()
        place = (42, len(head) + len(chatter))
        assert [((proof.line, proof.offset), why) for _, proof, why in facts.suspects] == [
            (place, line.decode().strip())
        ]
        assert (facts.lines.understood, facts.lines.ignored, facts.lines.unknown) == (1, 81, 0)


@pytest.mark.parametrize("trouble", [b"failed", b"out of memory"])
def test_trouble_is_found_where_what_is_looked_at_together_ends(trouble: bytes) -> None:
    # 128 KiB are looked at together: the text ends before, at and behind that place.
    for end in range((1 << 17) - 2, (1 << 17) + len(trouble) + 2):
        line = b"ds4: expert cache " + trouble + b" 7\n"
        before = end - len(trouble) - len(b"ds4: expert cache ")
        filler = b"ds4: expert cache " + b"0" * (before - 19) + b"\n"
        reader = ds4.Reader(small=0)
        reader.feed(filler + line + b"ds4: expert cache 0\n" * 40)
        assert [proof.line for _, proof, _ in reader.close().suspects] == [2]


def test_a_file_comes_in_small_pieces_while_its_format_may_be_unknown_and_then_in_large_ones() -> None:
    sizes = [len(piece) for piece in formats.blocks(io.BytesIO(bytes(30_000_000)))]
    assert sizes == [1 << 20] * 16 + [1 << 23, 30_000_000 - 24 * (1 << 20)]


def test_pieces_of_a_file_end_where_a_line_does_if_one_ends_near_there(tmp_path: Path) -> None:
    # Lines of 1,000 bytes; the first MiB (1,048,576) ends in one of 200,000, whose newline is far.
    path = tmp_path / "server.log"
    path.write_bytes((b"x" * 999 + b"\n") * 900 + b"y" * 199_999 + b"\n" + (b"z" * 999 + b"\n") * 2_000 + b"torn")
    with path.open("rb") as file:
        found = list(formats.blocks(file))
    assert [len(piece) for piece in found] == [1_048_576, 2_097_000 - 1_048_576, 3_100_004 - 2_097_000]
    assert b"".join(found) == path.read_bytes()


@pytest.mark.parametrize("filler", [b"\n", b"\0", b"\0\0\n"])
def test_a_block_of_nearly_nothing_but_lines_or_holes_is_read_line_by_line(filler: bytes) -> None:
    start, end = (f"0914 12:00:00 ds4-server: {text}\n".encode() for text in (
        "chat ctx=0..90:90 prompt start", "chat ctx=0..90:90 gen=0 finish=stop 0.500s"
    ))  # fmt: skip
    hole = filler * 60_000
    with pytest.raises(CrowdedError):
        cut(start + hole + end)
    for piece in (len(start), 1 << 20):
        reader = ds4.Reader()
        data = start + hole + end
        for at in range(0, len(data), piece):
            reader.feed(data[at : at + piece])
        facts = reader.close()
        (request,) = facts.requests
        assert dict(request.proofs)["finish"] == Proof(2 + hole.count(b"\n"), len(start) + len(hole))
        assert facts.lines.total == 2 + hole.count(b"\n")
