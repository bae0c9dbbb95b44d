"""All options by flat names: whose they are, and what they are if left out."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache

from flwr_dpkmeans.algorithms.one_place.not_federated import NOT_FEDERATED
from flwr_dpkmeans.options.clusterings import names_of
from flwr_dpkmeans.options.group import FlatValues
from flwr_dpkmeans.options.kinds import DEFAULT_ALGORITHM, Kinds, kinds_of_task
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.sums.option_rules import Options
from flwr_dpkmeans.sums.settings import Settings
from flwr_dpkmeans.sums.task import Task

_FEDERATED = frozenset(("max_silent", "masking", "max_weight"))
Names = tuple[str, ...]


@dataclass(frozen=True)
class Option:
    """What is known of an option, whichever algorithm is chosen."""

    owners: Names
    default: object
    """None: a run must have it, or finds it out."""
    holder: type[Options] | None
    """Which algorithm's options it is one of, if of any."""

    def changed(self, name: str, stated: object) -> object:
        """Read a value as its holder does; None if it is the default."""
        value = stated
        if self.holder is not None and stated is not self.default:
            options = self.holder(**{name: stated})
            value = getattr(options, name)
        if value == self.default:
            return None
        return value


Catalogue = dict[str, Option]


def catalogue() -> Catalogue:
    """All that some algorithm can be told, by flat names."""
    return _catalogue_of(kinds_of_task())


def catalogue_of_task(kind: type[Task]) -> Catalogue:
    """All that one algorithm can be told, which imports no other."""
    return _catalogue_of((kind,))


@lru_cache(maxsize=64)
def _catalogue_of(kinds: Kinds) -> Catalogue:
    """All that some of these algorithms can be told, by flat names."""
    owners = _owners_of_settings(kinds)
    defaults: FlatValues = Settings.defaults()
    defaults["algorithm"] = DEFAULT_ALGORITHM
    holders: dict[str, type[Options]] = {}
    for kind in kinds:
        options = kind.option_class()
        defaults |= kind.defaults()
        defaults |= options.defaults()
        option_names = list(names_of(kind))
        holders |= dict.fromkeys(option_names, options)
        parameter_names = kind.parameter_names()
        for name in (*parameter_names, *option_names):
            others = owners.get(name, ())
            owners[name] = (*others, kind.name)
    options_by_name = {}
    for name, kind_names in owners.items():
        options_by_name[name] = Option(
            kind_names,
            defaults.get(name),
            holders.get(name),
        )
    return options_by_name


def _owners_of_settings(kinds: Kinds) -> dict[str, Names]:
    """Which algorithms take each setting of a run."""
    every = []
    clipping = []
    sampling = []
    federated = []
    for kind in kinds:
        every.append(kind.name)
        if PrivacyUnit.CLIENT in kind.units and kind.clips_clients:
            clipping.append(kind.name)
        if PrivacyUnit.CLIENT in kind.units and kind.samples_clients:
            sampling.append(kind.name)
        if kind.name not in NOT_FEDERATED:
            federated.append(kind.name)
    owners = {"algorithm": tuple(every)}
    for setting in fields(Settings):
        owners[setting.name] = tuple(every)
    owners["examples_per_client"] = tuple(clipping)
    owners["client_sampling_rate"] = tuple(sampling)
    for name in _FEDERATED:
        owners[name] = tuple(federated)
    return owners
