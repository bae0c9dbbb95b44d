"""A run's configuration from plain values by flat names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, TypeVar

from flwr_dpkmeans import foreign_names
from flwr_dpkmeans.algorithms.kmeans_task import DEFAULT_MAX_CLUSTERS
from flwr_dpkmeans.algorithms.server.resolved_bounds import is_private
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.errors import (
    ConfigurationError,
    nearest,
)
from flwr_dpkmeans.options.catalogue import catalogue
from flwr_dpkmeans.options.clusterings import names_of
from flwr_dpkmeans.options.clusters import resolve_n_clusters
from flwr_dpkmeans.options.flat import FlatOptions
from flwr_dpkmeans.options.group import FlatValues
from flwr_dpkmeans.options.kinds import DEFAULT_ALGORITHM, task_kind
from flwr_dpkmeans.options.of_schema import schema_settings
from flwr_dpkmeans.options.seeds import seed_of
from flwr_dpkmeans.options.unknown import spelt_names
from flwr_dpkmeans.options.without_effect import require_effect
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.option_rules import Options
from flwr_dpkmeans.sums.settings import Settings
from flwr_dpkmeans.sums.task import Task

OptionsT = TypeVar("OptionsT", bound=Options)
_EXAMPLES = {"n_clusters": "10", "bounds": "(-1.0, 1.0), which must be public"}


def parse_config(**values: object) -> RunConfig:
    """Build a run from plain values, by the flat names of its options.

    Choices are strings, and a float may be any real number. Options that only other
    algorithms have are checked, and have no effect. Raises a ConfigurationError with
    one sentence that names the value, the bound and the mend; for an unknown name, the
    nearest valid one.
    """
    algorithm = values.get("algorithm", DEFAULT_ALGORITHM)
    kind = task_kind(algorithm)
    options_class = kind.option_class()
    settings = _chosen(values, Settings.__dataclass_fields__)
    parameters = _chosen(values, kind.parameter_names())
    options = _chosen(values, names_of(kind))
    taken = {**settings, **parameters, **options}
    others = [name for name in values if name not in taken and name != "algorithm"]
    if others:
        _check_others(others, values, kind)
    _require_examples(values, kind)
    run_settings = _options_from(Settings, settings)
    run_options = _options_from(options_class, options)
    task = kind(**parameters, options=run_options)
    return RunConfig(run_settings, task)


def _check_others(names: Sequence[str], values: FlatValues, kind: type[Task]) -> None:
    """Check options that the chosen algorithm has not: another has them, or none.

    Apart from the others, since the list of all options imports every algorithm.
    """
    every = catalogue()
    for name in names:
        if name not in every:
            _refuse_unknown(name, kind if "algorithm" in values else None)
    for name in names:
        every[name].changed(name, values[name])


def _refuse_unknown(name: str, kind: type[Task] | None) -> NoReturn:
    """Say that there is no such option, and which is nearest."""
    taken = spelt_names(kind)
    answer = foreign_names.answer(
        name,
        foreign_names.FLAT,
        taken=taken,
    )
    if answer:
        raise ConfigurationError(f"there is no parameter {name!r}, as {answer}.")
    raise ConfigurationError(f"there is no parameter {name!r}: {nearest(name, taken)}")


def _require_examples(values: FlatValues, kind: type[Task]) -> None:
    """Refuse a run without what every run needs."""
    needed = ["bounds"]
    if "n_clusters" in kind.parameter_names():
        needed.insert(0, "n_clusters")
    for name in needed:
        if name not in values:
            example = _EXAMPLES[name]
            raise ConfigurationError(
                f"{name!r} is missing, but every run needs it: give a value such as"
                f" {example}."
            )


def _options_from(kind: type[OptionsT], values: FlatValues) -> OptionsT:
    """Options of a class, whose rules read and check the values."""
    return kind(**values)


def _chosen(values: FlatValues, names: Iterable[str]) -> FlatValues:
    """Those of the values that have one of the names."""
    stated = [name for name in names if name in values]
    return {name: values[name] for name in stated}


def read_config(*, has_server_data: bool = False, **values: Any) -> RunConfig:
    """Build a run as `parse_config` does, with the algorithm's own trust model if none.

    With `has_server_data`, where the server brings points of its own, the default lets
    the server keep them. Raises a ConfigurationError also for an option that differs
    from its default and has no effect on this run.
    """
    if values.get("trust") is None:
        algorithm = values.get("algorithm", DEFAULT_ALGORITHM)
        kind = task_kind(algorithm)
        values["trust"] = kind.default_trust(has_server_data=has_server_data)
    if values.get("max_iter") is None:
        # The algorithm's own, which need not be None.
        values.pop("max_iter", None)
    run = parse_config(**values)
    require_effect(run, values)
    return run


def build_config(
    options: FlatOptions,
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
    random_state = values.get("random_state")
    values["random_state"] = seed_of(random_state)
    if is_private(values["n_examples"]):
        values["n_examples"] = None
    values["bounds"] = (box.lower, box.upper)
    return read_config(has_server_data=has_server_data, **values)
