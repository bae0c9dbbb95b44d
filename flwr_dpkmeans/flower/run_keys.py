"""Keys of a run's configuration."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, fields
from enum import Enum
from pathlib import Path
from typing import Any

from flwr_dpkmeans.options import AUTO, Cohort
from flwr_dpkmeans.sums.option_rules import rule_of
from flwr_dpkmeans.sums.settings import Settings
from flwr_dpkmeans.sums.task import TASKS, Task

SIMULATED = "(simulated)"
"""Beside the keys: whether the run is a simulation."""


@dataclass(frozen=True)
class RunKey:
    """One key of the run configuration."""

    name: str
    """As it is spelt, with the table that it is in: ``fastlloyd.alpha``."""
    default: str | int | float | bool
    """``"auto"`` for an option that may be left to the run."""
    about: str
    """One line for people."""
    option: str = ""
    """The option that it stands for, by its flat name; empty: the app reads it itself.
    """


_KEYS = tomllib.loads(
    Path(__file__).with_name("run_keys.toml").read_text(encoding="utf-8")
)

_DATA, _RUN, _APP = (
    [RunKey(name, **key) for name, key in _KEYS[table].items()]
    for table in ("data", "run", "app")
)

DEFAULTS = {
    key.name: key.default for key in (*_DATA, *_RUN, *_APP) if key.name != "n-clusters"
} | {"data": ""}
"""What the app itself reads, where a configuration does not say it."""

_OF_SCHEMA = frozenset(
    (
        "schema_digest",
        "standard_columns",
        "profile_widths",
        "profile_share",
        "gap_columns",
    )
)

_ELSEWHERE = _OF_SCHEMA | {
    "bounds",
    "private_bounds",
    "feature_names",
    "n_clients",
    "masking",
}
"""Settings that follow from other keys, or that no deployment may change."""

_STATED = {"epsilon": 2.0}
"""Defaults of the app that are not the library's."""


def table_of(algorithm: str) -> str:
    """Name of an algorithm's table, as server_kmeans_plus_plus.

    TOML's bare keys have no plus sign.
    """
    return algorithm.replace("+", "_plus")


def own_keys() -> tuple[RunKey, ...]:
    """Keys outside of algorithms' tables."""
    of_cohort = {field.name for field in fields(Cohort)}
    settings = [
        field for field in fields(Settings) if field.name not in _ELSEWHERE | of_cohort
    ]
    return (
        *_DATA,
        *_RUN,
        *(_key(field, default=_STATED.get(field.name)) for field in settings),
        *_APP,
        *(
            _key(field, table="cohort")
            for field in fields(Cohort)
            if field.name not in _ELSEWHERE
        ),
    )


def run_keys() -> tuple[RunKey, ...]:
    """Every key that a run configuration may have.

    Those of other packages' algorithms included.
    """
    return (*own_keys(), *(key for kind in TASKS.values() for key in keys_of(kind)))


def keys_of(kind: type[Task]) -> Iterator[RunKey]:
    """An algorithm's own options, without the number of iterations, which all have."""
    for field in fields(kind.option_class()):
        if field.name != "max_iter":
            yield _key(field, table=table_of(kind.name))


def _key(
    field: Field[object],
    *,
    table: str = "",
    default: Any = None,
) -> RunKey:
    rule = rule_of(field)
    if default is None:
        default = (
            AUTO
            if field.default in (None, MISSING) or field.name == "trust"
            else field.default
        )
    value = default.value if isinstance(default, Enum) else default
    about = "" if rule is None else rule.about
    if field.name == "trust":
        about += "; auto: the algorithm's own"
    name = field.name.replace("_", "-")
    return RunKey(
        f"{table}.{name}" if table else name,
        value,
        about.replace("automatic:", "auto:"),
        field.name,
    )
