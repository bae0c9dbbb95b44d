"""`FederatedKMeans` from flat names, as runs and plans have them, so that a test can
vary any option by its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from flwr_dpkmeans import FederatedKMeans
from flwr_dpkmeans.flower.run_keys import run_keys, table_of
from flwr_dpkmeans.options import DEFAULT_ALGORITHM, GROUPS, foreign_option, object_of

_DEFAULTS = {"n_clusters": 8, "unit": "record", "n_examples": "private"}
"""Short forms that stand for arguments that are not given.

An option of a count asks for one.
"""


def flat_estimator(n_clusters: Any = 8, **values: Any) -> FederatedKMeans:
    """An estimator with options by their flat names.

    They go into the objects that they belong to.
    """
    return FederatedKMeans(**arguments({"n_clusters": n_clusters, **values}))


def arguments(values: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `FederatedKMeans` for flat options.

    An option that no object could hold here is refused.
    """
    given = dict(values)
    flats = {
        one.metadata.get("flat", one.name): (group.argument, one)
        for group in GROUPS
        for one in fields(group)
    }
    nested: dict[str, dict[str, Any]] = {}
    for flat in flats.keys() & given.keys():
        argument, one = flats[flat]
        value = given.pop(flat)
        if type(value) is not type(one.default) or value != one.default:
            nested.setdefault(argument, {})[one.name] = value
    for argument, options in nested.items():
        short = given.get(argument)
        short = _DEFAULTS.get(argument) if short in (None, "none") else short
        given[argument] = object_of(argument, short).set_params(**options)
    own = {
        name: given.pop(name)
        for name in list(given)
        if name not in FederatedKMeans().get_params(deep=False)
    }
    if own:
        name = given.get("algorithm", DEFAULT_ALGORITHM)
        options = object_of("algorithm", name)
        for option in own.keys() - options.get_params().keys():
            raise foreign_option(option, own[option], name)
        given["algorithm"] = options.set_params(**own)
    return given


def run_config(**values: Any) -> dict[str, Any]:
    """A run configuration from flat names or keys.

    An algorithm's own options go into its table, or their owner's.
    """
    table = table_of(values.get("algorithm", DEFAULT_ALGORITHM))
    found: dict[str, Any] = {}
    for name, value in values.items():
        keys = [key.name for key in run_keys() if key.option == name.replace("-", "_")]
        own = [
            key
            for key in keys
            if key.startswith((f"{table}.", "cohort.")) or "." not in key
        ]
        found[(own or keys or [name.replace("_", "-")])[0]] = value
    return found
