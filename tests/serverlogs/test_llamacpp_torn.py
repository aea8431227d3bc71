"""What is lost or foreign in a log is counted, and never changes a sum silently."""

from hypothesis import assume, given
from hypothesis import strategies as st

from agentload.core import markers
from agentload.core.records import LogFacts
from agentload.serverlogs.llamacpp import FORMAT
from tests.serverlogs.llama_schedule import Planned, plans, render

MARKER = markers.render("begin", "s1", "r1", "default", 1_795_971_897_123_456_789)
ONE = [Planned(2, 37, 1_000_000, 500, 795, 144, 33, 1_022_178, 529_135, cancelled=False)]
FOREIGN = st.sampled_from(
    [
        b"LISTEN http://127.0.0.1:18181",
        b"Traceback (most recent call last):",
        b"model says: 0.00.000.001 I slot print_timing: id  2 | task 37 |        eval time =    1.00 ms /     9 tokens",
        b"slot      release: id  2 | task 37 | stop processing: n_tokens = 9, truncated = 0",
        b"0.02.000.000 I slot print_timing: id  2 | task 37 | prompt eval time =    1.00 ms /     9 tok",
        b"0.02.000.000 I slot      release: id  2 | task 37 | stop processing: n_tokens = 9, truncated = 0, he said",
        b"\xff\xfe\x00garbage",
        MARKER + b" and more",
    ]
)


def read(data: bytes) -> LogFacts:
    reader = FORMAT.reader()
    reader.feed(data)
    return reader.close()


def joined(plan: list[Planned], *, verbose: bool = False) -> list[bytes]:
    return [line + b"\n" for _, line in render(plan, verbose=verbose)]


def sums(facts: LogFacts) -> tuple[int, int, int]:
    return (
        sum(one.new_prefill_tokens or 0 for one in facts.requests),
        sum(one.cached_tokens or 0 for one in facts.requests),
        sum(one.decoded_tokens or 0 for one in facts.requests),
    )


@given(plans(), st.lists(FOREIGN, min_size=1, max_size=5), st.data())
def test_foreign_lines_are_counted_as_unknown_and_change_nothing(
    plan: list[Planned], foreign: list[bytes], data: st.DataObject
) -> None:
    clean = joined(plan)
    lines = list(clean)
    for text in foreign:  # after the first line: before it there is no telling whether the log has prefixes
        lines.insert(data.draw(st.integers(1, len(lines))), text + b"\n")
    facts = read(b"".join(lines))
    expected = read(b"".join(clean))
    assert facts.lines.unknown == len(foreign)
    assert facts.lines.understood == expected.lines.understood
    assert sums(facts) == sums(expected)
    assert [one.t_end for one in facts.requests] == [one.t_end for one in expected.requests]


@given(plans(), st.data())
def test_a_cut_line_is_counted_and_seen(plan: list[Planned], data: st.DataObject) -> None:
    lines = joined([*plan, Planned(0, 999, 4_000_000_000, 500, 11, 22, 33, 44, 55, cancelled=False)])
    clean = read(b"".join(lines))
    needed = [
        index
        for index, line in enumerate(lines)
        if any(text in line for text in (b" eval time =", b"processing task", b"stop processing"))
    ]
    index = data.draw(st.sampled_from(needed))
    cut = lines[index][: data.draw(st.integers(1, len(lines[index]) - 2))]
    assume(not cut.endswith(b"processing task"))  # which is a whole line of older builds, and says all that is needed
    lines[index] = cut + b"\n"
    facts = read(b"".join(lines))
    assert facts.lines.unknown >= 1  # with its first line lost, the others of a request may have no meaning either
    assert facts.lines.total == len(lines)
    assert facts.doubts != () or any(one.t_end is None for one in facts.requests)
    for lost, whole in zip(sums(facts), sums(clean), strict=True):
        assert lost <= whole


@given(plans(), st.data())
def test_a_line_that_vanished_shows(plan: list[Planned], data: st.DataObject) -> None:
    lines = joined([one for one in plan if not one.cancelled] or ONE)
    needed = [index for index, line in enumerate(lines) if b" eval time =" in line or b"stop processing" in line]
    del lines[data.draw(st.sampled_from(needed))]
    facts = read(b"".join(lines))
    assert facts.doubts != () or any(one.t_end is None for one in facts.requests)


@given(plans(), st.data())
def test_a_line_that_a_marker_splits_is_joined_again(plan: list[Planned], data: st.DataObject) -> None:
    clean = joined(plan)
    index = data.draw(st.integers(0, len(clean) - 1))
    line = clean[index]
    first = line.index(b" ") + 1  # the server writes its stamp, its level and its text in three writes
    at = data.draw(st.sampled_from([first, first + 2]))
    torn = [*clean[:index], line[:at] + b"\n" + MARKER + b"\n" + line[at:], *clean[index + 1 :]]
    facts, expected = read(b"".join(torn)), read(b"".join(clean))
    assert (facts.lines.unknown, facts.lines.markers) == (0, 1)
    assert facts.lines.total == len(clean) + 2
    assert sums(facts) == sums(expected)
    assert [(one.label, one.t_slot, one.decode_end, one.t_end) for one in facts.requests] == [
        (one.label, one.t_slot, one.decode_end, one.t_end) for one in expected.requests
    ]


def test_a_marker_between_lines_is_kept_with_its_place() -> None:
    lines = joined(ONE)
    facts = read(b"".join([*lines[:3], b"\n", MARKER + b"\n", *lines[3:]]))
    (marker,) = facts.markers
    assert marker.proof is not None
    assert (marker.proof.line, marker.proof.offset) == (5, len(b"".join(lines[:3])) + 1)
    assert (marker.segment, marker.at_ns) == ("s1", 1_795_971_897_123_456_789)
    assert (facts.lines.unknown, facts.lines.markers) == (0, 1)


def test_carriage_returns_and_a_missing_last_newline_do_not_matter() -> None:
    lines = joined(ONE)
    plain = read(b"".join(lines))
    dos = read(b"".join(lines).replace(b"\n", b"\r\n"))
    assert [one.new_prefill_tokens for one in dos.requests] == [144]
    assert [one.t_end for one in dos.requests] == [one.t_end for one in plain.requests]
    assert read(b"".join(lines)[:-1]).requests == plain.requests


def test_an_empty_log_has_no_requests_and_no_lines() -> None:
    facts = read(b"")
    assert (facts.requests, facts.settings, facts.lines.total, facts.size) == ((), (), 0, 0)


def test_proofs_lead_back_to_the_bytes() -> None:
    data = b"".join(joined(ONE, verbose=True))
    (one,) = read(data).requests
    proofs = dict(one.proofs)
    for field, wanted in (
        ("t_slot", b"processing task"),
        ("prefill_start", b"prompt eval time"),
        ("decode_end", b"       eval time"),
        ("cached_tokens", b"cached n_tokens = 795"),
        ("t_end", b"stop processing"),
    ):
        line = data[proofs[field].offset :].split(b"\n", 1)[0]
        assert wanted in line
        assert data.split(b"\n")[proofs[field].line - 1] == line


def test_two_lines_that_disagree_about_cached_tokens_are_doubted() -> None:
    lines = joined(ONE, verbose=True)
    wrong = b"".join(lines).replace(b"cached n_tokens = 795", b"cached n_tokens = 700")
    assert read(b"".join(lines)).doubts == ()
    assert read(wrong).doubts != ()


def test_flags_given_twice_and_overridden_variables_are_doubts() -> None:
    head = (
        b"warn: LLAMA_ARG_BATCH environment variable is set, but will be overwritten by command line argument -b\n"
        b"0.00.003.844 W DEPRECATED: argument '-ub' specified multiple times, use comma-separated values instead"
        b" (only last value will be used)\n"
    )
    facts = read(head + b"".join(joined(ONE)))
    said = " ".join(doubt.message for doubt in facts.doubts)
    assert "LLAMA_ARG_BATCH" in said
    assert "-ub" in said
    assert facts.lines.unknown == 0
    assert len(facts.boots) == 1
