"""What a release can tell at most: the target's part of it in standard deviations of
the noise that is planned.

For Gaussian noise the sum of |Delta / sigma|^2 over everything a run releases is the
squared GDP parameter of what an optimal distinguisher sees; it must never exceed that
of the claim. For Laplace noise the same holds for |Delta|_1 / b and epsilon. Delta
comes from the real statistic on both inputs, at the very states that the adversary saw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.algorithms.server_points import plan_bounds
from flwr_dpkmeans.kmeans.lloyd import round_to_grid
from flwr_dpkmeans.privacy.accounting import add_up
from flwr_dpkmeans.privacy.calibration import gaussian_noise_multiplier
from flwr_dpkmeans.privacy.release import Block, NoiseShape
from flwr_dpkmeans.sums.build import build_algorithm
from flwr_dpkmeans.sums.outcome import Discoveries
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import State
from simulations.audit.cases import TARGET_CLIENT, Neighbours

Array = NDArray[np.float64]

GRID = 2.0**16


@dataclass(frozen=True)
class Information:
    """How much runs show, of what they may.

    Parameters
    ----------
    gaussian, laplace : float
        Sum of |Delta / sigma|^2, and of |Delta|_1 / b.
    gaussian_claimed, laplace_claimed : float
        The squared GDP parameter and the pure epsilon of the releases.
    bound_used : float
        Largest share of its sensitivity that one array used.
    """

    gaussian: float
    laplace: float
    gaussian_claimed: float
    laplace_claimed: float
    bound_used: float

    @property
    def share(self) -> float:
        """Seen over claimed, the larger of both kinds of noise.

        Above 1 a claim is false.
        """
        shares = [
            (self.gaussian, self.gaussian_claimed),
            (self.laplace, self.laplace_claimed),
        ]
        # Without a claim there is nothing that may be seen.
        found = [
            seen / claimed if claimed > 0.0 else (np.inf if seen > 0.0 else 0.0)
            for seen, claimed in shares
        ]
        return float(np.max(found))


@dataclass(frozen=True)
class Worst:
    """The most that any of some targets shows, and the target of it.

    Parameters
    ----------
    target : str
        Of the larger of both numbers.
    information, bound_used : float
        Largest `Information.share`, and largest share of a sensitivity that one array
        used; above 1 a claim is false.
    """

    target: str = ""
    information: float = 0.0
    bound_used: float = 0.0

    def or_worse(self, target: str, found: Information) -> Worst:
        """Take one more target into account; nan is worst of all.

        Examples
        --------
        >>> Worst("corner", 0.9, 0.5).or_worse("edge", Information(0.5, 0.0, 1.0, 0.0, 1.2))
        Worst(target='edge', information=0.9, bound_used=1.2)
        """
        mine, other = (
            max(self.information, self.bound_used),
            float(np.max([found.share, found.bound_used])),
        )
        return Worst(
            self.target if other <= mine else target,
            float(np.max([self.information, found.share])),
            float(np.max([self.bound_used, found.bound_used])),
        )


@dataclass(frozen=True)
class Part:
    """One aggregation taken apart by somebody who knows all rows but the target.

    Parameters
    ----------
    blocks : tuple of Block
        As planned.
    base : ndarray, (length,)
        Exact sum without the target, in grid steps.
    delta : ndarray, (length,)
        What the target adds, in grid steps.
    scales : ndarray, (length,)
        Of the planned noise, in grid steps; infinite where there is none to compare
        with.
    laplace : ndarray of bool, (length,)
        Which entries have Laplace noise.
    rate : float
        With which a client takes part.
    """

    blocks: tuple[Block, ...]
    base: Array = field(repr=False)
    delta: Array = field(repr=False)
    scales: Array = field(repr=False)
    laplace: NDArray[np.bool_] = field(repr=False)
    rate: float

    @property
    def gaussian(self) -> float:
        """Sum of |Delta / sigma|^2 over entries with Gaussian noise."""
        return float(np.square(self.delta / self.scales)[~self.laplace].sum())

    @property
    def pure(self) -> float:
        """Sum of |Delta| / b over entries with Laplace noise."""
        return float(np.abs(self.delta / self.scales)[self.laplace].sum())

    @property
    def bound_used(self) -> float:
        """Largest share of its bound that an array used."""
        start, used = 0, [0.0]
        for block in self.blocks:
            own = self.delta[start : start + block.size] / GRID
            start += block.size
            size = (
                np.abs(own).sum()
                if block.noise is NoiseShape.LAPLACE
                else np.linalg.norm(own)
            )
            used.append(float(size) / block.sensitivity.bound)
        # Not Python's max, which may pass nan over.
        return float(np.max(used))


class Truth:
    """Exact statistics of a pair of neighbours, by the real code.

    Parameters
    ----------
    neighbours : Neighbours
    """

    def __init__(self, neighbours: Neighbours) -> None:
        self._neighbours = neighbours

    def part(
        self,
        plan: Plan,
        round_index: int,
        state: State | Discoveries,
        members: Sequence[int],
    ) -> Part:
        """Take one aggregation apart.

        Parameters
        ----------
        plan : Plan
            In force.
        round_index : int
        state : State or Discoveries
            What the statistics were taken at.
        members : sequence of int
            Positions of the clients in the sum.

        Returns
        -------
        Part
        """
        planned = plan.round_at(round_index)
        absent, present = self._neighbours.absent, self._neighbours.present
        own = self._statistic(plan, round_index, state, absent[TARGET_CLIENT])
        delta = np.zeros_like(own)
        if TARGET_CLIENT in members:
            delta = (
                self._statistic(plan, round_index, state, present[TARGET_CLIENT]) - own
            )
        base = np.zeros_like(own)
        for position in members:
            base += (
                own
                if position == TARGET_CLIENT
                else self._statistic(plan, round_index, state, absent[position])
            )
        scales, laplace = _noise(planned.blocks)
        rate = plan.config.client_sampling_rate if round_index > 0 else 1.0
        return Part(planned.blocks, base, delta, scales, laplace, rate)

    @staticmethod
    def _statistic(
        plan: Plan, index: int, state: State | Discoveries, points: Array
    ) -> Array:
        """One client's exact vector, in grid steps."""
        points, beside = np.split(
            points, [points.shape[1] - plan.settings.n_beside], axis=1
        )
        if isinstance(state, Discoveries):
            arrays = plan.task.preliminary_statistic(plan, index, points, state)
        else:
            arrays = list(
                build_algorithm(plan)
                .rounds[index - 1]
                .arrays_of(in_box(plan, points), state, None, beside)
            )
        return np.rint(np.concatenate([np.ravel(array) for array in arrays]) * GRID)


def in_box(plan: Plan, points: Array) -> Array:
    """A table in the plan's box, on the grid."""
    if plan.box is None:
        return points
    return round_to_grid(
        plan_bounds(plan, points.shape[1]).scale(points), plan.fraction_bits
    )


def _noise(blocks: Sequence[Block]) -> tuple[Array, NDArray[np.bool_]]:
    """Planned scales of all entries, and which are Laplace's."""
    scales = np.concatenate(
        [
            np.full(
                block.size,
                block.noise_scale * GRID if block.noise is not NoiseShape.NONE else 0.0,
            )
            for block in blocks
        ]
    )
    laplace = np.concatenate(
        [np.full(block.size, block.noise is NoiseShape.LAPLACE) for block in blocks]
    )
    # Without noise nothing is hidden: a grid step stands for "exactly".
    return np.where(scales > 0.0, scales, 1.0), laplace


def claimed_information(
    plan: Plan, attempts: Sequence[tuple[int, int]]
) -> tuple[float, float, bool]:
    """Return the squared GDP parameter and the pure epsilon of a run's releases, and
    whether all are plain Gaussian.

    Sampled releases count as if everybody were included: that is what a distinguisher
    sees who happens to be.
    """
    events = plan.events([index for index, _ in attempts])
    totals = add_up(events)
    plain = not totals.pure_epsilons and not any(
        event.sampling_rate < 1.0 for event in events
    )
    return totals.mu**2, totals.pure, plain and not totals.exact


def information_of(
    parts: Sequence[Part], plan: Plan, attempts: Sequence[tuple[int, int]]
) -> Information:
    """Add up what the parts of a run show.

    Examples
    --------
    >>> from flwr_dpkmeans.options import parse_config
    >>> from flwr_dpkmeans.sums.draft import draft_plan, initial_state
    >>> config = parse_config(
    ...     n_clusters=1, bounds=((-1,), (1,)), n_examples=9, algorithm="glloyd", max_iter=1, delta=1e-5
    ... )
    >>> plan = draft_plan(config, run_id=1, n_clients=2, seed=7, n_features=1)
    >>> rows = (np.zeros((0, 1)), np.zeros((0, 1)))
    >>> truth = Truth(Neighbours("corner", rows, (np.ones((1, 1)), rows[1])))
    >>> round(information_of([truth.part(plan, 1, initial_state(plan), (0, 1))], plan, [(1, 0)]).share, 6)
    1.0
    """
    gaussian, pure, _ = claimed_information(plan, attempts)
    return Information(
        sum(part.gaussian for part in parts),
        sum(part.pure for part in parts),
        gaussian,
        pure,
        float(np.max([0.0, *(part.bound_used for part in parts)])),
    )


def priced_information(
    plan: Plan, attempts: Sequence[tuple[int, int]], epsilon: float
) -> float:
    """The squared GDP parameter that a reported epsilon pays for.

    Infinite where noise is not plain Gaussian.

    Beside `claimed_information`, which is priced by the audit itself: a report may say
    less than its plan.

    Examples
    --------
    >>> from flwr_dpkmeans.options import parse_config
    >>> from flwr_dpkmeans.sums.draft import draft_plan
    >>> config = parse_config(
    ...     n_clusters=1, bounds=((-1,), (1,)), n_examples=9, algorithm="glloyd", max_iter=1, delta=1e-5
    ... )
    >>> plan = draft_plan(config, run_id=1, n_clients=2, seed=7, n_features=1)
    >>> round(priced_information(plan, [(1, 0)], plan.epsilon) / claimed_information(plan, [(1, 0)])[0], 6)
    1.0
    """
    if not claimed_information(plan, attempts)[2] or not 0.0 < epsilon < np.inf:
        return np.inf
    return float(gaussian_noise_multiplier(epsilon, plan.delta) ** -2)
