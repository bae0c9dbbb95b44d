"""Which options there are, and which algorithms have them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from flwr_dpkmeans.options.catalogue import catalogue
from flwr_dpkmeans.options.flat import FlatOptions
from flwr_dpkmeans.options.kinds import kinds_of_task


def option_defaults() -> dict[str, object]:
    """Every option by its flat name, with its default.

    None for those that a run must have.
    """
    defaults = {}
    for name, option in catalogue().items():
        defaults[name] = option.default
    return defaults


def options_of(name: str) -> frozenset[str]:
    """The options that an algorithm has, of those that not all have."""
    n_kinds = len(kinds_of_task())
    options = set[str]()
    for option, entry in catalogue().items():
        is_of_all = len(entry.owners) == n_kinds
        if name in entry.owners and not is_of_all:
            options.add(option)
    return frozenset(options)


def own_options(
    values: Mapping[str, object],
    name: str,
    compared: Iterable[str],
) -> FlatOptions:
    """What one of several compared algorithms gets of options that are given to all.

    None that only others have.
    """
    of_others = set[str]()
    for other in compared:
        of_others |= options_of(other)
    of_others -= options_of(name)
    taken = [option for option in values if option not in of_others]
    return {option: values[option] for option in taken}
