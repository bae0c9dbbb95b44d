"""Whether values were found inside of what was stated about them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flwr_dpkmeans.errors import PlanError, column_names
from flwr_dpkmeans.kmeans.ranges.magnitudes import WIDEST_DOMAIN
from flwr_dpkmeans.kmeans.ranges.thresholds import noise_threshold
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.settings import Box


def require_bounded(
    plan: Plan,
    unheard: Sequence[int],
    domain: Box,
    std: float,
) -> None:
    """Refuse columns that neither a histogram nor the domain says anything of."""
    lower, upper = domain
    unbounded = [
        column
        for column in unheard
        if max(abs(lower[column]), abs(upper[column])) >= WIDEST_DOMAIN
    ]
    if not unbounded:
        return
    columns = column_names(unbounded, plan.settings.feature_names)
    needed = noise_threshold(len(domain[0]), std)
    public = ""
    if plan.settings.n_examples is None and plan.settings.unit.by_row:
        public = (
            "; or declare n_examples if the number of rows is public, which allows a"
            " larger delta"
        )
    raise PlanError(
        f"the private histograms found no values of {columns} beyond the noise (a"
        f" standard deviation of {std:.3g} on each bin, of which about {needed:.3g} are"
        " needed within a factor of two), and no domain bounds them: give bounds, or a"
        f" bounds_domain, or raise epsilon or bounds_share, or add rows{public}."
    )


def require_within(
    plan: Plan,
    bounds: Box,
    domain: Box,
) -> None:
    """Refuse to clip columns at the ends of a domain that nobody stated.

    The last bins hold what lies beyond, too.
    """
    is_at_end = np.array(bounds) == np.array(domain)
    is_widest = np.abs(domain) == WIDEST_DOMAIN
    may_reach_beyond = (is_at_end & is_widest).any(axis=0)
    beyond = np.flatnonzero(may_reach_beyond).tolist()
    if beyond:
        columns = column_names(beyond, plan.settings.feature_names)
        raise PlanError(
            f"the private histograms found values of {columns} near {WIDEST_DOMAIN:.3g}"
            " or beyond, and without a domain they look no farther: give bounds, or a"
            " bounds_domain, or the column in another unit."
        )
