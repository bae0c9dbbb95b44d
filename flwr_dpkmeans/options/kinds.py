"""Algorithms by name, those included that need all rows in one place."""

from __future__ import annotations

from collections.abc import Callable, Collection

from flwr_dpkmeans.algorithms.one_place.not_federated import NOT_FEDERATED
from flwr_dpkmeans.errors import (
    ConfigurationError,
    nearest,
)
from flwr_dpkmeans.sums.task import TASKS, Task

DEFAULT_ALGORITHM = "proxy_lloyd"
"""What runs where no algorithm is stated."""
Kinds = tuple[type[Task], ...]


def kinds_of_task() -> Kinds:
    """Every registered algorithm, and those that are no federation's."""
    return (*TASKS.values(), *NOT_FEDERATED.values())


def task_kind(
    name: object, offered: Callable[[], Collection[str]] | None = None
) -> type[Task]:
    """Look an algorithm up by name, those that need all rows in one place included.

    Where the name is unknown, one of `offered` is suggested, or of all.
    """
    if not isinstance(name, str):
        raise ConfigurationError(
            f"algorithm is {name!r}, but it must be a name: give a string."
        )
    if name in NOT_FEDERATED:
        return NOT_FEDERATED[name]
    # A list of all algorithms imports them all, which a name that is there can spare.
    if offered is not None and name not in TASKS:
        raise ConfigurationError(
            f"algorithm is {name!r}, which is not known: {nearest(name, offered())}"
        )
    return TASKS.find(name, *NOT_FEDERATED)
