"""Is a coloured log of llama-server the same log? It has colours on a terminal, or with --log-colors on.

Level and time are coloured; of warnings, errors and debug lines all of the text is, and what ends the colour comes
behind the newline, so that the next line begins with it.
"""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from agentload.core.records import LogFacts, Marker, Proof
from agentload.serverlogs import formats
from agentload.serverlogs.llamacpp import FORMAT, Reader

DATA = Path(__file__).parent / "llamacpp"
PREFIX = re.compile(rb"(\d+\.\d\d\.\d{3}\.\d{3}) ([A-Z]) (.*)", re.DOTALL)
BLUE, GREEN, MAGENTA, RED, YELLOW, DEFAULT = (f"\x1b[{code}m".encode() for code in (34, 32, 35, 31, 33, 0))
LEVELS = {b"I": GREEN, b"W": MAGENTA, b"E": RED, b"D": YELLOW}


def coloured(data: bytes) -> bytes:
    """The log as llama-server writes it in colours."""
    out = []
    for line in data.splitlines():
        found = PREFIX.fullmatch(line)
        if found is None:
            out.append(line + b"\n")
            continue
        stamp, level, text = found.groups()
        ends = level == b"I"
        out.append(BLUE + stamp + DEFAULT + b" " + LEVELS[level] + level + b" " + (DEFAULT if ends else b"") + text)
        out.append(b"\n" if ends else b"\n" + DEFAULT)
    return b"".join(out)


def read(data: bytes, *, bulk: bool) -> LogFacts:
    reader = Reader(small=0 if bulk else len(data) + 1)
    reader.feed(data)
    return reader.close()


def told(facts: LogFacts) -> LogFacts:
    """What was told, but how many bytes stand before each line."""

    def place(proof: Proof | None) -> Proof | None:
        return None if proof is None else Proof(proof.line, 0)

    def marker(one: Marker) -> Marker:
        return replace(one, proof=place(one.proof))

    return replace(
        facts,
        size=0,
        lines=replace(facts.lines, examples=()),
        boots=tuple(replace(one, ready=place(one.ready)) for one in facts.boots),
        settings=tuple(replace(one, proof=Proof(one.proof.line, 0)) for one in facts.settings),
        requests=tuple(
            replace(one, proofs=tuple((name, Proof(proof.line, 0)) for name, proof in one.proofs))
            for one in facts.requests
        ),
        markers=tuple(map(marker, facts.markers)),
        suspects=tuple((at, Proof(proof.line, 0), why) for at, proof, why in facts.suspects),
    )


@pytest.mark.parametrize("name", ["real_default", "real_verbose", "small_batches", "three_agents"])
@pytest.mark.parametrize("bulk", [True, False])
def test_a_coloured_log_tells_what_the_plain_one_tells(name: str, *, bulk: bool) -> None:
    plain = (DATA / f"{name}.log").read_bytes()
    data = coloured(plain)
    assert (b"\x1b" in plain, b"\x1b" in data) == (False, True)
    assert formats.detect(data) == "llamacpp"
    facts = read(data, bulk=bulk)
    assert told(facts) == told(read(plain, bulk=False))


def test_an_offset_is_that_of_the_coloured_line() -> None:
    data = coloured((DATA / "three_agents.log").read_bytes())
    for one in read(data, bulk=True).requests:
        for _, proof in one.proofs:
            assert data.count(b"\n", 0, proof.offset) == proof.line - 1
            assert proof.offset == 0 or data[proof.offset - 1 : proof.offset] == b"\n"


def test_what_ends_the_colour_of_a_last_warning_is_no_unknown_line() -> None:
    facts = read(coloured(b"0.00.000.376 W srv          init: loading model\n"), bulk=False)
    assert (facts.lines.ignored, facts.lines.unknown) == (2, 0)


def test_colours_alone_make_no_line_one_of_llama_cpp() -> None:
    assert FORMAT.looks_like([b"\x1b[32mINFO\x1b[0m:     Started server process [1]", b"\x1b[0m"]) == 0
