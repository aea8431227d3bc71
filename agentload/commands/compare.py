"""`agentload compare RUN RUN ...`: what do runs that were made by hand say, side by side?"""

from pathlib import Path
from typing import Annotated

import typer

from agentload.analysis import byhand
from agentload.analysis import compare as comparisons
from agentload.errors import InputError
from agentload.report import comparison_terminal


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN RUN ...", readable=False, help="Run directories.")],
    metric: Annotated[
        str | None,
        typer.Option(
            help="The metric that decides.", show_default="prefill_tok_s; embedded server: prefill_tokens_per_cpu_s"
        ),
    ] = None,
    anyway: Annotated[
        bool,
        typer.Option(
            "--anyway", help="Compare in spite of differences that do no harm (seed, versions); they are said."
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the same content as JSON.")] = False,
) -> None:
    """Compare runs that were made by hand, by the settings that they prove; verdict and report as of ab.

    Unlike runs are refused: other work, machine, model or server. Exit code 0: the sides are distinguished on the
    metric that decides; 1: they are not; 2: refused. Nothing is written.
    """
    found = byhand.read(runs)
    unlike = byhand.differences(found)
    barring = [one for one in unlike if not (one.harmless and anyway)]
    if barring:
        for one in barring:
            typer.echo(f"unlike{' (harmless)' if one.harmless else ''}: {one.sentence}", err=True)
        harmless = sum(one.harmless for one in barring)
        what = "each would pass" if harmless == len(barring) else f"{harmless} would pass, the others do not"
        raise InputError(
            f"expected runs that are alike but for the setting that is compared, they differ in {len(barring)} more "
            f"thing{'s' * (len(barring) != 1)}" + (f"; with --anyway {what}" if harmless else "")
        )
    content = byhand.compared(found, metric, unlike)
    typer.echo(comparisons.text(content) if as_json else comparison_terminal.render(content), nl=False)
    if code := comparisons.exit_code(content):
        raise typer.Exit(code)
