"""What do `account --out` and `export` have in common? The tables of a log, and how its format is named."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from agentload import plugins
from agentload.analysis import account as accounts
from agentload.analysis.logfile import TABLES, LogAccount
from agentload.artifacts import log_account_schema
from agentload.report import export as exports

FORMAT_HELP: Final = f"A log's format: {', '.join(plugins.names(plugins.SERVERLOGS))} (default: detected)."


def write_tables(made: LogAccount, out: Path, to: str) -> exports.Exported:
    """Write a log's account and tables into `out`, each with its schema, in the format `to`.

    Raises:
        ArtifactError: a file is there already, or the folder cannot be written.
    """
    with TemporaryDirectory(prefix="agentload-") as stored:
        made.write(Path(stored))
        schema = log_account_schema.json_schema()
        return exports.write(out, exports.by_name(to), Path(stored), accounts.text(made.found), TABLES, schema)
