"""What does a machine take for each kind of work, and who says so? One TOML file a profile.

The TOML files lie in `profiles/`, inside the package. A value without a source is refused.
"""

import tomllib
from importlib import resources
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agentload.errors import InputError, UsageError

SCHEMA: Final = "agentload.twin.profile/1"
Kind = Literal["published", "fitted", "assumed"]
_FOLDER: Final = "profiles"


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Value(_Data):
    """A number and where it comes from; its unit stands in its name."""

    value: Annotated[float, Field(allow_inf_nan=False)]
    kind: Kind
    source: Annotated[str, Field(min_length=10)]


class Curve(_Data):
    """Numbers at so many tokens, in rising order."""

    at_tokens: Annotated[tuple[int, ...], Field(min_length=2)]
    value: Annotated[tuple[float, ...], Field(min_length=2)]
    kind: Kind
    source: Annotated[str, Field(min_length=10)]


class Prefill(_Data):
    """Of engine calls over new tokens."""

    per_token_ms: Curve
    scale: Value
    context_ms_per_token2: Value
    context_zero_tokens: Value
    switch_s: Value


class Decode(_Data):
    """Of decode batches: a part for the batch, and one for each row."""

    idle_s: Value
    idle_row_s: Value
    after_quantum_s: Value
    after_quantum_row_s: Value
    reacquire_p: Value


class Host(_Data):
    """Of the server's own threads."""

    token_ms: Value
    answer_end_ms: Value


class Disk(_Data):
    """Of the disk KV cache."""

    base_mib: Value
    mib_per_token: Value
    save_mib_s: Value
    load_mib_s: Value
    staging_mib_s: Value


class Noise(_Data):
    """Factors on every engine call and decode step: relative standard deviations, and a drift."""

    boot_sd: Value
    call_sd: Value
    drift_per_hour: Value


class Memory(_Data):
    """What the start-up line says of context buffers."""

    base_mib: Value
    mib_per_token: Value


class Profile(_Data):
    """All costs of one machine with one model."""

    schema_: Annotated[Literal["agentload.twin.profile/1"], Field(alias="schema")]
    name: str
    about: str
    prefill: Prefill
    decode: Decode
    host: Host
    disk: Disk
    noise: Noise
    memory: Memory


def names() -> tuple[str, ...]:
    """Names of the shipped profiles, sorted."""
    files = resources.files(__package__) / _FOLDER
    return tuple(sorted(one.name.removesuffix(".toml") for one in files.iterdir() if one.name.endswith(".toml")))


def load(name: str) -> Profile:
    """Return the shipped profile of that name.

    Raises:
        UsageError: there is none of that name.
        InputError: its file is not as it should be.
    """
    if name not in names():
        raise UsageError(f"no profile named {name!r}: there is {', '.join(names())}")
    return parse((resources.files(__package__) / _FOLDER / f"{name}.toml").read_text(encoding="utf-8"), name)


def parse(text: str, shown: str) -> Profile:
    """Return the profile that a TOML text holds; `shown` is what an error calls it.

    Raises:
        InputError: it is not TOML, or not a profile.
    """
    try:
        return Profile.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"profile {shown}: expected TOML: {error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InputError(f"profile {shown}: {where}: {first['msg']}, got {first['input']!r:.60}") from error
