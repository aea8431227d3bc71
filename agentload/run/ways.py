"""How do the values of one factor get into a scenario?"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agentload.artifacts.design import Value
from agentload.run import placeholders, twin_settings
from agentload.run.experiment_shape import RefusedError
from agentload.run.scenario import Scenario
from agentload.run.toml_values import shown

Path = tuple[str, ...]  # of a key in an experiment's file

ENV: Final = "env."
REQUEST: Final = "request."
_NAME: Final = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Way:
    """How one factor's values get into a scenario."""

    apply: Callable[[Value], Scenario]
    request: Callable[[Value], dict[str, Any]] = lambda _: {}
    expect: Callable[[Value], dict[str, Value]] = lambda _: {}
    value: Callable[[Value], Value] = lambda given: given  # as the server takes it


def way(base: Scenario, name: str, path: Path) -> Way:
    """Return how the values of a name get in.

    Raises:
        RefusedError: there is no place for them, or they are given in another one too.
    """
    server = base.server
    if name.startswith(REQUEST):
        return _request_way(base, name.removeprefix(REQUEST).split("."), path)
    if name.startswith(ENV):
        return _env_way(base, name.removeprefix(ENV), path)
    if server.kind == "twin":
        return _twin_way(base, name, path)
    if not _NAME.fullmatch(name):
        raise RefusedError(path, f"expected the name of a placeholder, env.NAME or request.NAME, got {name!r}")
    if name in placeholders.RESERVED:
        raise RefusedError(path, f"{{{name}}} is filled in by agentload at each start: expected another name")
    texts = [*placeholders.texts_of(server), *server.env.values()]
    if not any(name in placeholders.found_in(text) for text in texts):
        where = "the embedded server's flags (--server-args)" if server.kind == "embedded" else "the command (--launch)"
        there = sorted({found for text in texts for found in placeholders.found_in(text)} - set(placeholders.RESERVED))
        also = f"; there is {', '.join(f'{{{one}}}' for one in there)}" if there else ""
        raise RefusedError(path, f"expected {{{name}}} in {where}, where its values go{also}")

    def apply(value: Value) -> Scenario:
        changes = {
            "launch": None if server.launch is None else placeholders.put(server.launch, name, value),
            "args": tuple(word for one in server.args for word in placeholders.words(one, name, value, path)),
            "env": {key: placeholders.put(text, name, value) for key, text in server.env.items()},
        }
        return base.model_copy(update={"server": server.model_copy(update=changes)})

    key = placeholders.setting_name(server, name)
    return Way(apply, expect=lambda value: {} if key is None else {key: value})


def _request_way(base: Scenario, keys: Sequence[str], path: Path) -> Way:
    if not all(keys):
        raise RefusedError(path, "expected request.NAME, or request.NAME.KEY for a value in a table")
    held: Any = base.request
    for depth, key in enumerate(keys, 1):
        held = held.get(key) if isinstance(held, dict) else None
        if held is not None and (depth == len(keys) or not isinstance(held, dict)):
            given = ".".join(("scenario", "request", *keys[:depth]))
            raise RefusedError(path, f"expected its values here alone, {given} has one too: {held!r:.80}")

    def request(value: Value) -> dict[str, Any]:
        nested: Any = value
        for key in reversed(keys):
            nested = {key: nested}
        return laid_over(base.request, nested)

    return Way(lambda _: base, request=request)


def _env_way(base: Scenario, variable: str, path: Path) -> Way:
    server = base.server
    if server.kind in ("twin", "endpoint"):
        raise RefusedError(path, f"expected a server that agentload starts, for its environment; this is {server.kind}")
    if not variable or "=" in variable:
        raise RefusedError(path, f"expected env.NAME, the name of an environment variable, got {ENV + variable!r}")
    if variable in server.env:
        raise RefusedError(path, f"expected its values here alone, scenario.server.env.{variable} is given too")

    def apply(value: Value) -> Scenario:
        env = {**server.env, variable: shown(value)}
        return base.model_copy(update={"server": server.model_copy(update={"env": env})})

    return Way(apply, expect=lambda value: {variable: value})


def _twin_way(base: Scenario, option: str, path: Path) -> Way:
    given = base.server.set or {}
    if option in given:
        raise RefusedError(path, f"expected its values here alone, scenario.server.set.{option} (--set) is given too")

    def value(given: Value) -> Value:
        try:
            taken: Value | None = getattr(twin_settings.options({option: given}), option)
        except twin_settings.OptionError as error:
            raise RefusedError(path, error.said) from error
        return given if taken is None else taken

    def apply(taken: Value) -> Scenario:
        server = base.server.model_copy(update={"set": {**given, option: taken}})
        return base.model_copy(update={"server": server})

    return Way(apply, expect=lambda taken: {option: taken}, value=value)


def laid_over(base: Mapping[str, Any], added: Mapping[str, Any]) -> dict[str, Any]:
    """Return `added`, each of its tables with what the same table of `base` has: they are laid over it key by key."""
    whole: dict[str, Any] = {}
    for name, value in added.items():
        held = base.get(name)
        if isinstance(held, dict) and isinstance(value, dict):
            whole[name] = {**held, **laid_over(held, value)}
        else:
            whole[name] = value
    return whole
