"""Arguments, some of which are objects, by flat names and as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flwr_dpkmeans.data.schema_source import schema_of
from flwr_dpkmeans.errors import (
    ConfigurationError,
)
from flwr_dpkmeans.options.group import Group
from flwr_dpkmeans.options.kinds import kinds_of_task
from flwr_dpkmeans.options.seeds import seed_of
from flwr_dpkmeans.sums.option_rules import Options

FlatOptions = dict[str, Any]
"""Options of a run by their flat names, not yet read and checked."""


def flat_options(arguments: Mapping[str, object]) -> FlatOptions:
    """Turn arguments, some of which may be objects, into flat names and plain values.

    Raises a ConfigurationError if an object is given for an argument that it is no
    value of, or ``max_iter`` twice.
    """
    values: dict[str, object] = {}
    for name, value in arguments.items():
        if isinstance(value, Options):
            values |= _flat_object(name, value, arguments)
        elif name == "random_state":
            values[name] = seed_of(value)
        elif name == "cohort":
            if value is not None:
                raise ConfigurationError(
                    f"cohort is {value!r}, but it must be a Cohort: give"
                    " Cohort(max_silent=1)."
                )
        elif name == "evaluation":
            values[name] = value if value else "none"
        elif name == "bounds" and name not in values:
            schema = schema_of(value)
            values[name] = value if schema is None else schema
        elif name not in values:
            values[name] = value
    return values


def _flat_object(
    name: str,
    options: Options,
    arguments: Mapping[str, object],
) -> dict[str, object]:
    """One argument's object by flat names, if it is a value of that argument."""
    argument = options.argument if isinstance(options, Group) else "algorithm"
    if argument != name:
        raise ConfigurationError(
            f"{name} is {options!r}, which is a value of {argument}: give"
            f" {argument}={options!r}."
        )
    if isinstance(options, Group):
        return options.flat()
    return _flat_algorithm(options, arguments)


def _flat_algorithm(
    options: Options, arguments: Mapping[str, object]
) -> dict[str, object]:
    """The algorithm whose options these are, with them.

    ``max_iter`` may also be an argument of its own.
    """
    kinds = [kind for kind in kinds_of_task() if kind.option_class() is type(options)]
    names = list(dict.fromkeys(kind.name for kind in kinds))
    if len(names) != 1:
        # Of two algorithms with one class the first would run under the other's name.
        whose = f"{' and '.join(names)} both have" if names else "no algorithm has"
        raise ConfigurationError(
            f"algorithm is {options!r}, but {whose} such options: give its name, or"
            " register it."
        )
    values = options.get_params()
    rounds = arguments.get("max_iter")
    stated = values.pop("max_iter", None) if rounds is not None else None
    if stated not in (None, rounds):
        raise ConfigurationError(
            f"max_iter is {rounds!r}, but algorithm={options!r} says {stated}: leave"
            " one of the two out."
        )
    return {"algorithm": names[0], **values}
