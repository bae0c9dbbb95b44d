"""A private evaluation is unbiased for the exact value of the clipped metric, and its noise is what it says."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from flwr_dpkmeans.algorithms import parse_run
from flwr_dpkmeans.direct import run_direct
from flwr_dpkmeans.evaluation import read_evaluation
from flwr_dpkmeans.kmeans.update import round_to_grid
from flwr_dpkmeans.plan import Plan, make_noise_source
from flwr_dpkmeans.planning import build_algorithm, draft_plan
from flwr_dpkmeans.results.evaluation import EvaluationResult, Measured
from flwr_dpkmeans.secagg.ring import AggregateVector, encode
from flwr_dpkmeans.trust import trust_model

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

RUNS = 600
MEAN = 4.0 / math.sqrt(RUNS)
"""Four standard errors of a mean of so many numbers of deviation 1."""
SPREAD = 0.12
"""Four standard errors of their standard deviation; a noise that is 30% off is far outside."""
RADIUS = 0.35
MIDDLES = np.array([[-0.6, -0.6], [0.0, 0.6], [0.6, -0.4]])

pytestmark = pytest.mark.statistical


def tables(sizes: list[int]) -> tuple[list[Floats], list[Labels]]:
    """Rows of three groups, some of them far from all centres, and labels that are mostly their group."""
    generator = np.random.default_rng(5)
    parts, labels = [], []
    for size in sizes:
        group = generator.integers(0, 3, size)
        rows = MIDDLES[group] + generator.normal(0.0, 0.15, (size, 2))
        parts.append(round_to_grid(np.clip(rows, -1.0, 1.0)))
        other = generator.random(size) < 0.1
        labels.append(np.where(other, (group + 1) % 3, group).astype(np.int64))
    return parts, labels


def exact(
    parts: list[Floats], labels: list[Labels], centroids: Floats, found: EvaluationResult, *, per_client: bool
) -> Any:
    """The clipped metrics themselves, by brute force: cost, share clipped, accuracy, counts."""
    sums = []
    for rows, own in zip(parts, labels, strict=True):
        squares = np.square(rows[:, None] - centroids[None]).sum(axis=2)
        nearest = squares.argmin(axis=1)
        least = squares.min(axis=1)
        hits = [np.any([(a, b) == pair for pair in found.matching]) for a, b in zip(nearest, own, strict=True)]
        table = np.eye(len(centroids))[nearest]
        measured = np.column_stack([np.minimum(least, RADIUS**2), least > RADIUS**2, hits, table])
        sums.append(measured.mean(axis=0) if per_client else measured.sum(axis=0))
    total = np.sum(sums, axis=0)
    n = len(parts) if per_client else sum(map(len, parts))
    return total[0] / n, total[1] / n, total[2] / n, total[3:]


def plan_of(sizes: list[int], **values: Any) -> Plan:
    settings: dict[str, Any] = {
        "n_clusters": 3,
        "bounds": ((-1.0,), (1.0,)),
        "algorithm": "fastlloyd",
        "trust": "central",
        "epsilon": 3.0,
        "delta": 1e-5,
        "max_iter": 2,
        "n_examples": sum(sizes),
        "n_classes": 3,
        "evaluation": "private",
        "evaluation_radius": RADIUS,
        "evaluation_share": 0.2,
        "noise": "seeded",
        "masking": False,
    }
    config = parse_run(**(settings | values))
    return draft_plan(config, run_id=1, n_clients=len(sizes), seed=0, n_features=2)


def standardised(plan: Plan, parts: list[Floats], labels: list[Labels], *, per_client: bool) -> Floats:
    """(value - exact value) over the stated noise: runs by metrics. One run's centroids, measured again and again."""
    state = run_direct(plan, parts, labels=labels).state
    step, planned, bits = build_algorithm(plan).rounds[-1], plan.rounds[-1], plan.fraction_bits
    trust = trust_model(planned.trust)
    vectors = []
    for rows, own in zip(parts, labels, strict=True):
        arrays = step.arrays_of(rows, state.view(step.reads), own)
        vectors.append(encode(np.concatenate([array.ravel() for array in arrays]), bits))
    scores = []
    for seed in range(RUNS):
        source = make_noise_source(replace(plan, seed=seed), "server")
        sent = [trust.contribute(vector, planned.blocks, bits, plan.shares, source).values for vector in vectors]
        total = AggregateVector(np.sum(sent, axis=0, dtype=np.uint64), blinded=False)
        released = trust.broadcast(total, planned.blocks, bits, source).released
        assert released is not None
        found = read_evaluation(plan, step.advance(state, released))
        assert found is not None
        assert found.accuracy is not None
        if seed == 0:
            truth = exact(parts, labels, state.centroids, found, per_client=per_client)
            matching = found.matching
        assert found.matching == matching
        pairs: list[tuple[Measured, float]] = list(
            zip((found.cost, found.clipped, found.accuracy), truth, strict=False)
        )
        pairs += [(Measured(count, found.counts_noise), own) for count, own in zip(found.counts, truth[3], strict=True)]
        scores.append([(measured.value - value) / measured.noise for measured, value in pairs])
    return np.array(scores)


CASES = {
    "central": ([900, 700, 0, 900], {}),
    "shares of the clients": ([900, 700, 800], {"trust": "distributed"}),
    "nothing declared": ([900, 700, 900], {"algorithm": "sphere_packing", "n_examples": None}),
    "Laplace beside it": ([900, 700, 900], {"algorithm": "sulloyd"}),
    "clients": (
        [10, 40, 25] * 100,
        {
            "algorithm": "sphere_packing",
            "unit": "client",
            "epsilon": 10.0,
            "examples_per_client": 25,
            "n_examples": None,
        },
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_metrics_are_unbiased_and_as_noisy_as_they_say(case: str) -> None:
    sizes, values = CASES[case]
    parts, labels = tables(sizes)
    scores = standardised(plan_of(sizes, **values), parts, labels, per_client=case == "clients")
    assert np.abs(scores.mean(axis=0)).max() < MEAN, scores.mean(axis=0)
    assert np.abs(scores.std(axis=0) - 1.0).max() < SPREAD, scores.std(axis=0)
