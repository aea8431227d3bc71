"""Where does each file of a run stand, and how does its manifest come to be?

    RUN/manifest.json  scenario.toml  events.jsonl  server.log  server.log.times  markers.jsonl  spans.jsonl  exports/
        agents/a0/messages.jsonl  derived/{account.json, *.parquet}

Raw files are only appended to; derived/ can be deleted and made again.
"""

import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from agentload.artifacts import schemas, strict
from agentload.artifacts.jsonlines import JsonLinesWriter
from agentload.artifacts.manifest_shape import SHAPE
from agentload.errors import ArtifactError, InputError
from agentload.shown import in_shell

Status = Literal["started", "success", "partial", "invalid", "cancelled", "error"]

PAGE: Final = "report.html"  # of a run or an experiment: made from its files, and none of its evidence
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Manifest(BaseModel):
    """manifest.json: written when the run starts, rewritten atomically when it ends."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    schema_: str = schemas.RUN
    run: str
    status: Status
    why: str | None = None  # of every status but started and success
    simulated: bool = False
    scenario: dict[str, Any]  # as resolved, defaults filled in
    server: dict[str, Any]
    sandbox: str
    corpus: dict[str, Any]
    agents: list[dict[str, Any]]  # name, task, planned start; outcome at the end
    segments: list[dict[str, Any]]
    host: dict[str, Any]
    versions: dict[str, str]
    clock: dict[str, Any]
    doubts: list[dict[str, str]] = []

    def dump(self) -> dict[str, Any]:
        """As JSON values, `schema` first."""
        fields = self.model_dump(mode="json")
        return {"schema": fields.pop("schema_"), **fields}


class RunDir:
    """One run directory on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest_path = path / "manifest.json"
        self.scenario_path = path / "scenario.toml"
        self.events_path = path / "events.jsonl"
        self.markers_path = path / "markers.jsonl"
        self.spans_path = path / "spans.jsonl"  # only where the server was asked to send spans
        self.exports = path / "exports"  # what the server itself wrote of its requests, only where it was asked to
        self.server_log = path / "server.log"
        self.server_times = path / "server.log.times"
        self.derived = path / "derived"
        self.reserve = path / ".reserve"  # room for the last manifest, while the run is being written

    @property
    def name(self) -> str:
        """The run's name: that of its directory."""
        return self.path.name

    def messages_path(self, agent: str) -> Path:
        """Where the exact conversation of `agent` stands."""
        return self.path / "agents" / agent / "messages.jsonl"

    def write_manifest(self, manifest: Manifest) -> None:
        """Replace the manifest atomically; a crash leaves the old or the new one, never half of one."""
        write_atomically(self.manifest_path, (json.dumps(manifest.dump(), indent=2) + "\n").encode())

    def read_manifest(self) -> Manifest:
        """Read and check the manifest.

        Raises:
            ArtifactError: it is missing, not JSON, or of another schema.
        """
        try:
            data = self.manifest_path.read_bytes()
        except OSError as error:
            raise ArtifactError(f"{self.manifest_path}: cannot be read: {error.strerror}") from error
        try:
            fields = strict.parse(data)
        except ValueError as error:
            raise ArtifactError(f"{self.manifest_path}: {error}") from error
        schema = fields.pop("schema", None) if isinstance(fields, dict) else None
        if schema != schemas.RUN:
            raise ArtifactError(f"{self.manifest_path}: expected schema {schemas.RUN}, got {str(schema)[:60]}")
        try:
            manifest = Manifest.model_validate(fields)
            SHAPE.validate_python(fields)
        except ValidationError as error:
            raise ArtifactError(f"{self.manifest_path}: {strict.explain(error)}") from error
        return manifest


def create(out: Path, name: str, stamp: str, suffix: str) -> RunDir:
    """Make a new, empty run directory OUT/STAMP-NAME-SUFFIX.

    Raises:
        ArtifactError: it cannot be made, or there is one of that name.
        InputError: `name` is not a plain file name.
    """
    _check_name(name)
    return _made(out / f"{stamp}-{name}-{suffix}")


def create_at(path: Path) -> RunDir:
    """Make a new, empty run directory at `path`, whose last part becomes the run's name.

    Raises:
        ArtifactError: it cannot be made, or there is something already.
        InputError: that name is not a plain file name.
    """
    _check_name(path.name)
    return _made(path)


def _check_name(name: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise InputError(f"expected a run name of letters, digits, dot, dash and underscore, got {name!r}")


def _made(path: Path) -> RunDir:
    try:
        path.mkdir(parents=True)
        (path / "agents").mkdir()
    except OSError as error:
        raise ArtifactError(f"{path}: run directory cannot be made: {error.strerror}") from error
    return RunDir(path)


def find(path: Path) -> RunDir:
    """Return the run directory at `path`.

    Raises:
        InputError: there is none, or it is no run directory.
    """
    try:
        if not path.exists():
            raise InputError(f"expected a run directory, there is no {path}")
        if not path.is_dir() and path.suffix != ".json":
            raise InputError(
                f"expected a run directory, {path} is a file: a server's log is read by "
                f"`agentload account {in_shell(path)}`"
            )
        if not (path / "manifest.json").is_file():
            raise InputError(f"expected a run directory (with manifest.json), {path} is none")
    except OSError as error:
        raise InputError(f"{path}: cannot be looked into: {error.strerror}") from error
    return RunDir(path)


def digest(path: Path, *, sync: bool = False) -> str:
    """Return the sha256 of a file; with `sync` it is on the disk then, so that a power cut cannot take it.

    Raises:
        ArtifactError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
            if sync:
                os.fsync(file.fileno())
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read: {error.strerror}") from error
    return found


def write_atomically(path: Path, data: bytes | memoryview) -> None:
    """Write `data` as `written_atomically` does.

    Raises:
        ArtifactError: the disk is full or the folder cannot be written.
    """
    with written_atomically(path) as file:
        file.write(data)


@contextmanager
def written_atomically(path: Path) -> Iterator[IO[bytes]]:
    """Give a temporary file beside `path` to write; on leaving flush it to disk and rename it, on an exception not.

    Raises:
        ArtifactError: the disk is full or the folder cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(3)}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be written: {error.strerror}") from error
    finally:
        with suppress(OSError):  # the folder itself may be what is wrong
            temporary.unlink(missing_ok=True)


class EventLog:
    """core.ports.EventSink on a JSON Lines file."""

    def __init__(self, path: Path, schema: str = schemas.EVENTS) -> None:
        """Create the file; an agent's conversation is an event log of schema MESSAGES."""
        self._writer = JsonLinesWriter(path, schema)

    def emit(self, kind: str, t_ns: int, **fields: Any) -> None:
        """Append one event."""
        self._writer.append({"event": kind, "t": t_ns, **fields})

    def close(self) -> None:
        """Close the file."""
        self._writer.close()
