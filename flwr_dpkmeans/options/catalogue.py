"""All options by flat names: whose they are, and what they are if left out."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

from flwr_dpkmeans.algorithms import NOT_FEDERATED
from flwr_dpkmeans.options.kinds import DEFAULT_ALGORITHM
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.sums.option_rules import Options
from flwr_dpkmeans.sums.settings import Settings
from flwr_dpkmeans.sums.task import Task

_CLIENT_LEVEL = frozenset(("examples_per_client", "client_sampling_rate"))
_FEDERATED = frozenset(("max_silent", "masking"))


@dataclass(frozen=True)
class Option:
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


@lru_cache(maxsize=4)
def catalogue_of(kinds: tuple[type[Task], ...]) -> dict[str, Option]:
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
        name: Option(owners[name], defaults.get(name), holders.get(name))
        for name in owners
    }
