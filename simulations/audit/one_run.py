"""Lower bounds from a single run: many canaries, each in the data or not by a fair coin
of its own.

The auditor tosses a fair coin for each of m canaries, runs the mechanism once on the
data and the canaries whose coin says so, and gives each canary a score from what was
released. The `n_high` largest scores are guessed "present", the `n_low` smallest
"absent", and about the others nothing is said. How many guesses are right, at most,
follows from the guarantee; more of them reject it. Numbers of guesses and canaries have
to be fixed before the scores are seen.

`OneRunMethod.BINOMIAL` (Steinke, Nasr and Jagielski 2023)
    Under (epsilon, 0)-DP the number V of right ones among r guesses is stochastically
    dominated by W, binomial with r trials of probability e^epsilon / (1 + e^epsilon).
    Under (epsilon, delta)-DP, for every v, ``P[V >= v] <= P[W >= v] + 2 m delta max
    over i = 1..v of (P[W >= v - i] - P[W >= v]) / i``. Nothing else is assumed.
`OneRunMethod.GDP` (Mahloujifar, Melis and Chaudhuri 2024)
    Tighter, for a mechanism whose trade-off function f is at least that of mu-GDP. Let
    p_j be the probability of j right ones among r guesses, alpha_c = sum over j >= c of
    p_j j/m, and beta_c = sum over j >= c of p_j (r - j)/m. The event "the guess on a
    random canary is right, and at least c are" has probability alpha_c. If that
    canary's coin is turned over, the same output makes that guess wrong and at least c
    - 1 right, so that ``alpha_c <= 1 - f(beta_(c-1))``: beta_(c-1) is at least what the
    inverse says. And ``alpha_(c-1) - alpha_c = (c - 1) / (r - c + 1) (beta_(c-1) -
    beta_c)``. Suppose P[V >= v] = tau. Starting from the smallest values, alpha_v = tau
    v/m and beta_v = tau (r - v)/m, both relations give, down to index 0, values whose
    sum the true alpha_0 + beta_0 = r/m cannot be below. If they exceed r/m, then P[V >=
    v] < tau.

    Why smallest: let D and B be what the true alpha and beta have more than the
    computed ones. At v, as j/(r - j) grows with j, ``D >= v/(r - v) B``, D >= 0 and D +
    B >= 0; each step keeps all three, with j/(r - j) in place of v/(r - v).

The second bound is one on mu, reported as epsilon at delta; as in
`simulations.audit.bounds`, that refutes claims which were computed from a mu, and
bounds the mechanism's own epsilon if it is Gaussian.

Both are loose: canaries disturb each other, and the guarantee would let the guesses on
all of them be right together, which nothing observed in one run can exclude beyond the
level. Many runs (`simulations.audit.bounds`) find more.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import binom

from flwr_dpkmeans.errors import (
    LocalMisuseError,
    require_delta,
    require_positive,
    require_real,
)
from flwr_dpkmeans.privacy.gaussian import gaussian_epsilon

_LARGEST_EPSILON = 700.0
_LARGEST_MU = 37.0
_STEPS = 60


class OneRunMethod(enum.Enum):
    """How right guesses become epsilon (see the module's docstring)."""

    BINOMIAL = "binomial"
    GDP = "gdp"


@dataclass(frozen=True)
class Guesses:
    """What an auditor guessed in one run.

    Parameters
    ----------
    n_canaries : int
        m, each present by a fair coin of its own.
    n_guesses : int
        r, fixed before the scores were seen; at least 1.
    n_correct : int
        How many of the guesses are right.

    Raises
    ------
    LocalMisuseError
        If the three numbers do not fit each other.
    """

    n_canaries: int
    n_guesses: int
    n_correct: int

    def __post_init__(self) -> None:
        if not 1 <= self.n_guesses <= self.n_canaries:
            raise LocalMisuseError(
                f"there are {self.n_guesses} guesses, but they must be between 1 and"
                f" the number of canaries, {self.n_canaries}: guess on some of them."
            )
        if not 0 <= self.n_correct <= self.n_guesses:
            raise LocalMisuseError(
                f"{self.n_correct} guesses are right, but it must be 0 to"
                f" {self.n_guesses}: count again."
            )


@dataclass(frozen=True)
class OneRunBound:
    """A lower bound from one run.

    Parameters
    ----------
    epsilon : float
        0.0 if nothing can be said.
    delta, confidence : float
        The delta that epsilon belongs to; the probability with which the bound holds,
        at least.
    method : OneRunMethod
        How it was computed, and so what it bounds.
    mu : float or None
        With `OneRunMethod.GDP` the lower bound on mu.
    guesses : Guesses
        What it was computed from.
    """

    epsilon: float
    delta: float
    confidence: float
    method: OneRunMethod
    mu: float | None
    guesses: Guesses


def count_guesses(
    scores: NDArray[np.float64], present: NDArray[np.bool_], *, n_high: int, n_low: int
) -> Guesses:
    """Guess on the canaries with the largest and the smallest scores, and count what is
    right.

    Parameters
    ----------
    scores : ndarray, (n_canaries,)
        Large means "present"; of equal scores the earlier ones count as smaller, which
        no coin has a part in.
    present : ndarray of bool, (n_canaries,)
        The coins.
    n_high, n_low : int
        How many are guessed present and absent; fixed before the scores are seen, at
        most n_canaries together.

    Returns
    -------
    Guesses

    Raises
    ------
    LocalMisuseError
        If shapes or numbers do not fit, or a score is NaN.

    Examples
    --------
    >>> scores = np.array([2.0, -1.0, 0.1, 3.0])
    >>> present = np.array([True, False, True, False])
    >>> count_guesses(scores, present, n_high=2, n_low=1)
    Guesses(n_canaries=4, n_guesses=3, n_correct=2)
    """
    if scores.ndim != 1 or scores.shape != present.shape or np.isnan(scores).any():
        raise LocalMisuseError(
            f"scores have shape {scores.shape} and coins {present.shape}, but each"
            " canary needs one coin and one score that is not nan: give two arrays of"
            " one length."
        )
    if min(n_high, n_low) < 0 or n_high + n_low > scores.size:
        raise LocalMisuseError(
            f"{n_high} and {n_low} guesses are asked for, but they must not be negative"
            f" nor more than {scores.size} together: choose fewer."
        )
    order = np.argsort(scores, kind="stable")
    right = int(present[order[scores.size - n_high :]].sum()) + int(
        (~present[order[:n_low]]).sum()
    )
    return Guesses(scores.size, n_high + n_low, right)


def binomial_p_value(guesses: Guesses, epsilon: float, delta: float) -> float:
    """Bound the probability of so many right guesses under (epsilon, delta)-DP.

    Parameters
    ----------
    guesses : Guesses
        What was observed.
    epsilon : float
        At least 0.
    delta : float
        In [0, 1).

    Returns
    -------
    float
        At most 1; the claim is rejected at every level from it on.

    Raises
    ------
    LocalMisuseError
        If epsilon or delta is out of its range.

    Examples
    --------
    >>> binomial_p_value(Guesses(3, 3, 3), 0.0, 0.0)
    0.125
    """
    epsilon = require_real(
        "epsilon", epsilon, "give a number of at least 0 such as 1.0"
    )
    delta = require_real("delta", delta, "give a number such as 1e-6")
    if epsilon < 0.0 or not 0.0 <= delta < 1.0:
        raise LocalMisuseError(
            f"epsilon is {epsilon} and delta {delta}, but they must be at least 0, and"
            " delta below 1: give others."
        )
    rate, correct = 1.0 / (1.0 + math.exp(-epsilon)), guesses.n_correct
    tail = float(binom.sf(correct - 1, guesses.n_guesses, rate))
    if delta == 0.0 or correct == 0:
        return min(tail, 1.0)
    steps = np.arange(1, correct + 1)
    # The mass between v - i and v, summed as it is: a difference of two tails would
    # lose small ones.
    mass = np.cumsum(binom.pmf(correct - steps, guesses.n_guesses, rate))
    return min(
        tail + 2.0 * guesses.n_canaries * delta * float(np.max(mass / steps)), 1.0
    )


def gdp_rejected(guesses: Guesses, mu: float, level: float) -> bool:
    """Say whether so many right guesses are less likely than a level under mu-GDP.

    Parameters
    ----------
    guesses : Guesses
        What was observed.
    mu : float
        Greater than 0.
    level : float
        Between 0 and 1.

    Returns
    -------
    bool
        True if they are; False if they may be likelier, or that cannot be told.

    Raises
    ------
    LocalMisuseError
        If mu or the level is out of its range.

    Examples
    --------
    >>> gdp_rejected(Guesses(100, 100, 95), 1.0, 0.05)
    True
    >>> gdp_rejected(Guesses(100, 100, 75), 1.0, 0.05)
    False
    """
    mu = require_positive("mu", mu)
    return _rejected(
        guesses, _level(level), lambda alpha: float(ndtr(ndtri(alpha) - mu))
    )


def one_run_bound(
    guesses: Guesses, delta: float, method: OneRunMethod, confidence: float = 0.95
) -> OneRunBound:
    """Find the largest epsilon that the guesses reject.

    Parameters
    ----------
    guesses : Guesses
        What was observed.
    delta : float
        Between 0 and 1.
    method : OneRunMethod
        What is bounded, and under which assumption: see the module's docstring.
    confidence : float
        Probability with which the bound holds, at least; between 0 and 1.

    Returns
    -------
    OneRunBound

    Raises
    ------
    LocalMisuseError
        If an argument is out of its range.

    Examples
    --------
    >>> for method in OneRunMethod:
    ...     bound = one_run_bound(Guesses(1000, 1000, 841), 1e-5, method)
    ...     print(round(bound.epsilon, 2))
    1.52
    2.83
    """
    delta, level = require_delta(delta), 1.0 - _level(confidence)
    if method is OneRunMethod.BINOMIAL:
        epsilon = _largest(
            lambda value: binomial_p_value(guesses, value, delta) <= level,
            _LARGEST_EPSILON,
        )
        return OneRunBound(epsilon, delta, confidence, method, None, guesses)
    mu = _largest(lambda value: gdp_rejected(guesses, value, level), _LARGEST_MU)
    exact = gaussian_epsilon(mu, delta) if mu > 0.0 else 0.0
    return OneRunBound(
        max(exact - 1e-11 * (exact + mu), 0.0), delta, confidence, method, mu, guesses
    )


def _rejected(
    guesses: Guesses, level: float, least_wrong: Callable[[float], float]
) -> bool:
    """Run the recursion of the module's docstring with everything multiplied by m."""
    canaries, total, right = guesses.n_canaries, guesses.n_guesses, guesses.n_correct
    alpha, beta = level * right, level * (total - right)
    for index in range(right - 1, -1, -1):
        raised = max(beta, canaries * least_wrong(min(alpha / canaries, 1.0)))
        if raised == beta:  # No later step would change anything.
            break
        alpha, beta = alpha + index / (total - index) * (raised - beta), raised
    # A strict excess, beyond what rounding could make of equality.
    return alpha + beta > total * (1.0 + 1e-9)


def _largest(rejected: Callable[[float], bool], limit: float) -> float:
    """Bisect for the largest rejected value, from the rejected side.

    0 if there is none.

    Rejecting a claim rejects every stronger one, so that any rejected value is a valid
    bound.
    """
    low, high = 0.0, limit
    if not rejected(2.0**-20):
        return 0.0
    for _ in range(_STEPS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if rejected(middle) else (low, middle)
        if high - low <= 1e-9 * high:
            break
    return low


def _level(value: float) -> float:
    """Require a probability strictly between 0 and 1."""
    checked = require_real(
        "the confidence or level", value, "give a number such as 0.95"
    )
    if not 0.0 < checked < 1.0:
        raise LocalMisuseError(
            f"the confidence or level is {value!r}, but it must be between 0 and 1:"
            " give 0.95."
        )
    return checked
