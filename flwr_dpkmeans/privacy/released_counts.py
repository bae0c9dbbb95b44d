"""What a report says of the released counts: their noise, and what they are of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.privacy.report import PrivacyReport, ReleaseLine
from flwr_dpkmeans.privacy.sentences import report_sentence

COUNT_DEVIATIONS = 3.0
"""A count that is fewer noise scales above zero is called mostly noise."""
_INDICATORS = "indicators"
_GROUPS = "group_counts"
_COUNTS = ("counts", _INDICATORS, "Lloyd counts")


def faint_clusters(
    counts: Sequence[float] | NDArray[np.float64], report: PrivacyReport
) -> tuple[int, ...]:
    """Find the clusters that are mostly noise.

    Their noisy count is less than three noise scales above zero.

    Parameters
    ----------
    counts : array of shape (n_clusters,)
        Noisy counts.
    report : PrivacyReport
        Its last release of counts says how much noise they have; without one, no
        cluster is mostly noise.

    Returns
    -------
    tuple of int
        Indices, ascending.
    """
    line = _last_counts(report)
    if line is None:
        return ()
    least = COUNT_DEVIATIONS * line.released_scale
    return tuple([index for index, count in enumerate(counts) if count < least])


def counts_deviation(report: PrivacyReport) -> float | None:
    """Return the standard deviation of the noise on each of the last released counts.

    None if none were released.
    """
    line = _last_counts(report)
    if line is None:
        return None
    return line.standard_deviation


def counted(report: PrivacyReport) -> str:
    """Say what the last released counts are of.

    Records, what they weigh or, at client level, what each client adds to them.
    """
    line = _last_counts(report)
    if report.max_weight is not None:
        return "units of weight"
    if report.unit != "client" or line is None:
        return f"{report.unit}s"
    sample = " of a round's sample" if _is_sampled(report) else ""
    if line.array == _INDICATORS:
        return f"clients{sample} with rows there"
    most = line.sensitivity
    if counts_rows(line.array, most):
        return f"rows{sample}, of each client cut to a norm of {most:g}"
    cut = f", cut to a norm of {most:.3g}" if most < 1.0 else ""
    return f"clients{sample}, each by the shares of its rows{cut}"


def _is_sampled(report: PrivacyReport) -> bool:
    """Tell whether clients take part in a round by a coin of their own."""
    sampled = report_sentence("sampled", rate=0, coin="")
    beginning = sampled.partition("0")[0]
    return any(text.startswith(beginning) for text in report.assumptions)


def counts_rows(array: str, most: float) -> bool:
    """Tell whether a client's counts, at most so long, are of rows.

    Not ones where it has some, nor shares of length 1.
    """
    return array != _INDICATORS and most > 1.0


def _last_counts(report: PrivacyReport) -> ReleaseLine | None:
    """Return the last release of clusters' counts.

    Without any, of other groups', which a profile of clusters has, too.
    """
    for arrays in (_COUNTS, (_GROUPS,)):
        for line in reversed(report.releases):
            if line.array in arrays:
                return line
    return None
