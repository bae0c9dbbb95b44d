"""Whatever is released, a run that has charged its clients goes on to a result.

Every plan, with releases of no data.

Noise may leave nothing of a sum, and a client may add anything modulo 2^64. Neither may
end a run, or leave a state on which a statistic exceeds what it declares.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from test_contract import FITS, Case, estimator

from flwr_dpkmeans.algorithms.first_plan import first_plan
from flwr_dpkmeans.errors import DPKMeansError
from flwr_dpkmeans.flower.strategy import PrivateKMeans
from flwr_dpkmeans.options import read_config
from flwr_dpkmeans.privacy.release import Block, as_released
from flwr_dpkmeans.sums.build import build_algorithm, initial_state
from flwr_dpkmeans.sums.checks.neighbours import check_sensitivity
from flwr_dpkmeans.sums.checks.verify import require_server_state
from flwr_dpkmeans.sums.draft import draft_plan, redraft_plan
from flwr_dpkmeans.sums.outcome import Discoveries
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import State
from flwr_dpkmeans.sums.statement import build_report
from flwr_dpkmeans.sums.task import TASKS
from flwr_dpkmeans.sums.wire.packed_state import unpack_state

Steps = NDArray[np.int64]
MOST = 2**63 - 1
"""Grid steps: the largest that the ring holds."""
RELEASES: dict[str, Callable[[int, np.random.Generator], Any]] = {
    "zeros": lambda size, _: np.zeros(size),
    "steps": lambda size, _: np.ones(size),
    "negative": lambda size, _: -np.ones(size),
    "large": lambda size, _: np.full(size, MOST),
    "very-negative": lambda size, _: np.full(size, -MOST),
    "alternating": lambda size, _: np.where(np.arange(size) % 2, MOST, -MOST),
    "noise": lambda size, generator: generator.normal(0.0, 2.0**22, size),
    "anything": lambda size, generator: generator.integers(-MOST, MOST, size),
    "first": lambda size, _: np.where(np.arange(size) == 0, 2.0**30, 0.0),
}
OF_COLUMNS: dict[str, dict[str, Any]] = {
    "moments": {},
    "histograms": {"bins": 4},
    "quantiles": {"halvings": 3},
    "pca": {},
    "radii": {"centers": ((-0.5, 0.0, 0.0), (0.5, 0.5, 0.5))},
    "naive_bayes": {
        "classes": 3,
        "categories": (0, 0, 4),
        "bounds": ((-1.0, 0.0, 0.0), (1.0, 3.0, 3.0)),
    },
}
OF_ARRAYS: dict[str, dict[str, Any]] = {
    name: {
        "unit": "client",
        "arrays": (("a", (2,)),),
        "max_iter": 2,
        "most_examples": 5,
    }
    for name in ("array_sum", "exact_array_sum")
}
MEASURED: dict[str, Any] = {"evaluation": "private", "n_classes": 3}
AUTO: dict[str, Any] = {"n_clusters": "auto", "max_clusters": 4, "epsilon": 30.0}
VARIANTS: dict[str, tuple[Case, dict[str, Any]]] = {
    "fastlloyd, no post-processing": (
        ("fastlloyd", "distributed", "record", "gaussian"),
        {"post_processing": "none", "radius_clipping": False, "alpha": 50.0},
    ),
    "fastlloyd, truncated": (
        ("fastlloyd", "distributed", "record", "gaussian"),
        {
            "post_processing": "truncate",
            "radius_clipping": False,
            "schedule": "constant",
        },
    ),
    "glloyd, no post-processing": (
        ("glloyd", "central", "record", "gaussian"),
        {"post_processing": "none"},
    ),
    "sulloyd, no post-processing": (
        ("sulloyd", "central", "record", "gaussian"),
        {"post_processing": "none"},
    ),
    "lloyd, no post-processing": (
        ("lloyd", "central", "record", "gaussian"),
        {"post_processing": "none"},
    ),
    "proxy_lloyd, measured": (
        ("proxy_lloyd", "distributed", "record", "gaussian"),
        MEASURED,
    ),
    "proxy_lloyd, measured, client": (
        ("proxy_lloyd", "distributed", "client", "gaussian"),
        MEASURED,
    ),
    "proxy_lloyd, one cluster": (
        ("proxy_lloyd", "oblivious", "record", "gaussian"),
        {"n_clusters": 1},
    ),
    "feddp_kmeans, Lloyd rounds": (
        ("feddp_kmeans", "distributed", "record", "gaussian"),
        {"max_iter": 2, "server_prior": True, "tolerance": 0.01, **MEASURED},
    ),
    "feddp_kmeans, appendix": (
        ("feddp_kmeans", "distributed", "record", "gaussian"),
        {
            "max_iter": 1,
            "reduce_diameter": True,
            "least_weight": 0.1,
            "deviation": 0.1,
            "margin": 0.5,
        },
    ),
    "feddp_kmeans, simplified": (
        ("feddp_kmeans", "distributed", "record", "gaussian"),
        {"simplify_server_data": True, "least_weight": 0.1},
    ),
    "feddp_kmeans, client, Lloyd rounds": (
        ("feddp_kmeans", "distributed", "client", "gaussian"),
        {"max_iter": 2, **MEASURED},
    ),
    "sphere_packing, measured": (
        ("sphere_packing", "distributed", "record", "gaussian"),
        MEASURED,
    ),
    "server_lloyd, measured": (
        ("server_lloyd", "distributed", "client", "gaussian"),
        MEASURED,
    ),
}
CHOOSING = [
    case
    for case in FITS
    if case[0] in ("proxy_lloyd", "feddp_kmeans") and case[1] == "distributed"
]


def released(kind: str, blocks: tuple[Block, ...], seed: int) -> Any:
    """A release of a round, whose values follow from nobody's rows."""
    size = sum(block.size for block in blocks)
    values = RELEASES[kind](size, np.random.default_rng(seed))
    return as_released(
        np.clip(values, -(2.0**62), 2.0**62).astype(np.int64).view(np.uint64),
        blocks,
        16,
    )


def with_server_points(case: Case, **values: Any) -> tuple[Plan, Any]:
    """A combination's plan, and the server's points where only it has them."""
    given = estimator(case, noise="secure", random_state=7, **values).get_params(
        deep=False
    )
    options = {
        name: value
        for name, value in given.items()
        if name not in ("engine", "n_clients")
    }
    points = options.pop("server_data")
    options["n_examples"] = 200
    config = PrivateKMeans(server_data=points, n_features=3, **options).config
    return first_plan(config, points, run_id=1, n_clients=5, n_features=3)


def of_table(algorithm: str, n_features: int, **values: Any) -> tuple[Plan, Any]:
    """A plan that takes no server points."""
    run = read_config(algorithm=algorithm, **{"bounds": ((-1.0,), (1.0,)), **values})
    return draft_plan(run, run_id=1, n_clients=5, seed=7, n_features=n_features), None


MAKERS: dict[str, Callable[[], tuple[Plan, Any]]] = {
    **{"-".join(case): partial(with_server_points, case) for case in FITS},
    **{
        "-".join((*case, "auto")): partial(with_server_points, case, **AUTO)
        for case in CHOOSING
    },
    **{
        name: partial(with_server_points, case, **values)
        for name, (case, values) in VARIANTS.items()
    },
    **{
        name: partial(of_table, name, 3, n_examples=900, **own)
        for name, own in OF_COLUMNS.items()
    },
    **{name: partial(of_table, name, 1, **own) for name, own in OF_ARRAYS.items()},
}


@cache
def plan_of(name: str) -> tuple[Plan, Any]:
    return MAKERS[name]()


def require_sound(plan: Plan, state: State) -> None:
    """A state travels, and says what it has found."""
    for name, array in state.arrays.items():
        assert np.isfinite(array).all(), name
        assert np.array_equal(np.ldexp(array, 16), np.rint(np.ldexp(array, 16))), (
            f"{name} is off the grid"
        )
        assert np.abs(array).max(initial=0.0) < 2.0**47, f"{name} leaves the digest"
    assert len(state.digest) == 32
    assert len(state.arrays.get("centroids", "some")) > 0


def require_sent(plan: Plan, index: int, state: State, names: Sequence[str]) -> None:
    """Clients take the state from a server that goes on alone."""
    if plan.server_advances:
        require_server_state(plan, index, unpack_state(state.view(names).packed))


@pytest.mark.nightly
def test_every_algorithm_is_tried() -> None:
    assert {plan_of(name)[0].task.name for name in MAKERS} == set(TASKS)


@pytest.mark.sample(57)
@pytest.mark.parametrize("kind", RELEASES)
@pytest.mark.parametrize("name", MAKERS)
def test_no_release_ends_a_run(name: str, kind: str) -> None:
    plan, points = plan_of(name)
    state = initial_state(plan, points)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for index, step in enumerate(build_algorithm(plan).rounds, 1):
            require_sent(plan, index, state, step.reads)
            blocks = plan.round_at(index).blocks
            state = step.advance(state, released(kind, blocks, index))
            require_sound(plan, state)
        require_sent(
            plan, plan.last_round + 1, state, plan.task.result_arrays(plan.config)
        )
        report = build_report(plan, [(plan.last_round, 0)], state=state)
        assert all(len(sentence) > 10 for sentence in report.warnings)
        for name, array in plan.task.result(plan, state).arrays.items():
            # Where nothing is known of a centre's error, it is infinite.
            assert not np.isnan(array).any()
            assert np.isfinite(array).all() or name == "cluster_centers_error"


@pytest.mark.parametrize(
    "name",
    [name for name in MAKERS if name.endswith("auto") and name.startswith("proxy")],
)
def test_where_nothing_was_heard_there_is_one_cluster_and_a_sentence(name: str) -> None:
    plan, points = plan_of(name)
    state = initial_state(plan, points)
    for index, step in enumerate(build_algorithm(plan).rounds, 1):
        state = step.advance(
            state, released("zeros", plan.round_at(index).blocks, index)
        )
    assert len(state.centroids) == 1
    report = build_report(plan, [(plan.last_round, 0)], state=state)
    assert any(
        sentence.startswith("No two places with rows stood out")
        for sentence in report.warnings
    )


PRELIMINARY: dict[str, dict[str, Any]] = {
    "counted": {"n_examples": "private"},
    "bounded": {"bounds": "private"},
    "both": {"bounds": "private", "n_examples": "private"},
}


@pytest.mark.parametrize("kind", RELEASES)
@pytest.mark.parametrize("given", PRELIMINARY)
def test_no_preliminary_release_is_an_error_but_a_sentence(
    given: str, kind: str
) -> None:
    options: dict[str, Any] = {
        "bounds": (-1.0, 1.0),
        "n_examples": 200,
        "n_features": 3,
    } | PRELIMINARY[given]
    config = PrivateKMeans(3, algorithm="proxy_lloyd", **options).config
    plan, _ = first_plan(config, None, run_id=1, n_clients=5, n_features=3)
    assert plan.preliminary
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        later, sentence = continued(plan, kind)
    assert later is None or later.is_final
    assert later is not None or sentence.endswith(".")


def continued(plan: Plan, kind: str) -> tuple[Plan | None, str]:
    """The plan after what comes before round 1 was released, or the sentence that ends
    the run.
    """
    found = Discoveries()
    try:
        for index in range(plan.first_round, 1):
            release = released(kind, plan.round_at(index).blocks, index + 9)
            found = plan.task.take_preliminary(plan, index, release, found)
        return (
            redraft_plan(
                plan, n_features=3, n_examples=found.n_examples, box=found.box
            ),
            "",
        )
    except DPKMeansError as error:
        return None, str(error)


# A table's round has rows to look at; sums of arrays and labels have tests of their
# own.
WITH_ROWS = [name for name in MAKERS if name not in (*OF_ARRAYS, "naive_bayes")]


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", ["alternating", "anything"])
@pytest.mark.parametrize("name", WITH_ROWS)
def test_no_release_leads_to_a_state_in_which_a_row_counts_for_more_than_was_declared(
    name: str, kind: str
) -> None:
    plan, points = plan_of(name)
    state = initial_state(plan, points)
    for index, step in enumerate(build_algorithm(plan).rounds, 1):
        blocks = plan.round_at(index).blocks
        if step.labelled is None:
            statistic = partial(step.statistic, state=state)
            shares = check_sensitivity(
                blocks,
                lambda rows: statistic(rows),  # noqa: B023
                n_features=3,
                n_tables=1,
            )
            assert max(shares.values()) <= 1.0
        state = step.advance(state, released(kind, blocks, index))
