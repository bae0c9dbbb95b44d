"""From an adversary's scores to a lower bound on epsilon, with a stated confidence.

An adversary looks at a run and gives it a score; large means "the target was present".
A rule, a threshold and a direction, turns scores into guesses. It is chosen on runs of
its own (`choose_rule`), and judged on others (`lower_bound`), so that the runs that are
counted are independent of it. Let FPR and TPR be the probabilities with which the rule
says "present" when the target is absent and when it is present. Clopper-Pearson limits,
an upper one of FPR and a lower one of TPR, each missing with half of what the
confidence leaves, hold together by a union bound: ``FPR <= FPR_high`` and ``TPR >=
TPR_low``. The complementary guess can miss nothing else, as FNR = 1 - TPR and TNR = 1 -
FPR. What follows from them:

`Method.CLOPPER_PEARSON`
    If the mechanism is (epsilon, delta)-DP, TPR <= e^epsilon FPR + delta and TNR <=
    e^epsilon FNR + delta. Hence epsilon is at least ``ln((TPR_low - delta) /
    FPR_high)`` and ``ln((1 - FPR_high - delta) / (1 - TPR_low))``, and the larger one
    is the bound. Nothing is assumed about the mechanism.
`Method.GDP`
    If the mechanism is mu-GDP, its trade-off function is at least that of N(0, 1)
    against N(mu, 1), whatever the mechanism is, so that ``TPR <= Phi(Phi^-1(FPR) +
    mu)`` for every rule. Hence mu is at least ``mu_low = Phi^-1(TPR_low) -
    Phi^-1(FPR_high)``, and a claim of mu-GDP with a smaller mu is rejected, again with
    no assumption. The epsilon that is reported is that of mu_low-GDP at delta. It is a
    lower bound of the epsilon of a claim that was itself computed from a mu, as all
    claims of Gaussian plans here are, and of the mechanism's own epsilon if its
    trade-off function is Gaussian. Of a mechanism that is (epsilon, delta)-DP by other
    means it says nothing: randomised response with epsilon 0.1 is not mu-GDP for the mu
    whose epsilon at a small delta is 0.1.

One rule for each bound: whoever takes the largest of several bounds has to share the
confidence among them.

References
----------
Clopper and Pearson 1934; Kairouz, Oh and Viswanath 2015, "The composition
theorem for differential privacy" (the region of errors); Jagielski, Ullman and Oprea
2020, "Auditing differentially private machine learning"; Nasr et al. 2023, "Tight
auditing of differentially private machine learning" (the bound through mu); Dong, Roth
and Su 2022.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri

from flwr_dpkmeans.errors import LocalMisuseError, require_real
from flwr_dpkmeans.privacy.gaussian import gaussian_epsilon

Array = NDArray[np.float64]
Counts = NDArray[np.int64]

_TRAINING_MISS = 0.025
"""What a limit may miss while a rule is chosen: that of a two-sided 95%.

It has no part in the guarantee.
"""
_ROUNDING = 1e-11
"""`gaussian_epsilon` rounds up by about 1e-12; a lower bound must not."""


class Method(enum.Enum):
    """How error rates become epsilon (see the module's docstring)."""

    CLOPPER_PEARSON = "clopper_pearson"
    GDP = "gdp"


@dataclass(frozen=True)
class Scores:
    """Scores of an adversary, one for each run.

    Parameters
    ----------
    absent : ndarray, (n_absent,)
        Of runs without the target; infinities are allowed.
    present : ndarray, (n_present,)
        Of runs with it.

    Raises
    ------
    LocalMisuseError
        If there is no run of one kind, or a score is NaN.
    """

    absent: Array = field(repr=False)
    present: Array = field(repr=False)

    def __post_init__(self) -> None:
        for name in ("absent", "present"):
            values = np.asarray(getattr(self, name), dtype=np.float64)
            if values.ndim != 1 or not values.size:
                raise LocalMisuseError(
                    f"scores of runs with the target {name} have shape {values.shape},"
                    " but at least one run is needed: give one score for each run."
                )
            if np.isnan(values).any():
                raise LocalMisuseError(
                    f"a score of a run with the target {name} is nan, but scores must"
                    " be ordered: give a number or an infinity."
                )
            object.__setattr__(self, name, values)


@dataclass(frozen=True)
class Rule:
    """What the adversary decides by.

    Parameters
    ----------
    threshold : float
        Scores equal to it count as "present".
    present_above : bool
        Whether scores above it mean "present", or scores below it.
    """

    threshold: float
    present_above: bool

    def says_present(self, scores: Array) -> NDArray[np.bool_]:
        """Guess for each score.

        Examples
        --------
        >>> rule = Rule(1.0, present_above=True)
        >>> rule.says_present(np.array([0.0, 1.0, 2.0])).tolist()
        [False, True, True]
        """
        if self.present_above:
            return scores >= self.threshold
        return scores <= self.threshold


@dataclass(frozen=True)
class LowerBound:
    """A lower bound on epsilon and what it was computed from.

    Parameters
    ----------
    epsilon : float
        0.0 if nothing can be said.
    delta, confidence : float
        The delta that epsilon belongs to; the probability with which the bound holds,
        at least.
    method : Method
        How it was computed, and so what it bounds.
    rule : Rule
        What the adversary decided by.
    mu : float or None
        With `Method.GDP` the lower bound on mu, 0.0 if nothing can be said.
    n_absent, n_present : int
        Test runs without and with the target.
    false_positives, true_positives : int
        How many of each were said to have it.
    """

    epsilon: float
    delta: float
    confidence: float
    method: Method
    rule: Rule
    mu: float | None
    n_absent: int
    n_present: int
    false_positives: int
    true_positives: int


def clopper_pearson(
    successes: int,
    trials: int,
    miss: float,
) -> tuple[float, float]:
    """Limits of a probability from a binomial count.

    Parameters
    ----------
    successes, trials : int
        0 <= successes <= trials, and at least one trial.
    miss : float
        Probability with which each of the two limits may be wrong, between 0 and 1.

    Returns
    -------
    tuple of (low, high)
        ``low`` exceeds the probability with probability at most `miss`, and ``high`` is
        below it likewise.

    Raises
    ------
    LocalMisuseError
        If an argument is out of its range.

    Examples
    --------
    >>> low, high = clopper_pearson(0, 10, 0.05)
    >>> low, round(high, 6)  # 1 - 0.05^(1/10)
    (0.0, 0.258866)
    """
    if trials < 1:
        raise LocalMisuseError(
            f"there are {trials} trials, but a rate needs at least 1: make more runs."
        )
    if not 0 <= successes <= trials:
        raise LocalMisuseError(
            f"{successes} of {trials} trials succeeded, but it must be 0 to {trials}:"
            " count again."
        )
    miss = _between("miss", miss, zero=False)
    counts = np.array([successes], dtype=np.int64)
    (low,) = _lower_limits(counts, trials, miss)
    (high,) = _upper_limits(counts, trials, miss)
    return float(low), float(high)


def choose_rule(
    training: Scores,
    delta: float,
    method: Method,
) -> Rule:
    """Find the threshold and direction that promise the largest lower bound.

    Every distinct score is tried as a threshold, in both directions, and judged by the
    bound that the training runs themselves would give: a pessimistic estimate, which
    keeps rare lucky counts from winning.

    Parameters
    ----------
    training : Scores
        Of runs that are not used in `lower_bound`; a quarter of all runs is a good
        share.
    delta : float
        In [0, 1); greater than 0 with `Method.GDP`.
    method : Method
        The method of the later bound.

    Returns
    -------
    Rule

    Raises
    ------
    LocalMisuseError
        If delta is out of its range.

    Examples
    --------
    >>> absent = np.repeat([0.0, 1.0], [90, 10])
    >>> present = np.repeat([0.0, 1.0], 50)
    >>> choose_rule(Scores(absent, present), 0.0, Method.CLOPPER_PEARSON)
    Rule(threshold=1.0, present_above=True)
    """
    delta = _between("delta", delta, zero=method is not Method.GDP)
    absent = np.sort(training.absent)
    present = np.sort(training.present)
    thresholds = np.unique(np.concatenate([absent, present]))
    n_absent = absent.size
    n_present = present.size
    fpr_limits = _upper_limits(np.arange(n_absent + 1), n_absent, _TRAINING_MISS)
    tpr_limits = _lower_limits(np.arange(n_present + 1), n_present, _TRAINING_MISS)
    best = -math.inf
    chosen = Rule(float(thresholds[0]), present_above=True)
    for above in (True, False):
        n_false = _count_present(absent, thresholds, above)
        n_true = _count_present(present, thresholds, above)
        values = _promises(fpr_limits[n_false], tpr_limits[n_true], delta, method)
        index = int(np.argmax(values))
        if values[index] > best:
            best = float(values[index])
            chosen = Rule(float(thresholds[index]), above)
    return chosen


def lower_bound(
    test: Scores,
    rule: Rule,
    delta: float,
    method: Method,
    confidence: float = 0.95,
) -> LowerBound:
    """Bound epsilon from below by the errors of a rule on fresh runs.

    Parameters
    ----------
    test : Scores
        Of independent runs that had no part in choosing the rule.
    rule : Rule
        From `choose_rule`, or fixed in advance.
    delta : float
        In [0, 1); greater than 0 with `Method.GDP`.
    method : Method
        What is bounded, and under which assumption: see the module's docstring.
    confidence : float
        Probability with which the bound holds, at least; between 0 and 1.

    Returns
    -------
    LowerBound

    Raises
    ------
    LocalMisuseError
        If an argument is out of its range.

    Examples
    --------
    >>> absent = np.repeat([0.0, 1.0], [900, 100])
    >>> present = np.repeat([0.0, 1.0], [500, 500])
    >>> rule = Rule(1.0, present_above=True)
    >>> method = Method.CLOPPER_PEARSON
    >>> bound = lower_bound(Scores(absent, present), rule, 1e-6, method)
    >>> bound.false_positives, bound.true_positives
    (100, 500)
    >>> round(bound.epsilon, 3)  # ln(0.5 / 0.1) = 1.609
    1.36
    """
    delta = _between("delta", delta, zero=method is not Method.GDP)
    confidence = _between("confidence", confidence, zero=False)
    miss = 0.5 * (1.0 - confidence)
    n_absent = test.absent.size
    n_present = test.present.size
    n_false = int(rule.says_present(test.absent).sum())
    n_true = int(rule.says_present(test.present).sum())
    _, fpr_high = clopper_pearson(n_false, n_absent, miss)
    tpr_low, _ = clopper_pearson(n_true, n_present, miss)
    (value,) = _promises(np.array([fpr_high]), np.array([tpr_low]), delta, method)
    epsilon = max(float(value), 0.0)
    mu = None
    if method is Method.GDP:
        mu = epsilon
        exact = gaussian_epsilon(mu, delta) if mu > 0.0 else 0.0
        epsilon = max(exact - _ROUNDING * (exact + mu), 0.0)
    return LowerBound(
        epsilon=epsilon,
        delta=delta,
        confidence=confidence,
        method=method,
        rule=rule,
        mu=mu,
        n_absent=n_absent,
        n_present=n_present,
        false_positives=n_false,
        true_positives=n_true,
    )


def _promises(
    fpr_high: Array,
    tpr_low: Array,
    delta: float,
    method: Method,
) -> Array:
    """Lower bounds, on epsilon or on mu, from limits of both rates.

    Minus infinity where nothing follows.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        if method is Method.GDP:
            values = ndtri(tpr_low) - ndtri(fpr_high)
        else:
            true = np.maximum(tpr_low - delta, 0.0)
            true_negative = np.maximum(1.0 - fpr_high - delta, 0.0)
            by_positives = np.log(true) - np.log(fpr_high)
            by_negatives = np.log(true_negative) - np.log1p(-tpr_low)
            values = np.maximum(by_positives, by_negatives)
    return np.where(np.isnan(values), -math.inf, values)


def _count_present(
    ordered: Array,
    thresholds: Array,
    above: bool,
) -> Counts:
    """How many of the sorted scores each threshold calls present."""
    if above:
        n_below = np.searchsorted(ordered, thresholds, side="left")
        return np.asarray(ordered.size - n_below, dtype=np.int64)
    n_present = np.searchsorted(ordered, thresholds, side="right")
    return np.asarray(n_present, dtype=np.int64)


def _lower_limits(
    counts: Counts,
    trials: int,
    miss: float,
) -> Array:
    """Clopper-Pearson's lower limits."""
    at_least_one = np.maximum(counts, 1)
    limits = betaincinv(at_least_one, trials - at_least_one + 1, miss)
    return np.where(counts == 0, 0.0, limits)


def _upper_limits(
    counts: Counts,
    trials: int,
    miss: float,
) -> Array:
    """Clopper-Pearson's upper limits, through failures.

    The quantile near 0 is the accurate one.
    """
    return 1.0 - _lower_limits(trials - counts, trials, miss)


def _between(
    name: str,
    value: float,
    *,
    zero: bool,
) -> float:
    """Require a number below 1 that is above 0, or 0 itself if that is allowed."""
    checked = require_real(name, value, "give a number such as 0.05")
    if not 0.0 <= checked < 1.0 or (checked == 0.0 and not zero):
        raise LocalMisuseError(
            f"{name} is {value!r}, but it must be {'at least' if zero else 'above'} 0"
            " and below 1: give a number such as 0.05."
        )
    return checked
