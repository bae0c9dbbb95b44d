"""FastLloyd's, GLloyd's and SuLloyd's plans against the papers' formulas, written down
a second time here.
"""

from __future__ import annotations

import math
from dataclasses import astuple
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.drafts import draft_of

from flwr_dpkmeans.algorithms.lloyd_family.packed import require_packable
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.privacy.accounting import compose_epsilon
from flwr_dpkmeans.privacy.closeness import discrete_gaussian_closeness, joint_closeness
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.plan import Plan

RHO = 0.225


def config_of(algorithm: str, **values: Any) -> Any:
    given = {
        "n_clusters": 3,
        "bounds": ((-1.0,), (1.0,)),
        "algorithm": algorithm,
        "n_examples": 900,
    }
    return parse_config(**given | values)


plan_of = partial(draft_of, n_clusters=3, n_examples=900, seed=7)


def blocks_of(plan: Plan) -> list[tuple[Any, Any]]:
    """Sums and counts of each iteration."""
    return [
        (sums, counts) for sums, counts in (planned.blocks for planned in plan.rounds)
    ]


def joint_sigma(plan: Plan) -> float:
    """Of all iterations together."""
    return (
        float(sum(one.noise_multiplier**-2 for pair in blocks_of(plan) for one in pair))
        ** -0.5
    )


# -- how many iterations ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("estimate", "n"),
    [
        (-5.0, 2), (1.99, 2), (2.0, 2), (3.0, 3), (3.99, 3), (6.99, 6), (7.0, 7),
        (8.0, 7), (math.inf, 7), (math.nan, 7),
    ],
)  # fmt: skip
def test_an_estimate_is_floored_and_lies_between_two_and_seven(
    estimate: float, n: int
) -> None:
    assert config_of("fastlloyd").task.iterations(estimate) == n
    for given in (1, 9):
        assert config_of("fastlloyd", max_iter=given).task.iterations(estimate) == given


def fastlloyd(n: int, k: int, d: int, sigma: float) -> float:
    """Equation 21, with the radius of equation 25."""
    eta = 0.8 * 2.0 * math.sqrt(d) / (2.0 * k ** (1.0 / d))
    return (
        0.004
        * 4.0
        * n**2
        / (k**3 * eta**2 * sigma**2 * (1.0 + math.sqrt(4.0 * d)) ** 2)
    )


def glloyd(n: int, k: int, d: int, sigma: float) -> float:
    """Appendix B.1."""
    return 0.004 * n**2 / (k**3 * d * sigma**2 * (2.0 * RHO + math.sqrt(d)) ** 2)


def sulloyd(n: int, k: int, d: int, epsilon: float) -> float:
    """Su et al. 2016."""
    return epsilon / math.sqrt(
        500.0 * k**3 / n**2 * (d + (4.0 * d * RHO**2) ** (1.0 / 3.0)) ** 3
    )


@pytest.mark.parametrize(
    ("algorithm", "k", "d", "fewest", "most"),
    [
        *[
            ("fastlloyd", 3, 2, 430, 1050),
            ("fastlloyd", 2, 5, 900, 2000),
            ("glloyd", 3, 2, 1030, 2250),
        ],
        *[
            ("glloyd", 2, 5, 1300, 2800),
            ("sulloyd", 3, 2, 1150, 4900),
            ("sulloyd", 2, 5, 2000, 8600),
        ],
    ],
)
def test_the_number_of_iterations_is_the_papers(
    algorithm: str, k: int, d: int, fewest: int, most: int
) -> None:
    """Of more rows there are more; each number is looked at from both sides."""
    found = []
    for n in np.geomspace(fewest, most, 24).astype(int).tolist():
        plan = plan_of(
            algorithm=algorithm, width=d, n_clusters=k, n_examples=n, epsilon=0.9
        )
        estimate = sulloyd(n, k, d, 0.9) if algorithm == "sulloyd" else None
        if estimate is None:
            estimate = {"fastlloyd": fastlloyd, "glloyd": glloyd}[algorithm](
                n, k, d, joint_sigma(plan)
            )
        assert abs(estimate - round(estimate)) > 1e-6
        assert len(plan.rounds) == min(max(math.floor(estimate), 2), 7)
        found.append(len(plan.rounds))
    assert set(found) == {2, 3, 4, 5, 6, 7}


@pytest.mark.parametrize("n", [1900, 2150, 2480, 2890, 3350, 3890, 4510])
def test_what_other_releases_take_is_not_there_for_iterations(n: int) -> None:
    """A private count has two fifths here, an evaluation a fifth of the others."""
    counted = {
        "n_examples": None, "delta": 1e-6, "count_share": 0.4, "evaluation": "private",
        "evaluation_share": 0.2,
    }  # fmt: skip
    config = config_of("sulloyd", epsilon=2.25, **counted)
    plan = draft_plan(config, run_id=1, n_clients=5, seed=7, n_features=2, n_examples=n)
    own = [one for one in plan.rounds if one.name.startswith("lloyd-")]
    assert len(own) == min(max(math.floor(sulloyd(n, 3, 2, 0.9)), 2), 7)


def test_laplace_noise_beside_an_evaluation_uses_the_whole_budget() -> None:
    plan = plan_of(
        algorithm="sulloyd", epsilon=2.0, max_iter=3, evaluation="private",
        evaluation_share=0.1,
    )  # fmt: skip
    assert 0.999 * 2.0 < plan.epsilon <= 2.0
    assert plan.epsilon == compose_epsilon(plan.events(), plan.delta)


# -- how much noise --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "ratio"), [("fastlloyd", 2.0), ("glloyd", (2.0 / (2.0 * RHO)) ** 0.5)]
)
def test_sums_and_counts_split_the_noise_as_the_papers_do(
    algorithm: str, ratio: float
) -> None:
    """Of four columns, counts have (4 d)^(1/4) times the sums' multiplier."""
    for sums, counts in blocks_of(plan_of(algorithm=algorithm, width=4, max_iter=3)):
        assert counts.noise_multiplier / sums.noise_multiplier == pytest.approx(
            ratio, rel=1e-9
        )


def test_the_least_noise_of_all_iterations_is_priced_on_its_grid() -> None:
    """The last of three has half of the budget: noise sqrt(3/2) times smaller."""
    seen = []

    def calibrate(closeness_at: Any) -> float:
        seen.append(closeness_at(0.25))
        return 2.0

    task = config_of("glloyd", max_iter=3, noise_schedule="growing").task
    known: Any = SimpleNamespace(n_features=2, fraction_bits=1, calibrate=calibrate)
    assert task.calibrated(
        known, lambda _: 5.0, lambda sigma, d: (2.0 * d * sigma, sigma / 8.0), 0.5
    ) == (2.0, 3)
    sums = 0.25 * math.sqrt(3.0) * 4.0 * 0.5 * 2.0 / math.sqrt(1.5)
    arrays = [discrete_gaussian_closeness(sums, 6), discrete_gaussian_closeness(1.0, 3)]
    assert astuple(seen[0]) == pytest.approx(
        astuple(joint_closeness(arrays * 3)), rel=1e-9
    )


@pytest.mark.parametrize("schedule", ["equal", "growing", "geometric"])
@pytest.mark.parametrize("algorithm", ["fastlloyd", "glloyd", "sulloyd"])
def test_iterations_have_their_parts_of_the_budget(
    algorithm: str, schedule: str
) -> None:
    """Of its square where noise is Gaussian."""
    plan = plan_of(
        algorithm=algorithm, max_iter=4, noise_schedule=schedule, epsilon=1.5
    )
    sizes = {"equal": [1, 1, 1, 1], "growing": [1, 2, 3, 4], "geometric": [1, 2, 4, 8]}[
        schedule
    ]
    power = 1 if algorithm == "sulloyd" else 2
    found = [counts.noise_multiplier**-power for _, counts in blocks_of(plan)]
    assert [one / found[0] for one in found] == pytest.approx(sizes, rel=1e-9)
    assert 0.999 * 1.5 < plan.epsilon <= 1.5
    assert plan.epsilon == compose_epsilon(plan.events(), plan.delta)


def test_lloyd_adds_no_noise_and_takes_seven_iterations() -> None:
    plan = plan_of(algorithm="lloyd")
    assert len(plan.rounds) == 7
    assert {one.noise_multiplier for pair in blocks_of(plan) for one in pair} == {0.0}


# -- what each array declares ----------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "values", "bounds", "entry"),
    [
        # Four columns: half the box's diagonal first, then a radius; in one column a
        # row is at most 2 from a centroid.
        ("fastlloyd", {"alpha": 1.0, "n_clusters": 16}, [2.0, 1.0], [2.0, 1.0]),
        ("fastlloyd", {"alpha": 1.5, "n_clusters": 1}, [2.0, 3.0], [2.0, 2.0]),
        ("fastlloyd", {"alpha": 1.0, "n_clusters": 16, "schedule": "constant"},
         [1.0, 1.0], [1.0, 1.0]),
        ("glloyd", {}, [2.0, 2.0], [1.0, 1.0]),
        ("sulloyd", {}, [4.0, 4.0], [1.0, 1.0]),
        ("lloyd", {}, [2.0, 2.0], [1.0, 1.0]),
    ],
)  # fmt: skip
def test_what_a_row_moves(
    algorithm: str, values: dict[str, Any], bounds: list[float], entry: list[float]
) -> None:
    pairs = blocks_of(plan_of(algorithm=algorithm, width=4, max_iter=2, **values))
    assert [sums.sensitivity.bound for sums, _ in pairs] == pytest.approx(
        bounds, rel=1e-12
    )
    assert [sums.entry_bound for sums, _ in pairs] == pytest.approx(entry, rel=1e-12)
    for sums, counts in pairs:
        assert (
            counts.sensitivity.bound,
            counts.entry_bound,
            counts.sensitivity.nonnegative,
        ) == (1.0, 1.0, True)
        assert not sums.sensitivity.nonnegative
        norms = {one.sensitivity.norm.name for one in (sums, counts)}
        assert norms == {"L1" if algorithm == "sulloyd" else "L2"}


@pytest.mark.parametrize(
    ("k", "d", "refused"), [(1000, 1000, False), (1000, 1001, True), (1001, 1000, True)]
)
def test_packings_of_at_most_a_billion_steps_are_taken_on(
    k: int, d: int, refused: bool
) -> None:
    if refused:
        with pytest.raises(
            ConfigurationError, match=f"n_clusters is {k} with {d} features"
        ):
            require_packable(k, d)
    else:
        require_packable(k, d)
