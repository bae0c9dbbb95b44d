"""A private evaluation is unbiased for the exact value of the clipped metric, and its
noise is what it says.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from flwr_dpkmeans.algorithms.measure.evaluation_result import (
    EvaluationResult,
    read_evaluation,
)
from flwr_dpkmeans.algorithms.measure.measured import Measured
from flwr_dpkmeans.algorithms.states.cluster_states import cluster_state
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.options import read_config
from flwr_dpkmeans.secagg.ring import AggregateVector, encode
from flwr_dpkmeans.sums.build import build_algorithm
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.local import run_direct
from flwr_dpkmeans.sums.plan import Plan, make_noise_source
from flwr_dpkmeans.sums.trust import trust_model

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

RUNS = 600
MEAN = 4.0 / math.sqrt(RUNS)
"""Four standard errors of a mean of so many numbers of deviation 1."""
SPREAD = 0.12
"""Four standard errors of their standard deviation.

a noise that is 30% off is far outside.
"""
RADIUS = 0.35
MIDDLES = np.array([[-0.6, -0.6], [0.0, 0.6], [0.6, -0.4]])


def tables(sizes: list[int]) -> tuple[list[Floats], list[Labels]]:
    """Rows of three groups, some of them far from all centres, and labels that are
    mostly their group.
    """
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
    parts: list[Floats],
    labels: list[Labels],
    centroids: Floats,
    found: EvaluationResult,
    *,
    per_client: bool,
) -> Any:
    """The clipped metrics themselves, by brute force.

    Cost, share clipped, accuracy, counts.
    """
    sums = []
    for rows, own in zip(parts, labels, strict=True):
        squares = np.square(rows[:, None] - centroids[None]).sum(axis=2)
        nearest = squares.argmin(axis=1)
        least = squares.min(axis=1)
        hits = [
            np.any([(a, b) == pair for pair in found.matching])
            for a, b in zip(nearest, own, strict=True)
        ]
        table = np.eye(len(centroids))[nearest]
        measured = np.column_stack(
            [np.minimum(least, RADIUS**2), least > RADIUS**2, hits, table]
        )
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
    config = read_config(**(settings | values))
    return draft_plan(config, run_id=1, n_clients=len(sizes), seed=0, n_features=2)


def standardised(
    plan: Plan, parts: list[Floats], labels: list[Labels], *, per_client: bool
) -> Floats:
    """(value - exact value) over the stated noise: runs by metrics.

    One run's centroids, measured again and again.
    """
    state = run_direct(plan, parts, labels=labels).state
    step, planned, bits = (
        build_algorithm(plan).rounds[-1],
        plan.rounds[-1],
        plan.fraction_bits,
    )
    trust = trust_model(planned.trust)
    vectors = []
    for rows, own in zip(parts, labels, strict=True):
        arrays = step.arrays_of(rows, state.view(step.reads), own)
        vectors.append(
            encode(np.concatenate([array.ravel() for array in arrays]), bits)
        )
    scores = []
    for seed in range(RUNS):
        source = make_noise_source(replace(plan, seed=seed), "server")
        sent = [
            trust.contribute(vector, planned.blocks, bits, plan.shares, source).values
            for vector in vectors
        ]
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
        pairs += [
            (Measured(count, found.counts_noise), own)
            for count, own in zip(found.counts, truth[3], strict=True)
        ]
        scores.append(
            [(measured.value - value) / measured.noise for measured, value in pairs]
        )
    return np.array(scores)


CASES = {
    "central": ([900, 700, 0, 900], {}),
    "shares of the clients": ([900, 700, 800], {"trust": "distributed"}),
    "nothing declared": (
        [900, 700, 900],
        {"algorithm": "sphere_packing", "n_examples": None},
    ),
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
    scores = standardised(
        plan_of(sizes, **values), parts, labels, per_client=case == "clients"
    )
    assert np.abs(scores.mean(axis=0)).max() < MEAN, scores.mean(axis=0)
    assert np.abs(scores.std(axis=0) - 1.0).max() < SPREAD, scores.std(axis=0)


@pytest.mark.parametrize("epsilon", [2.0, 8.0])
def test_sampled_clients_are_in_the_stated_noise(epsilon: float) -> None:
    """It is a bound."""
    rate, n_clients, runs = 0.2, 1500, 400
    plan = plan_of(
        [20] * n_clients,
        algorithm="sphere_packing",
        unit="client",
        n_clusters=2,
        n_classes=2,
        n_examples=None,
        trust="distributed",
        epsilon=epsilon,
        delta=1e-4,
        evaluation_share=0.4,
        client_sampling_rate=rate,
        masking=True,
    )
    planned, step = plan.rounds[-1], build_algorithm(plan).rounds[-1]
    generator = np.random.default_rng(8)
    state = cluster_state(np.array([[-0.5, -0.5], [0.5, 0.5]]), np.zeros(2))
    vectors = []
    for client in range(n_clients):
        # Every client has one class, right for its cluster or not, and its own cost.
        own, away = client % 2, RADIUS * (generator.random() < 0.3)
        rows = round_to_grid(state.centroids[[own] * 20] * (1.0 - away))
        arrays = step.arrays_of(
            rows, state, np.full(20, own if client % 5 else 1 - own)
        )
        vectors.append(np.concatenate([array.ravel() for array in arrays]))
    noise = np.concatenate(
        [
            np.full(block.shape, plan.released_std(planned, block)).ravel()
            for block in planned.blocks
        ]
    )
    values, stated = [], []
    for _ in range(runs):
        took_part = generator.random(n_clients) < rate
        released = took_part @ np.array(vectors) + noise * generator.standard_normal(
            len(noise)
        )
        extras = {
            "clipped_cost": released[:1],
            "rows_beyond": released[1:2],
            "cell_counts": released[2:].reshape(2, 3),
        }
        found = read_evaluation(
            plan, cluster_state(state.centroids, state.counts, (), extras)
        )
        assert found is not None
        assert found.accuracy is not None
        values.append([found.cost.value, found.accuracy.value, *found.counts])
        stated.append(
            [
                found.cost.noise,
                found.accuracy.noise,
                found.counts_noise,
                found.counts_noise,
            ]
        )
    ratio = np.std(values, axis=0) / np.mean(stated, axis=0)
    assert ratio.max() < 1.0 + 4.0 / math.sqrt(2.0 * runs), ratio
    # Hits and counts are 0 or 1, so that the bound is what happens.
    assert ratio[1:].min() > 0.8, ratio
