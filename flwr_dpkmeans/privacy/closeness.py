"""How far the noise that is drawn may be from the noise that is analysed.

Noise is drawn from discrete Gaussians, or is a sum of many discrete Gaussians, while
privacy is computed for the continuous Gaussian. With P for what would be released with
the analysed noise and Q with the noise that is drawn, a `Closeness` (a, b, tau) says
that for any set S

    Q(S) <= exp(a) P(S) + tau   and   P(S) <= exp(b) Q(S) + tau,

whatever the exact values are. It is paid for in epsilon, and tau, which is far below
any delta, in delta:

    If M is (epsilon, delta)-DP, and on every input the outputs of M' and M are that
    close, then M' is (epsilon + a + b, exp(a) (delta + (1 + exp(epsilon)) tau))-DP.

Over adaptive releases a, b and tau add up.

    Proof. For neighbouring inputs D, E and any S, Q_D(S) <= exp(a) P_D(S) + tau <=
    exp(a) (exp(epsilon) P_E(S) + delta) + tau <= exp(a) (exp(epsilon) (exp(b) Q_E(S) +
    tau) + delta) + tau. QED.

    Adaptive releases: a, b and tau add up. For let q_i and p_i be the probabilities of
    release i given the earlier ones. The parts min(q_i, exp(a_i) p_i) of the q_i miss
    mass tau_i at most, so their product misses sum tau_i of the joint distribution Q at
    most, and it is nowhere above exp(sum a_i) times that of the p_i. Likewise for b,
    and where other releases, which are the same on both sides, lie between. QED.
    Sampling changes nothing: a mixture over samples, whose probabilities are the same
    on both sides, is as close as its parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from flwr_dpkmeans.errors import (
    LocalMisuseError,
    require_positive,
    require_real,
    require_whole,
)
from flwr_dpkmeans.privacy.gaussian import LARGEST_EXPONENT

_TAIL = 100.0
"""The additive part of every closeness is exp(-100), 4e-44."""


@dataclass(frozen=True)
class Closeness:
    """How close drawn noise is to analysed noise, in the sense of this module.

    A part that is out of range is a `LocalMisuseError`.
    """

    log_ratio_above: float = 0.0
    """a: the drawn noise's probabilities are at most exp(a) times the analysed noise's.

    At least 0.
    """
    log_ratio_below: float = 0.0
    """b: the analysed noise's probabilities are at most exp(b) times the drawn noise's.

    At least 0.
    """
    additive: float = 0.0
    """tau: up to a probability of tau; from 0 to 1.

    Alone it is a total-variation distance.
    """

    def __post_init__(self) -> None:
        """Refuse parts out of range."""
        for name, value in vars(self).items():
            if type(value) is float and 0.0 <= value < math.inf:
                # As all proofs give it.
                continue
            value = require_real(
                name, value, "give 0.0, or what a proof of closeness gives"
            )
            if not value >= 0.0:
                raise LocalMisuseError(
                    f"{name} of a closeness is {value}, but it must be at least 0: give"
                    " 0.0."
                )
        if self.additive > 1.0:
            raise LocalMisuseError(
                f"additive is {self.additive}, but it must be at most 1: give a"
                " probability."
            )

    @property
    def log_ratio(self) -> float:
        """The part of epsilon that this closeness costs, a + b."""
        return self.log_ratio_above + self.log_ratio_below

    def widened(self, log_ratio: float) -> Closeness:
        """Return the closeness of noise that is so close to the noise drawn so far.

        What Q has a probability of tau for has one of at most ``exp(log_ratio) tau``
        under the new noise.
        """
        # Beyond this the factor is not a number any more, and all of it may be
        # exceptional.
        factor = math.inf
        if log_ratio < LARGEST_EXPONENT:
            factor = math.exp(log_ratio)
        additive = 0.0
        if self.additive > 0.0:
            additive = min(1.0, self.additive * factor)
        return Closeness(
            log_ratio_above=self.log_ratio_above + log_ratio,
            log_ratio_below=self.log_ratio_below + log_ratio,
            additive=additive,
        )


SAME = Closeness()
"""The noise that is drawn is the noise that is analysed."""


def joint_closeness(parts: Iterable[Closeness]) -> Closeness:
    """Add up the closeness of several, possibly adaptive, releases.

    None at all are the same.
    """
    releases = list(parts)
    above = [part.log_ratio_above for part in releases]
    below = [part.log_ratio_below for part in releases]
    additive = [part.additive for part in releases]
    return Closeness(
        log_ratio_above=math.fsum(above),
        log_ratio_below=math.fsum(below),
        additive=min(1.0, math.fsum(additive)),
    )


def slack_cost(tau: float, epsilon: float) -> float:
    """Return (1 + exp(epsilon)) tau, the delta that a closeness of tau costs."""
    if tau == 0.0:
        return 0.0
    exponent = epsilon + math.log(tau)
    if exponent >= LARGEST_EXPONENT:
        return math.inf
    return tau + math.exp(exponent)


def discrete_gaussian_closeness(std: float, n_entries: int) -> Closeness:
    """Bound how far discrete Gaussian noise is from a rounded continuous Gaussian.

    The rounded continuous Gaussian mechanism on an integer-valued query is a
    post-processing of the continuous one (adding an integer and rounding to the nearest
    integer commute), so it is exactly mu-GDP.

    The discrete Gaussian has the parameter sigma = `std` >= 1, in grid units, and the
    release n = `n_entries` >= 0 independent entries. With s = `std`, x = 100, h = 2.1
    exp(-2 pi^2 s^2), y = x + n (1/(290 s^4) + h) the additive part is exp(-x), and the
    log-ratios are

        above = min(n / (24 s^2), sqrt(6.00002 n x) / (24 s^2) + n / (319 s^4)),
        below = (sqrt(n y) + y) / (12 s^2 - 1) + n (1/(186 s^4) + h).

        Proof. Let phi be the density of N(0, s^2), p(k) the probability that the
        rounded Gaussian is k and q(k) = phi(k)/Z that of the discrete Gaussian. With U
        uniform on [-1/2, 1/2],

            p(k) = E[phi(k + U)] = phi(k) A(k),
            A(k) = E[cosh(kU/s^2) exp(-U^2/(2 s^2))],

        as U is symmetric, and Z = 1 + 2 sum_{j>=1} exp(-w_j/2) with w_j = (2 pi s j)^2
        by Poisson summation, so that 0 <= log Z <= h.

        *Above.* log(q(k)/p(k)) <= -log A(k) <= 1/(24 s^2) - X(k), X(k) = E[log
        cosh(kU/s^2)] >= 0, by Jensen's inequality and E[U^2] = 1/12. This gives the
        first bound for every k. For the second, x^2/2 - x^4/12 <= log cosh x <= x^2/2
        (tanh x >= x - x^3/3 for x >= 0) and E[U^4] = 1/80, so that k^2/(24 s^4) -
        k^4/(960 s^8) <= X(k) <= k^2/(24 s^4). Under q, again by Poisson summation,
        E[k^2] >= s^2 (1 - 2 sum_j w_j exp(-w_j/2)) and E[k^4] <= s^4 (3 + 2 sum_j w_j^2
        exp(-w_j/2)); as w_j >= 39.4 j^2 for s >= 1, the sums are below 3e-7/s^2 and
        1e-5. So E[X] >= 1/(24 s^2) - 1/(319 s^4) and E[X^2] <= 3.00001/(576 s^4). As
        exp(-v) <= 1 - v + v^2/2 for v >= 0, Markov's inequality for exp(-c sum X) gives
        that sum X < n E[X] - sqrt(2 n x E[X^2]) has probability at most exp(-x).

        *Below.* cosh(kU/s^2) rises and exp(-U^2/(2 s^2)) falls in |U|, so by
        Chebyshev's association inequality A(k) is at most the product of their means.
        The first is at most exp(k^2/(24 s^4)), since E[U^{2m}]/(2m)! = 4^-m / (2m+1)!
        <= 24^-m / m! term by term; the second is at most B = 1 - 1/(24 s^2) + 1/(640
        s^4). Hence

            log(p(k)/q(k)) <= h + (k^2 - s^2)/(24 s^4) + 1/(640 s^4),

        and p(k) <= B (r/s) psi(k), psi the density of N(0, r^2), r^2 = s^2/(1 - 1/(12
        s^2)) = s^2 + 1/(12 - 1/s^2). So under p, for 0 <= c < 1/2, E[exp(c k^2/r^2)] <=
        B (r/s) (1 - 2c)^{-1/2} (1 + h) by Poisson summation (the standard deviation r
        (1 - 2c)^{-1/2} is at least s). This is the moment generating function of a
        chi-square variable times B (r/s) (1 + h) <= exp(1/(290 s^4) + h), as log B <=
        -1/(24 s^2) + 1/(640 s^4) and, with z = 1/(12 s^2) <= 1/12, log(r/s) = -log(1 -
        z)/2 <= z/2 + z^2/4 + z^3/(6 (1 - z)). By the proof of Laurent and Massart 2000,
        Lemma 1, sum k^2/r^2 > n + 2 sqrt(n y) + 2 y has probability at most exp(-y)
        exp(n (1/(290 s^4) + h)) = exp(-x). Otherwise the sum of the log-ratios is at
        most n h + n/(640 s^4) + (n (r^2 - s^2) + 2 r^2 (sqrt(n y) + y))/(24 s^4), where
        r^2 - s^2 <= 1/11 and r^2/s^4 = 1/(s^2 - 1/12). QED.
    """
    std = require_at_least(
        "std",
        std,
        1.0,
        "grid steps: use a finer grid",
    )
    n = require_whole(
        "n_entries",
        n_entries,
        0,
        "give one such as 1",
    )
    if n == 0:
        return SAME
    # 1 / s^2, 1 / s^4 and h.
    precision = 1.0 / (std * std)
    square = precision * precision
    poisson = 2.1 * math.exp(-2.0 * math.pi**2 * std * std)

    always = n * precision / 24.0
    deviation = math.sqrt(6.00002 * n * _TAIL)
    nearly_always = deviation * precision / 24.0 + n * square / 319.0
    above = min(always, nearly_always)

    tail = _TAIL + n * (square / 290.0 + poisson)
    deviation_below = math.sqrt(n * tail) + tail
    spread = deviation_below * precision / (12.0 - precision)
    below = spread + n * (square / 186.0 + poisson)
    return Closeness(
        log_ratio_above=above,
        log_ratio_below=below,
        additive=math.exp(-_TAIL),
    )


def discrete_gaussian_sum_log_ratio(
    std_share: float,
    n_shares: int,
    n_entries: int,
) -> float:
    """Bound the log-ratio of a sum of discrete Gaussians to a single one.

    That of the same variance.
    ``5 n_entries sum_{k=1}^{n_shares-1} exp(-2 pi^2 std_share^2 k / (k+1))`` bounds it
    in both directions. Each of the `n_shares` >= 1 independent shares has the parameter
    sigma = `std_share` >= 0.5, in grid units, and the one has ``sqrt(n_shares)
    std_share``.

    Kairouz, Liu and Steinke 2021, "The distributed discrete Gaussian mechanism for
    federated learning with secure aggregation", whose privacy theorem pays 10 times the
    sum.

        Proof. Add a discrete Gaussian of variance parameter s^2 to one of k s^2.
        Completing the square, the probability of z is that of the single discrete
        Gaussian times w(z), proportional to sum_x exp(-(x - cz)^2 / (2 r^2)) with r^2 =
        s^2 k/(k+1) and some c. By Poisson summation that sum is, up to a constant,
        within 1 +- 2 theta, theta = sum_{j>=1} exp(-2 pi^2 r^2 j^2). As the mean of w
        is 1, |log w(z)| <= log((1 + 2 theta) / (1 - 2 theta)), which is at most 5
        exp(-2 pi^2 r^2): the quotient of the two falls in r and is 4.05 at the smallest
        r^2, 1/8 (s = 1/2, k = 1). Adding the shares one at a time, log-ratios add up,
        since adding an independent share to both of two variables does not increase the
        largest log-ratio between them; so do those of independent entries. QED.
    """
    std_share = require_at_least(
        "std_share",
        std_share,
        0.5,
        "grid steps: use a finer grid",
    )
    n_shares = require_whole(
        "n_shares",
        n_shares,
        1,
        "give one such as 2",
    )
    n_entries = require_whole(
        "n_entries",
        n_entries,
        0,
        "give one such as 1",
    )
    rate = 2.0 * math.pi**2 * std_share * std_share
    terms = [math.exp(-rate * k / (k + 1)) for k in range(1, n_shares)]
    return 5.0 * n_entries * math.fsum(terms)


def require_at_least(
    name: str,
    value: float,
    bound: float,
    mend: str,
) -> float:
    """Return a positive number, or raise if it is below its bound."""
    number = require_positive(name, value)
    if number < bound:
        raise LocalMisuseError(
            f"{name} is {number}, but it must be at least {bound} {mend}."
        )
    return number
