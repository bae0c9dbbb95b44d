"""What noise there is, and how it is shared among rounds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from flwr_dpkmeans.privacy.release import Sensitivity


class NoiseFamily(Enum):
    """Noise of FedDP-KMeans.

    One Gaussian accounting for everything, or the paper's Gaussian and Laplace mixture.
    """

    GAUSSIAN = "gaussian"
    PAPER = "paper"


class NoiseSchedule(Enum):
    """How the budget grows from one Lloyd round to the next.

    Centroids that are nearly right gain from less noise.
    """

    EQUAL = "equal"
    GROWING = "growing"
    GEOMETRIC = "geometric"

    def parts(self, n_rounds: int) -> list[float]:
        """Each round's part of the budget, 1 on average.

        Of its square under joint Gaussian accounting.
        """
        sizes = {
            NoiseSchedule.EQUAL: [1.0] * n_rounds,
            NoiseSchedule.GROWING: [1.0 + index for index in range(n_rounds)],
            NoiseSchedule.GEOMETRIC: [2.0**index for index in range(n_rounds)],
        }[self]
        return [size * n_rounds / sum(sizes) for size in sizes]


@dataclass(frozen=True)
class ReleasePart:
    """One array of one round before its noise is known.

    `allocate` makes a `Block` of it.

    >>> from flwr_dpkmeans.sums import Norm, PrivacyUnit
    >>> record = PrivacyUnit.RECORD
    >>> because = "one row has one vote"
    >>> votes = Sensitivity(Norm.L2, 1.0, record, because, nonnegative=True)
    >>> ReleasePart("votes", (3,), votes, share=1.0, entry_bound=1.0).shape
    (3,)
    """

    name: str
    shape: tuple[int, ...]
    sensitivity: Sensitivity
    """Its norm is that of the noise: L2 for Gaussian, L1 for Laplace noise."""
    share: float
    """Share s_i of epsilon in the paper.

    Only ratios within a plan matter: twice the share, half the noise.
    """
    entry_bound: float
    """Largest magnitude that one row adds to one entry, for the proof that sums cannot
    wrap; 1 for a count.
    """
