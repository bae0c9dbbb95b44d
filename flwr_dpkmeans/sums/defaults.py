"""What follows from a configuration and the cohort where nothing was declared: delta, silent clients, a counted N."""

from __future__ import annotations

import math

from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.privacy.calibration import gaussian_noise_multiplier
from flwr_dpkmeans.privacy.release import NoiseShape, PrivacyUnit
from flwr_dpkmeans.secagg.roster import ALL_PAIRS_UP_TO
from flwr_dpkmeans.sums.settings import Dropout
from flwr_dpkmeans.sums.task import Run

UNDECLARED_DELTA = 1e-6
_SPARSE_MAX_SILENT = 20
_RECOVERED_PART = 8


def resolve_max_silent(config: Run, n_clients: int) -> int:
    """t: as given, else by `dropout`, as its documentation in `Run` says."""
    settings = config.settings
    if settings.max_silent is not None:
        if settings.max_silent > n_clients - 2:
            raise ConfigurationError(
                f"max_silent is {settings.max_silent}, but with {n_clients} clients at most {n_clients - 2} may be "
                "silent or collude: lower max_silent or start more clients."
            )
        return settings.max_silent
    if settings.dropout_of(n_clients) is Dropout.RECOVER:
        return max(1, n_clients // _RECOVERED_PART)
    return 0 if n_clients <= ALL_PAIRS_UP_TO else min(_SPARSE_MAX_SILENT, n_clients // 10)


def resolve_delta(config: Run, n_clients: int) -> float:
    """delta: as given, else 1/(N ln N) where N is declared, else 1e-6; at client level also at most 1/(M ln M)."""
    settings = config.settings
    if settings.delta is not None:
        return settings.delta
    if settings.unit is PrivacyUnit.CLIENT:
        return UNDECLARED_DELTA if n_clients < 3 else min(UNDECLARED_DELTA, 1.0 / (n_clients * math.log(n_clients)))
    if settings.n_examples is None:
        return UNDECLARED_DELTA
    n = settings.n_examples
    if n < 3:
        raise ConfigurationError(f"n_examples is {n}, but 1/(N ln N) needs at least 3: give delta or add data.")
    return 1.0 / (n * math.log(n))


def whole_multiplier(config: Run, delta: float) -> float:
    """Return the Gaussian noise multiplier of a release that takes the whole budget.

    A release with a share s of it gets the multiplier over sqrt(s), beside the task's own ones. Beside Laplace noise
    all that is not the task's own shares one part of epsilon, so the multiplier depends on how large that is.

    Parameters
    ----------
    config : Run
    delta : float
        Of the total guarantee.

    Returns
    -------
    float
    """
    settings = config.settings
    if config.task.noise is not NoiseShape.LAPLACE:
        return gaussian_noise_multiplier(settings.epsilon, delta)
    total = settings.reserved_share(counts=config.task.counts(settings.unit))
    # A millionth of both is kept for what the discrete noise costs.
    return gaussian_noise_multiplier(settings.epsilon * total * (1 - 1e-6), delta * (1 - 1e-6)) * math.sqrt(total)
