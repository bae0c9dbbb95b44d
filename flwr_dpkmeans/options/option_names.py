"""Which options there are, and which algorithms have them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from flwr_dpkmeans.options.catalogue import catalogue_of
from flwr_dpkmeans.options.kinds import kinds_of_task


def option_defaults() -> dict[str, Any]:
    """Every option by its flat name, with its default.

    None for those that a run must have.
    """
    return {
        name: option.default for name, option in catalogue_of(kinds_of_task()).items()
    }


def options_of(name: str) -> frozenset[str]:
    """The options that an algorithm has, of those that not all have."""
    kinds = kinds_of_task()
    options = set[str]()
    for option, entry in catalogue_of(kinds).items():
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
