"""From flat names and plain values to a `Run`: the settings that every run has, and a task with its own options.

`flwr run`, the estimator, the strategies and Hydra all come through here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from enum import Enum
from typing import Any

from flwr_dpkmeans.algorithms import NOT_FEDERATED, algorithm_entry
from flwr_dpkmeans.algorithms.fastlloyd import Schedule
from flwr_dpkmeans.algorithms.kmeans_task import DEFAULT_MAX_CLUSTERS
from flwr_dpkmeans.algorithms.noise_budget import NoiseFamily
from flwr_dpkmeans.errors import ConfigurationError, nearest
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.sums import draft
from flwr_dpkmeans.sums.settings import Dropout, Evaluation, Settings, as_integer, member, require_integer
from flwr_dpkmeans.sums.task import CLIP_BOUNDS, TASKS, Run, Task

__all__ = [
    "CLIP_BOUNDS",
    "DEFAULT_ALGORITHM",
    "DEFAULT_MAX_CLUSTERS",
    "Dropout",
    "Evaluation",
    "NoiseFamily",
    "Run",
    "Schedule",
    "member",
    "option_defaults",
    "options_of",
    "own_options",
    "parse_config",
    "parse_run",
    "require_server_data",
    "resolve_n_clusters",
]

DEFAULT_ALGORITHM = "proxy_lloyd"
"""What a run takes unless another algorithm is chosen."""
_CLIENT_LEVEL = frozenset(("examples_per_client", "client_sampling_rate"))
_FEDERATED = frozenset(("max_silent", "masking"))
_OF_CLIENTS = ("examples_per_client", "weights_bound", "means_bound", "indicators_bound")
_OF_EVALUATIONS = ("n_classes", "evaluation_radius")
_EXAMPLES = {"n_clusters": "10", "bounds": "(-1.0, 1.0), which must be public"}


def resolve_n_clusters(n_clusters: object, max_clusters: int) -> dict[str, Any]:
    """Turn ``"auto"`` into the fields that let the algorithm choose.

    Examples
    --------
    >>> resolve_n_clusters("auto", 20)
    {'n_clusters': 20, 'choose_n_clusters': True}
    >>> resolve_n_clusters(3, 20)
    {'n_clusters': 3}
    """
    if isinstance(n_clusters, str) and n_clusters == "auto":
        require_integer("max_clusters", as_integer(max_clusters), 1, DEFAULT_MAX_CLUSTERS)
        return {"n_clusters": max_clusters, "choose_n_clusters": True}
    if max_clusters != DEFAULT_MAX_CLUSTERS:
        raise ConfigurationError(
            f"max_clusters is {max_clusters!r}, but n_clusters is {n_clusters!r} and not 'auto', so that it has no "
            "effect: leave one of the two out."
        )
    if isinstance(n_clusters, str) and not n_clusters.isdigit():
        raise ConfigurationError(f"n_clusters is {n_clusters!r}, but it must be a number or 'auto': give 10.")
    return {"n_clusters": int(n_clusters) if isinstance(n_clusters, str) else n_clusters}


def task_kind(name: object) -> type[Task]:
    """Look an algorithm up by name, those that need all rows in one place included."""
    if not isinstance(name, str):
        raise ConfigurationError(f"algorithm is {name!r}, but it must be a name: give a string.")
    return NOT_FEDERATED[name] if name in NOT_FEDERATED else algorithm_entry(name)


def parse_config(**values: Any) -> Run:
    """Build a run from plain values: strings for choices, any real for a float.

    Parameters
    ----------
    **values
        ``algorithm`` and options by their flat names; unknown names are refused with the nearest valid one. Those that
        only other algorithms have are checked, and have no effect.

    Returns
    -------
    Run

    Raises
    ------
    ConfigurationError
        With one sentence that names the value, the bound and the mend.

    Examples
    --------
    >>> parse_config(n_clusters=3, bounds=((0,), (1,)), unit="record").unit
    <PrivacyUnit.RECORD: 'record'>
    """
    defaults = option_defaults()
    for name in values:
        if name not in defaults:
            raise ConfigurationError(f"there is no parameter {name!r}: {nearest(name, defaults)}")
    given = dict(values)
    kind = task_kind(given.pop("algorithm", DEFAULT_ALGORITHM))
    needed = [one for one in ("n_clusters", "bounds") if one == "bounds" or one in kind.own_fields()]
    for name in needed:
        if name not in values:
            raise ConfigurationError(
                f"{name!r} is missing, but every run needs it: give a value such as {_EXAMPLES[name]}."
            )
    settings = Settings.parse(_taken(given, Settings.__dataclass_fields__))
    own = _taken(given, kind.own_fields())
    options = kind.option_class().parse(_taken(given, kind.option_class().__dataclass_fields__))
    for other in _kinds():
        other.option_class().parse(_taken(given, other.option_class().__dataclass_fields__))
    return Run(settings, kind.parse(own | {"options": options}))


def parse_run(*, has_server_data: bool = False, **values: Any) -> Run:
    """Build a run as `parse_config` does; a trust model that is None or missing is the algorithm's own.

    Parameters
    ----------
    has_server_data : bool
        Whether the server brings points of its own: then the default trust model lets the server keep them.
    **values
        As `parse_config` takes them.

    Raises
    ------
    ConfigurationError
        Also for an option that differs from its default and has no effect on this run.

    Examples
    --------
    >>> parse_run(n_clusters=3, bounds=((0,), (1,)), algorithm="feddp_kmeans").trust
    'distributed'
    >>> parse_run(n_clusters=3, bounds=((0,), (1,))).trust
    'oblivious'
    """
    if values.get("trust") is None:
        kind = task_kind(values.get("algorithm", DEFAULT_ALGORITHM))
        values["trust"] = kind.default_trust(has_server_data=has_server_data)
    run = parse_config(**values)
    _require_own_fields(run, values)
    _require_own_options(run, values)
    return run


def require_server_data(name: str, *, has_server_data: bool) -> None:
    """Refuse an algorithm that needs the server's own points and has none, or has some and needs none.

    Examples
    --------
    >>> require_server_data("feddp_kmeans", has_server_data=True)
    """
    draft.require_server_data(algorithm_entry(name), has_server_data=has_server_data)


def option_defaults() -> dict[str, Any]:
    """Every option by its flat name, with its default; None for those that a run must have.

    Examples
    --------
    >>> option_defaults()["alpha"], option_defaults()["n_clusters"]
    (0.8, None)
    """
    found: dict[str, Any] = {"n_clusters": None, "bounds": None, "algorithm": DEFAULT_ALGORITHM}
    found |= {one.name: None for one in fields(Settings)} | Settings.defaults()
    for kind in _kinds():
        own = {name: value for name, value in kind.defaults().items() if name != "options"}
        found |= kind.option_class().defaults() | own
    return found


def options_of(name: str) -> frozenset[str]:
    """The options that an algorithm has, of those that not all have.

    Examples
    --------
    >>> sorted(options_of("glloyd") - options_of("proxy_lloyd"))
    ['packing', 'post_processing']
    """
    kind = task_kind(name)
    of_units = _CLIENT_LEVEL if PrivacyUnit.CLIENT in kind.units else frozenset()
    return frozenset(kind.option_class().defaults()) | of_units | (frozenset() if name in NOT_FEDERATED else _FEDERATED)


def own_options(values: Mapping[str, Any], name: str, compared: Iterable[str]) -> dict[str, Any]:
    """What one of several compared algorithms gets of options that are given to all: not those that only others have.

    Examples
    --------
    >>> own_options({"alpha": 0.6, "epsilon": 2.0}, "proxy_lloyd", ("proxy_lloyd", "fastlloyd"))
    {'epsilon': 2.0}
    """
    of_others = frozenset[str]().union(*map(options_of, compared)) - options_of(name)
    return {option: value for option, value in values.items() if option not in of_others}


def _kinds() -> Iterator[type[Task]]:
    """All algorithms, federated or not."""
    yield from TASKS.values()
    yield from NOT_FEDERATED.values()


def _taken(values: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Values with these names."""
    return {name: values[name] for name in names if name in values}


def _require_own_options(run: Run, values: Mapping[str, Any]) -> None:
    """Refuse what was given and would be ignored: options of other algorithms, units, evaluations and bounds."""
    settings, name, own = run.settings, run.algorithm, options_of(run.algorithm)
    changed = {option: value for option in values if (value := _changed(run, option, values[option])) is not None}
    for option, value in changed.items():
        owners = [kind.name for kind in _kinds() if option in options_of(kind.name)]
        if owners and option not in own:
            raise ConfigurationError(
                f"{option} is {_shown(value)}, but the algorithm is {name!r}, which has no such option: leave it out, "
                f"or choose {' or '.join(map(repr, owners))}."
            )
    counted = settings.n_examples is None and run.task.counts(settings.unit) and name not in NOT_FEDERATED
    evaluated = settings.evaluation.value
    for options, effective, reason, mend in (
        (_OF_CLIENTS, settings.unit is PrivacyUnit.CLIENT, "unit is 'record'", "choose unit='client'"),
        (_OF_EVALUATIONS, evaluated != "none", "evaluation is 'none'", "choose evaluation='private'"),
        (("evaluation_share",), evaluated == "private", f"evaluation is {evaluated!r}", "choose evaluation='private'"),
        (("bounds_share",), settings.private_bounds, "bounds are not 'private'", "give bounds='private'"),
        (("count_share",), counted, "the rows are not counted", "leave the number of rows to a private count"),
    ):
        for option in options:
            if option in changed and not effective:
                raise ConfigurationError(
                    f"{option} is {_shown(changed[option])}, but {reason}, so that it has no effect: leave it out, or "
                    f"{mend}."
                )


def _require_own_fields(run: Run, values: Mapping[str, Any]) -> None:
    """Refuse what another kind of task has beside its options, such as a number of clusters."""
    own = run.task.own_fields()
    others = {name for kind in _kinds() for name in kind.own_fields()} - set(own)
    for name in others.intersection(values):
        raise ConfigurationError(
            f"{name} is {_shown(values[name])}, but the algorithm is {run.algorithm!r}, which has no such option: "
            "leave it out."
        )


def _changed(run: Run, option: str, given: Any) -> Any:
    """An option as it was understood, if it differs from its default; else None."""
    holder = next((kind.option_class() for kind in _kinds() if option in kind.option_class().defaults()), None)
    if option in Settings.__dataclass_fields__:
        value, default = getattr(run.settings, option), Settings.defaults().get(option)
    elif holder is None:
        return None
    else:
        value, default = getattr(holder.parse({option: given}), option), holder.defaults()[option]
    return None if value == default else value


def _shown(value: Any) -> str:
    """A value as a caller would write it."""
    return repr(value.value if isinstance(value, Enum) else value)
