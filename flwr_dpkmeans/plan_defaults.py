"""What follows from a configuration and the cohort where nothing was declared: delta, silent clients, a counted N."""

from __future__ import annotations

import math

from flwr_dpkmeans.config import Dropout, Evaluation, KMeansConfig
from flwr_dpkmeans.errors import ConfigurationError, PlanError
from flwr_dpkmeans.plan import Plan, price
from flwr_dpkmeans.privacy.sensitivity import PrivacyUnit
from flwr_dpkmeans.secagg.roster import ALL_PAIRS_UP_TO

UNDECLARED_DELTA = 1e-6
COUNT_DEVIATIONS = 6.0
"""Deviations of the count's noise that a table may be larger than its count says, in the choice of delta."""
_SPENT_BEFORE = 0.7
"""Most of epsilon, less a private evaluation's share, that what comes before round 1 may cost at the final delta."""
_SPARSE_MAX_SILENT = 20
_RECOVERED_PART = 8


def resolve_max_silent(config: KMeansConfig, n_clients: int) -> int:
    """t: as given, else by `dropout`, as its documentation in `KMeansConfig` says."""
    if config.max_silent is not None:
        if config.max_silent > n_clients - 2:
            raise ConfigurationError(
                f"max_silent is {config.max_silent}, but with {n_clients} clients at most {n_clients - 2} may be "
                "silent or collude: lower max_silent or start more clients."
            )
        return config.max_silent
    if config.dropout_of(n_clients) is Dropout.RECOVER:
        return max(1, n_clients // _RECOVERED_PART)
    return 0 if n_clients <= ALL_PAIRS_UP_TO else min(_SPARSE_MAX_SILENT, n_clients // 10)


def resolve_delta(config: KMeansConfig, n_clients: int) -> float:
    """delta: as given, else 1/(N ln N) where N is declared, else 1e-6; at client level also at most 1/(M ln M)."""
    if config.delta is not None:
        return config.delta
    if config.unit is PrivacyUnit.CLIENT:
        return UNDECLARED_DELTA if n_clients < 3 else min(UNDECLARED_DELTA, 1.0 / (n_clients * math.log(n_clients)))
    if config.n_examples is None:
        return UNDECLARED_DELTA
    n = config.n_examples
    if n < 3:
        raise ConfigurationError(f"n_examples is {n}, but 1/(N ln N) needs at least 3: give delta or add data.")
    return 1.0 / (n * math.log(n))


def counted_delta(plan: Plan) -> float:
    """delta once N is counted: the first of the start's delta, a quarter of it, a sixteenth, ... that suits the table.

    Suits: at most 1/(n ln n), or below 1/n where delta was given, n being the count and six deviations of its noise.
    The plan before it has the largest of them, so that a policy's limit holds for all [C14].

    Parameters
    ----------
    plan : Plan
        With its preliminary rounds, whose noise is that of the first delta; no step is taken that would leave the
        algorithm next to nothing of epsilon beside them.

    Returns
    -------
    float
    """
    config, start = plan.config, resolve_delta(plan.config, plan.n_clients)
    counting = plan.count
    if counting is None or plan.n_examples is None or config.unit is not PrivacyUnit.RECORD:
        return start
    std = max(plan.released_std(counting, block) for block in counting.blocks if block.name == "count")
    n = plan.n_examples + COUNT_DEVIATIONS * std
    most = 1.0 / (n * math.log(n)) if config.delta is None else math.nextafter(1.0 / n, 0.0)
    evaluated = config.evaluation_share if config.evaluation is Evaluation.PRIVATE else 0.0
    spendable = _SPENT_BEFORE * (1.0 - evaluated) * config.epsilon
    events, delta = plan.events(range(plan.first_round, 1)), start
    while delta > most and price(events, 0.25 * delta) <= spendable:
        delta *= 0.25
    return delta


def counted_examples(released_count: float, config: KMeansConfig) -> int:
    """Turn the released private count into the N of the plan: rounded, at least 1.

    Raises
    ------
    PlanError
        If there are fewer rows than clusters.
    """
    n = max(1, round(released_count))
    if n < config.n_clusters:
        raise PlanError(
            f"the private count found about {n} rows, but {config.n_clusters} clusters need at least as many: choose "
            "fewer clusters or add data."
        )
    return n
