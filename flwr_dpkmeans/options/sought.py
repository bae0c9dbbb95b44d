"""What a run finds out by itself: a number of clusters or rows, and bounds."""

from __future__ import annotations

from dataclasses import dataclass, field

from flwr_dpkmeans.algorithms.kmeans_task import DEFAULT_MAX_CLUSTERS
from flwr_dpkmeans.options.group import Group, setting
from flwr_dpkmeans.sums.option_rules import whole

_DOMAIN = (
    "a public range that the bounds lie in, if there is one; it need not be tight, and"
    " helps small tables and columns whose values lie far from zero compared with their"
    " spread"
)


@dataclass(frozen=True)
class Auto(Group):
    """A number of clusters that the algorithm chooses, up to `max_clusters`.

    ``"auto"`` for short.
    """

    argument, short = "n_clusters", "auto"
    max_clusters: int = whole(
        DEFAULT_MAX_CLUSTERS,
        1,
        20,
        "largest number of clusters that is considered",
    )


@dataclass(frozen=True)
class PrivateBounds(Group):
    """Bounds found by two private histograms; ``"private"`` for short."""

    argument, short = "bounds", "private"
    share: float = setting("bounds_share")
    domain: object = field(
        default=None, metadata={"flat": "bounds_domain", "about": _DOMAIN}
    )


@dataclass(frozen=True)
class PrivateCount(Group):
    """A number of rows that is counted privately; ``"private"`` for short."""

    argument, short = "n_examples", "private"
    share: float = setting("count_share")
