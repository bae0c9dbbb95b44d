"""Options and constants of methods at their edges."""

from __future__ import annotations

from dataclasses import fields
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from flwr_dpkmeans import FederatedKMeans, FederatedNaiveBayes
from flwr_dpkmeans.algorithms import clusterings, proxy_rounds
from flwr_dpkmeans.algorithms.feddp_kmeans import (
    FedDPChooseKTask,
    FedDPKMeansTask,
    SpherePackingTask,
)
from flwr_dpkmeans.algorithms.naive_bayes import NaiveBayesOptions, _codes
from flwr_dpkmeans.algorithms.proxy_plan import ProxyOptions
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.errors import ConfigurationError, DataError, PlanError
from flwr_dpkmeans.flower.engines import _require_same_labels
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.planner import PlanningRequest
from flwr_dpkmeans.planner.simulate import SimulatedSize, simulated_size
from flwr_dpkmeans.sums.build import build_algorithm
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.round import State
from flwr_dpkmeans.sums.task import TASKS

BOX = ((-1.0,), (1.0,))


def test_shares_are_parts_of_one() -> None:
    options = ProxyOptions()
    shares = {
        one.name: getattr(options, one.name)
        for one in fields(options)
        if one.name.endswith("_share")
    }
    assert len(shares) >= 8
    assert [name for name, share in shares.items() if not 0.0 < share < 1.0] == []


def test_rows_of_a_subspace_are_cut_at_twice_the_root_of_its_width() -> None:
    """Four axes: the ball around the centre that holds the box has radius 2 * sqrt(4) =
    4; without axes, the box.
    """
    rows = np.array([[8.0, 0.0, 0.0, 0.0], [0.0, 3.5, 0.0, 0.0]])
    in_subspace = State({proxy_rounds.AXES: np.eye(4)})
    inside = proxy_rounds._inside(rows, in_subspace)
    assert inside.tolist() == [
        [pytest.approx(4.0, abs=1e-4), 0.0, 0.0, 0.0],
        [0.0, 3.5, 0.0, 0.0],
    ]
    assert proxy_rounds._inside(rows, State({})).max() == 1.0


@pytest.mark.parametrize(
    "shares", [(0.0, 0.5, 0.25, 0.25), (0.5, 0.25, 0.25, 0.0), (0.5, -0.5, 0.5, 0.5)]
)
def test_no_share_of_the_budget_is_zero(shares: tuple[float, ...]) -> None:
    given: dict[str, Any] = {
        "n_clusters": 3,
        "bounds": BOX,
        "algorithm": "feddp_kmeans",
        "trust": "central",
    }
    with pytest.raises(ConfigurationError, match="they must be four positive numbers"):
        parse_config(**given, budget_shares=shares)


def test_a_start_without_server_points_gets_a_table_of_no_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[int, ...]] = []

    def start(
        self: SpherePackingTask, known: object, seed: int, points: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        seen.append(points.shape)
        return np.zeros((self.n_clusters, 5))

    monkeypatch.setattr(SpherePackingTask, "start", start)
    config = parse_config(
        n_clusters=3,
        bounds=BOX,
        n_examples=987,
        algorithm="sphere_packing",
        trust="central",
    )
    plan = draft_plan(config, run_id=1, n_clients=4, seed=1, n_features=5)
    build_algorithm(plan).initial_state(1)
    assert seen == [(0, 5)]


def test_categories_bound_their_columns_and_leave_the_others_as_given() -> None:
    """Of three columns the second has the codes 0, 1 and 2, the third 0 and 1."""
    model = FederatedNaiveBayes(2, bounds=((-1.0, 5.0, 6.0), (1.0, 9.0, 8.0)))
    given = NaiveBayesOptions(classes=2, categories=(0, 3, 2))
    assert model._bounds(given) == Bounds((-1.0, 0.0, 0.0), (1.0, 2.0, 1.0))


@pytest.mark.parametrize("algorithm", ["k_fed", "max_cover"])
def test_methods_of_one_place_refuse_server_data(algorithm: str) -> None:
    model = FederatedKMeans(
        2,
        algorithm=algorithm,
        bounds=(-1.0, 1.0),
        trust="central",
        server_data=np.zeros((9, 2)),
    )
    with pytest.raises(
        ConfigurationError,
        match=(
            f"server_data was given, but '{algorithm}' starts without it: leave it out"
        ),
    ):
        model.fit([np.zeros((9, 2))] * 2)


def test_frames_of_equal_or_of_other_numbers_of_labels_are_not_refused_for_their_labels() -> (
    None
):
    """Those of another width are refused later, for that."""
    tables: list[Any] = [
        SimpleNamespace(columns=[0, 1]),
        np.zeros((3, 2)),
        SimpleNamespace(columns=[0, 1]),
    ]
    named = dict(zip("0123", tables, strict=False))
    _require_same_labels(named, "X")
    _require_same_labels(named | {"3": SimpleNamespace(columns=[0, 1, 2])}, "X")
    with pytest.raises(
        DataError, match=r"X\[3\]: the columns are 1, 0, but those of X\[0\] are 0, 1"
    ):
        _require_same_labels(
            named | {"3": cast(Any, SimpleNamespace(columns=[1, 0]))}, "X"
        )


def test_of_many_wide_clients_twenty_rows_each_are_simulated() -> None:
    """2,000,000 cells of 1,000 columns are 2,000 rows.

    Four for each of 500 clients, which would be too few.
    """
    options = {"n_clusters": 3, "unit": "client"}
    assert simulated_size(
        PlanningRequest(100_000, 1000, 500, options)
    ) == SimulatedSize(500, 20, 1)
    assert simulated_size(PlanningRequest(5_000, 1000, 500, options)) == SimulatedSize(
        500, 10, 1
    )


@pytest.mark.parametrize("n", [2, 3, 5])
def test_categories_are_spread_evenly_over_the_box(n: int) -> None:
    places = np.linspace(-1.0, 1.0, n)
    assert _codes(places, n).tolist() == list(range(n))
    assert _codes(places + 0.4 / (n - 1), n).tolist() == list(range(n))
    assert _codes(np.array([-1.5, 1.5]), n).tolist() == [0, n - 1]


@pytest.mark.parametrize("algorithm", ["server_lloyd", "feddp_kmeans"])
def test_a_start_needs_at_least_one_restart(algorithm: str) -> None:
    given: dict[str, Any] = {
        "n_clusters": 3,
        "bounds": BOX,
        "algorithm": algorithm,
        "trust": "central",
    }
    assert parse_config(**given, n_init=1).task.options.n_init == 1
    with pytest.raises(ConfigurationError, match="n_init is 0"):
        parse_config(**given, n_init=0)


def test_what_a_state_holds_is_not_printed() -> None:
    """Lines of a log may show one."""
    assert repr(State({"means": np.zeros((2, 3))}, (0.5,))) == "State()"


def test_clusterings_are_those_tasks_that_cluster() -> None:
    assert "moments" in TASKS
    assert "moments" not in clusterings()
    with pytest.raises(KeyError):
        clusterings()["moments"]
    assert len(clusterings()) == len(list(clusterings())) < len(list(TASKS))
    assert all(clusterings()[name] is TASKS[name] for name in clusterings())


@pytest.mark.parametrize(
    ("k", "width", "given"), [(2, 3, False), (3, 3, True), (4, 3, True)]
)
def test_a_projection_onto_as_many_directions_as_there_are_gives_points_away(
    k: int, width: int, given: bool
) -> None:
    task: Any = SimpleNamespace(n_clusters=k)
    words = FedDPChooseKTask.server_points_words(
        task, SimpleNamespace(n_features=width)
    )  # type: ignore[arg-type]
    away = ", which gives them away" if given else ""
    assert words.endswith(
        f"their projection onto at most {min(k, width)} of {width} directions{away}"
    )


def test_server_points_of_no_rows_are_no_start() -> None:
    for server, refused in (
        (None, True),
        (SimpleNamespace(n_points=0), True),
        (SimpleNamespace(n_points=1), False),
    ):
        known: Any = SimpleNamespace(server=server)
        task: Any = SimpleNamespace(name="feddp_kmeans")
        if refused:
            with pytest.raises(PlanError, match="starts from the server's own points"):
                FedDPKMeansTask.facts(task, known)
        else:
            assert FedDPKMeansTask.facts(task, known) is server


def test_the_longest_run_of_a_task_has_its_rounds_or_seven() -> None:
    for given, most in ((None, 7), (3, 3), (9, 9)):
        task = parse_config(
            n_clusters=2, bounds=BOX, algorithm="glloyd", max_iter=given
        ).task
        assert task.longest().options.max_iter == most  # type: ignore[attr-defined]
    packing = parse_config(
        n_clusters=2, bounds=BOX, algorithm="feddp_choose_k", choose_n_clusters=True
    ).task
    assert packing.longest() is packing
