"""With which options is a server simulated, as a scenario says it, and are they ones that the twin has?

Quick to import, as a scenario must be: whether there is such a profile or model is looked at when the run begins.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

from pydantic import ValidationError

from agentload.artifacts.design import Value
from agentload.errors import UsageError
from agentload.run import explaining
from agentload.twin.options import Options

PROFILE: Final = "m3-ultra"
MODEL: Final = "scripted-field-report"

_NO_FLAG: Final = frozenset(("prefill_quantum", "decode_coalesce_us", "batch_log"))  # set by environment, or not at all


class OptionError(UsageError):
    """An option of the simulated server is not acceptable."""

    def __init__(self, option: str, said: str) -> None:
        super().__init__(f"server.set.{option}: {said}")
        self.option = option
        self.said = said


def options(given: Mapping[str, Value]) -> Options:
    """Return the server's options. A text is read as an option's type, as on a command line; all else must be of it.

    Raises:
        OptionError: there is no option of a name, the nearest ones are told; or a value is none that it takes.
    """
    known = tuple(Options.model_fields)
    for name in given:
        if name not in known:
            near = get_close_matches(name.replace("-", "_"), known, cutoff=0.5) or known
            raise OptionError(name, f"the simulated server has no option {name!r}: expected {', '.join(near)}")
    try:
        Options.model_validate(
            {name: value for name, value in given.items() if not isinstance(value, str)}, strict=True
        )
        return Options.model_validate(dict(given))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise OptionError(str(first["loc"][0]), explaining.explain(first, lambda _: known)) from error


def argv(given: Mapping[str, Value]) -> list[str]:
    """Return the command line of the real server that has these options, as far as it has flags for them."""
    words = ["ds4-server"]
    for name, value in given.items():
        if name in _NO_FLAG or value is False:
            continue
        words.append("--" + name.replace("_", "-"))
        words += [] if value is True else [str(value)]
    return words
