"""How far the noise that is drawn may be from the noise that is analysed.

Noise is drawn from discrete Gaussians, or is a sum of many discrete Gaussians, while privacy is computed for the
continuous Gaussian. The distance between the two, the *slack*, is a total-variation distance tau, and it is paid for
in delta:

    If M is (epsilon, delta)-DP, and on every input the output distribution of M' is within total-variation distance
    tau of that of M, then M' is (epsilon, delta + (1 + exp(epsilon)) tau)-DP.

Proof. For neighbouring inputs D, E and any set S, ``P[M'(D) in S] <= P[M(D) in S] + tau <= exp(epsilon) P[M(E) in S]
+ delta + tau <= exp(epsilon) (P[M'(E) in S] + tau) + delta + tau``. QED. Slacks of adaptive releases add up, since the
releases can be replaced one at a time, each changing the joint distribution by at most its own slack.
"""

from __future__ import annotations

import math
import numbers

from flwr_dpkmeans.errors import LocalMisuseError
from flwr_dpkmeans.privacy.sensitivity import require_positive


def discrete_gaussian_slack(std: float, n_entries: int) -> float:
    """Bound the distance between discrete Gaussian noise and a continuous Gaussian rounded to integers.

    The rounded continuous Gaussian mechanism on an integer-valued query is a post-processing of the continuous one
    (adding an integer and rounding to the nearest integer commute), so it is exactly mu-GDP.

    Parameters
    ----------
    std : float
        The parameter sigma of the discrete Gaussian, in grid units, at least 1.
    n_entries : int
        Number of independent entries of the release, at least 0.

    Returns
    -------
    float
        ``min(1, sqrt(n_entries) / (24 std^2))``, at least the total-variation distance; about twice it for one entry.

    Raises
    ------
    LocalMisuseError
        If an argument is out of its range.

    Notes
    -----
    Proof. Let phi be the density of N(0, s^2), p(k) the probability that the rounded Gaussian is k and q(k) = phi(k)/Z
    that of the discrete Gaussian. With U uniform on [-1/2, 1/2],

        p(k) = E[phi(k + U)] = phi(k) A(k),  A(k) = E[cosh(kU/s^2) exp(-U^2/(2 s^2))],

    as U is symmetric, and Z = 1 + 2 sum_{j>=1} exp(-w_j/2) >= 1 with w_j = (2 pi s j)^2 by Poisson summation. So
    log(q(k)/p(k)) = -log Z - log A(k) <= -log A(k). By Jensen's inequality and log cosh x >= x^2/2 - x^4/12 (tanh x >=
    x - x^3/3 for x >= 0), with E[U^2] = 1/12 and E[U^4] = 1/80,

        -log A(k) <= 1/(24 s^2) - k^2/(24 s^4) + k^4/(960 s^8).

    Under q, again by Poisson summation, E[k^2] >= s^2 (1 - 2 sum_j (w_j - 1) exp(-w_j/2) - 2 sum_j exp(-w_j/2)) and
    E[k^4] <= s^4 (3 + 2 sum_j w_j^2 exp(-w_j/2)); as w_j >= 39.4 j^2 for s >= 1, the sums are below 3e-7/s^2 and 1e-5.
    So the Kullback-Leibler divergence of p from q is at most (3e-7/24 + 3.00001/960)/s^4 < 1/(319 s^4). Divergences of
    independent entries add up, and by Pinsker's inequality the distance of n entries is at most
    sqrt(n / (2 * 319)) / s^2 < sqrt(n) / (24 s^2). QED.

    Examples
    --------
    >>> discrete_gaussian_slack(1000.0, 576)
    1e-06
    """
    std = _require_at_least("std", std, 1.0, "grid steps: use a finer grid")
    n_entries = _require_count("n_entries", n_entries, 0)
    return min(1.0, math.sqrt(n_entries) / 24.0 / std / std)


def discrete_gaussian_sum_slack(std_share: float, n_shares: int, n_entries: int) -> float:
    """Bound the distance between a sum of discrete Gaussians and the one discrete Gaussian of the same variance.

    Parameters
    ----------
    std_share : float
        The parameter sigma of each share's discrete Gaussian, in grid units, at least 0.5.
    n_shares : int
        Number of independent shares that are added up, at least 1; the one has parameter ``sqrt(n_shares) std_share``.
    n_entries : int
        Number of independent entries of the release, at least 0.

    Returns
    -------
    float
        ``min(1, n_entries tanh(t / 2))`` with ``t = 5 sum_{k=1}^{n_shares-1} exp(-2 pi^2 std_share^2 k / (k+1))``.

    Raises
    ------
    LocalMisuseError
        If an argument is out of its range.

    Notes
    -----
    Proof. Add a discrete Gaussian of variance parameter s^2 to one of k s^2. Completing the square, the probability of
    z is that of the single discrete Gaussian times w(z), proportional to sum_x exp(-(x - cz)^2 / (2 r^2)) with
    r^2 = s^2 k/(k+1) and some c. By Poisson summation that sum is, up to a constant, within 1 +- 2 theta,
    theta = sum_{j>=1} exp(-2 pi^2 r^2 j^2). As the mean of w is 1, |log w(z)| <= log((1 + 2 theta) / (1 - 2 theta)),
    which is at most 5 exp(-2 pi^2 r^2): the quotient of the two falls in r and is 4.05 at the smallest r^2, 1/8
    (s = 1/2, k = 1). Adding the shares one at a time, log-ratios add up to at most t, since adding an independent share
    to both of two variables does not increase the largest log-ratio between them. Two distributions whose log-ratio is
    within [-t, t] are at most tanh(t/2) apart (randomized response is the worst case). Distances of independent
    entries add up. QED.

    References
    ----------
    Kairouz, Liu and Steinke 2021, "The distributed discrete Gaussian mechanism for federated learning with secure
    aggregation", whose privacy theorem pays 10 times the sum in t.

    Examples
    --------
    >>> discrete_gaussian_sum_slack(4.0, 10, 1000) < 1e-60
    True
    >>> discrete_gaussian_sum_slack(0.5, 1, 1000)
    0.0
    """
    std_share = _require_at_least("std_share", std_share, 0.5, "grid steps: use a finer grid")
    n_shares = _require_count("n_shares", n_shares, 1)
    n_entries = _require_count("n_entries", n_entries, 0)
    rate = 2.0 * math.pi**2 * std_share * std_share
    log_ratio = 5.0 * math.fsum(math.exp(-rate * k / (k + 1)) for k in range(1, n_shares))
    return min(1.0, n_entries * math.tanh(0.5 * log_ratio))


def _require_at_least(name: str, value: float, bound: float, mend: str) -> float:
    """Return `value` as a float, or raise if it is below `bound`."""
    number = require_positive(name, value)
    if number < bound:
        raise LocalMisuseError(f"{name} is {number}, but it must be at least {bound} {mend}.")
    return number


def _require_count(name: str, value: int, bound: int) -> int:
    """Return `value` as an int, or raise if it is not a whole number of at least `bound`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < bound:
        raise LocalMisuseError(
            f"{name} is {value!r}, but it must be a whole number of at least {bound}: give one such as {bound + 1}."
        )
    return int(value)
