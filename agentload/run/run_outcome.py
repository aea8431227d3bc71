"""What came of one run of an experiment: how did it end, does it count, is a full disk to blame?"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from agentload import folders
from agentload.analysis import account as accounts
from agentload.artifacts.design import Design, Step
from agentload.artifacts.rundir import RunDir, Status
from agentload.core.records import Doubt
from agentload.errors import AgentloadError, ArtifactError
from agentload.run import machine_state, standing

Reasons = Callable[[dict[str, Any], RunDir, Design, Step], list[Doubt]]
"""Tells why a run does not count: analysis.validity.reasons."""

_PROBE: Final = ".probe"
_PROBE_BYTES: Final = 256 * 1024


def how_it_ended(run: RunDir, failure: AgentloadError | None) -> tuple[Status, str | None]:
    """Return (status, why) of a run that is over; `failure` is the error that it ended in, if any."""
    told = None if failure is None else str(failure)
    try:
        manifest = run.read_manifest()
    except ArtifactError as error:
        return "error", told or str(error)
    if manifest.status == "started":  # there was no room for its last manifest
        return "error", told
    return manifest.status, manifest.why or told


def began(run: RunDir) -> bool:
    """Whether a run came as far as its begin marker."""
    try:
        return bool(run.read_manifest().segments)
    except ArtifactError:
        return False


def disk_is_full(folder: Path, status: Status, why: str | None, failure: AgentloadError | None) -> bool:
    """Whether that is why a run is not whole: it says so, or there is no room in `folder` still."""
    if status not in ("error", "partial"):
        return False
    if (failure is not None and is_full(failure)) or folders.says_full(why or ""):
        return True
    probe = folder / _PROBE
    try:
        folders.set_room_aside(probe, _PROBE_BYTES)
    except OSError as error:
        return folders.is_full(error)
    finally:
        probe.unlink(missing_ok=True)
    return False


def is_full(error: AgentloadError) -> bool:
    """Whether a disk or a quota without room is what an error is about."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and folders.is_full(cause):
            return True
        cause = cause.__cause__
    return folders.says_full(str(error))


def facts(run: RunDir, design: Design, steps: Sequence[Step], status: Status, reasons: Reasons) -> dict[str, Any]:
    """Account for a run that came to an end, and return what the journal keeps of it: see journal.RunDone.

    Raises:
        AgentloadError: the disk is full, or a raw file cannot be read.
    """
    kept: dict[str, Any] = {"files": {}, "account": None, "invalid": [], "machine": machine_state.sample()}
    if not run.path.exists():
        return kept
    try:
        found = accounts.account(run.path)
        kept["account"] = standing.account_digest(run)
        if status != "error":
            doubts = [one for step in steps for one in reasons(found, run, design, step)]
            kept["invalid"] = list(dict.fromkeys(one.message for one in doubts))
    except AgentloadError as error:
        if is_full(error):
            raise
        if status != "error":
            kept["invalid"] = [f"it cannot be accounted for: {error}"]
    kept["files"] = standing.digests(run)
    return kept
