"""A run's configuration from plain values by flat names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from flwr_dpkmeans import foreign_names
from flwr_dpkmeans.algorithms.kmeans_task import DEFAULT_MAX_CLUSTERS
from flwr_dpkmeans.algorithms.server_points import is_private
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.errors import (
    ConfigurationError,
    nearest,
)
from flwr_dpkmeans.options.catalogue import catalogue_of
from flwr_dpkmeans.options.clusterings import names_of
from flwr_dpkmeans.options.clusters import resolve_n_clusters
from flwr_dpkmeans.options.kinds import DEFAULT_ALGORITHM, kinds_of_task, task_kind
from flwr_dpkmeans.options.of_schema import schema_settings
from flwr_dpkmeans.options.seeds import seed_of
from flwr_dpkmeans.options.unknown import spelt_names
from flwr_dpkmeans.options.without_effect import require_effect
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.settings import Settings

_EXAMPLES = {"n_clusters": "10", "bounds": "(-1.0, 1.0), which must be public"}


def parse_config(**values: Any) -> RunConfig:
    """Build a run from plain values, by the flat names of its options.

    Choices are strings, and a float may be any real number. Options that only other
    algorithms have are checked, and have no effect. Raises a ConfigurationError with
    one sentence that names the value, the bound and the mend; for an unknown name, the
    nearest valid one.
    """
    catalogue = catalogue_of(kinds_of_task())
    kind = task_kind(values.get("algorithm", DEFAULT_ALGORITHM))
    for name in values:
        if name not in catalogue:
            taken = spelt_names(kind if "algorithm" in values else None)
            answer = foreign_names.answer(name, foreign_names.FLAT, taken=taken)
            if answer:
                raise ConfigurationError(
                    f"there is no parameter {name!r}, as {answer}."
                )
            raise ConfigurationError(
                f"there is no parameter {name!r}: {nearest(name, taken)}"
            )
    for name, example in _EXAMPLES.items():
        if name not in values and (name == "bounds" or name in kind.parameter_names()):
            raise ConfigurationError(
                f"{name!r} is missing, but every run needs it: give a value such as"
                f" {example}."
            )
    setting_names = [setting.name for setting in fields(Settings)]
    settings = _chosen(values, setting_names)
    parameters = _chosen(values, kind.parameter_names())
    options = _chosen(values, names_of(kind))
    taken = settings.keys() | parameters.keys() | options.keys()
    for name in values.keys() - taken:
        catalogue[name].changed(name, values[name])
    run_settings = Settings(**settings)
    run_options = kind.option_class()(**options)
    return RunConfig(run_settings, kind(**parameters, options=run_options))


def _chosen(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Those of the values that have one of the names."""
    return {name: values[name] for name in names if name in values}


def read_config(*, has_server_data: bool = False, **values: Any) -> RunConfig:
    """Build a run as `parse_config` does, with the algorithm's own trust model if none.

    With `has_server_data`, where the server brings points of its own, the default lets
    the server keep them. Raises a ConfigurationError also for an option that differs
    from its default and has no effect on this run.
    """
    if values.get("trust") is None:
        kind = task_kind(values.get("algorithm", DEFAULT_ALGORITHM))
        values["trust"] = kind.default_trust(has_server_data=has_server_data)
    if values.get("max_iter") is None:
        values.pop("max_iter", None)  # the algorithm's own, which need not be None
    run = parse_config(**values)
    require_effect(run, values)
    return run


def build_config(
    options: Mapping[str, Any],
    box: Bounds,
    *,
    has_server_data: bool,
) -> RunConfig:
    """Build a run from options as `flat_options` returns them.

    `box` are the public bounds that theirs stand for. What is ``"private"`` or
    ``"auto"`` the run finds out by itself; else as `read_config`.
    """
    values = dict(options)
    stated = values.pop("bounds")
    values.pop("bounds_domain", None)
    values |= schema_settings(stated)
    n_clusters = values.pop("n_clusters", None)
    if n_clusters is not None:
        most = values.pop("max_clusters", DEFAULT_MAX_CLUSTERS)
        values |= resolve_n_clusters(n_clusters, most)
    values.setdefault("private_bounds", is_private(stated))
    values["random_state"] = seed_of(values.get("random_state"))
    if is_private(values["n_examples"]):
        values["n_examples"] = None
    return read_config(
        has_server_data=has_server_data, bounds=(box.lower, box.upper), **values
    )
