"""What is to be said of a joining: what could not be told apart, what is not in the log, and on what its times rest?"""

from collections.abc import Sequence

from agentload.core.records import Doubt, LogFacts, Match, Request


def of_rows(
    rows: Sequence[Request], groups: int, of_strangers: Sequence[Doubt], *, tells_requests: bool
) -> list[Doubt]:
    """Return what the joined `rows` show.

    Args:
        rows: all of them.
        groups: how many of requests that cannot be told apart there are.
        of_strangers: what is said of those that only the log has.
        tells_requests: whether the log tells of requests at all; else its reader says that it does not.
    """
    doubts = []
    if groups:
        doubts.append(
            Doubt(
                "ambiguous-requests",
                f"{sum(row.match is Match.AMBIGUOUS for row in rows)} requests in {groups} groups cannot be told "
                "apart: sums over a group are exact, its members are joined in order of time",
                "make prompts differ in length, or let the server log tool-call ids or timings",
            )
        )
    doubts += of_strangers
    lost = [row for row in rows if row.match is Match.CLIENT_ONLY and row.error is None]
    if lost and tells_requests:
        doubts.append(
            Doubt(
                "answers-not-in-log",
                f"{len(lost)} answers have no request in the log, the first is {lost[0].request}",
                "keep the log from server start to the end marker, and see that it is the log of this server",
            )
        )
    return doubts


def no_log() -> Doubt:
    """What is said where there is none."""
    return Doubt("no-log", "there is no log of the server", "times rest on the answers: own the server's log")


def not_aligned(facts: LogFacts) -> Doubt:
    """What is said of a log whose times cannot stand beside the client's."""
    return Doubt(
        "log-not-aligned",
        f"the log's times are on the {facts.timeline} timeline: phases are taken from the answers instead",
        "let agentload start the server, so that it stamps every line",
    )
