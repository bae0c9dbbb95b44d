"""Counts that noise alone hardly exceeds."""

from __future__ import annotations

from statistics import NormalDist

from flwr_dpkmeans.kmeans.ranges.magnitudes import N_MAGNITUDES

COARSE_FAILURE = 1e-3
"""Probability that noise alone widens any coarse range, possibly to the whole domain.

That would spoil the run.
"""


def window_widths(
    n_bins: int,
    widest: int = N_MAGNITUDES,
) -> list[int]:
    """Powers of two up to a quarter of the bins, and up to the widest."""
    widest_window = n_bins // 4
    n_powers = max(1, widest_window.bit_length())
    powers = range(n_powers)
    widths = (2**power for power in powers)
    return [width for width in widths if width <= widest]


def noise_threshold(n_columns: int, noise_std: float) -> float:
    """Count that noise alone hardly exceeds in any window of magnitudes of one sign.

    The probability is `COARSE_FAILURE` at most.
    """
    widths = window_widths(N_MAGNITUDES)
    n_windows = sum(N_MAGNITUDES - width + 1 for width in widths)
    n_tests = n_columns * n_windows
    deviations = exceeded_among(n_tests, COARSE_FAILURE)
    return noise_std * deviations


def exceeded_among(n_tests: int, chance: float) -> float:
    """Deviations that noise exceeds in any of so many counts with this chance at most.

    By a union bound.
    """
    normal = NormalDist()
    of_each = chance / n_tests
    deviations = -normal.inv_cdf(of_each)
    # Six digits, so that the last digit of a machine's logarithm makes no difference.
    six_digits = f"{deviations:.6g}"
    return float(six_digits)
