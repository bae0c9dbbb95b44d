"""The slack bounds against the true total-variation distances in high precision."""

from __future__ import annotations

import math

import mpmath
import pytest

from flwr_dpkmeans.errors import LocalMisuseError
from flwr_dpkmeans.privacy.slack import discrete_gaussian_slack, discrete_gaussian_sum_slack

DIGITS = 40


def discrete_gaussian(std: float, reach: int) -> dict[int, mpmath.mpf]:
    """Exact probabilities of the discrete Gaussian on [-reach, reach], beyond which it is negligible."""
    weights = {k: mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * mpmath.mpf(std) ** 2)) for k in range(-reach, reach + 1)}
    total = mpmath.fsum(weights.values())
    return {k: weight / total for k, weight in weights.items()}


def distance(p: dict[int, mpmath.mpf], q: dict[int, mpmath.mpf]) -> mpmath.mpf:
    return mpmath.fsum(abs(p.get(k, 0) - q.get(k, 0)) for k in p.keys() | q.keys()) / 2


@pytest.mark.parametrize("std", [1.0, 1.5, 2.0, 4.0, 16.0, 64.0])
def test_rounding_bound_holds_and_is_not_loose(std: float) -> None:
    with mpmath.workdps(DIGITS):
        reach = math.ceil(12 * std)
        edges = [mpmath.erfc(-(mpmath.mpf(k) - 0.5) / (std * mpmath.sqrt(2))) / 2 for k in range(-reach, reach + 2)]
        rounded = {k: edges[k + reach + 1] - edges[k + reach] for k in range(-reach, reach + 1)}
        truth = float(distance(rounded, discrete_gaussian(std, reach)))
    bound = discrete_gaussian_slack(std, 1)
    assert truth <= bound
    assert bound <= 2.6 * truth


@pytest.mark.parametrize("std", [0.5, 0.6, 0.75, 1.0, 1.25, 1.5])
@pytest.mark.parametrize("shares", [2, 3, 6])
def test_sum_bound_holds_and_is_not_loose_for_two(std: float, shares: int) -> None:
    with mpmath.workdps(DIGITS):
        one = discrete_gaussian(std, math.ceil(16 * std))
        total = one
        for _ in range(shares - 1):
            parts: dict[int, mpmath.mpf] = {}
            for a, p in total.items():
                for b, q in one.items():
                    parts[a + b] = parts.get(a + b, mpmath.mpf(0)) + p * q
            total = parts
        truth = float(distance(total, discrete_gaussian(math.sqrt(shares) * std, max(total))))
    bound = discrete_gaussian_sum_slack(std, shares, 1)
    assert truth <= bound
    if shares == 2:  # later shares smooth the errors of the earlier ones, which the bound does not count on
        assert bound <= 6 * truth


@pytest.mark.parametrize("std", [1.0, 1.25, 1.5, 2.0, 4.0, 16.0])
def test_divergence_of_one_entry_is_below_the_proofs_bound(std: float) -> None:
    """The step of the proof that makes the bound grow like the root of the number of entries."""
    with mpmath.workdps(DIGITS):
        reach = math.ceil(12 * std)
        edges = [mpmath.erfc((abs(mpmath.mpf(k)) - 0.5) / (std * mpmath.sqrt(2))) / 2 for k in range(-reach, reach + 1)]
        upper = [mpmath.erfc((abs(mpmath.mpf(k)) + 0.5) / (std * mpmath.sqrt(2))) / 2 for k in range(-reach, reach + 1)]
        exact = discrete_gaussian(std, reach)
        rounded = dict(zip(exact, (low - high for low, high in zip(edges, upper, strict=True)), strict=True))
        divergence = float(mpmath.fsum(q * mpmath.log(q / rounded[k]) for k, q in exact.items()))
    assert divergence <= 1.0 / (319.0 * std**4)
    assert divergence >= 1.0 / (319.0 * std**4) / 2.1
    assert math.sqrt(divergence / 2.0) <= discrete_gaussian_slack(std, 1)


def test_true_distances_of_entries_add_up_at_most() -> None:
    """Two entries of std 1: the distance of the products is below the bound for two entries."""
    with mpmath.workdps(DIGITS):
        edges = [mpmath.erfc(-(mpmath.mpf(k) - 0.5) / mpmath.sqrt(2)) / 2 for k in range(-9, 11)]
        rounded = {k: edges[k + 10] - edges[k + 9] for k in range(-9, 10)}
        exact = discrete_gaussian(1.0, 9)
        truth = float(mpmath.fsum(abs(rounded[a] * rounded[b] - exact[a] * exact[b]) for a in exact for b in exact) / 2)
    assert discrete_gaussian_slack(1.0, 1) / 2.5 < truth <= discrete_gaussian_slack(1.0, 2)


def test_values() -> None:
    assert discrete_gaussian_slack(10.0, 576) == pytest.approx(0.01, rel=1e-14)
    assert discrete_gaussian_slack(10.0, 0) == 0.0
    assert discrete_gaussian_slack(1.0, 10**9) == 1.0
    assert 0.0 < discrete_gaussian_slack(1e15, 1) < 1e-30
    two_shares = math.tanh(2.5 * math.exp(-(math.pi**2)))
    assert discrete_gaussian_sum_slack(1.0, 2, 3) == pytest.approx(3 * two_shares, rel=1e-12)
    assert discrete_gaussian_sum_slack(1.0, 1, 5) == 0.0
    assert discrete_gaussian_sum_slack(0.5, 50, 10**6) == 1.0
    assert discrete_gaussian_sum_slack(100.0, 1000, 10**6) == 0.0


def test_sum_slack_grows_with_shares_and_falls_with_noise() -> None:
    assert discrete_gaussian_sum_slack(1.0, 3, 1) > discrete_gaussian_sum_slack(1.0, 2, 1)
    assert discrete_gaussian_sum_slack(1.1, 3, 1) < discrete_gaussian_sum_slack(1.0, 3, 1)


def test_arguments_out_of_range_are_refused() -> None:
    for std in (0.99, 0.0, -1.0, math.nan, math.inf):
        with pytest.raises(LocalMisuseError, match="std"):
            discrete_gaussian_slack(std, 1)
    for share in (0.49, 0.0, math.nan):
        with pytest.raises(LocalMisuseError, match="std_share"):
            discrete_gaussian_sum_slack(share, 2, 1)
    for count in (-1, 1.5, True):
        with pytest.raises(LocalMisuseError, match="n_entries"):
            discrete_gaussian_slack(2.0, count)  # type: ignore[arg-type]
    with pytest.raises(LocalMisuseError, match="n_shares"):
        discrete_gaussian_sum_slack(2.0, 0, 1)
