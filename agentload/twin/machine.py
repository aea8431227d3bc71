"""Which machine is simulated? A shipped profile by name or one in a file, and how many times as fast it is.

A faster machine has smaller costs, not a faster clock: stamps and durations in its log stay those of the real clock.
"""

import os
from pathlib import Path
from typing import Any, Final

from agentload.errors import InputError, UsageError
from agentload.twin import profile as profiles
from agentload.twin.profile import Profile

_TIMES: Final = (
    ("prefill", ("scale", "switch_s")),
    ("decode", ("idle_s", "idle_row_s", "after_quantum_s", "after_quantum_row_s")),
    ("host", ("token_ms", "answer_end_ms")),
)
_RATES: Final = (("disk", ("save_mib_s", "load_mib_s", "staging_mib_s")),)


def machine(name: str, speed: float = 1.0) -> Profile:
    """Return the profile of that name, or in the file of that path (one with a slash, or .toml), `speed` times as fast.

    Raises:
        UsageError: there is none of that name, or `speed` is not above 0.
        InputError: the file cannot be read, or is no profile.
    """
    if not 0 < speed < float("inf"):
        raise UsageError(f"expected a speed above 0, such as 20, got {speed}")
    if os.sep not in name and not name.endswith(".toml"):
        return faster(profiles.load(name), speed)
    try:
        text = Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"profile {name}: cannot be read: {why}") from error
    return faster(profiles.parse(text, name), speed)


def faster(profile: Profile, speed: float) -> Profile:
    """Return the costs of a machine that is `speed` times as fast; at another speed than 1 its name says so."""
    if speed == 1:
        return profile
    made: dict[str, Any] = {"name": f"{profile.name} x{speed:g}"}
    for parts, factor in ((_TIMES, 1 / speed), (_RATES, speed)):
        for part, names in parts:
            held = getattr(profile, part)
            values = {name: getattr(held, name) for name in names}
            changed = {name: one.model_copy(update={"value": one.value * factor}) for name, one in values.items()}
            made[part] = held.model_copy(update=changed)
    return profile.model_copy(update=made)
