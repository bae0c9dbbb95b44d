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
    """A number, its confidence interval, and the largest value that the guarantee
    allows.

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
    return (
        np.ones_like(rates) if math.isinf(mu) else np.asarray(ndtr(ndtri(rates) + mu))
    )


def epsilon_delta_bound(rates: Array, epsilon: float, delta: float) -> Array:
    """Largest true positive rates under (epsilon, delta)-DP.

    Examples
    --------
    >>> epsilon_delta_bound(np.array([0.0, 0.1, 0.9]), 1.0, 0.01).round(3).tolist()
    [0.01, 0.282, 0.967]
    """
    return np.minimum(
        delta + math.exp(epsilon) * rates,
        1.0 - math.exp(-epsilon) * (1.0 - delta - rates),
    ).clip(0, 1)


def roc_curve(scores: Scores) -> tuple[Array, Array]:
    """False and true positive rates of all thresholds, from (0, 0) to (1, 1).

    Examples
    --------
    >>> false, true = roc_curve(Scores(np.array([0.0, 1.0]), np.array([1.0, 2.0])))
    >>> false.tolist(), true.tolist()
    ([0.0, 0.0, 0.5, 1.0], [0.0, 0.5, 1.0, 1.0])
    """
    thresholds = np.unique(np.concatenate([scores.absent, scores.present]))[::-1]
    rates = [
        1.0 - np.searchsorted(np.sort(values), thresholds, side="left") / values.size
        for values in (scores.absent, scores.present)
    ]
    return np.concatenate([[0.0], rates[0]]), np.concatenate([[0.0], rates[1]])


def true_positive_rate(
    scores: Scores, rate: float, mu: float, confidence: float = 0.95
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
    n, m = scores.absent.size, scores.present.size
    falling = np.concatenate([[np.inf], np.sort(scores.absent)[::-1], [-np.inf]])
    # Of n scores, Binomial(n, rate) lie at or above the threshold with that rate.
    few, many = int(binom.ppf(miss, n, rate)), int(binom.isf(miss, n, rate)) + 1
    strict, lax = falling[few], falling[min(many, n + 1)]
    low = clopper_pearson(int((scores.present > strict).sum()), m, miss)[0]
    high = clopper_pearson(int((scores.present >= lax).sum()), m, miss)[1]
    # At most this share of the scores without the target may be said to have it.
    value = float(np.mean(scores.present > falling[int(rate * n) + 1]))
    return Measured(
        value,
        min(low, value),
        max(high, value),
        float(gdp_bound(np.array([rate]), mu)[0]),
    )


def area_under_curve(scores: Scores, mu: float, confidence: float = 0.95) -> Measured:
    """Area under the ROC curve, with DeLong's interval.

    Both scores that are equal count one half.

    Where no score of one kind exceeds one of the other, the interval is that of as many
    right answers as there are runs of the rarer kind.
    """
    n, m = scores.absent.size, scores.present.size
    ranks = rankdata(np.concatenate([scores.absent, scores.present]))
    wins = (ranks[n:] - rankdata(scores.present)) / n
    losses = 1.0 - (ranks[:n] - rankdata(scores.absent)) / m
    value = float(wins.mean())
    variance = float(np.var(wins) / m + np.var(losses) / n)
    low, high = (
        value + sign * float(ndtri(0.5 + 0.5 * confidence)) * math.sqrt(variance)
        for sign in (-1.0, 1.0)
    )
    if variance == 0.0 and value in (0.0, 1.0):
        low, high = clopper_pearson(
            int(value) * min(n, m), min(n, m), 0.5 * (1.0 - confidence)
        )
    bound = 1.0 if math.isinf(mu) else float(ndtr(mu / math.sqrt(2.0)))
    return Measured(value, max(low, 0.0), min(high, 1.0), bound)


def advantage(
    training: Scores, scores: Scores, mu: float, confidence: float = 0.95
) -> Measured:
    """TPR - FPR at the threshold that is best on training runs, with Clopper-Pearson
    limits of both rates.
    """
    false, true = roc_curve(training)
    thresholds = np.concatenate(
        [[np.inf], np.unique(np.concatenate([training.absent, training.present]))[::-1]]
    )
    threshold = float(thresholds[int(np.argmax(true - false))])
    counts = [
        int((values >= threshold).sum()) for values in (scores.absent, scores.present)
    ]
    sizes = (scores.absent.size, scores.present.size)
    limits = [
        clopper_pearson(c, n, 0.25 * (1.0 - confidence))
        for c, n in zip(counts, sizes, strict=True)
    ]
    bound = 1.0 if math.isinf(mu) else 2.0 * float(ndtr(0.5 * mu)) - 1.0
    value = counts[1] / sizes[1] - counts[0] / sizes[0]
    return Measured(
        value, limits[1][0] - limits[0][1], limits[1][1] - limits[0][0], bound
    )
