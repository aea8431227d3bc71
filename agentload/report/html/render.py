"""How do answer, doubts, settings, numbers and figures become one page?"""

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import jinja2
from markupsafe import Markup

from agentload.report import comparison_terminal, terminal
from agentload.report.html import said, said_diagnosis, said_experiment, said_run, speed, times, views, work
from agentload.report.html.figure import About, Figure
from agentload.report.html.svg import Drawing, plain
from agentload.report.html.views import View

_HERE: Final = Path(__file__).parent
_FOOTER: Final = "Made by agentload {} from derived/ alone; `agentload report` makes it again. The page loads nothing."


def run_page(path: Path, found: Mapping[str, Any]) -> str:
    """Return the page of one run.

    Args:
        path: the run's directory.
        found: its account.json.

    Raises:
        InputError, ArtifactError: a table of it cannot be read.
    """
    view = views.of_run(path, found)
    about = About(simulated=bool(found["simulated"]))
    probe = found.get("probe")
    figures = [
        times.time_lines(about, [view]),
        None if probe else speed.by_context(about, [view]),
        None if probe is None else work.gaps(about, probe["loads"]),
        None if probe else work.cached_by_turn(about, [view]),
        work.acceptance(about, [view]),
        work.memory(about, [view]),
    ]
    figures.insert(1, times.lanes(about, view))
    why = said_diagnosis.of_runs([(str(found["run"]), path)])
    return _page(said_run.of_run(found), about, figures, [], why, terminal.render(dict(found)))


def experiment_page(found: Mapping[str, Any], where: Callable[[str], Path]) -> str:
    """Return the page of an experiment.

    Args:
        found: its comparison.json.
        where: the directory of a run, by the name that it has there.

    Raises:
        InputError, ArtifactError: a run or a table of it cannot be read.
    """
    shown = views.of_experiment(found, where)
    about = About(simulated=bool(found["simulated"]))
    swept = found.get("probe_sweep")
    probe = found["workload"] == "probe"
    figures = [
        speed.by_order(about, found, shown),
        None if probe else speed.by_context(about, shown),
        speed.swept(about, found),
        times.time_lines(about, shown),
        work.gaps(about, swept["rows"] if swept else ()),
        None if probe else work.equal_work(about, found["variants"]),
        None if probe else work.cached_by_turn(about, shown),
        work.acceptance(about, shown),
        work.memory(about, shown),
    ]
    lanes = [times.lanes(about, view) for view in shown]
    names = dict.fromkeys(str(one["run"]) for one in found["runs"])
    why = said_diagnosis.of_runs([(name, where(name)) for name in names])
    told = said_experiment.of_experiment(found)
    return _page(told, about, figures, lanes, why, comparison_terminal.render(dict(found)))


def _page(
    told: said.Said,
    about: About,
    figures: Sequence[Figure | None],
    folded: Sequence[Figure | None],
    why: said_diagnosis.Diagnosed | None,
    text: str,
) -> str:
    number = version("agentload")
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            css=Markup((_HERE / "page.css").read_text(encoding="utf-8")),  # noqa: S704 - our own file
            version=number,
            label=about.label,
            figures=[one for one in figures if one is not None],
            folded=[one for one in folded if one is not None],
            why=why,
            text=text,
            footer=_FOOTER.format(number),
            **told.fields(),
        )
    )


def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE),
        autoescape=True,
        finalize=_visible,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    made.globals["swatch"] = _swatch
    return made


def _visible(value: object) -> object:
    """Text from models, tools and servers, without characters that cannot be seen; line ends stay."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return "\n".join(plain(line) for line in value.split("\n"))
    return value


def _swatch(look: str) -> Markup:
    kind, colour, *shape = look.split()
    if kind == "mark":
        drawing = Drawing(14, 14)
        drawing.mark(7, 7, 5.2, int(shape[0][1:]), kind=f"mark {colour}")
        inner = "".join(drawing.parts)
    else:
        inner = f'<rect y="2" width="14" height="10" class="{colour}"/>'
    return Markup(f'<svg viewBox="0 0 14 14" aria-hidden="true">{inner}</svg>')  # noqa: S704 - classes of our own


__all__ = ["View", "experiment_page", "run_page"]
