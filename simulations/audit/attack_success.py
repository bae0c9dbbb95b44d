"""How well an attack does, with confidence intervals, beside what the guarantee allows.

Every true positive rate at a false positive rate of at most alpha obeys, for a
mechanism that is (epsilon, delta)-DP, ``TPR <= min(delta + e^epsilon alpha, 1 -
e^-epsilon (1 - delta - alpha))``, and for one that is mu-GDP ``TPR <= Phi(Phi^-1(alpha)
+ mu)`` (Dong, Roth and Su 2022). The second is what Gaussian plans here are calibrated
by, and the smaller one. From it follow bounds on the area under the curve, ``Phi(mu /
sqrt 2)``, and on the advantage max (TPR - FPR), ``2 Phi(mu / 2) - 1``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import binom, rankdata

from flwr_dpkmeans.errors import LocalMisuseError
from simulations.audit.bounds import Scores, clopper_pearson

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Measured:
    """A number, its interval, and the largest value that the guarantee allows.

    Parameters
    ----------
    value, low, high, bound : float
    """

    value: float
    low: float
    high: float
    bound: float

    @property
    def is_above(self) -> bool:
        """Whether the whole interval lies above the bound."""
        return self.low > self.bound


def gdp_bound(rates: Array, mu: float) -> Array:
    """Largest true positive rates under mu-GDP; 1 where mu is infinite.

    Examples
    --------
    >>> gdp_bound(np.array([0.0, 0.5, 1.0]), 1.0).round(3).tolist()
    [0.0, 0.841, 1.0]
    """
    if math.isinf(mu):
        return np.ones_like(rates)
    return np.asarray(ndtr(ndtri(rates) + mu))


def epsilon_delta_bound(
    rates: Array,
    epsilon: float,
    delta: float,
) -> Array:
    """Largest true positive rates under (epsilon, delta)-DP.

    Examples
    --------
    >>> epsilon_delta_bound(np.array([0.0, 0.1, 0.9]), 1.0, 0.01).round(3).tolist()
    [0.01, 0.282, 0.967]
    """
    for_few = delta + math.exp(epsilon) * rates
    for_many = 1.0 - math.exp(-epsilon) * (1.0 - delta - rates)
    return np.minimum(for_few, for_many).clip(0, 1)


def roc_curve(scores: Scores) -> tuple[Array, Array]:
    """False and true positive rates of all thresholds, from (0, 0) to (1, 1).

    Examples
    --------
    >>> false, true = roc_curve(Scores(np.array([0.0, 1.0]), np.array([1.0, 2.0])))
    >>> false.tolist(), true.tolist()
    ([0.0, 0.0, 0.5, 1.0], [0.0, 0.5, 1.0, 1.0])
    """
    thresholds = _falling_thresholds(scores)
    false_rates = _positive_rates(scores.absent, thresholds)
    true_rates = _positive_rates(scores.present, thresholds)
    return false_rates, true_rates


def _falling_thresholds(scores: Scores) -> Array:
    """Every score once, the largest first."""
    return np.unique(np.concatenate([scores.absent, scores.present]))[::-1]


def _positive_rates(values: Array, thresholds: Array) -> Array:
    """Share of the values at or above each threshold, after 0 of none."""
    n_below = np.searchsorted(np.sort(values), thresholds, side="left")
    return np.concatenate([[0.0], 1.0 - n_below / values.size])


def true_positive_rate(
    scores: Scores,
    rate: float,
    mu: float,
    confidence: float = 0.95,
) -> Measured:
    """True positive rate at a false positive rate.

    The threshold with that false positive rate is not known either: order statistics of
    the scores without the target enclose it (on each side with a miss of a quarter of
    what the confidence leaves), and Clopper-Pearson limits of the true positive rates
    at those two enclose the result. A lower limit of 0 says that there are too few
    runs.

    Parameters
    ----------
    scores : Scores
        Of runs that had no part in making the attack.
    rate : float
        Between 0 and 1.
    mu : float
        What the plan claims.
    confidence : float
        Of the interval.

    Returns
    -------
    Measured

    Raises
    ------
    LocalMisuseError
        If the rate is not between 0 and 1.
    """
    if not 0.0 < rate < 1.0:
        raise LocalMisuseError(
            f"a false positive rate is {rate}, but it must be between 0 and 1: give"
            " 0.01."
        )
    miss = 0.25 * (1.0 - confidence)
    n_absent = scores.absent.size
    n_present = scores.present.size
    falling = np.concatenate([[np.inf], np.sort(scores.absent)[::-1], [-np.inf]])
    # Of n scores, Binomial(n, rate) lie at or above the threshold with that rate.
    fewest = int(binom.ppf(miss, n_absent, rate))
    most = int(binom.isf(miss, n_absent, rate)) + 1
    strict = falling[fewest]
    lax = falling[min(most, n_absent + 1)]
    n_above_strict = int((scores.present > strict).sum())
    n_above_lax = int((scores.present >= lax).sum())
    low, _ = clopper_pearson(n_above_strict, n_present, miss)
    _, high = clopper_pearson(n_above_lax, n_present, miss)
    # At most this share of the scores without the target may be said to have it.
    threshold = falling[int(rate * n_absent) + 1]
    value = float(np.mean(scores.present > threshold))
    bound = float(gdp_bound(np.array([rate]), mu)[0])
    return Measured(value, min(low, value), max(high, value), bound)


def area_under_curve(
    scores: Scores,
    mu: float,
    confidence: float = 0.95,
) -> Measured:
    """Area under the ROC curve, with DeLong's interval.

    Both scores that are equal count one half.

    Where no score of one kind exceeds one of the other, the interval is that of as many
    right answers as there are runs of the rarer kind.
    """
    n_absent = scores.absent.size
    n_present = scores.present.size
    ranks = rankdata(np.concatenate([scores.absent, scores.present]))
    ranks_absent = ranks[:n_absent]
    ranks_present = ranks[n_absent:]
    wins = (ranks_present - rankdata(scores.present)) / n_absent
    losses = 1.0 - (ranks_absent - rankdata(scores.absent)) / n_present
    value = float(wins.mean())
    variance = float(np.var(wins) / n_present + np.var(losses) / n_absent)
    margin = float(ndtri(0.5 + 0.5 * confidence)) * math.sqrt(variance)
    low = value - margin
    high = value + margin
    if variance == 0.0 and value in (0.0, 1.0):
        n_fewer = min(n_absent, n_present)
        miss = 0.5 * (1.0 - confidence)
        low, high = clopper_pearson(int(value) * n_fewer, n_fewer, miss)
    bound = 1.0 if math.isinf(mu) else float(ndtr(mu / math.sqrt(2.0)))
    return Measured(value, max(low, 0.0), min(high, 1.0), bound)


def advantage(
    training: Scores,
    scores: Scores,
    mu: float,
    confidence: float = 0.95,
) -> Measured:
    """TPR - FPR at the threshold that is best on training runs.

    Its interval is that of the Clopper-Pearson limits of both rates.
    """
    false, true = roc_curve(training)
    thresholds = np.concatenate([[np.inf], _falling_thresholds(training)])
    best = int(np.argmax(true - false))
    threshold = float(thresholds[best])
    miss = 0.25 * (1.0 - confidence)
    n_absent = scores.absent.size
    n_present = scores.present.size
    n_false = int((scores.absent >= threshold).sum())
    n_true = int((scores.present >= threshold).sum())
    false_low, false_high = clopper_pearson(n_false, n_absent, miss)
    true_low, true_high = clopper_pearson(n_true, n_present, miss)
    value = n_true / n_present - n_false / n_absent
    bound = 1.0 if math.isinf(mu) else 2.0 * float(ndtr(0.5 * mu)) - 1.0
    return Measured(value, true_low - false_high, true_high - false_low, bound)
