"""A run's result where it may be known, and the choice of a number of clusters."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

from flwr_dpkmeans.algorithms.measure.evaluated_state import COST_CURVE
from flwr_dpkmeans.algorithms.measure.evaluation_result import EvaluationResult
from flwr_dpkmeans.algorithms.proxy.entries import RADIUS
from flwr_dpkmeans.algorithms.server.box_widths import squared_unit
from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.privacy.sentences import report_sentence
from flwr_dpkmeans.results.cautions.bounds_cautions import bound_cautions
from flwr_dpkmeans.results.cautions.clear_centres import Array
from flwr_dpkmeans.results.cautions.close_clusters import closeness_cautions
from flwr_dpkmeans.results.cautions.dominating_column import domination_cautions
from flwr_dpkmeans.results.cautions.gaps import gap_cautions
from flwr_dpkmeans.results.cautions.sureness import column_cautions
from flwr_dpkmeans.results.whole_files import write_whole

if TYPE_CHECKING:
    import pandas as pd

    from flwr_dpkmeans.results.model import Model
    from flwr_dpkmeans.sums.round import State


class ResultDetails(TypedDict, total=False):
    """Fields of a `RunResult` that do not follow from the run's last state."""

    image_shape: tuple[int, ...] | None
    evaluation: EvaluationResult | None
    spent: str


@dataclass(frozen=True)
class RunResult:
    """A run's result where it may be known."""

    model: Model
    report: PrivacyReport
    """With what a party's own rows say, which the model leaves out."""
    movements: tuple[float, ...] = field(default=(), repr=False)
    """Largest step of a centroid in each iteration, in scaled units."""
    image_shape: tuple[int, ...] | None = None
    evaluation: EvaluationResult | None = None
    scaled_costs: Array | None = field(default=None, repr=False)
    """(largest k,): the cost curve of a run that chose k, in squared scaled units."""
    radius: Array | None = field(default=None, repr=False)
    """What the last released residuals were divided by, about, in scaled units.

    (k,) or (1,); None if they were not.
    """
    profile: pd.DataFrame | None = field(default=None, repr=False)
    """A data frame of the party's own rows by cluster, exact; None where there is none.
    """
    spent: str = field(default="", repr=False)

    @classmethod
    def of(
        cls,
        model: Model,
        report: PrivacyReport,
        state: State,
        *,
        profile: pd.DataFrame | None = None,
        **details: Unpack[ResultDetails],
    ) -> RunResult:
        """With what a run's last state tells, and warns of."""
        curve = state.extras.get(COST_CURVE)
        radius = state.extras.get(RADIUS)
        if radius is not None:
            radius = radius[: len(model.scaled)]
        has_chosen_one = curve is not None and len(model.scaled) == 1
        one_cluster = (report_sentence("one_cluster"),) if has_chosen_one else ()
        warnings = (
            report.warnings
            + column_cautions(model, radius)
            + closeness_cautions(model, radius)
            + bound_cautions(model, radius)
            + domination_cautions(model)
            + one_cluster
            + gap_cautions(model.schema, model.federated_profile)
        )
        report = replace(report, warnings=warnings)
        return cls(
            model=replace(model, privacy=report),
            report=report,
            movements=state.movements,
            scaled_costs=curve,
            radius=radius,
            profile=profile,
            **details,
        )

    @property
    def costs(self) -> Array | None:
        """The same in the caller's squared units where all features have one width."""
        if self.scaled_costs is None:
            return None
        bounds = self.model.bounds
        unit = squared_unit((bounds.lower, bounds.upper)) or 1.0
        return self.scaled_costs * unit


@dataclass(frozen=True)
class ClusterChoice:
    """The number of clusters that a run chose.

    The elbow of a private cost curve, which costs nothing more.
    """

    n_clusters: int
    costs: Array
    """k-means cost per unit of weight of the weighted server points for k = 1, 2, ...,
    in the projected space; squared units of the caller where all features have bounds
    of one width, else squared scaled units.
    """
    privacy: PrivacyReport
    """What the two releases behind the curve cost."""

    def plot(self, path: str | Path) -> Path:
        """Draw the curve with its elbow as a PNG, whole or not at all.

        Returns its absolute path.
        """
        from flwr_dpkmeans.results.pictures.cost_curve import draw_cost_curve

        drawn = draw_cost_curve(self.costs, self.n_clusters, self.privacy)
        return write_whole(Path(path), drawn)
