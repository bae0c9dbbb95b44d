"""What a release can tell at most, in standard deviations of the planned noise.

It is the target's part of it. For Gaussian noise the sum of |Delta / sigma|^2 over
everything a run releases is the squared GDP parameter of what an optimal distinguisher
sees; it must never exceed that of the claim. For Laplace noise the same holds for
|Delta|_1 / b and epsilon. Delta comes from the real statistic on both inputs, at the
very states that the adversary saw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.algorithms.server.box_units import plan_bounds
from flwr_dpkmeans.kernels.grid import round_to_grid
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
        gaussian = _share(self.gaussian, self.gaussian_claimed)
        laplace = _share(self.laplace, self.laplace_claimed)
        # Not Python's max, which may pass nan over.
        return float(np.max([gaussian, laplace]))


def _share(seen: float, claimed: float) -> float:
    """What was seen over what is claimed."""
    if claimed > 0.0:
        return seen / claimed
    # Without a claim there is nothing that may be seen.
    return np.inf if seen > 0.0 else 0.0


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

    def or_worse(
        self,
        target: str,
        shown: Information,
    ) -> Worst:
        """Take one more target into account; nan is worst of all.

        Examples
        --------
        >>> shown = Information(0.5, 0.0, 1.0, 0.0, bound_used=1.2)
        >>> Worst("corner", 0.9, 0.5).or_worse("edge", shown)
        Worst(target='edge', information=0.9, bound_used=1.2)
        """
        so_far = max(self.information, self.bound_used)
        other = float(np.max([shown.share, shown.bound_used]))
        return Worst(
            target=self.target if other <= so_far else target,
            information=float(np.max([self.information, shown.share])),
            bound_used=float(np.max([self.bound_used, shown.bound_used])),
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
        start = 0
        used = [0.0]
        for block in self.blocks:
            end = start + block.size
            delta = self.delta[start:end] / GRID
            start = end
            order = 1 if block.noise is NoiseShape.LAPLACE else 2
            norm = np.linalg.norm(delta, order)
            used.append(float(norm) / block.sensitivity.bound)
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
        absent = self._neighbours.absent

        def statistic(points: Array) -> Array:
            return self._statistic(plan, round_index, state, points)

        without_target = statistic(absent[TARGET_CLIENT])
        base = np.zeros_like(without_target)
        delta = np.zeros_like(without_target)
        for position in members:
            if position == TARGET_CLIENT:
                base += without_target
                delta = statistic(self._neighbours.present[position]) - without_target
            else:
                base += statistic(absent[position])
        scales, laplace = _noise(planned.blocks)
        rate = plan.config.client_sampling_rate if round_index > 0 else 1.0
        return Part(planned.blocks, base, delta, scales, laplace, rate)

    @staticmethod
    def _statistic(
        plan: Plan,
        index: int,
        state: State | Discoveries,
        points: Array,
    ) -> Array:
        """One client's exact vector, in grid steps."""
        n_columns = points.shape[1] - plan.settings.n_beside
        points, beside = np.split(points, [n_columns], axis=1)
        if isinstance(state, Discoveries):
            arrays: Sequence[Array] = plan.task.preliminary_statistic(
                plan, index, points, state
            )
        else:
            step = build_algorithm(plan).rounds[index - 1]
            arrays = step.arrays_of(in_box(plan, points), state, None, beside)
        flat = np.concatenate([np.ravel(array) for array in arrays])
        return np.rint(flat * GRID)


def in_box(plan: Plan, points: Array) -> Array:
    """A table in the plan's box, on the grid."""
    if plan.box is None:
        return points
    bounds = plan_bounds(plan, points.shape[1])
    return round_to_grid(bounds.scale(points), plan.fraction_bits)


def _noise(blocks: Sequence[Block]) -> tuple[Array, NDArray[np.bool_]]:
    """Planned scales of all entries, and which are Laplace's."""
    scales = []
    is_laplace = []
    for block in blocks:
        scale = 0.0
        if block.noise is not NoiseShape.NONE:
            scale = block.noise_scale * GRID
        # Without noise nothing is hidden: a grid step stands for "exactly".
        scales.append(np.full(block.size, scale if scale > 0.0 else 1.0))
        is_laplace.append(np.full(block.size, block.noise is NoiseShape.LAPLACE))
    return np.concatenate(scales), np.concatenate(is_laplace)


def claimed_information(
    plan: Plan, attempts: Sequence[tuple[int, int]]
) -> tuple[float, float, bool]:
    """Squared GDP parameter and pure epsilon of a run, and whether all is Gaussian.

    Sampled releases count as if everybody were included: that is what a distinguisher
    sees who happens to be.
    """
    events = plan.events([index for index, _ in attempts])
    totals = add_up(events)
    is_sampled = any(event.sampling_rate < 1.0 for event in events)
    is_gaussian = not (totals.pure_epsilons or is_sampled or totals.exact)
    return totals.mu**2, totals.pure, is_gaussian


def information_of(
    parts: Sequence[Part],
    plan: Plan,
    attempts: Sequence[tuple[int, int]],
) -> Information:
    """Add up what the parts of a run show.

    Examples
    --------
    >>> from flwr_dpkmeans.options import parse_config
    >>> from flwr_dpkmeans.sums.build import initial_state
    >>> from flwr_dpkmeans.sums.draft import draft_plan
    >>> config = parse_config(
    ...     algorithm="glloyd",
    ...     n_clusters=1,
    ...     bounds=((-1,), (1,)),
    ...     n_examples=9,
    ...     max_iter=1,
    ...     delta=1e-5,
    ... )
    >>> plan = draft_plan(config, run_id=1, n_clients=2, seed=7, n_features=1)
    >>> rows = (np.zeros((0, 1)), np.zeros((0, 1)))
    >>> truth = Truth(Neighbours("corner", rows, (np.ones((1, 1)), rows[1])))
    >>> part = truth.part(plan, 1, initial_state(plan), (0, 1))
    >>> round(information_of([part], plan, [(1, 0)]).share, 6)
    1.0
    """
    gaussian_claimed, laplace_claimed, _ = claimed_information(plan, attempts)
    used = [part.bound_used for part in parts]
    return Information(
        gaussian=sum(part.gaussian for part in parts),
        laplace=sum(part.pure for part in parts),
        gaussian_claimed=gaussian_claimed,
        laplace_claimed=laplace_claimed,
        bound_used=float(np.max([0.0, *used])),
    )


def priced_information(
    plan: Plan,
    attempts: Sequence[tuple[int, int]],
    epsilon: float,
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
    ...     algorithm="glloyd",
    ...     n_clusters=1,
    ...     bounds=((-1,), (1,)),
    ...     n_examples=9,
    ...     max_iter=1,
    ...     delta=1e-5,
    ... )
    >>> plan = draft_plan(config, run_id=1, n_clients=2, seed=7, n_features=1)
    >>> claimed, _, _ = claimed_information(plan, [(1, 0)])
    >>> round(priced_information(plan, [(1, 0)], plan.epsilon) / claimed, 6)
    1.0
    """
    _, _, is_gaussian = claimed_information(plan, attempts)
    if not is_gaussian or not 0.0 < epsilon < np.inf:
        return np.inf
    return float(gaussian_noise_multiplier(epsilon, plan.delta) ** -2)
