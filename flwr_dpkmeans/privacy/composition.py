"""The total epsilon and the total delta of a list of releases; see `flwr_dpkmeans.privacy.accounting` for the rules."""

from __future__ import annotations

import math
from collections.abc import Sequence

from flwr_dpkmeans.errors import LocalMisuseError, require_delta, require_real
from flwr_dpkmeans.privacy.events import Event
from flwr_dpkmeans.privacy.mixture import mixture_delta, mixture_epsilon
from flwr_dpkmeans.privacy.pld import numerical_delta, numerical_epsilon
from flwr_dpkmeans.privacy.totals import (
    Totals,
    add_up,
    delta_as_drawn,
    epsilon_as_drawn,
    gdp_delta,
    gdp_epsilon,
    pure_delta,
    require_finite,
)


def compose_epsilon(events: Sequence[Event], delta: float) -> float:
    """Return the total epsilon of `events` at `delta`.

    Parameters
    ----------
    events : sequence of Event
        The releases, in any order.
    delta : float
        The total delta, less than 1; greater than 0 if there is a Gaussian release, sampled or not, else at least 0.

    Returns
    -------
    float
        The epsilon: 0.0 for no events, infinity if any release is exact.

    Raises
    ------
    LocalMisuseError
        If an event is of an unsupported type or `delta` is out of its range.
    PlanError
        If the noise that is drawn is too far from the noise that is analysed for any epsilon at `delta`.

    Notes
    -----
    Sampled releases import ``dp_accounting`` and take some 10 ms for each distinct one (by multiplier and rate);
    mixtures take some milliseconds, Gaussian releases alone less than one. Sampled releases with a delta below 1e-13
    are priced as if everybody were included, since numerical convolutions are not exact enough.

    Examples
    --------
    >>> from flwr_dpkmeans.privacy.events import GaussianRelease, LaplaceRelease
    >>> round(compose_epsilon([GaussianRelease("sums", 10.0)] * 100, 1e-6), 6)
    4.886554
    >>> compose_epsilon([LaplaceRelease("counts", 4.0)] * 3, 0.0)
    0.75
    """
    totals = add_up(events)
    delta = require_real("delta", delta, "give a small number such as 1e-6")
    if totals.mu > 0.0 or not 0.0 <= delta < 1.0:
        delta = require_delta(delta)
    if totals.exact:
        return math.inf
    if totals.mu == 0.0:
        return totals.pure
    return require_finite(epsilon_as_drawn(totals, delta, _analysed_epsilon), totals, delta)


def compose_delta(events: Sequence[Event], epsilon: float) -> float:
    """Return the total delta of `events` at `epsilon`.

    Parameters
    ----------
    events : sequence of Event
        The releases, in any order.
    epsilon : float
        The total epsilon, at least 0.

    Returns
    -------
    float
        The delta, from 0.0 to 1.0; 1.0 if any release is exact.

    Raises
    ------
    LocalMisuseError
        If an event is of an unsupported type or `epsilon` is out of its range.

    Notes
    -----
    Laplace releases whose epsilons sum to E above `epsilon` cost at most (exp(E) - exp(epsilon)) / (exp(E) + 1), the
    value for randomized response, which is the worst E-DP mechanism (Kairouz, Oh and Viswanath 2015).

    Examples
    --------
    >>> from flwr_dpkmeans.privacy.events import GaussianRelease
    >>> round(compose_delta([GaussianRelease("sums", 10.0)] * 100, 1.0), 12)
    0.126936737507
    """
    totals = add_up(events)
    epsilon = require_real("epsilon", epsilon, "give a number of at least 0 such as 1.0")
    if epsilon < 0.0:
        raise LocalMisuseError(f"epsilon is {epsilon}, but it must be at least 0: give a number such as 1.0.")
    if totals.exact:
        return 1.0
    if totals.mu == 0.0:
        return pure_delta(totals.pure, epsilon)
    return delta_as_drawn(totals, epsilon, _analysed_delta)


def _analysed_epsilon(totals: Totals, delta: float) -> float:
    """Return the least epsilon by any rule, for the noise that is analysed and its slack."""
    epsilon = gdp_epsilon(totals, delta)
    if totals.pure_epsilons:
        epsilon = min(epsilon, mixture_epsilon(totals, delta))
    if totals.sampled:
        epsilon = min(epsilon, numerical_epsilon(totals.merged(), delta))
    return epsilon


def _analysed_delta(totals: Totals, epsilon: float) -> float:
    """Return the least delta by any rule, for the noise that is analysed and its slack."""
    delta = 1.0
    if epsilon >= totals.pure:
        delta = min(delta, gdp_delta(totals, epsilon - totals.pure))
    if totals.pure_epsilons:
        delta = min(delta, mixture_delta(totals, epsilon))
    if totals.sampled:
        delta = min(delta, numerical_delta(totals.merged(), epsilon))
    return delta
