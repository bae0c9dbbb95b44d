"""What is refused because it would have no effect on a run."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from flwr_dpkmeans.algorithms.one_place.not_federated import NOT_FEDERATED
from flwr_dpkmeans.errors import (
    ConfigurationError,
)
from flwr_dpkmeans.options.catalogue import catalogue, catalogue_of_task
from flwr_dpkmeans.options.kinds import task_kind
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.public_facts import CLIP_BOUNDS
from flwr_dpkmeans.sums.settings import Settings
from flwr_dpkmeans.sums.task import Task

_INTERNAL = ("feddp_choose_k",)
"""Algorithms that only a method of an estimator runs (`FederatedKMeans.choose_k`)."""
_OF_CLIENTS = ("examples_per_client", *CLIP_BOUNDS[2:])

_OF_EVALUATIONS = ("n_classes", "evaluation_radius")


def require_effect(config: RunConfig, values: Mapping[str, object]) -> None:
    """Refuse what was given and would be ignored.

    Options of other algorithms, units, evaluations and bounds.
    """
    settings = config.settings
    task = config.task
    offered = catalogue_of_task(type(task))
    changed: dict[str, object] = {}
    for option, stated in values.items():
        if option in Settings.__dataclass_fields__:
            stated = getattr(settings, option)
        entry = offered.get(option) or catalogue()[option]
        value = entry.changed(option, stated)
        if value is None:
            continue
        if task.name not in entry.owners:
            raise foreign_option(option, value, task.name)
        changed[option] = value
    counted = (
        settings.n_examples is None
        and task.counts(settings.unit)
        and task.name not in NOT_FEDERATED
    )
    evaluated = settings.evaluation.value
    conditions = (
        (
            _OF_CLIENTS,
            settings.unit is PrivacyUnit.CLIENT,
            f"unit is {settings.unit.value!r}",
            "choose unit='client'",
        ),
        (
            ("rows_per_person",),
            settings.unit is PrivacyUnit.PERSON,
            f"unit is {settings.unit.value!r}",
            "choose unit='person'",
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
    )
    for options, is_effective, reason, mend in conditions:
        for option in options:
            if option in changed and not is_effective:
                raise ConfigurationError(
                    f"{option} is {_shown(changed[option])}, but {reason}, so that it"
                    f" has no effect: leave it out, or {mend}."
                )


def foreign_option(
    option: str,
    value: object,
    name: str,
) -> ConfigurationError:
    """Say that an algorithm has no such option, and which ones have."""
    kinds = [
        task_kind(owner)
        for owner in catalogue()[option].owners
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
    stated: object,
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


def _shown(value: object) -> str:
    return repr(value.value if isinstance(value, Enum) else value)
