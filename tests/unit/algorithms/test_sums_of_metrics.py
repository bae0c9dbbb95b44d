"""Metrics beside sums of arrays: by hand, and against their bound."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from hypothesis import given, settings
from hypothesis import strategies as st

from flwr_dpkmeans import SecureSum
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.privacy.release import as_released
from flwr_dpkmeans.sums.build import build_algorithm, initial_state
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.plan import Plan

BOUNDS = (("loss", -1.0, 3.0), ("accuracy", 0.0, 1.0), ("far", -1e300, 1e300))


def plan_of(n_metrics: int, most_examples: int) -> Plan:
    start = ArrayRecord({"a": Array(np.zeros(2))})
    run = SecureSum(start, epsilon=4.0, most_examples=most_examples).config
    run = run.changed(metrics=BOUNDS[:n_metrics])
    return draft_plan(run, run_id=1, n_clients=4, seed=1, n_features=1)


def parts_of(plan: Plan, weight: float, *values: object) -> list[Any]:
    """One client's arrays, whose app answers some metrics."""
    task: Any = plan.task
    stated = dict(zip(["loss", "accuracy", "far"], values, strict=False))
    vector = np.concatenate([[0.0, 0.0, weight], task.metric_values(stated)])
    return list(build_algorithm(plan).rounds[0].statistic(vector, initial_state(plan)))


@settings(max_examples=60)
@given(
    st.integers(1, 3),
    st.sampled_from([0, 7]),
    st.floats(allow_nan=True),
    st.lists(st.one_of(st.floats(), st.none()), min_size=3, max_size=3),
)
def test_no_metrics_are_longer_than_declared(
    n_metrics: int, most_examples: int, weight: float, values: list[float | None]
) -> None:
    plan = plan_of(n_metrics, most_examples)
    block, array = plan.rounds[0].blocks[-1], parts_of(plan, weight, *values)[-1]
    assert block.name == "metrics"
    steps = [int(value) for value in np.ldexp(array, 16)]
    assert np.ldexp(array, 16).tolist() == steps
    assert min(steps) >= 0
    most = Fraction(block.sensitivity.bound * 2**16) ** 2
    assert sum(step**2 for step in steps) <= most
    assert max(array) <= block.entry_bound


@pytest.mark.parametrize(("most_examples", "weight"), [(0, 1.0), (7, 0.5)])
def test_means_of_metrics_by_hand(most_examples: int, weight: float) -> None:
    """Of four clients, one of which has no number: it counts as the least."""
    plan = plan_of(2, most_examples)
    parts = [parts_of(plan, weight, 9.0, word) for word in (1.0, 1, 1.0, "much")]
    total = np.sum([np.concatenate(part) for part in parts], axis=0)
    steps = np.ldexp(total, 16).astype(np.int64).view(np.uint64)
    released = as_released(steps, plan.rounds[0].blocks, 16)
    step = build_algorithm(plan).rounds[0]
    state = step.advance(initial_state(plan), released)
    task: Any = plan.task
    means = task.means_of_metrics(state, 1 if most_examples else 4)
    assert means == pytest.approx({"loss": 3.0, "accuracy": 0.75}, abs=1e-4)


def test_metrics_without_noise_or_bounds_are_refused() -> None:
    exact = SecureSum(ArrayRecord({"a": Array(np.zeros(2))})).config
    with pytest.raises(ConfigurationError, match="with noise only: give epsilon"):
        exact.changed(metrics=BOUNDS)
    noisy = SecureSum(ArrayRecord({"a": Array(np.zeros(2))}), epsilon=1.0).config
    for low, high in ((1.0, 1.0), (0.0, math.inf), (math.nan, 1.0), (0.0, 5e-324)):
        with pytest.raises(ConfigurationError, match="both must be finite"):
            noisy.changed(metrics=(("loss", low, high),))
