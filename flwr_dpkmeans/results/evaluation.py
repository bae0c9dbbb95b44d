"""What an evaluation found: each metric with the standard deviation of its noise."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

PRIVATE, NOISY, EXACT = "private", "noisy", "exact"
"""Kinds of evaluations."""


@dataclass(frozen=True)
class Measured:
    """A number and the standard deviation of the noise in it, to first order; over sampled clients a bound of it.

    Parameters
    ----------
    value : float
        Noise may carry it out of its range, such as below 0. Sums and counts are unbiased up to rounding; ratios are so
        to first order only, and the largest of noisy numbers are too high.
    noise : float
        0 for an exact evaluation.
    """

    value: float
    noise: float

    def __str__(self) -> str:
        return f"{self.value:.4g} +- {self.noise:.2g}"


@dataclass(frozen=True)
class EvaluationResult:
    """Metrics of a run's centroids over all clients' rows.

    Parameters
    ----------
    kind : str
        ``private``; ``noisy`` if its sums have noise in a run that is not private (an algorithm without noise, a seed);
        ``exact``.
    averaged_over : str
        ``rows``; at client level ``clients``, each by the mean over its own rows (one without rows counts as 0).
    n_units : Measured
        What the sums were divided by.
    n_units_source : str
        ``known``: the number that is declared public, was counted privately, or is the cohort; ``released``: the total
        of the table itself, where nothing else is known, where that is far from it, or where rows left with a client
        that dropped out. At client level the cohort is that of the last sum, times the rate of client sampling.
    clip_distance : float
        Rows farther from their centroid count as if they were there; in scaled units.
    cost : Measured
        Mean squared distance to the nearest centroid (NICV), so clipped, in squared scaled units.
    cost_in_units : Measured or None
        The same in the squared units of the data; None where features have bounds of different widths.
    clipped : Measured
        Share of rows beyond the clip distance: what clipping costs.
    counts : tuple of float
        Rows (or clients that took part) of each cluster, with noise.
    counts_noise : float
        Its standard deviation on each of them; over sampled clients a bound that holds for the largest one, too.
    cells : tuple of tuples of float
        Rows (or clients) by cluster and label class, with noise; the last column has those without a class, which are
        all without labels.
    cells_noise : float
        On each of them.
    accuracy, purity : Measured or None
        With labels: share of all rows (those without a class included) whose class is that of their cluster, for the
        best one-to-one matching of clusters and classes, and for each cluster's largest class. Both choose the largest
        of noisy numbers, so where a cell is as small as its noise they are too high.
    matching : tuple of (cluster, class)
        The one-to-one matching.
    """

    kind: str
    averaged_over: str
    n_units: Measured
    n_units_source: str
    clip_distance: float
    cost: Measured
    cost_in_units: Measured | None
    clipped: Measured
    counts: tuple[float, ...]
    counts_noise: float
    cells: tuple[tuple[float, ...], ...]
    cells_noise: float
    accuracy: Measured | None = None
    purity: Measured | None = None
    matching: tuple[tuple[int, int], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values with stable keys, for JSON."""
        plain: dict[str, Any] = _lists(asdict(self))
        return plain

    def __str__(self) -> str:
        """One line for people."""
        unit = self.averaged_over.removesuffix("s")
        parts = [f"cost per {unit} {self.cost} (scaled units"]
        parts[0] += ")" if self.cost_in_units is None else f"; {self.cost_in_units} in squared units of the data)"
        parts.append(f"share clipped {self.clipped}")
        if self.accuracy is not None and self.purity is not None:
            parts += [f"accuracy {self.accuracy}", f"purity {self.purity}"]
        warning = " (the run is NOT PRIVATE)" if self.kind == NOISY else ""
        return f"{self.kind} evaluation{warning}: " + ", ".join(parts)


def quotient(
    sum_value: float, sum_noise: float, units: Measured, covariance: float = 0.0, *, sampled_out: float = 0.0
) -> Measured:
    """Divide a noisy sum by a noisy number of units, to first order.

    Parameters
    ----------
    sum_value, sum_noise : float
    units : Measured
        Above 0.
    covariance : float
        Of the noise in both.
    sampled_out : float
        Part of the units that sat out by coins of their own: the sum is over the others, each adding 0 to 1. Adds the
        largest variance that this can have around the mean R over all units, (1 - p) R (1 - R) / n with n sampled ones.

    Returns
    -------
    Measured

    Examples
    --------
    >>> quotient(50.0, 3.0, Measured(100.0, 8.0))
    Measured(value=0.5, noise=0.05)
    >>> quotient(50.0, 0.0, Measured(100.0, 0.0), sampled_out=0.64)
    Measured(value=0.5, noise=0.04)
    """
    value = sum_value / units.value
    variance = sum_noise**2 + (value * units.noise) ** 2 - 2.0 * value * covariance
    share = min(1.0, max(0.0, value))
    sampling = sampled_out * share * (1.0 - share) * units.value
    return Measured(value, math.sqrt(max(0.0, variance) + sampling) / units.value)


def _lists(value: Any) -> Any:
    """Tuples as lists, as JSON has them."""
    if isinstance(value, dict):
        return {key: _lists(item) for key, item in value.items()}
    return [_lists(item) for item in value] if isinstance(value, list | tuple) else value
