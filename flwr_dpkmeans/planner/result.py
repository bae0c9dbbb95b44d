"""The planner's answer: one forecast per candidate, a recommendation, and what was assumed."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flwr_dpkmeans.planner.request import PlanningRequest
from flwr_dpkmeans.planner.search import Curve
from flwr_dpkmeans.planner.simulate import Excess
from flwr_dpkmeans.planner.traffic import Deployment
from flwr_dpkmeans.results.writer import write_whole

FORECAST_VERSION = 1


@dataclass(frozen=True)
class AlgorithmForecast:
    """What to expect of one algorithm.

    Parameters
    ----------
    algorithm, title, trust : str
        From the registry and the plan.
    epsilon, delta : float
        Cost of a run without dropouts.
    epsilon_worst_case : float
        With all retries used; infinite where delta leaves no room for them.
    max_retries : int
    noise_per_centroid : tuple of float
        Standard deviation of each coordinate of an average cluster's centroid from the last release, in the caller's
        units: one number, or one per feature where their bounds differ; empty where no release has this form.
    scaled_noise_per_centroid : float or None
        The same in the box [-1, 1]^d.
    excess_of_noise : float or None
        What that noise alone would add to the cost of the synthetic clusters, as a fraction: its variance over theirs,
        to first order (where it is large, the box and the radius keep the true excess smaller).
    smallest_cluster : int or None
        Rows (client level: clients) from which a cluster survives.
    survives : bool or None
        Whether an average cluster is that large.
    largest_n_clusters : int or None
        Largest k at which a cluster of half the average size survives.
    excess : Excess or None
        Simulated, at the epsilon and k that were asked about.
    excess_by_epsilon, excess_by_n_clusters : tuple of (value, Excess)
        The picture's curves.
    epsilon_for_target : float or None
        Smallest epsilon whose simulated excess is at most the target; None if even the largest simulated one is not
        enough.
    deployment : Deployment
    """

    algorithm: str
    title: str
    trust: str
    epsilon: float
    delta: float
    epsilon_worst_case: float
    max_retries: int
    noise_per_centroid: tuple[float, ...]
    scaled_noise_per_centroid: float | None
    excess_of_noise: float | None
    smallest_cluster: int | None
    survives: bool | None
    largest_n_clusters: int | None
    excess: Excess | None
    excess_by_epsilon: Curve
    excess_by_n_clusters: Curve
    epsilon_for_target: float | None
    deployment: Deployment


@dataclass(frozen=True)
class Forecast:
    """The whole answer; no private row was involved.

    Parameters
    ----------
    request : PlanningRequest
    algorithms : tuple of AlgorithmForecast
        Best first, by simulated excess at the asked epsilon and k.
    left_out : tuple of (name, sentence)
        Candidates from which no plan follows.
    notes : tuple of str
        What was assumed and how it was simulated.
    version : int
        Of `to_dict`.
    """

    request: PlanningRequest
    algorithms: tuple[AlgorithmForecast, ...]
    left_out: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    version: int = FORECAST_VERSION

    @property
    def recommended(self) -> str:
        """The candidate with the smallest simulated excess."""
        return self.algorithms[0].algorithm

    @property
    def n_clusters_range(self) -> tuple[int, int] | None:
        """Sensible numbers of clusters for the recommended algorithm; None if not even two clusters survive."""
        most = self.algorithms[0].largest_n_clusters
        return (2, most) if most is not None and most >= 2 else None

    @property
    def epsilon_for_target(self) -> float | None:
        """Epsilon that the recommended algorithm needs for the target."""
        return self.algorithms[0].epsilon_for_target

    def to_dict(self) -> dict[str, Any]:
        """Plain values with stable keys that strict JSON can hold; what is infinite or unknown is None."""
        allowed = self.n_clusters_range
        return {
            "version": self.version,
            "request": self.request.to_dict(),
            "recommended": self.recommended,
            "n_clusters_range": None if allowed is None else list(allowed),
            "epsilon_for_target": self.epsilon_for_target,
            "algorithms": [_plain(asdict(forecast)) for forecast in self.algorithms],
            "left_out": [{"algorithm": name, "reason": reason} for name, reason in self.left_out],
            "notes": list(self.notes),
        }

    def plot(self, path: str | Path) -> Path:
        """Draw expected excess against epsilon and against k as a PNG.

        Parameters
        ----------
        path : str or Path
            The file to write, whole or not at all.

        Returns
        -------
        Path
            Absolute.
        """
        from flwr_dpkmeans.planner.picture import draw_forecast

        return write_whole(Path(path), draw_forecast(self))

    def __str__(self) -> str:
        from flwr_dpkmeans.planner.table import as_text

        return as_text(self)


def _plain(value: Any) -> Any:
    """Values that strict JSON can hold."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
