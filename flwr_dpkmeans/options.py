"""What a user writes and the `RunConfig` that follows from it.

Settings that every run has, and a task with its own options.

Options that belong together are one small object (`ClientLevel`, `PrivateBounds`, an
algorithm's own), of which a string is the short form. `flwr run`, the estimator, the
strategies and Hydra all come through `read_config`, which takes flat names and plain
values.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import Field, dataclass, field, fields
from enum import Enum
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

import flwr_dpkmeans
from flwr_dpkmeans import foreign_names
from flwr_dpkmeans.algorithms import NOT_FEDERATED
from flwr_dpkmeans.algorithms.kmeans_task import DEFAULT_MAX_CLUSTERS, KMeansTask
from flwr_dpkmeans.algorithms.server_points import is_private
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.data.schema import Schema, schema_of
from flwr_dpkmeans.errors import (
    ConfigurationError,
    LocalMisuseError,
    nearest,
    nearest_name,
)
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.option_rules import Options, require_integer, rule_of, whole
from flwr_dpkmeans.sums.public_facts import CLIP_BOUNDS
from flwr_dpkmeans.sums.settings import Dropout, Settings
from flwr_dpkmeans.sums.task import TASKS, Task

SPREADS_SHARE = 0.05
"""Of the budget, for the private deviations of a schema's standard scale."""
DEFAULT_ALGORITHM = "proxy_lloyd"
AUTO = "auto"
"""What a file or a command line says where an option is left to the run."""
_INTERNAL = ("feddp_choose_k",)
"""Algorithms that only a method of an estimator runs (`FederatedKMeans.choose_k`)."""
_CLIENT_LEVEL = frozenset(("examples_per_client", "client_sampling_rate"))
_FEDERATED = frozenset(("max_silent", "masking"))
_OF_CLIENTS = ("examples_per_client", *CLIP_BOUNDS[2:])
_OF_EVALUATIONS = ("n_classes", "evaluation_radius")
_DOMAIN = (
    "a public range that the bounds lie in, if there is one; it need not be tight, and"
    " helps small tables and columns whose values lie far from zero compared with their"
    " spread"
)
_SEEDS = 2**31 - 1
"""Seeds below it are drawn from generators."""
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
_EXAMPLES = {"n_clusters": "10", "bounds": "(-1.0, 1.0), which must be public"}


@dataclass(frozen=True)
class Group(Options):
    """Options of every run that belong together and are the value of one argument."""

    argument: ClassVar[str]
    """Whose value it is."""
    short: ClassVar[str | None]
    """What may be written instead where all its options have their defaults."""

    def flat(self) -> dict[str, Any]:
        """The same by flat names."""
        values = {
            _flat_name(option): getattr(self, option.name) for option in fields(self)
        }
        if self.short is None:
            return values
        return {self.argument: self.short, **values}


def _setting(name: str) -> Any:
    """Declare an option of a group that is one of `Settings`, with its default."""
    setting = Settings.__dataclass_fields__[name]
    metadata = {**setting.metadata, "flat": name}
    return field(default=setting.default, metadata=metadata)


def parameters_of(kind: type[Options]) -> str:
    """List a class's options as a section of a docstring, each as it was declared."""
    lines = ["Parameters", "----------"]
    for option in fields(kind):
        rule = rule_of(option)
        about = option.metadata["about"] if rule is None else rule.about
        lines.append(f"{option.name} : {option.type}")
        lines.append(f"    {about}")
    return "\n".join(lines)


@dataclass(frozen=True)
class Auto(Group):
    """A number of clusters that the algorithm chooses, up to `max_clusters`.

    ``"auto"`` for short.
    """

    argument, short = "n_clusters", "auto"
    max_clusters: int = whole(
        DEFAULT_MAX_CLUSTERS,
        1,
        20,
        "largest number of clusters that is considered",
    )


@dataclass(frozen=True)
class PrivateBounds(Group):
    """Bounds found by two private histograms; ``"private"`` for short."""

    argument, short = "bounds", "private"
    share: float = _setting("bounds_share")
    domain: Any = field(
        default=None, metadata={"flat": "bounds_domain", "about": _DOMAIN}
    )


@dataclass(frozen=True)
class PrivateCount(Group):
    """A number of rows that is counted privately; ``"private"`` for short."""

    argument, short = "n_examples", "private"
    share: float = _setting("count_share")


@dataclass(frozen=True)
class ClientLevel(Group):
    """Protection of a client's whole table; ``"client"`` for short."""

    argument, short = "unit", "client"
    examples_per_client: int = _setting("examples_per_client")
    sampling_rate: float = _setting("client_sampling_rate")


@dataclass(frozen=True)
class Evaluation(Group):
    """One more round that measures the result with noise, within the same budget.

    ``"private"`` for short.
    """

    argument, short = "evaluation", "private"
    share: float = _setting("evaluation_share")
    n_classes: int = _setting("n_classes")
    radius: float | None = _setting("evaluation_radius")


@dataclass(frozen=True)
class ExactEvaluation(Group):
    """The same without noise, after which the run is not private: in simulation only.

    ``"exact"`` for short.
    """

    argument, short = "evaluation", "exact"
    n_classes: int = _setting("n_classes")
    radius: float | None = _setting("evaluation_radius")


@dataclass(frozen=True)
class Cohort(Group):
    """Who takes part, and what happens when some fall silent."""

    argument, short = "cohort", None
    min_clients: int = _setting("min_clients")
    max_silent: int | None = _setting("max_silent")
    max_retries: int = _setting("max_retries")
    max_epsilon: float | None = _setting("max_epsilon")
    dropout: Dropout | None = _setting("dropout")
    masking: bool = _setting("masking")


GROUPS: tuple[type[Group], ...] = (
    Auto,
    PrivateBounds,
    PrivateCount,
    ClientLevel,
    Evaluation,
    ExactEvaluation,
    Cohort,
)
"""Every kind of object besides algorithms' own options."""
for _kind in GROUPS:
    _kind.__doc__ = f"{_kind.__doc__}\n\n{parameters_of(_kind)}"


def flat_options(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Turn arguments, some of which may be objects, into flat names and plain values.

    Raises a ConfigurationError if an object is given for an argument that it is no
    value of, or ``max_iter`` twice.
    """
    values: dict[str, Any] = {}
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
            values[name] = value or "none"
        elif name == "bounds" and name not in values:
            values[name] = schema_of(value) or value
        elif name not in values:
            values[name] = value
    return values


def _flat_object(
    name: str,
    options: Options,
    arguments: Mapping[str, Any],
) -> dict[str, Any]:
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


Seed = int | np.random.RandomState | np.random.Generator | None
"""What scikit-learn takes for a random state."""


def seed_of(random_state: Any) -> Any:
    """Read a seed as scikit-learn takes it.

    Of a generator it is the next number, so that a second run has another.

    Examples
    --------
    >>> first, second = np.random.RandomState(0), np.random.RandomState(0)
    >>> seed_of(7), seed_of(first) == seed_of(second)
    (7, True)
    """
    if random_state is np.random:
        random_state = np.random.mtrand._rand
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(_SEEDS))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(_SEEDS))
    return random_state


def _flat_algorithm(options: Options, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The algorithm whose options these are, with them.

    ``max_iter`` may also be an argument of its own.
    """
    names = list(
        dict.fromkeys(
            kind.name for kind in _kinds() if kind.option_class() is type(options)
        )
    )
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


def object_of(argument: str, value: object) -> Options:
    """Build the object that an argument's short form stands for."""
    if isinstance(value, Options):
        return value
    if argument == "algorithm":
        return task_kind(value).option_class()()
    kinds = [kind for kind in GROUPS if kind.argument == argument]
    for kind in kinds:
        if isinstance(value, str | None) and kind.short == value:
            return kind()
    wanted = f"give one such as {kinds[0]()!r} first" if kinds else "leave them out"
    raise ConfigurationError(
        f"{argument} is {value!r}, which has no options of its own: {wanted}."
    )


def unknown_argument(
    name: str,
    value: Any,
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
    grouped = {
        option.name
        for group in groups
        for option in fields(group)
        if _flat_name(option) == option.name
    }
    of_algorithms = set[str]()
    if "algorithm" in parameters:
        of_algorithms.update(*map(_names_of, _clusterings()))
    return (grouped | of_algorithms) - set(parameters)


def _flat_name(option: Field[Any]) -> str:
    """The name of an object's option among all options of a run."""
    name: str = option.metadata.get("flat", option.name)
    return name


def _moved(
    name: str,
    value: Any,
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
        for option in fields(group):
            if _flat_name(option) == name:
                call = f"{group.__name__}({option.name}={value!r})"
                if group.argument not in parameters:
                    return (
                        f"{name} is an option of FederatedKMeans alone: leave it out"
                        " for one table"
                    )
                mend = f"give {group.argument}={call}"
                return f"{name} is no argument of its own: {mend}"
    if name in _FOLLOWING:
        return f"{name} is no argument of its own: {_FOLLOWING[name]}"
    if "algorithm" not in parameters:
        return ""
    kinds = [kind for kind in _clusterings() if name in _names_of(kind)]
    if not kinds:
        return ""
    calls = dict[str, None]()
    for kind in kinds:
        options = kind.option_class()
        class_name = options.__name__
        is_foreign = options.__module__.split(".")[0] != __package__
        # Of this package's own some are not exported.
        if is_foreign or hasattr(flwr_dpkmeans, class_name):
            calls[f"{class_name}({name}={value!r})"] = None
    mend = " or ".join(calls)
    if not calls:
        first = kinds[0].name
        mend = f"{first!r}, and then set_params(algorithm__{name}={value!r})"
    return f"{name} is an option of some algorithms: give algorithm={mend}"


def _clusterings() -> list[type[Task]]:
    """Every algorithm that an estimator runs."""
    return [kind for kind in _kinds() if issubclass(kind, KMeansTask)]


def _names_of(kind: type[Task]) -> set[str]:
    """An algorithm's own options."""
    return {option.name for option in fields(kind.option_class())}


def resolve_n_clusters(n_clusters: object, max_clusters: int) -> dict[str, Any]:
    """Turn ``"auto"`` into the fields that let the algorithm choose k."""
    if isinstance(n_clusters, str) and n_clusters == "auto":
        require_integer(
            "max_clusters",
            max_clusters,
            1,
            DEFAULT_MAX_CLUSTERS,
        )
        return {"n_clusters": max_clusters, "choose_n_clusters": True}
    if max_clusters != DEFAULT_MAX_CLUSTERS:
        raise ConfigurationError(
            f"max_clusters is {max_clusters!r}, but n_clusters is {n_clusters!r} and"
            " not 'auto', so that it has no effect: leave one of the two out."
        )
    if isinstance(n_clusters, str | float):
        number = float(n_clusters) if _is_number(n_clusters) else 10.0
        mend = f"give {number:g}" if number.is_integer() else "give 10"
        raise ConfigurationError(
            f"n_clusters is {n_clusters!r}, but it must be an integer or 'auto':"
            f" {mend}."
        )
    return {"n_clusters": n_clusters}


def _is_number(value: str | float) -> bool:
    return not isinstance(value, str) or value.isdecimal()


def clustering_names() -> set[str]:
    """Names of the algorithms that an estimator runs."""
    return {kind.name for kind in _clusterings()} | {*NOT_FEDERATED}


def task_kind(name: object, offered: Collection[str] | None = None) -> type[Task]:
    """Look an algorithm up by name, those that need all rows in one place included.

    Where the name is unknown, one of `offered` is suggested, or of all.
    """
    if not isinstance(name, str):
        raise ConfigurationError(
            f"algorithm is {name!r}, but it must be a name: give a string."
        )
    if offered is not None and name not in (*TASKS, *NOT_FEDERATED):
        raise ConfigurationError(
            f"algorithm is {name!r}, which is not known: {nearest(name, offered)}"
        )
    if name in NOT_FEDERATED:
        return NOT_FEDERATED[name]
    return TASKS.find(name, *NOT_FEDERATED)


def parse_config(**values: Any) -> RunConfig:
    """Build a run from plain values, by the flat names of its options.

    Choices are strings, and a float may be any real number. Options that only other
    algorithms have are checked, and have no effect. Raises a ConfigurationError with
    one sentence that names the value, the bound and the mend; for an unknown name, the
    nearest valid one.
    """
    catalogue = _catalogue(_kinds())
    kind = task_kind(values.get("algorithm", DEFAULT_ALGORITHM))
    for name in values:
        if name not in catalogue:
            taken = _spelt_names(kind if "algorithm" in values else None)
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
    options = _chosen(values, _names_of(kind))
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
    _require_own(run, values)
    return run


def schema_settings(bounds: Any) -> dict[str, Any]:
    """What a schema that stands where bounds may says of a run besides."""
    if not isinstance(bounds, Schema):
        return {}
    settings: dict[str, Any] = {
        "schema_digest": bounds.digest,
        "standard_columns": bounds.standard_columns,
        "profile_widths": bounds.profile_widths,
        "profile_share": bounds.describing_share,
    }
    if bounds.gappy:
        settings["gap_columns"] = bounds.gap_columns
    if bounds.standard_columns:
        settings["private_bounds"] = True
        settings["bounds_share"] = SPREADS_SHARE
    return settings


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


@dataclass(frozen=True)
class _Option:
    """What is known of an option, whichever algorithm is chosen."""

    owners: tuple[str, ...]
    default: Any
    """None: a run must have it, or finds it out."""
    holder: type[Options] | None

    def changed(
        self,
        name: str,
        stated: Any,
    ) -> Any:
        """Read a value as its holder does; None if it is the default."""
        value = stated
        if self.holder is not None and stated is not self.default:
            value = getattr(self.holder(**{name: stated}), name)
        return None if value == self.default else value


def _kinds() -> tuple[type[Task], ...]:
    return (*TASKS.values(), *NOT_FEDERATED.values())


@lru_cache(maxsize=4)
def _catalogue(kinds: tuple[type[Task], ...]) -> dict[str, _Option]:
    """All that some of these algorithms can be told, by flat names."""
    names_of_kinds = tuple(kind.name for kind in kinds)
    with_clients = tuple(
        kind.name for kind in kinds if PrivacyUnit.CLIENT in kind.units
    )
    federated = tuple(name for name in names_of_kinds if name not in NOT_FEDERATED)
    setting_names = [setting.name for setting in fields(Settings)]
    owners = dict.fromkeys(("algorithm", *setting_names), names_of_kinds)
    owners |= dict.fromkeys(_CLIENT_LEVEL, with_clients)
    owners |= dict.fromkeys(_FEDERATED, federated)
    defaults = {"algorithm": DEFAULT_ALGORITHM} | Settings.defaults()
    holders: dict[str, type[Options]] = {}
    for kind in kinds:
        options = kind.option_class()
        option_names = [option.name for option in fields(options)]
        for name in (*kind.parameter_names(), *option_names):
            owners[name] = (*owners.get(name, ()), kind.name)
        defaults |= kind.defaults() | options.defaults()
        holders |= dict.fromkeys(option_names, options)
    return {
        name: _Option(owners[name], defaults.get(name), holders.get(name))
        for name in owners
    }


def _spelt_names(kind: type[Task] | None) -> set[str]:
    """Options that people write by these names, and that an algorithm takes.

    Where none was chosen, some algorithm. Neither what follows from others, nor flat
    names of objects' parts.
    """
    parts = {
        _flat_name(option)
        for group in GROUPS
        for option in fields(group)
        if _flat_name(option) != option.name
    }
    stated = {option.name for option in fields(Settings) if rule_of(option) is not None}
    named = {"bounds", *stated}
    if kind is None:
        named.add("algorithm")
    for algorithm in _clusterings() if kind is None else [kind]:
        named |= _names_of(algorithm)
        if "n_clusters" in algorithm.parameter_names():
            named.add("n_clusters")
    return named - parts - _FOLLOWING.keys() | {"n_clients", "allow_unnamed"}


@contextmanager
def objects_options() -> Iterator[None]:
    """Name options as an estimator takes them in what is refused within the block.

    There they are parts of objects, such as the share of PrivateBounds; elsewhere they
    have names of their own, as ``bounds_share``.
    """
    try:
        yield
    except LocalMisuseError as error:
        error.args = (in_objects(str(error)), *error.args[1:])
        raise


def in_objects(sentence: str) -> str:
    """A sentence in which parts of objects have the names that they have there.

    Examples
    --------
    >>> in_objects("bounds_share is 2, but it must be smaller")
    'share of PrivateBounds is 2, but it must be smaller'
    >>> in_objects("choose client_sampling_rate=1.0.")
    'choose ClientLevel(sampling_rate=1.0).'
    """
    for group in reversed(GROUPS):
        for option in fields(group):
            flat = _flat_name(option)
            if flat != option.name:
                words = f"{option.name} of {group.__name__}"
                call = rf"{group.__name__}({option.name}=\1)"
                sentence = re.sub(rf"\b{flat}=(\w+(?:\.\w+)*)", call, sentence)
                sentence = re.sub(rf"\b{flat}\b", words, sentence)
    return sentence


def option_defaults() -> dict[str, Any]:
    """Every option by its flat name, with its default.

    None for those that a run must have.
    """
    return {name: option.default for name, option in _catalogue(_kinds()).items()}


def options_of(name: str) -> frozenset[str]:
    """The options that an algorithm has, of those that not all have."""
    kinds = _kinds()
    options = set[str]()
    for option, entry in _catalogue(kinds).items():
        if name in entry.owners and len(entry.owners) < len(kinds):
            options.add(option)
    return frozenset(options)


def own_options(
    values: Mapping[str, Any],
    name: str,
    compared: Iterable[str],
) -> dict[str, Any]:
    """What one of several compared algorithms gets of options that are given to all.

    None that only others have.
    """
    of_others = frozenset[str]().union(*map(options_of, compared)) - options_of(name)
    return {
        option: value for option, value in values.items() if option not in of_others
    }


def _require_own(config: RunConfig, values: Mapping[str, Any]) -> None:
    """Refuse what was given and would be ignored.

    Options of other algorithms, units, evaluations and bounds.
    """
    settings = config.settings
    task = config.task
    catalogue = _catalogue(_kinds())
    changed: dict[str, Any] = {}
    for option, stated in values.items():
        if option in Settings.__dataclass_fields__:
            stated = getattr(settings, option)
        value = catalogue[option].changed(option, stated)
        if value is None:
            continue
        if task.name not in catalogue[option].owners:
            raise foreign_option(option, value, task.name)
        changed[option] = value
    counted = (
        settings.n_examples is None
        and task.counts(settings.unit)
        and task.name not in NOT_FEDERATED
    )
    evaluated = settings.evaluation.value
    for options, effective, reason, mend in (
        (
            _OF_CLIENTS,
            settings.unit is PrivacyUnit.CLIENT,
            "unit is 'record'",
            "choose unit='client'",
        ),
        (
            _OF_EVALUATIONS,
            evaluated != "none",
            "evaluation is 'none'",
            "choose evaluation='private'",
        ),
        (
            ("evaluation_share",),
            evaluated == "private",
            f"evaluation is {evaluated!r}",
            "choose evaluation='private'",
        ),
        (
            ("bounds_share",),
            settings.private_bounds,
            "bounds are not 'private'",
            "give bounds='private'",
        ),
        (
            ("count_share",),
            counted,
            "the rows are not counted",
            "leave the number of rows to a private count",
        ),
    ):
        for option in options:
            if option in changed and not effective:
                raise ConfigurationError(
                    f"{option} is {_shown(changed[option])}, but {reason}, so that it"
                    f" has no effect: leave it out, or {mend}."
                )


def foreign_option(
    option: str,
    value: Any,
    name: str,
) -> ConfigurationError:
    """Say that an algorithm has no such option, and which ones have."""
    kinds = [
        task_kind(owner)
        for owner in _catalogue(_kinds())[option].owners
        if owner not in _INTERNAL
    ]
    owners = [repr(kind.name) for kind in kinds if not kind.door]
    doors = sorted({kind.door for kind in kinds if kind.door})
    mend = f"choose {' or '.join(owners)}" if owners else f"use {' or '.join(doors)}"
    return ConfigurationError(
        f"{option} is {_shown(value)}, but the algorithm is {name!r}, which has no such"
        f" option: leave it out, or {mend}."
    )


def foreign_table(
    key: str,
    option: str,
    stated: Any,
    owner: type[Task],
    name: str,
) -> None:
    """Refuse an option of an algorithm's own table if another algorithm was chosen.

    The default is not refused.
    """
    options = owner.option_class()
    value = getattr(options(**{option: stated}), option)
    if value != getattr(options, option):
        raise ConfigurationError(
            f"{key} is {_shown(value)}, but the algorithm is {name!r}: leave it out, or"
            f" choose algorithm={owner.name!r}."
        )


def _shown(value: Any) -> str:
    return repr(value.value if isinstance(value, Enum) else value)
