"""What follows from a configuration and the cohort where nothing was declared: delta, silent clients, a counted N."""

from __future__ import annotations

import math

from flwr_dpkmeans.config import Dropout, KMeansConfig
from flwr_dpkmeans.errors import ConfigurationError, PlanError
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.secagg.roster import ALL_PAIRS_UP_TO

UNDECLARED_DELTA = 1e-6
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
