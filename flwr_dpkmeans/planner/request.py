"""What is asked of the planner.

The public shape of a federation, and the configuration that it considers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from types import MappingProxyType
from typing import Any

from flwr_dpkmeans.algorithms.kmeans_task import DEFAULT_MAX_CLUSTERS
from flwr_dpkmeans.algorithms.lookup import clusterings
from flwr_dpkmeans.algorithms.one_place.not_federated import algorithm_entry
from flwr_dpkmeans.algorithms.server.resolved_bounds import is_private, resolve_bounds
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.data.schema_source import schema_of
from flwr_dpkmeans.errors import ConfigurationError, member
from flwr_dpkmeans.options import (
    FlatOptions,
    own_options,
    read_config,
    resolve_n_clusters,
    schema_settings,
)
from flwr_dpkmeans.privacy.release import NoiseShape, PrivacyUnit
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.option_rules import Options, flag, real, require_integer, whole
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.public_facts import ServerData
from flwr_dpkmeans.sums.task import Task

_SCALED_BOX = ((-1.0,), (1.0,))


@dataclass(frozen=True)
class PlanningRequest(Options):
    """The public shape of a federation and the options of its run.

    A value out of range is a ConfigurationError.

    Examples
    --------
    >>> options = {"n_clusters": 10, "bounds": (-1, 1), "epsilon": 1.0}
    >>> request = PlanningRequest(10_000, 8, 5, options)
    >>> request.config("glloyd").n_examples, request.n_clusters
    (10000, 10)
    >>> request.units_per_cluster()
    1000.0
    """

    n_examples: int = whole(
        MISSING,
        3,
        10_000,
        "rows of all clients together; a guess is enough",
    )
    n_features: int = whole(
        MISSING,
        0,
        8,
        "columns; 0: as many as a schema, or bounds by column, have",
    )
    n_clients: int = whole(
        MISSING,
        2,
        5,
        "clients",
    )
    # Those before have no defaults either.
    options: Mapping[str, Any] = field(hash=False)  # type: ignore[misc]
    """Options of a run by flat names, `n_clusters` at least.

    Each candidate gets what it has, and one must have each. ``bounds`` may be a schema,
    or ``"private"``, with a ``bounds_domain``; without, the plan is for the scaled box.
    """
    target_excess: float = real(
        0.1,
        0.0,
        math.inf,
        "0.1",
        "fraction by which the cost may exceed the optimum",
    )
    spread: float = real(
        *(0.15, 0.0, math.nextafter(1.0, 2.0), "0.15"),
        "assumed deviation of a cluster's rows in each coordinate, over half the range"
        " between the bounds; at most 1",
    )
    seeds: int = whole(
        20,
        2,
        20,
        "synthetic data sets for each point of a curve",
        most=1_000,
    )
    private_count: bool = flag(
        False,
        "N is a guess that the run counts privately, with its share of the budget",
    )
    algorithms: tuple[str, ...] = ()
    """Candidates; empty: every private one that fits the unit and starts without server
    data.
    """
    max_weight: float | None = real(
        None,
        0.0,
        math.inf,
        "20.0",
        "public maximum of rows' weights: N is then what all weigh, over it",
    )
    schema: Schema | None = field(default=None, init=False)
    """What stood in place of bounds."""
    feature_names: tuple[str, ...] = field(default=(), init=False)
    """Where a schema, or bounds by name, have them."""
    n_clusters: int = field(init=False)
    epsilon: float = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        options = {
            name: value for name, value in self.options.items() if value is not None
        }
        domain = options.pop("bounds_domain", None)
        if is_private(options.get("bounds")):
            options["private_bounds"] = True
        if "bounds" in options or domain is not None:
            bounds, names, _ = resolve_bounds(options.get("bounds"), None, domain)
            object.__setattr__(self, "schema", schema_of(options.get("bounds")))
            object.__setattr__(self, "feature_names", names)
            options |= schema_settings(self.schema)
            options["bounds"] = (bounds.lower, bounds.upper)
            if self.n_features == 0 and (names or len(bounds.lower) > 1):
                object.__setattr__(self, "n_features", len(bounds.lower))
            if names and len(names) != self.n_features:
                raise ConfigurationError(
                    f"n_features is {self.n_features}, but the bounds name {len(names)}"
                    " columns: leave n_features out, or give bounds without names."
                )
        require_integer(
            "n_features",
            self.n_features,
            1,
            8,
        )
        for name in self.algorithms:
            require_forecastable(name)
        object.__setattr__(self, "options", MappingProxyType(options))
        # Every option is checked here, by the same sentences as a run's.
        first, *_ = [self.config(name) for name in self.candidates()]
        object.__setattr__(self, "n_clusters", first.n_clusters)
        object.__setattr__(self, "epsilon", first.settings.epsilon)

    @classmethod
    def of_run(
        cls,
        run_options: Mapping[str, object],
        server_data: object,
        shape: tuple[int, int, int],
        goals: tuple[float, float, int],
        private_count: bool | None,
        algorithms: str | Sequence[str],
    ) -> PlanningRequest:
        """What `FederatedKMeans.plan` asks.

        Of the options of its runs, the algorithm's name decides nothing.
        """
        options: FlatOptions = {
            name: value
            for name, value in run_options.items()
            if name not in ("algorithm", "masking")
        }
        options |= resolve_n_clusters(
            options.pop("n_clusters"), options.pop("max_clusters", DEFAULT_MAX_CLUSTERS)
        )
        if options["bounds"] is None and server_data is not None:
            # Server data that no candidate uses would still decide on the bounds.
            options["bounds"], _, _ = resolve_bounds(None, server_data)
        declared = options.pop("n_examples")
        # Synthetic rows have none: N stands for what all weigh.
        max_weight = options.pop("max_weight")
        if max_weight is not None:
            private_count = True
        if private_count is None:
            private_count = is_private(declared) or (
                is_private(options["bounds"]) and declared is None
            )
        candidates = (algorithms,) if isinstance(algorithms, str) else tuple(algorithms)
        return cls(
            *shape,
            options,
            *goals,
            private_count,
            candidates,
            max_weight,
        )

    @property
    def unit(self) -> PrivacyUnit:
        """Unit of privacy."""
        return member("unit", self.options.get("unit", "record"), PrivacyUnit)

    def units_per_cluster(self, n_clusters: int | None = None) -> float:
        """Rows of an average cluster; at client level, clients with rows in one."""
        k = n_clusters or self.n_clusters
        if self.unit.by_row:
            return self.n_examples / k
        rows = self.n_examples / self.n_clients
        return self.n_clients * (1.0 - math.pow(1.0 - 1.0 / k, rows))

    def candidates(self) -> tuple[str, ...]:
        """Algorithms to compare.

        From the registry, private, without server data, for this unit.
        """
        if self.algorithms:
            return self.algorithms
        is_sampled = self.options.get("client_sampling_rate", 1.0) != 1.0
        return tuple(
            name
            for name, entry in clusterings().items()
            if _fits(entry, self.unit) and (entry.samples_clients or not is_sampled)
        )

    def config(self, algorithm: str, **changes: Any) -> RunConfig:
        """The validated configuration of one candidate."""
        # Synthetic data are drawn in the box that bounds are scaled to, so nothing but
        # units depends on them.
        declared = self.unit.by_row and not self.private_count
        values = {"bounds": _SCALED_BOX, **self.options, "algorithm": algorithm}
        values |= {"n_features": self.n_features, "n_clients": self.n_clients}
        values |= {"n_examples": self.n_examples if declared else None}
        values = own_options(values, algorithm, {algorithm, *self.candidates()})
        if self.unit is PrivacyUnit.CLIENT and algorithm_entry(algorithm).clips_clients:
            values.setdefault(
                "examples_per_client", max(1, self.n_examples // self.n_clients)
            )
        return read_config(**(values | changes))

    def draft(self, algorithm: str, *, seed: int = 0, **changes: Any) -> Plan:
        """Draft one candidate's final plan.

        With some fields of the configuration changed; nothing is sent or read.
        """
        counted = self.n_examples if self.unit.by_row else None
        config = self.config(algorithm, **changes)
        # Whatever box private histograms will find, noise in the scaled box is the
        # same: the widest one stands for it.
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

    def to_dict(self) -> dict[str, object]:
        """Plain values with stable keys."""
        shape = {
            name: getattr(self, name)
            for name in ("n_examples", "n_features", "n_clusters", "n_clients")
        }
        requested = {
            "epsilon": self.epsilon,
            "unit": self.unit.value,
            "trust": self.options.get("trust"),
            "bounds": (
                [list(map(float, side)) for side in self.options["bounds"]]
                if "bounds" in self.options
                else None
            ),
        }
        assumed = {
            name: getattr(self, name)
            for name in ("target_excess", "spread", "seeds", "private_count")
        }
        return {
            **shape,
            **requested,
            **assumed,
            "private_bounds": bool(self.options.get("private_bounds")),
            "feature_names": list(self.feature_names),
        }


def require_forecastable(name: str) -> None:
    """Refuse algorithms that nothing can be forecast of without private or server data.

    With a sentence.
    """
    entry = algorithm_entry(name)
    if entry.noise is NoiseShape.NONE:
        raise ConfigurationError(
            f"algorithm is {name!r}, which is not private, so there is no budget to"
            " plan: choose 'proxy_lloyd'."
        )
    if entry.server_data is ServerData.NEEDED:
        raise ConfigurationError(
            f"algorithm is {name!r}, whose accuracy depends on the server's own points,"
            " which the planner does not have: choose 'proxy_lloyd'."
        )


def _fits(entry: type[Task], unit: PrivacyUnit) -> bool:
    """Whether an algorithm is a candidate.

    One that takes only bounds from server data competes at client level.
    """
    refused = {ServerData.NEEDED}
    if unit.by_row:
        refused.add(ServerData.BOUNDS)
    return (
        entry.noise is not NoiseShape.NONE
        and entry.protects(unit)
        and entry.server_data not in refused
    )
