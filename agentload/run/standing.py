"""Which runs of an experiment stand, and are their raw files still what they were that night?"""

import os
from pathlib import Path
from typing import Final

from agentload.analysis import account as accounts
from agentload.artifacts.journal import RunDone, RunHistory
from agentload.artifacts.rundir import PAGE, RunDir, digest
from agentload.errors import ArtifactError

_BROKEN: Final = ("started", "cancelled", "error")  # nothing that a run of this status holds is a result
_DOUBTFUL: Final = ("partial", "invalid")


def digests(run: RunDir) -> dict[str, str]:
    """Return the sha256 of each raw file, by its path in the run directory, and see that each is on the disk.

    Hidden files, derived/ and a page that was made of the run are none.

    Raises:
        ArtifactError: a file cannot be read.
    """
    return {name: digest(run.path / name, sync=True) for name in _raw_files(run.path)}


def _raw_files(folder: Path) -> list[str]:
    found = []
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        if Path(parent) == folder and "derived" in folders:
            folders.remove("derived")
        found += [(Path(parent) / name).relative_to(folder).as_posix() for name in files if not name.startswith(".")]
    return sorted(name for name in found if name != PAGE)


def account_digest(run: RunDir) -> str:
    """Return the sha256 of the run's account.json.

    Raises:
        ArtifactError: it cannot be read.
    """
    return digest(run.derived / "account.json")


def stands(done: RunDone | None, *, retry: bool) -> bool:
    """Whether a run came to an end that is kept: a whole one, and one that is not as it should be unless `retry`."""
    if done is None or done.status in _BROKEN:
        return False
    return not (retry and (done.status in _DOUBTFUL or done.invalid))


def why_not(run: RunDir, history: RunHistory, *, retry: bool) -> str:
    """Why a run directory that is there does not stand, in words."""
    done = history.done
    if done is not None and done.status not in _BROKEN:
        assert retry
        return f"it does not count, and --retry asks for another: {done.why or '; '.join(done.invalid)}"
    if done is not None:
        return f"it ended in an error: {done.why}"
    try:
        manifest = run.read_manifest()
    except ArtifactError as error:
        return f"it was broken off: {error}"
    if manifest.status == "cancelled":
        return "it was interrupted"
    return "it was broken off: agentload was killed, or its disk was full"


def verify(run: RunDir, done: RunDone, *, same_version: bool) -> str | None:
    """Check that a finished run is what it was; return what is to be said all the same.

    Raises:
        ArtifactError: a raw file was changed or is gone, the manifest says another status than the journal, or the
            account made again by the same version is another.
    """
    advice = f"put back what was there, or remove {run.path} to have it run again"
    for name, expected in done.files.items():
        path = run.path / name
        if not path.is_file():
            raise ArtifactError(f"{path}: expected a file, it is gone; {advice}")
        if digest(path) != expected:
            raise ArtifactError(
                f"{path}: expected what the run wrote (sha256 {expected[:12]}...), it was changed; {advice}"
            )
    status = run.read_manifest().status
    if status != done.status:
        raise ArtifactError(f"{run.manifest_path}: expected status {done.status}, got {status}; {advice}")
    if done.account is None:
        return None
    accounts.account(run.path)
    if account_digest(run) == done.account:
        return None
    if same_version:
        raise ArtifactError(
            f"{run.derived / 'account.json'}: expected what was made that night of the same raw files, it is another; "
            f"finish the experiment with the agentload that began it, or remove {run.path} to have it run again"
        )
    return f"{run.name}: another version of agentload made its account, which was made again and is another now"


def set_aside_path(path: Path) -> Path:
    """Return the name that an attempt gets which does not count: runs/03-B.1, then .2 ..."""
    number = 1
    while (other := path.with_name(f"{path.name}.{number}")).exists():
        number += 1
    return other
