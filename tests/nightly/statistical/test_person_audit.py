"""A run of persons is attacked from end to end: who has 60 rows at one spot shows no
more than epsilon allows, and far more where each row counts as a record.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.loading.person_ids import person_digests
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.local import run_direct
from flwr_dpkmeans.sums.persons.counted_persons import Persons
from flwr_dpkmeans.sums.plan import Plan
from simulations.audit.bounds import Method, Scores, choose_rule, lower_bound

EPSILON, DELTA = 1.0, 1e-3
N_TRAINING, N_RUNS = 500, 2000
SPOT, SPOT_BIN = 0.25, 2
Points = NDArray[np.float64]


def plan_for(unit: str) -> Plan:
    config = parse_config(
        algorithm="histograms",
        bins=4,
        unit=unit,
        trust="central",
        bounds=((-1.0,), (1.0,)),
        epsilon=EPSILON,
        delta=DELTA,
        n_examples=100,
    )
    return draft_plan(config, run_id=1, n_clients=2, seed=3, n_features=2)


def tables(*, present: bool) -> tuple[list[Points], list[Persons]]:
    """50 persons of two rows each at both parties, and one of 60 rows at the first."""
    steps = np.random.default_rng(2).integers(-(2**15), 0, (2, 100, 2))
    parts = list(steps / 2.0**16)
    ids = [[f"{number // 2}" for number in range(100)] for _ in parts]
    if present:
        parts[0] = np.vstack([parts[0], np.full((60, 2), SPOT)])
        ids[0] += ["attacked"] * 60
    persons = [Persons(person_digests(of_part, b"key")) for of_part in ids]
    return parts, persons


def scores_of(plan: Plan, n_runs: int) -> Scores:
    """What is released of the spot's bins: all that the person adds to."""
    scores: dict[bool, list[float]] = {False: [], True: []}
    for present, of_runs in scores.items():
        parts, persons = tables(present=present)
        for _ in range(n_runs):
            run = run_direct(plan, parts, persons=persons)
            of_runs.append(float(run.state["bins"][:, SPOT_BIN].sum()))
    return Scores(np.array(scores[False]), np.array(scores[True]))


def bound_of(unit: str) -> float:
    plan = plan_for(unit)
    rule = choose_rule(scores_of(plan, N_TRAINING), DELTA, Method.GDP)
    fresh = scores_of(plan, N_RUNS)
    return lower_bound(fresh, rule, DELTA, Method.GDP, confidence=0.99).epsilon


def test_a_person_of_60_rows_shows_no_more_than_epsilon_allows() -> None:
    bound = bound_of("person")
    assert 0.1 * EPSILON < bound <= EPSILON


def test_rows_that_count_one_by_one_are_caught() -> None:
    """The same person at record level, which the claim is not about."""
    assert bound_of("record") > 3.0 * EPSILON
