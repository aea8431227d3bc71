"""Which of a run's files does a diagnosis rest on? All of them, read once; the account's tables first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agentload.analysis import account as accounts
from agentload.analysis import evidence as raw
from agentload.analysis import proofs
from agentload.analysis.diagnose import history
from agentload.analysis.diagnose.history import Sent
from agentload.analysis.steps import table
from agentload.artifacts import rundir
from agentload.artifacts.rundir import Manifest, RunDir
from agentload.errors import ArtifactError
from agentload.serverlogs import promptlines
from agentload.serverlogs.promptlines import PromptLines

Row = Mapping[str, Any]  # of requests.parquet

_SOFTWARE: Final = {"twin": "ds4"} | {name: name for name in ("ds4", "llamacpp", "vllm", "sglang")}


@dataclass(frozen=True, slots=True)
class Inputs:
    """What is known of a run."""

    run: RunDir
    manifest: Manifest
    account: Mapping[str, Any]
    software: str | None  # ds4 | llamacpp | vllm | sglang
    rows: Sequence[Row]  # in the order of their prefills
    stamps: Mapping[str, tuple[int, ...]]  # request -> receive stamps of its tokens, Unix ns
    sent: Mapping[str, Sent]  # request -> its messages beside those before
    lines: PromptLines

    def setting(self, *names: str) -> Any:
        """The value in force of the first of these settings that is known; else what was asked for; else None."""
        known = {one["name"]: one for one in self.account["settings"]}
        for name in names:
            if name in known:
                one = known[name]
                return one["requested"] if one["applied"] is None else one["applied"]
        return None

    def setting_source(self, name: str) -> str:
        """Where a setting's value is stated; empty when nothing states it."""
        return next((str(one["source"]) for one in self.account["settings"] if one["name"] == name), "")


def read(path: Path) -> Inputs:
    """Read a run; its account is made where it is missing.

    Raises:
        InputError: it is no run directory, or its log cannot be read.
        ArtifactError: a file does not follow its schema.
    """
    run = rundir.find(path)
    account = accounts.load(path)
    manifest = run.read_manifest()
    profile = proofs.profile_of(account, manifest)
    rows = sorted(table(run, "requests").to_dicts(), key=_began)
    evidence = raw.read(run)
    return Inputs(
        run=run,
        manifest=manifest,
        account=account,
        software=_SOFTWARE.get(profile.name),
        rows=rows,
        stamps={one.request: one.token_ns for one in evidence.completions},
        sent=history.read(run),
        lines=_lines(run.server_log, account["lines"]["format"]),
    )


def _began(row: Row) -> tuple[int, str]:
    at = row["prefill_start"] if row["prefill_start"] is not None else row["t_sent"]
    return (at or 0, str(row["request"]))


def _lines(log: Path, log_format: str | None) -> PromptLines:
    try:
        with log.open("rb") as file:
            return promptlines.read(file, log_format)
    except FileNotFoundError:
        return PromptLines()
    except OSError as error:
        raise ArtifactError(f"{log}: cannot be read: {error.strerror}") from error
