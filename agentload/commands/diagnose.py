"""`agentload diagnose RUN`: who stalled whom, why was what prefilled again, and what is worth a try?"""

import json
from pathlib import Path
from typing import Annotated

import typer

from agentload.analysis.diagnose import diagnose as diagnosis_of
from agentload.report import diagnosis_terminal


def diagnose(
    run: Annotated[Path, typer.Argument(readable=False, help="A run directory.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the same content as JSON, all of it.")] = False,
) -> None:
    """Say who stalled whom in a run, why what was prefilled again, and what to try.

    Each cause names the line of the server's log or of an agent's messages that shows it; what nothing shows is
    unknown. Flags are judgements and hypotheses, never facts. Nothing is written but the account, where it is missing.
    """
    found = diagnosis_of(run)
    shown = json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    typer.echo(shown if as_json else diagnosis_terminal.render(found), nl=False)
