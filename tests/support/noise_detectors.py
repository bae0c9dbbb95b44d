"""What an audit and somebody who knows all rows see of the noise.

AssertionError if there is too little of it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from flwr_dpkmeans.kernels.cluster_sums import absolute_statistics
from flwr_dpkmeans.privacy.release import Block, NoiseShape
from flwr_dpkmeans.sums.build import initial_state
from simulations.audit.audit import AuditOptions, AuditResult, run_audit
from simulations.audit.cases import Neighbours, build_cases
from simulations.audit.information import Truth, in_box
from simulations.audit.message_runs import run_with_messages
from simulations.audit.trials import measuring
from simulations.audit.views import Adversary, ReadableSum, resolve_adversary, view_of
from simulations.audit.watched import Seen, run_watched
from support.protocol_federation import grid_parts
from support.wire_detectors import federation_run

Array = NDArray[np.float64]
Words = NDArray[np.uint64]

SMALLEST_P = 1e-9
"""Of some hundred tests in one verdict.

Together they are wrong less often than once in a million runs.
"""
CONFIDENCE = 1.0 - 1e-6


class ShortAudit(AuditOptions):
    """Fewer training runs than an audit that shall be tight."""

    @property
    def training(self) -> int:
        return 100


def audited(*, trials: int = 120, **options: Any) -> AuditResult:
    """A lower bound on epsilon, from real runs with a target and without.

    Without masks, which take time.
    """
    values = {"masking": False, "max_iter": 1} | options.pop("values", {})
    with measuring(1) as measure:
        return run_audit(
            ShortAudit(
                **({"case": "edge", "trials": trials, "values": values} | options)
            ),
            measure,
        )


def require_claim(result: AuditResult) -> None:
    """What the runs show, at a confidence that leaves one wrong verdict in a million,
    is no more than is claimed.
    """
    epsilon = result.bound_at(CONFIDENCE)
    assert epsilon <= result.claimed, (
        f"epsilon is at least {epsilon:.3g}, but {result.claimed:.3g} is claimed"
    )


@dataclass(frozen=True)
class Noise:
    """What was left of one released array after taking the exact sum away, in scales of
    the plan.
    """

    place: tuple[int, int]
    block: Block
    values: Array = field(repr=False)


def noise_of_run(
    algorithm: str, trust: str, adversary: str = "auto", **values: Any
) -> list[Noise]:
    """Noise in everything that one adversary can read, less what its colluders put in
    themselves.

    Parameters
    ----------
    algorithm, trust : str
    adversary : str
        As in audits.
    **values
        Of the configuration; and ``n_clients``.
    """
    n_clients = values.pop("n_clients", 3)
    case = build_cases(
        algorithm,
        trust,
        values.pop("unit", "record"),
        "edge",
        values | {"n_clients": n_clients},
    )[0]
    parts = tuple(grid_parts([40] * n_clients, case.plan.n_features or 1))
    seen: list[Seen] = []
    found = run_watched(
        case.plan,
        parts,
        scale=in_box,
        server_points=case.private_points,
        watch=seen.append,
    )
    view = view_of(
        seen,
        resolve_adversary(adversary, trust),
        found.plan,
        found.state,
        found.attempts,
    )
    return noise_in(view.sums, parts)


def noise_of_retried_run(algorithm: str, **values: Any) -> list[Noise]:
    """The same with Flower's messages, under ``distributed``, where a reply comes late
    and a sum is asked for twice.
    """
    case = build_cases(
        algorithm, "distributed", "record", "edge", values | {"n_clients": 4}
    )[0]
    parts = tuple(grid_parts([40] * 4, case.plan.n_features or 1))
    view = run_with_messages(
        case, Neighbours("", parts, parts), Adversary.SERVER, 1, True
    )
    assert {one.attempt for one in view.sums} == {0, 1}
    return noise_in(view.sums, parts)


def noise_of_published_counts(**values: Any) -> list[Noise]:
    """Counts in the result that the server gives away after one round, less the exact
    ones at the public start.
    """
    parts = grid_parts([60, 60, 60], 2, seed=6)
    run = federation_run(
        parts, algorithm="glloyd", trust="central", max_iter=1, n_clusters=40, **values
    )
    plan = run.federation.plan
    start = np.array(initial_state(plan).centroids)
    counts = absolute_statistics(np.concatenate(parts), start)[1]
    block = plan.round_at(1).blocks[1]
    return [
        Noise(
            (1, 0),
            block,
            (run.result.arrays["counts"].numpy() - counts) / block.noise_scale,
        )
    ]


def noise_in(sums: Sequence[ReadableSum], parts: tuple[Array, ...]) -> list[Noise]:
    """Take the exact sums away from what can be read."""
    truth, found = Truth(Neighbours("", parts, parts)), []
    for one in sums:
        part = truth.part(one.plan, one.round_index, one.state, one.members)
        left = (one.values.view(np.int64).astype(np.float64) - part.base) / part.scales
        start = 0
        for block in part.blocks:
            found.append(
                Noise(
                    (one.round_index, one.attempt),
                    block,
                    left[start : start + block.size],
                )
            )
            start += block.size
    return found


def require_enough(noises: Sequence[Noise]) -> None:
    """No array, and no half of one, has less noise than the plan says (exact chi-square
    or gamma distribution).
    """
    assert noises
    parts: dict[tuple[str, str, int], list[Array]] = {}
    for noise in noises:
        halves = {
            "": noise.values,
            ", diagonal": _diagonal(noise, True),
            ", rest": _diagonal(noise, False),
        }
        for half, values in halves.items():
            parts.setdefault((noise.block.name, half, noise.place[1]), []).append(
                values
            )
    shapes = {noise.block.name: noise.block.noise for noise in noises}
    for (name, half, _), arrays in parts.items():
        drawn = np.concatenate(arrays)
        if not len(drawn):
            continue
        if shapes[name] is NoiseShape.LAPLACE:
            p = float(stats.gamma.cdf(np.abs(drawn).sum(), len(drawn)))
        else:
            p = float(stats.chi2.cdf(np.square(drawn).sum(), len(drawn)))
        assert p > SMALLEST_P, (
            f"{name}{half}: {drawn.std():.3f} of the planned noise in {len(drawn)}"
            f" entries, p = {p:.2g}"
        )


def _diagonal(noise: Noise, wanted: bool) -> Array:
    """Entries on, or off, the diagonal of a symmetric matrix."""
    if not noise.block.name.endswith("outer_product"):
        return noise.values[:0]
    rows, columns = np.triu_indices(int(math.sqrt(2 * noise.block.size)))
    return np.asarray(noise.values[(rows == columns) == wanted])


def require_unrelated(noises: Sequence[Noise]) -> None:
    """No two released arrays, of one run or of several, have noise that is correlated
    from its first entry on.
    """
    for one, other in itertools.combinations(noises, 2):
        n = min(len(one.values), len(other.values))
        if n >= 10:
            p = float(stats.pearsonr(one.values[:n], other.values[:n]).pvalue)
            assert p > SMALLEST_P, (
                f"{one.place} {one.block.name} and {other.place} {other.block.name}"
                " share noise"
            )


def require_exact_sampler(draw: Callable[[float, int], NDArray[np.int64]]) -> None:
    """At a scale of one grid step, where rounded floats differ.

    Chi-square over the values from -4 to 4.
    """
    n = 60_000
    drawn = draw(1.0, n)
    values = np.arange(-4, 5)
    probabilities = np.exp(-0.5 * np.square(np.arange(-30, 31)))
    probabilities = (probabilities / probabilities.sum())[26:35]
    expected = np.append(probabilities, 1.0 - probabilities.sum()) * n
    seen = np.array([(drawn == value).sum() for value in values])
    seen = np.append(seen, n - seen.sum())
    p = float(
        stats.chisquare(
            [*seen[1:8], seen[[0, 8, 9]].sum()],
            [*expected[1:8], expected[[0, 8, 9]].sum()],
        ).pvalue
    )
    assert p > SMALLEST_P, f"not a discrete Gaussian, p = {p:.2g}"
