"""Max cover (Nguyen, Chaturvedi and Xu 2021), with a trusted curator."""

from __future__ import annotations

from dataclasses import dataclass

from flwr_dpkmeans.algorithms.one_place.in_one_place import InOnePlaceTask
from flwr_dpkmeans.privacy.release import NoiseShape
from flwr_dpkmeans.sums.option_rules import Options, whole


@dataclass(frozen=True)
class MaxCoverOptions(Options):
    """Options of max cover."""

    n_components: int | None = whole(
        None,
        1,
        5,
        "dimensions after a projection; automatic: log(N) / 2",
        most=60,
    )
    n_levels: int = whole(
        7,
        1,
        7,
        "grids, each half as fine as the one before",
        most=60,
    )


@dataclass(frozen=True, kw_only=True)
class MaxCoverTask(InOnePlaceTask):
    """Private k-means by maximum cover (Nguyen, Chaturvedi, Xu 2021).

    On all rows in one place.
    """

    name = "max_cover"
    noise = NoiseShape.GAUSSIAN
    options: MaxCoverOptions = MaxCoverOptions()
