"""What is said of an argument that there is not."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields

import flwr_dpkmeans
from flwr_dpkmeans import foreign_names
from flwr_dpkmeans.errors import (
    ConfigurationError,
    nearest,
    nearest_name,
)
from flwr_dpkmeans.options.clusterings import clusterings, names_of
from flwr_dpkmeans.options.groups import GROUPS
from flwr_dpkmeans.sums.option_rules import rule_of
from flwr_dpkmeans.sums.settings import Settings
from flwr_dpkmeans.sums.task import Task

_CLOSE = 0.75
"""How much alike a slip and an option of another argument's object must be."""
_FOLLOWING = {
    "private_bounds": "give bounds='private' or bounds=PrivateBounds(share=0.1)",
    "feature_names": "give data frames, whose columns have names",
    "schema_digest": "give bounds='schema.toml'",
    "standard_columns": "give a schema with scale = 'standard'",
    "profile_widths": "give a schema with profile = [...]",
    "profile_share": "give a schema with profile_share",
    "gap_columns": "give a schema with missing = 'centre'",
    "n_clients": "there are as many clients as tables",
    "allow_unnamed": (
        "tables without column names are matched by position where none of them has"
        " names"
    ),
    "choose_n_clusters": "give n_clusters='auto' or n_clusters=Auto(max_clusters=20)",
}
"""Options of a run that follow from arguments of the estimator."""
_FOLLOWING_ROWS = ("feature_names", "schema_digest", "n_clients", "allow_unnamed")
"""Those of them that follow from tables and a schema, whatever is learnt."""
_CLUSTERS = frozenset(("algorithm",))
"""What an estimator that clusters takes, and no other one."""


def unknown_argument(
    name: str,
    value: object,
    parameters: Collection[str],
) -> ConfigurationError:
    """Say where an unknown argument is gone, or which of `parameters` is nearest."""
    answer = foreign_names.answer(name, taken=parameters)
    if answer:
        return ConfigurationError(f"there is no parameter {name!r}, as {answer}.")
    elsewhere = _moved(name, value, parameters)
    if elsewhere:
        return ConfigurationError(f"{elsewhere}.")
    near = nearest_name(name, {*parameters, *_moved_names(parameters)}, _CLOSE)
    if near and near not in parameters:
        return ConfigurationError(
            f"there is no parameter {name!r}, and {_moved(near, value, parameters)}."
        )
    return ConfigurationError(
        f"there is no parameter {name!r}: {nearest(name, parameters)}"
    )


def _moved_names(parameters: Collection[str]) -> set[str]:
    """Options that are written inside of an argument's value."""
    if not _CLUSTERS & set(parameters):
        return set()
    groups = [group for group in GROUPS if group.argument in parameters]
    grouped = set[str]()
    for group in groups:
        for name, flat_name in group.flat_names().items():
            if flat_name == name:
                grouped.add(name)
    of_algorithms = set[str]()
    if "algorithm" in parameters:
        of_algorithms.update(*map(names_of, clusterings()))
    return (grouped | of_algorithms) - set(parameters)


def _moved(
    name: str,
    value: object,
    parameters: Collection[str],
) -> str:
    """Where an option has gone that the estimator had once as an argument.

    "" where it never had one.
    """
    if not _CLUSTERS & set(parameters):
        if name in _FOLLOWING_ROWS:
            return f"{name} is no argument of its own: {_FOLLOWING[name]}"
        return ""
    for group in GROUPS:
        for option, flat_name in group.flat_names().items():
            if flat_name != name:
                continue
            if group.argument not in parameters:
                return (
                    f"{name} is an option of FederatedKMeans alone: leave it out"
                    " for one table"
                )
            call = f"{group.__name__}({option}={value!r})"
            mend = f"give {group.argument}={call}"
            return f"{name} is no argument of its own: {mend}"
    if name in _FOLLOWING:
        return f"{name} is no argument of its own: {_FOLLOWING[name]}"
    if "algorithm" not in parameters:
        return ""
    return _moved_to_algorithms(name, value)


def _moved_to_algorithms(name: str, value: object) -> str:
    """Which algorithms' objects have an option; "" where none has."""
    kinds = [kind for kind in clusterings() if name in names_of(kind)]
    if not kinds:
        return ""
    calls = dict[str, None]()
    for kind in kinds:
        options = kind.option_class()
        class_name = options.__name__
        is_foreign = options.__module__.split(".")[0] != "flwr_dpkmeans"
        # Of this package's own some are not exported.
        if is_foreign or hasattr(flwr_dpkmeans, class_name):
            calls[f"{class_name}({name}={value!r})"] = None
    mend = " or ".join(calls)
    if not calls:
        first = kinds[0].name
        mend = f"{first!r}, and then set_params(algorithm__{name}={value!r})"
    return f"{name} is an option of some algorithms: give algorithm={mend}"


def spelt_names(kind: type[Task] | None) -> set[str]:
    """Options that people write by these names, and that an algorithm takes.

    Where none was chosen, some algorithm. Neither what follows from others, nor flat
    names of objects' parts.
    """
    parts = set[str]()
    for group in GROUPS:
        for name, flat_name in group.flat_names().items():
            if flat_name != name:
                parts.add(flat_name)
    stated = {option.name for option in fields(Settings) if rule_of(option) is not None}
    named = {"bounds", *stated}
    algorithms = clusterings() if kind is None else (kind,)
    if kind is None:
        named.add("algorithm")
    for algorithm in algorithms:
        named.update(names_of(algorithm))
        if "n_clusters" in algorithm.parameter_names():
            named.add("n_clusters")
    return named - parts - _FOLLOWING.keys() | {"n_clients", "allow_unnamed"}
