"""With what is a server simulated, as a scenario says it, and is that something the twin knows?"""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

from pydantic import ValidationError

from agentload.errors import UsageError
from agentload.twin.face import MODELS
from agentload.twin.machine import machine
from agentload.twin.options import Options

PROFILE: Final = "m3-ultra"
MODEL: Final = "scripted-field-report"
Value = bool | int | float | str

_NO_FLAG: Final = frozenset(("prefill_quantum", "decode_coalesce_us", "batch_log"))  # set by environment, or not at all


def options(given: Mapping[str, Value]) -> Options:
    """Return the server's options.

    Raises:
        UsageError: there is no option of a name, the nearest ones are told; or a value is none that it takes.
    """
    known = tuple(Options.model_fields)
    for name in given:
        if name not in known:
            near = get_close_matches(name.replace("-", "_"), known, cutoff=0.5) or known
            raise UsageError(f"server.set: the simulated server has no option {name!r}: expected {', '.join(near)}")
    try:
        return Options.model_validate(dict(given))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise UsageError(f"server.set: {where}: {first['msg']}, got {first['input']!r:.60}") from error


def check(profile_name: str, model: str) -> None:
    """Refuse a profile or a model that is not there.

    Raises:
        UsageError: it is none of those named.
        InputError: the profile is a file that cannot be read, or holds none.
    """
    machine(profile_name)
    if model not in MODELS:
        raise UsageError(f"--model: the simulated server has {', '.join(MODELS)}, got {model!r}")


def argv(given: Mapping[str, Value]) -> list[str]:
    """Return the command line of the real server that has these options, as far as it has flags for them."""
    words = ["ds4-server"]
    for name, value in given.items():
        if name in _NO_FLAG or value is False:
            continue
        words.append("--" + name.replace("_", "-"))
        words += [] if value is True else [str(value)]
    return words
