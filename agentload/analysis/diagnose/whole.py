"""Who stalled whom in a run, why was what prefilled again, and what is worth a try?"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from agentload.analysis.diagnose import inputs
from agentload.analysis.diagnose.advice import advice
from agentload.analysis.diagnose.again import prefilled_again
from agentload.analysis.diagnose.inputs import Inputs
from agentload.analysis.diagnose.waits import timed_prefills, who_stalled_whom
from agentload.artifacts import schemas
from agentload.core.records import Doubt, Match

_CLOCK_NS: Final = 100_000_000  # a stall of a token is seldom shorter
_TORN: Final = "torn-events"  # of the account's doubts the one by which stalls are missing


def diagnose(path: Path) -> dict[str, Any]:
    """Return the diagnosis of the run at `path`, as JSON values; its account is made first where it is missing.

    Raises:
        InputError: it is no run directory, or its log cannot be read.
        ArtifactError: a file does not follow its schema.
    """
    read = inputs.read(path)
    stalls = who_stalled_whom(read)
    again, found = prefilled_again(read)
    return {
        "schema": schemas.DIAGNOSIS,
        "run": read.account["run"],
        "simulated": read.account["simulated"],
        "software": read.software,
        "stalls": stalls,
        "again": again,
        "advice": advice(read, stalls, found, again),
        "doubts": [asdict(one) for one in _doubts(read, again)],
    }


def _doubts(read: Inputs, again: Mapping[str, Any]) -> list[Doubt]:
    doubts = []
    if read.account["lines"]["format"] is None:
        doubts.append(
            Doubt(
                "no-log",
                "there is no server's log that was understood: times are the client's, and no line shows a cause",
                "give the log with --server-log, or let agentload start the server",
            )
        )
    elif not read.run.server_log.is_file():
        doubts.append(
            Doubt(
                "log-gone",
                "server.log is no longer there: line numbers are of the account, and causes that only the log shows "
                "are missing",
                "take server.log from a copy of the run",
            )
        )
    if again["unknown_counts"]:
        doubts.append(
            Doubt(
                "cached-unknown",
                f"of {again['unknown_counts']} of {again['requests']} requests no source tells the cached tokens: "
                "whether they were prefilled again is not known",
                "see that the server's log or its answers' usage tell cached tokens",
            )
        )
    timed = sum(None not in (row["prefill_start"], row["prefill_end"]) for row in read.rows)
    left_out = timed - len(timed_prefills(read.rows))
    if left_out:
        doubts.append(
            Doubt(
                "prefills-left-out",
                f"the prefills of {left_out} of {timed} requests are known by the client's clock alone, which does not "
                "tell queueing from work: nobody is said to have waited for them",
                "look in the log at requests that were cut off or cancelled",
            )
        )
    error_ns = read.account["clock"]["error_ns"]
    if error_ns is not None and error_ns > _CLOCK_NS:
        doubts.append(
            Doubt(
                "clock-error",
                f"the log's times may be off by {error_ns / 1e9:.2f} s beside the client's: shorter stalls may be put "
                "to the wrong prefill, or to none",
                "let agentload start the server: then each line of its log has a stamp",
            )
        )
    gone = sum(row["agent"] is not None and row["request"] not in read.stamps for row in read.rows)
    if gone and not read.account["running"]:
        doubts.append(
            Doubt(
                "events-gone",
                f"derived/ has {gone} requests of the agents that events.jsonl has not: it was cut off since, and no "
                "stall of these is known",
                "take events.jsonl from a copy of the run, or delete derived/ to see what is left",
            )
        )
    doubts += [Doubt(**one) for one in read.account["doubts"] if one["code"] == _TORN]
    unsure = sum(row["match"] == Match.AMBIGUOUS.value for row in read.rows)
    if unsure:
        doubts.append(
            Doubt(
                "ambiguous",
                f"{unsure} requests are told apart from others by neither log nor answers: what is said of one of them "
                "may be another's",
                "let prompts differ in length, or give the log receive stamps (let agentload start the server)",
            )
        )
    if read.account["running"]:
        doubts.append(Doubt("still-running", "the run goes on: this is so far", "ask again when it has ended"))
    return doubts
