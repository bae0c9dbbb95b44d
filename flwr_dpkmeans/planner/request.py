"""What is asked of the planner: the public shape of a federation, and the configuration that it considers."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

from flwr_dpkmeans.algorithms import algorithm_entry, clusterings
from flwr_dpkmeans.algorithms.server_points import is_private, resolve_bounds
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.data.schema import Schema, schema_of
from flwr_dpkmeans.errors import ConfigurationError, member
from flwr_dpkmeans.options import own_options, parse_run, schema_settings
from flwr_dpkmeans.privacy.release import NoiseShape, PrivacyUnit
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.settings import require_integer
from flwr_dpkmeans.sums.task import Run, ServerData, Task

DEFAULT_TARGET_EXCESS = 0.1
DEFAULT_SPREAD = 0.15
DEFAULT_SEEDS = 20
_MOST_SEEDS = 1_000
_SCALED_BOX = ((-1.0,), (1.0,))


@dataclass(frozen=True)
class PlanningRequest:
    """The public shape of a federation and the options of its run; a value out of range is a ConfigurationError.

    Examples
    --------
    >>> request = PlanningRequest(10_000, 8, 5, {"n_clusters": 10, "bounds": (-1, 1), "epsilon": 1.0})
    >>> request.config("glloyd").n_examples, request.n_clusters, request.units_per_cluster()
    (10000, 10, 1000.0)
    """

    n_examples: int
    """A guess is enough for this and the next two: nothing is read from data."""
    n_features: int
    """0: as many as a schema, or bounds by column, have."""
    n_clients: int
    options: Mapping[str, Any] = field(hash=False)
    """Options of a run by flat names, `n_clusters` at least: each candidate gets what it has, and one must have each.
    ``bounds`` may be a schema, or ``"private"``, with a ``bounds_domain``; without, the plan is for the scaled box."""
    target_excess: float = DEFAULT_TARGET_EXCESS
    """Fraction by which the cost may exceed the optimum."""
    spread: float = DEFAULT_SPREAD
    """Standard deviation of a cluster's rows in each coordinate, as a fraction of half the range between the bounds:
    what the planner assumes of the data."""
    seeds: int = DEFAULT_SEEDS
    """Synthetic data sets for each point of a curve."""
    private_count: bool = False
    """Whether N is a guess that the run counts privately, with `count_share` of the budget; else it is declared."""
    algorithms: tuple[str, ...] = ()
    """Candidates; empty: every private one that fits the unit and starts without server data."""
    schema: Schema | None = field(default=None, init=False)
    """What stood in place of bounds."""
    feature_names: tuple[str, ...] = field(default=(), init=False)
    """Where a schema, or bounds by name, have them."""

    def __post_init__(self) -> None:
        given = {name: value for name, value in self.options.items() if value is not None}
        domain = given.pop("bounds_domain", None)
        if is_private(given.get("bounds")):
            given["private_bounds"] = True
        if "bounds" in given or domain is not None:
            bounds, names, _ = resolve_bounds(given.get("bounds"), None, domain)
            object.__setattr__(self, "schema", schema_of(given.get("bounds")))
            object.__setattr__(self, "feature_names", names)
            given |= schema_settings(self.schema)
            given["bounds"] = (bounds.lower, bounds.upper)
            if self.n_features == 0 and (names or len(bounds.lower) > 1):
                object.__setattr__(self, "n_features", len(bounds.lower))
        for name, *limits in (
            ("n_examples", 3, 10_000),
            ("n_features", 1, 8),
            ("n_clients", 2, 5),
            ("seeds", 2, DEFAULT_SEEDS, _MOST_SEEDS),
        ):
            object.__setattr__(self, name, require_integer(name, getattr(self, name), *limits))
        _require_between("target_excess", self.target_excess, math.inf, DEFAULT_TARGET_EXCESS)
        _require_between("spread", self.spread, 1.0, DEFAULT_SPREAD)
        for name in self.algorithms:
            require_forecastable(name)
        object.__setattr__(self, "options", MappingProxyType(given))
        # Every option is checked here, by the same sentences as a run's.
        for name in self.candidates():
            self.config(name)

    @cached_property
    def _first(self) -> Run:
        """What all candidates have is read from the first."""
        return self.config(self.candidates()[0])

    @property
    def n_clusters(self) -> int:
        """k."""
        return int(self._first.n_clusters)

    @property
    def epsilon(self) -> float:
        """The budget asked about."""
        return self._first.settings.epsilon

    @property
    def unit(self) -> PrivacyUnit:
        """Unit of privacy."""
        return member("unit", self.options.get("unit", "record"), PrivacyUnit)

    def units_per_cluster(self, n_clusters: int | None = None) -> float:
        """Rows of an average cluster; at client level, clients with rows in one."""
        k = n_clusters or self.n_clusters
        if self.unit is PrivacyUnit.RECORD:
            return self.n_examples / k
        rows = self.n_examples / self.n_clients
        return self.n_clients * (1.0 - math.pow(1.0 - 1.0 / k, rows))

    def candidates(self) -> tuple[str, ...]:
        """Algorithms to compare: from the registry, private, without server data, for this unit."""
        if self.algorithms:
            return self.algorithms
        return tuple(name for name, entry in clusterings().items() if _fits(entry, self.unit))

    def config(self, algorithm: str, **changes: Any) -> Run:
        """The validated configuration of one candidate."""
        # Synthetic data are drawn in the box that bounds are scaled to, so nothing but units depends on them.
        declared = self.unit is PrivacyUnit.RECORD and not self.private_count
        values = {"bounds": _SCALED_BOX, **self.options, "algorithm": algorithm}
        values |= {"n_features": self.n_features, "n_clients": self.n_clients}
        values |= {"n_examples": self.n_examples if declared else None}
        values = own_options(values, algorithm, {algorithm, *self.candidates()})
        if self.unit is PrivacyUnit.CLIENT:
            values.setdefault("examples_per_client", max(1, self.n_examples // self.n_clients))
        return parse_run(**(values | changes))

    def draft(self, algorithm: str, *, seed: int = 0, **changes: Any) -> Plan:
        """Draft one candidate's final plan, with some fields of the configuration changed; nothing is sent or read."""
        counted = self.n_examples if self.unit is PrivacyUnit.RECORD else None
        config = self.config(algorithm, **changes)
        # Whatever box private histograms will find, noise in the scaled box is the same: the widest one stands for it.
        widest = Bounds(*config.bounds).for_features(self.n_features)
        return draft_plan(
            config,
            run_id=1,
            n_clients=self.n_clients,
            seed=seed,
            n_features=self.n_features,
            n_examples=counted,
            box=(widest.lower, widest.upper) if config.private_bounds else None,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values with stable keys."""
        settings = self._first.settings
        shape = {name: getattr(self, name) for name in ("n_examples", "n_features", "n_clusters", "n_clients")}
        asked = {
            "epsilon": self.epsilon,
            "unit": self.unit.value,
            "trust": self.options.get("trust"),
            "bounds": [list(side) for side in settings.bounds] if "bounds" in self.options else None,
        }
        assumed = {name: getattr(self, name) for name in ("target_excess", "spread", "seeds", "private_count")}
        names = list(self.feature_names)
        return {**shape, **asked, **assumed, "private_bounds": settings.private_bounds, "feature_names": names}


def require_forecastable(name: str) -> None:
    """Refuse algorithms that nothing can be forecast of without private or server data, with a sentence."""
    entry = algorithm_entry(name)
    if entry.noise is NoiseShape.NONE:
        raise ConfigurationError(
            f"algorithm is {name!r}, which is not private, so there is no budget to plan: choose 'proxy_lloyd'."
        )
    if entry.server_data is ServerData.NEEDED:
        raise ConfigurationError(
            f"algorithm is {name!r}, whose accuracy depends on the server's own points, which the planner does not "
            "have: choose 'proxy_lloyd'."
        )


def _fits(entry: type[Task], unit: PrivacyUnit) -> bool:
    """Whether an algorithm is a candidate; one that takes only bounds from server data competes at client level."""
    refused = {ServerData.NEEDED} if unit is PrivacyUnit.CLIENT else {ServerData.NEEDED, ServerData.BOUNDS}
    return entry.noise is not NoiseShape.NONE and unit in entry.units and entry.server_data not in refused


def _require_between(name: str, value: object, most: float, example: float) -> None:
    """Refuse what is not a number above 0 and at most `most`."""
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not number or not 0.0 < float(value) <= most or math.isinf(float(value)):  # type: ignore[arg-type]
        allowed = "above 0" if math.isinf(most) else f"above 0 and at most {most:g}"
        raise ConfigurationError(f"{name} is {value!r}, but it must be a number {allowed}: give {example:g}.")
