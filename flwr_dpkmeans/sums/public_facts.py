"""What is public when an algorithm's rounds are built.

And what follows from the server's own points.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from flwr_dpkmeans.errors import ConfigurationError, PlanError
from flwr_dpkmeans.privacy.calibration import calibrate_gaussian
from flwr_dpkmeans.privacy.closeness import Closeness, joint_closeness
from flwr_dpkmeans.privacy.release import Block, Event, GaussianRelease, PrivacyUnit
from flwr_dpkmeans.sums.settings import Settings

if TYPE_CHECKING:
    from flwr_dpkmeans.sums.config import RunConfig


CLIP_BOUNDS = (
    *(
        "data_radius",
        "outer_product_bound",
        "weights_bound",
        "means_bound",
        "indicators_bound",
    ),
    *("sums_bound", "counts_bound"),
)
"""Names of the norms that statistics can be clipped to."""
MAX_SERVER_POINTS = 2**17
"""A client's work and memory grow with their number, and a plan may come from a hostile
server.
"""


class ServerData(Enum):
    """Whether a task uses the server's own points.

    Not, only bounds that follow from them, or the points too.
    """

    NONE = "none"
    BOUNDS = "bounds"
    OPTIONAL = "optional"
    NEEDED = "needed"


@dataclass(frozen=True)
class ServerFacts:
    """Public numbers that follow from the server's points.

    All in the scaled box [-1, 1]^d.
    """

    n_points: int
    centre: tuple[float, ...]
    """The points' mean, (n_features,), on the grid; rows are taken relative to it."""
    data_radius: float
    """Rows are clipped to this distance from the centre."""
    outer_product_bound: float
    """Frobenius norm that one unit adds to the outer product."""
    weights_bound: float = 1.0
    """Client level: norm of a client's histogram.

    Below, of its group means, of its indicators, its sums and counts.
    """
    means_bound: float = 1.0
    indicators_bound: float = 1.0
    sums_bound: float = 1.0
    counts_bound: float = 1.0

    def __post_init__(self) -> None:
        for name in CLIP_BOUNDS:
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0.0):
                raise ConfigurationError(
                    f"{name} is {value!r}, but it must be positive and finite: give"
                    " another one."
                )
        if self.n_points > MAX_SERVER_POINTS:
            raise ConfigurationError(
                f"the server has {self.n_points} points, but at most"
                f" {MAX_SERVER_POINTS} can be weighted: give fewer."
            )
        # Off the grid, a client's sums could not be encoded for some data, and that it
        # fails would tell of them.
        are_on_grid = all(_is_on_grid(value) for value in self.centre)
        if self.n_points < 0 or not are_on_grid:
            raise ConfigurationError(
                "the server data's centre is not on the grid inside the bounds: check"
                " the server."
            )


def _is_on_grid(value: float) -> bool:
    """Whether a number is a step of the grid in the box [-1, 1]."""
    return abs(value) <= 1.0 and (value * 2.0**16).is_integer()


@dataclass(frozen=True)
class PublicFacts:
    """Everything public that a task's rounds are computed from.

    `Task.build` gets it, and hands it to `allocate`.

    Most tasks need `n_features`, `options` and, where N matters, `required_n_examples`
    (with `Task.needs_n_examples`).
    """

    config: RunConfig
    n_examples: int | None
    """Declared or privately estimated number of rows, N.

    None for tasks that do not need it.
    """
    n_features: int
    delta: float
    released_multiplier: float | None
    """Noise multiplier of all Gaussian releases that are not the task's own (private
    count, histograms, profile, evaluation) together; None if there are none.
    """
    released_closeness: Closeness
    fraction_bits: int
    """Grid of the ring."""
    server: ServerFacts | None = None
    """What follows from the server's own points, if it has any."""
    noise_factor: float = 1.0
    """Standard deviation of what is released over that of the plan.

    Shares of all clients add more than is counted.
    """
    n_clients: int = 0
    evaluation: tuple[Block, ...] = ()
    """What an evaluation after the last round releases; empty if there is none."""
    profile: tuple[Block, ...] = ()
    """What a profile before that releases; empty if there is none."""
    sampled: tuple[GaussianRelease, ...] = ()
    """Profile and evaluation over sampled clients, which have no place in
    `released_multiplier`.
    """

    @property
    def settings(self) -> Settings:
        """What every run has."""
        return self.config.settings

    @property
    def options(self) -> Any:
        """The task's own options; their class is the task's business."""
        return self.config.task.options

    @property
    def required_n_examples(self) -> int:
        """N, which the caller needs."""
        if self.n_examples is None:
            raise PlanError(
                f"{self.config.task.name!r} needs the number of rows: declare"
                " n_examples."
            )
        return self.n_examples

    def released_std(self, block: Block) -> float:
        """Standard deviation of all noise in one entry of a release."""
        return block.standard_deviation * self.noise_factor

    @property
    def counted(self) -> bool:
        """Whether N was released.

        So all plans that may follow from it must be priced together.
        """
        return self.n_examples is not None and self.settings.n_examples is None

    @property
    def n_units(self) -> float:
        """What sums are taken over.

        N rows or, at client level, as many clients as take part on average.
        """
        if self.settings.unit is PrivacyUnit.CLIENT:
            return self.n_clients * self.settings.client_sampling_rate
        return float(self.required_n_examples)

    def released_events(self) -> tuple[Event, ...]:
        """What is not the task's own, for the accountant.

        Gaussian releases compose to one.
        """
        if self.released_multiplier is None:
            return self.sampled
        others = GaussianRelease(
            "other releases", self.released_multiplier, self.released_closeness
        )
        return (others, *self.sampled)

    def calibrate(self, closeness_at: Callable[[float], Closeness]) -> float:
        """Noise multiplier of the task's own rounds.

        What the preliminary ones leave of (epsilon, delta).

        Under joint Gaussian accounting the squared reciprocals of the multipliers add
        up.
        """

        def all_closeness_at(multiplier: float) -> Closeness:
            parts = [closeness_at(multiplier), self.released_closeness]
            return joint_closeness(parts)

        total = calibrate_gaussian(self.settings.epsilon, self.delta, all_closeness_at)
        if self.released_multiplier is None:
            return total
        left = total**-2 - self.released_multiplier**-2
        if left <= 0.0:
            raise PlanError(
                "the other releases take the whole budget: lower their shares, such as"
                " count_share and bounds_share."
            )
        return 1.0 / math.sqrt(left)
