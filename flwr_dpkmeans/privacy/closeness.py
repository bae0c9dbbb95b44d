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

Over adaptive releases a, b and tau add up. Proofs: ``noise_proofs.md``, "How close
discrete noise is".
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
    log-ratios are ::

        above = min(n / (24 s^2), sqrt(6.00002 n x) / (24 s^2) + n / (319 s^4)),
        below = (sqrt(n y) + y) / (12 s^2 - 1) + n (1/(186 s^4) + h).

    The proof is in ``noise_proofs.md``, "How close discrete noise is".
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
