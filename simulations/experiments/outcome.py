"""What one run of a sweep found, whatever the engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.privacy.report import PrivacyReport


@dataclass(frozen=True)
class Outcome:
    """The result of one run.

    Parameters
    ----------
    centers : ndarray, (k, d)
        In the data's units.
    privacy : PrivacyReport
        What it guaranteed.
    n_iterations : int
        Lloyd rounds.
    seconds : float
        Of clustering alone.
    cost_curve : ndarray or None
        With a number of clusters that the run chose: cost over k, in squared units of
        the data.
    columns : mapping
        Further columns of the row.
    """

    centers: NDArray[np.float64]
    privacy: PrivacyReport
    n_iterations: int
    seconds: float
    cost_curve: NDArray[np.float64] | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)


EVALUATED = ("cost", "clipped", "accuracy", "purity")


def evaluation_columns(evaluation: Mapping[str, Any]) -> dict[str, float | None]:
    """Columns of a table from an evaluation within a run, as ``metrics.json`` has it.

    Examples
    --------
    >>> evaluation_columns({"cost": {"value": 0.5, "noise": 0.01}})
    {'evaluation_cost': 0.5, 'evaluation_cost_noise': 0.01}
    """
    columns = {}
    for name in EVALUATED:
        if evaluation.get(name) is not None:
            columns[f"evaluation_{name}"] = evaluation[name]["value"]
            columns[f"evaluation_{name}_noise"] = evaluation[name]["noise"]
    return columns
