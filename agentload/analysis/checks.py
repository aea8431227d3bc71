"""Do the raw files fit one another, and what is said where they do not?"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from agentload.analysis.evidence import Evidence
from agentload.core.packed import mapped
from agentload.core.records import TEXTLESS, Completion, Doubt, LogFacts, Request

_NOTES: Final = 3  # kinds of oddities that are told
_MENDED: Final = ("a tool call", "tool calls", "tool-call fragments", TEXTLESS)
BUSY_SHARE: Final = 0.25  # of the machine's CPU time, used by anything but the server


def exit_code(found: dict[str, Any]) -> int:
    """0 for an account of a run that ended well, 1 for one that failed, was cut short, or has not ended."""
    return 0 if found["status"] == "success" else 1


def markers_lost(evidence: Evidence, facts: LogFacts) -> list[Doubt]:
    """Hold the markers that were written into the log against those found there."""
    found = {(one.action, one.segment, one.run, one.at_ns) for one in facts.markers}
    ours = {(one.action, one.segment, one.run, one.at_ns) for one in evidence.markers_in_log}
    lost = len(ours - found)
    if lost == 0:
        return []
    return [
        Doubt(
            "markers-lost",
            f"{lost} of {counted(len(ours), 'marker')} that "
            f"{'was' if len(ours) == 1 else 'were'} written into the server's log cannot be found in it",
            "another process writes this log without O_APPEND; markers.jsonl was used instead",
        )
    ]


def phases_in_order(requests: Sequence[Request]) -> tuple[Sequence[Request], list[Doubt]]:
    """Take away the times of phases that end before they start: a clock was set back, or the log is damaged.

    Returns:
        All requests, in their order, and a doubt when there was such a phase.
    """
    count, first = 0, ""
    for one in requests:
        for phase in _backward_phases(one):
            count += 1
            first = first or f"the {phase} of {one.request}" + _where(one, f"{phase}_proof")
    if not count:
        return requests, []
    doubt = Doubt(
        "phases-backwards",
        f"{counted(count, 'phase')} would end before starting, the first is {first}: such times are left out",
        "look at that line: the clock was set back, or the log was changed afterwards",
    )
    return mapped(requests, _in_order), [doubt]


def _backward_phases(one: Request) -> list[str]:
    spans = (("prefill", one.prefill_start, one.prefill_end), ("decode", one.decode_start, one.decode_end))
    return [phase for phase, start, end in spans if is_backwards(start, end)]


def is_backwards(start: int | None, end: int | None) -> bool:
    """Whether a phase ends before it starts, as far as both are known."""
    return start is not None and end is not None and start > end


def _in_order(one: Request) -> Request:
    row = one
    for phase in _backward_phases(one):
        row = (
            replace(row, prefill_start=None, prefill_end=None, prefill_source=None)
            if phase == "prefill"
            else replace(row, decode_start=None, decode_end=None, decode_source=None)
        )
    return row


def still_running() -> Doubt:
    """What is said of a run whose writer is at work."""
    return Doubt(
        "still-running",
        "the run is still running: everything here is what there is so far",
        "make the account again when it has ended",
    )


def without_usage(completions: Sequence[Completion], *, by_log: bool) -> list[Doubt]:
    """Say that whole answers came without token counts; `by_log`: the log has counts of its own."""
    answers = [one for one in completions if one.error is None]
    silent = [one for one in answers if one.usage is None or one.usage.prompt_tokens is None]
    if not silent:
        return []
    timed = all(one.timings is not None for one in silent)
    some = len(silent) < len(answers)
    what = "growth of context" if by_log or timed else "growth of context and tokens"
    part = f"{len(silent):,} of " if some else ""
    return [
        Doubt(
            "no-usage",
            f"the server sent no usage with {part}{counted(len(answers), 'answer')}: "
            f"{what} cannot be told{' in full' if some else ''}",
            "start it with usage in its streams: it must honour stream_options.include_usage",
        )
    ]


def odd_answers(completions: Sequence[Completion]) -> list[Doubt]:
    """Say what streams did that may have cost a count or an end, where the answer was taken all the same.

    What was mended of a tool call (no id, no index), and an only token without a text, are notes of their answers
    only: they cost nothing.
    """
    notes: dict[str, list[str]] = {}
    for one in completions:
        for note in (note for note in one.notes if not note.startswith(_MENDED)):
            notes.setdefault(note, []).append(one.request)
    if not notes:
        return []
    said = [f"{note} ({counted(len(of), 'answer')}, first {of[0]})" for note, of in notes.items()]
    more = f"; and {counted(len(said) - _NOTES, 'thing')} more" if len(said) > _NOTES else ""
    return [
        Doubt(
            "odd-answers",
            f"answers were taken that are not as they should be: {'; '.join(said[:_NOTES])}{more}",
            "all stand in events.jsonl as notes: a server or proxy that bends the protocol may lose counts too",
        )
    ]


def rates_left_out(segments: Sequence[dict[str, Any]]) -> list[Doubt]:
    """Say which speeds of account.json's segments leave requests out, so that a row's numbers do not divide."""
    doubts = []
    for part in segments:
        whole = part["whole"]
        said = [
            f"{phase} tok/s leaves out {whole[f'{phase}_left_out']:,} of {counted(whole['requests'], 'request')} "
            f"(it is {whole[f'{phase}_speed_tokens']:,} tokens in {whole[f'{phase}_speed_ns'] / 1e9:.1f} s)"
            for phase in ("prefill", "decode")
            if whole[f"{phase}_left_out"] and whole[f"{phase}_tok_s"] is not None
        ]
        if said:
            doubts.append(
                Doubt(
                    "rates-leave-out",
                    f"segment {part['segment']}: {' and '.join(said)}: of those tokens or times are not known, or not "
                    "which tokens the times are of",
                    "see what became of them in requests.parquet: such a rate holds for the others alone",
                )
            )
    return doubts


def busy_machine(segments: Sequence[dict[str, Any]], cores: object) -> list[Doubt]:
    """Say where something else took much of the machine's CPU time; `cores`: the machine's, as the manifest has it."""
    doubts = []
    for part in segments:
        others_s, wall_ns = part["host_other_cpu_s"], part["sampled_ns"]
        if others_s is None or not wall_ns or not isinstance(cores, int) or cores < 1:
            continue
        share = others_s / (cores * wall_ns / 1e9)
        if share > BUSY_SHARE:
            doubts.append(
                Doubt(
                    "busy-machine",
                    f"segment {part['segment']}: everything but the server's process (the agents' commands included) "
                    f"used {others_s:.1f} CPU-s in the {wall_ns / 1e9:.1f} s between its first and last sample on "
                    f"{counted(cores, 'core')}, "
                    f"{share * 100:.0f} % of this machine's CPU time",
                    "the server may have been starved: stop what else runs there, such as builds, and measure again",
                )
            )
    return doubts


def _where(request: Request, name: str) -> str:
    proof = getattr(request, name)
    return "" if proof is None else f" (server.log:{proof.line})"


def counted(number: int, what: str) -> str:
    """Return "1 marker", "2 markers"."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
