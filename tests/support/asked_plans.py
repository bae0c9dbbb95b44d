"""Plans as a policy reads them, with any values: also those that no honest plan has."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast

from flwr_dpkmeans.node.ledger import Past
from flwr_dpkmeans.node.proposal import Proposal
from flwr_dpkmeans.privacy.calibration import gaussian_noise_multiplier
from flwr_dpkmeans.privacy.gaussian import gaussian_epsilon
from flwr_dpkmeans.privacy.gaussian_cost import GaussianCost
from flwr_dpkmeans.privacy.noise import NoiseKind
from flwr_dpkmeans.sums.plan import Plan


@dataclass(frozen=True)
class PlanValues:
    """What policies look at."""

    algorithm: str = "glloyd"
    trust: str = "central"
    unit: str = "record"
    epsilon: float = 1.0
    epsilon_worst_case: float = 1.5
    delta: float = 1e-6
    n_clients: int = 5
    min_clients: int = 3
    noise: str = "secure"
    bounds_lower: tuple[float, ...] = (0.0,)
    bounds_upper: tuple[float, ...] = (1.0,)
    n_features: int | None = None


class _Values(SimpleNamespace):
    """Some attributes of a plan, which can be looked up by its identity as well."""

    __hash__ = object.__hash__


def asked(
    plan: PlanValues, spent_total: float = 0.0, spent_delta: float = 0.0
) -> Proposal:
    """What a node asks its policy, after other runs on its data that cost so much."""
    config = SimpleNamespace(
        algorithm=plan.algorithm,
        trust=plan.trust,
        unit=SimpleNamespace(value=plan.unit),
        min_clients=plan.min_clients,
        noise=NoiseKind(plan.noise),
        evaluation=SimpleNamespace(value="none"),
        bounds=(plan.bounds_lower, plan.bounds_upper),
        feature_names=(),
    )
    public = _Values(
        config=config, settings=config, all_rounds=(), is_final=True,
        epsilon=plan.epsilon, delta=plan.delta, n_clients=plan.n_clients,
        max_silent=0, server=None, dropout=SimpleNamespace(value="retry"),
        n_features=plan.n_features,
    )  # fmt: skip
    spent = gaussian_cost(spent_total, PlanValues.delta)
    return Proposal(
        cast(Plan, public),
        plan.epsilon_worst_case,
        gaussian_cost(plan.epsilon_worst_case, plan.delta),
        Past(spent, delta=spent_delta),
    )


def room_for(n_runs: float, epsilon: float, delta: float = PlanValues.delta) -> float:
    """Total epsilon, at a delta, of so many Gaussian runs at that delta."""
    mu = math.sqrt(n_runs) * gaussian_cost(epsilon, delta).mu
    return gaussian_epsilon(mu, delta)


def gaussian_cost(epsilon: float, delta: float = PlanValues.delta) -> GaussianCost:
    """The cost of Gaussian noise of so much; what is no number stays none."""
    if not (0.0 < epsilon < math.inf and 0.0 < delta < 1.0):
        return GaussianCost(epsilon)
    return GaussianCost(1.0 / gaussian_noise_multiplier(epsilon, delta))
