"""What does each variant of an experiment run, and which of its settings must be in force?

A value of `[vary]` takes the place of {NAME} in the server's command, its flags or its environment; for the twin it is
one of its options; `env.NAME` is an environment variable, `request.PATH` a request parameter. `[[variant]]` tables say
what each has beside the scenario. Pure: nothing is started, and nothing outside the experiment is looked at.
"""

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import ValidationError

from agentload.artifacts.design import Value
from agentload.errors import UsageError
from agentload.run import explaining, placeholders, scenario, twin_settings, ways
from agentload.run.experiment_shape import MOST_VARIANTS, Experiment, RefusedError, VariantTable
from agentload.run.scenario import Scenario, Server
from agentload.run.settings_asked import asked, provable, twice, warmup
from agentload.run.toml_values import shown
from agentload.run.ways import Path

Kind = Literal["restart", "request"]

TABLES: Final = "variant"  # the factor of variants that have nothing in common


@dataclass(frozen=True, slots=True)
class Made:
    """One variant."""

    name: str
    label: str
    scenario: Scenario  # unresolved
    expected: dict[str, Value]
    request: dict[str, Any]  # empty where variants are restarts
    unknown: tuple[str, ...] = ()  # of `expected`: what nothing is known to prove


def factor(experiment: Experiment) -> str:
    """Return what varies, in one word."""
    return next(iter(experiment.vary), TABLES)


def kind(experiment: Experiment) -> Kind:
    """Return "request" where variants differ in request parameters alone, which alternate inside one start.

    With the fixed workload and the probe, which have segments of their own, each step is a start all the same.
    """
    if experiment.workload != "agents":
        return "restart"
    if experiment.vary:
        return "request" if factor(experiment).startswith(ways.REQUEST) else "restart"
    tables = experiment.variant
    others = any(one.launch is not None or one.env or one.args or one.set for one in tables)
    return "request" if any(one.request for one in tables) and not others else "restart"


def make(experiment: Experiment) -> tuple[Made, ...]:
    """Return the variants, A first.

    Raises:
        RefusedError: they are no variants of one factor, a placeholder has no values or a name no placeholder, a
            value comes twice or is not acceptable, or the scenario is not.
    """
    if experiment.vary and experiment.variant:
        raise RefusedError(("variant",), "expected [vary] or [[variant]] tables, got both")
    if len(experiment.vary) > 1:
        names = " and ".join(experiment.vary)
        raise RefusedError(("vary",), f"expected one factor, got {names}: what differs could be the work of either")
    base = _settled(experiment)
    if experiment.vary:
        ((name, values),) = experiment.vary.items()
        found = _varied(experiment, base, name, values)
    elif experiment.variant:
        found = _tables(experiment, base)
    else:
        placeholders.refuse_stray(base, ())
        raise RefusedError(("vary",), "expected what varies: NAME with two or more values, there is nothing")
    for index, one in enumerate(found):
        try:
            scenario.resolve(one.scenario)
        except twin_settings.OptionError as error:
            of_table = bool(experiment.variant) and error.option in experiment.variant[index].set
            path = ("variant", str(index)) if of_table else ("scenario", "server")
            raise RefusedError((*path, "set", error.option), error.said) from error
        except UsageError as error:
            raise RefusedError(("scenario",), str(error)) from error
    return found


def warnings(made: Sequence[Made]) -> list[str]:
    """Return what will make every run of a variant invalid, as far as it can be seen before the first start."""
    found = [
        f"{one.label}: the command gives {name} {len(values)} times ({', '.join(map(str, values))}): the last one wins "
        "without a word, and every run will be INVALID"
        for one in made
        for name, values in twice(one.scenario.server).items()
    ]
    unknown = dict.fromkeys(name for one in made for name in one.unknown)
    if unknown:
        found.append(
            f"nothing is known to prove {', '.join(unknown)}, so every run will be INVALID: name the line of the "
            "server's log that does in a [[proof]], or vary a setting behind a script by the name that the log gives it"
        )
    return found


def server_kind(experiment: Experiment) -> str:
    """Return the kind of the server, by what is given."""
    server = experiment.scenario.server
    if server.kind == "twin":
        return "twin"
    if server.launch is not None or any(one.launch is not None for one in experiment.variant):
        return "launch"
    return "endpoint" if server.base_url is not None else server.kind


def _settled(experiment: Experiment) -> Scenario:
    """Return the scenario of all variants, with the experiment's own fields and the kind of its server."""
    given = experiment.scenario
    server = given.server.model_copy(update={"kind": server_kind(experiment)})
    if server.kind == "endpoint" and kind(experiment) == "restart":
        raise RefusedError(
            ("scenario", "server", "base_url"),
            f"agentload does not start {server.base_url or 'a server behind an endpoint'}, and what varies needs "
            "restarts: give the command that starts it (--launch); only request.NAME can vary there",
        )
    own = {"name": "ab", "seed": experiment.seed, "workload": experiment.workload, "server": server}
    settled = given.model_copy(update=own)
    launch = server.launch or next((one.launch for one in experiment.variant if one.launch is not None), None)
    known = settled.model_copy(update={"server": server.model_copy(update={"launch": launch})})
    return settled.model_copy(update={"warmup": warmup(known)})


def _varied(experiment: Experiment, base: Scenario, name: str, values: Sequence[Value]) -> tuple[Made, ...]:
    path = ("vary", *name.split("."))
    if len(values) < 2:
        got = f"one: {shown(values[0])}" if values else "none"
        raise RefusedError(path, f"expected two or more values, got {got}")
    if len(values) > MOST_VARIANTS:
        raise RefusedError(path, f"expected at most {MOST_VARIANTS} values, got {len(values)}")
    way = ways.way(base, name, path)
    taken = [way.value(value) for value in values]
    labels = [f"{name.rpartition('.')[2]}={shown(value) or '(nothing)'}" for value in taken]
    again = next((label for index, label in enumerate(labels) if label in labels[:index]), None)
    if again is not None:
        raise RefusedError(
            path, f"the same value twice: {again}; to compare equals, write two [[variant]] tables with labels"
        )
    scenarios = [_checked(way.apply(value), path) for value in taken]
    placeholders.refuse_stray(base, (name,))
    known = _differing([one.server for one in scenarios])
    found = []
    for index, value in enumerate(taken):
        told = {
            key: placeholders.filled(text, name, value) if isinstance(text, str) else text
            for key, text in experiment.expected.items()
        }
        expected = {**(known[index] if any(known) or told else way.expect(value)), **told}
        ready, request = scenarios[index], way.request(value)
        whole = _checked(ready.model_copy(update={"request": {**ready.request, **request}}), path)
        if kind(experiment) == "restart":
            ready, request = whole, {}
        unknown = _unknown(experiment, expected, ready.server)
        letter = string.ascii_uppercase[index]
        found.append(Made(letter, labels[index], _named(ready, letter), expected, request, unknown))
    return tuple(found)


def _tables(experiment: Experiment, base: Scenario) -> tuple[Made, ...]:
    tables = experiment.variant
    if not 2 <= len(tables) <= MOST_VARIANTS:
        raise RefusedError(("variant",), f"expected 2 to {MOST_VARIANTS} [[variant]] tables, got {len(tables)}")
    names = [one.name or string.ascii_uppercase[index] for index, one in enumerate(tables)]
    labels = [one.label or _described(one) or names[index] for index, one in enumerate(tables)]
    for index in range(len(tables)):
        path = ("variant", str(index))
        if names[index].casefold() in [name.casefold() for name in names[:index]]:
            raise RefusedError((*path, "name"), f"expected a name of its own, {names[index]} is another's too")
        if labels[index] in labels[:index]:
            raise RefusedError(
                (*path, "label"),
                f"the same value twice: {labels[index]}; to compare equals, give each a label of its own",
            )
    if any(one.launch is None for one in tables) and base.server.launch is None and base.server.kind == "launch":
        missing = next(index for index, one in enumerate(tables) if one.launch is None)
        raise RefusedError(("variant", str(missing)), "expected a launch command, here or in scenario.server")
    for index, one in enumerate(tables):
        alike = next((other for other in tables[:index] if _same_but_for_names(one, other)), None)
        if alike is not None and (one.label is None or alike.label is None):
            raise RefusedError(
                ("variant", str(index)), "the same as one before it; to compare equals, give each a label of its own"
            )
    scenarios, requests = [], []
    for index, one in enumerate(tables):
        ready, request = _tabled(base, one, ("variant", str(index)), kind(experiment))
        scenarios.append(ready)
        requests.append(request)
    known = _differing([one.server for one in scenarios])
    found = []
    for index, one in enumerate(tables):
        expected: dict[str, Value] = {**known[index], **experiment.expected, **one.expected}
        ready = _named(scenarios[index], names[index])
        unknown = _unknown(experiment, expected, ready.server)
        found.append(Made(names[index], labels[index], ready, expected, requests[index], unknown))
    return tuple(found)


def _same_but_for_names(one: VariantTable, other: VariantTable) -> bool:
    names = {"name": None, "label": None}
    return one.model_copy(update=names) == other.model_copy(update=names)


def _tabled(base: Scenario, table: VariantTable, path: Path, how: Kind) -> tuple[Scenario, dict[str, Any]]:
    """Return a table's scenario, and what it adds to each request where variants are request parameters."""
    server = base.server
    changes: dict[str, Any] = {
        "launch": table.launch or server.launch,
        "args": (*server.args, *table.args),
        "env": {**server.env, **{name: shown(value) for name, value in table.env.items()}},
    }
    if table.set:
        changes["set"] = {**(server.set or {}), **table.set}
    for name in table.request:
        if name in base.request and not (
            isinstance(base.request[name], dict) and isinstance(table.request[name], dict)
        ):
            raise RefusedError((*path, "request"), f"{name}: expected it here alone, scenario.request has it too")
    added = ways.laid_over(base.request, table.request)
    changed = base.model_copy(update={"server": server.model_copy(update=changes)})
    whole = _checked(changed.model_copy(update={"request": {**base.request, **added}}), path)
    placeholders.refuse_stray(
        changed, (), (*path, "launch") if table.launch else (*path, "args") if table.args else None
    )
    return (changed, added) if how == "request" else (whole, {})


def _described(table: VariantTable) -> str:
    """Return what a table says of itself in short; of a command that is too long."""
    flat = {**table.env, **table.set, **_leaves(table.request)}
    return " ".join([*table.args, *(f"{name}={shown_any(value)}" for name, value in flat.items())])


def _leaves(request: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in request.items():
        found |= _leaves(value) if isinstance(value, dict) else {name: value}
    return found


def shown_any(value: Any) -> str:
    """Return a value as a label has it."""
    return shown(value) if isinstance(value, (bool, int, float, str)) else repr(value)


def _differing(servers: Sequence[Server]) -> list[dict[str, Value]]:
    """Return of each server the settings that its command asks for, where not all ask for the same."""
    each = [asked(server) for server in servers]
    names = sorted({name for one in each for name in one})
    differ = [name for name in names if any(one.get(name) != each[0].get(name) for one in each)]
    return [{name: one[name] for name in differ if name in one} for one in each]


def _unknown(experiment: Experiment, expected: Mapping[str, Value], server: Server) -> tuple[str, ...]:
    """Return the expected settings that neither the server's profile nor a [[proof]] can prove."""
    named = {one.setting for one in experiment.proof}
    return tuple(name for name in expected if name not in named and not provable(server, name))


def _named(ready: Scenario, condition: str) -> Scenario:
    return ready.model_copy(update={"condition": condition})


def _checked(ready: Scenario, path: Path) -> Scenario:
    """Return it, with the rules of scenarios applied to what was put in."""
    try:
        return Scenario.model_validate(dump(ready))
    except ValidationError as error:
        first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    raise RefusedError(path, f"{where}: {explaining.explain(first, scenario.keys_of)}")


def dump(ready: Scenario) -> dict[str, Any]:
    """As JSON values, unresolved: of the limits only those that were given, since the others depend on the server."""
    fields = ready.dump()
    if ready.limits is not None:
        fields["limits"] = ready.limits.model_dump(mode="json", exclude_unset=True)
    return fields
