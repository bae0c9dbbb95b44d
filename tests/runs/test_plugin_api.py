"""The plugin in an app that somebody else wrote.

Own ServerApp, own data, and Flower's ordinary ClientApp.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import Result, Strategy
from support.protocol_federation import grid_parts, make_federation
from support.quiet_grid import forbid_messages

from flwr_dpkmeans import (
    Auto,
    ClientLevel,
    Cohort,
    Evaluation,
    FastLloyd,
    FastLloydOptions,
    FederatedKMeans,
    GLloyd,
    KMeansClient,
    Lloyd,
    PrivateBounds,
    PrivateCount,
    PrivateKMeans,
    ProxyLloyd,
    SuLloyd,
    client_app,
    federate,
    secure_aggregation_mod,
)
from flwr_dpkmeans.errors import ConfigurationError, DataError, LocalMisuseError
from flwr_dpkmeans.flower.in_process_grid import InProcessGrid, Node
from flwr_dpkmeans.node.ledger_file import FileLedger
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.settings import Settings
from flwr_dpkmeans.sums.wire import dump_plan

N_CLIENTS = 4


def digits(node_id: int) -> np.ndarray:
    """One node's share of the handwritten digits."""
    from sklearn.datasets import load_digits

    return np.asarray(load_digits().data[node_id - 2 :: N_CLIENTS])


def context(run_id: int, node_id: int = 1) -> Context:
    return Context(
        run_id=run_id,
        node_id=node_id,
        node_config={},
        state=RecordDict(),
        run_config={},
    )


def grid_of(
    app: ClientApp, folder: Path, run_id: int = 50, **policy: str
) -> InProcessGrid:
    """Nodes that run somebody's ClientApp.

    Ledgers and results stay in the test's folder.
    """
    folder.mkdir(exist_ok=True)
    (folder / "anything.toml").write_text("allow-anything = true\n")
    configs = [
        {"ledger": str(folder / f"ledger-{i}"), "output": str(folder / f"client-{i}")}
        for i in range(N_CLIENTS)
    ]
    for config in configs:
        config |= {"policy": str(folder / "anything.toml")} | policy
    return InProcessGrid([Node(app, config) for config in configs], run_id=run_id)


def run_server_app(main: Callable[[Grid, Context], None], grid: InProcessGrid) -> None:
    """Do what Flower does with a ServerApp."""
    app = ServerApp()
    app.main()(main)
    with grid.running():
        app(grid, context(grid.run.run_id))


def load_data(context: Context) -> np.ndarray:
    return digits(context.node_id)


def legacy_client(context: Context) -> Any:
    return KMeansClient(digits(context.node_id)).to_client()


def test_server_app_and_client_app_of_somebody_else(tmp_path: Path) -> None:
    results: list[Result] = []

    def main(grid: Grid, context: Context) -> None:
        results.append(
            FastLloyd(
                n_clusters=10,
                n_features=64,
                epsilon=2.0,
                n_examples=1797,
                bounds=(0, 16),
            ).start(grid=grid)
        )

    grid = grid_of(client_app(load_data), tmp_path)
    run_server_app(main, grid)
    (result,) = results
    assert isinstance(result, Result)
    assert not result.arrays
    assert 1.99 < result.privacy.epsilon <= 2.0  # type: ignore[attr-defined]
    rounds = sorted(result.train_metrics_clientapp)
    assert rounds == list(range(1, rounds[-1] + 1))
    assert (
        result.train_metrics_clientapp[rounds[-1]]["epsilon"] == result.privacy.epsilon
    )  # type: ignore[attr-defined]
    assert (
        result.evaluate_metrics_clientapp[rounds[-1]]["clients-confirmed"] == N_CLIENTS
    )
    centroids = []
    for i in range(N_CLIENTS):
        (path,) = (tmp_path / f"client-{i}").glob("run-*/client-*/centroids.npz")
        with np.load(path) as archive:
            centroids.append(archive["centroids"])
    assert centroids[0].shape == (10, 64)
    assert all(np.array_equal(other, centroids[0]) for other in centroids)
    for i in range(N_CLIENTS):
        entries = FileLedger(tmp_path / f"ledger-{i}").entries()
        assert [entry.round_index for entry in entries] == [*rounds, rounds[-1]]
        assert entries[-1].release == "the result"
        assert {entry.epsilon for entry in entries} == {
            result.privacy.epsilon_worst_case
        }  # type: ignore[attr-defined]


def test_ordinary_client_app_with_the_mod(tmp_path: Path) -> None:
    """Flower's own NumPyClient wrapper around `KMeansClient`, under the mod."""
    assert issubclass(KMeansClient, NumPyClient)
    settings: dict[str, Any] = {
        "n_features": 64,
        "n_examples": 1797,
        "bounds": (0, 16),
        "random_state": 3,
    }
    # The same noise for both: a node allows that only if its own policy says so.
    lenient = (
        "allow-anything = true\nrequire-secure-noise = false\nallow-non-private ="
        " true\n"
    )
    (tmp_path / "policy.toml").write_text(lenient)
    arrays = []
    for run_id, app in (
        (60, ClientApp(client_fn=legacy_client, mods=[secure_aggregation_mod])),
        (61, client_app(lambda context: KMeansClient(digits(context.node_id)))),
    ):
        grid = grid_of(
            app, tmp_path / str(run_id), run_id, policy=str(tmp_path / "policy.toml")
        )
        with grid.running():
            result = FastLloyd(10, trust="central", noise="seeded", **settings).start(
                grid
            )
        assert result.confirmed == (2, 3, 4, 5)
        arrays.append(result.arrays["centroids"].numpy())
        entries = FileLedger(tmp_path / str(run_id) / "ledger-0").entries()
        assert sum(entry.is_release for entry in entries) == len(result.steps)
    assert np.array_equal(*arrays)


def test_undeclared_width_and_rows_are_found_out(tmp_path: Path) -> None:
    grid = grid_of(
        ClientApp(client_fn=legacy_client, mods=[secure_aggregation_mod]), tmp_path
    )
    with grid.running():
        result = FastLloyd(10, epsilon=2.0, bounds=(0, 16)).start(grid)
    assert result.privacy is not None
    assert result.privacy.n_examples_source == "private count"
    assert result.privacy.n_examples == pytest.approx(1797, abs=200)
    assert sorted(result.train_metrics_clientapp)[0] == 0
    assert result.privacy.epsilon <= 2.0


@pytest.mark.parametrize("strategy", [FastLloyd, GLloyd, SuLloyd, Lloyd])
def test_strategies_are_flower_strategies(strategy: type[Strategy]) -> None:
    assert issubclass(strategy, Strategy)
    made: Any = strategy(3, bounds=(0, 1))  # type: ignore[call-arg]
    assert made.config.algorithm == strategy.__name__.lower()
    with pytest.raises(ConfigurationError, match="no run has been started: call start"):
        made.summary()


def test_strategies_take_their_own_options_as_keywords_and_objects_for_the_rest() -> (
    None
):
    client = {
        "unit": "client",
        "examples_per_client": 7,
        "max_silent": 1,
        "bounds_share": 0.1,
    }
    flat = ProxyLloyd(
        3,
        bounds="private",
        bounds_domain=(0, 9),
        evaluation="private",
        n_classes=3,
        **client,
    )
    objects = ProxyLloyd(
        3,
        bounds=PrivateBounds(share=0.1, domain=(0, 9)),
        unit=ClientLevel(7),
        cohort=Cohort(max_silent=1),
        evaluation=Evaluation(n_classes=3),
    )
    assert flat.config == objects.config
    chosen = PrivateKMeans(
        "auto",
        bounds=(0, 1),
        max_clusters=5,
        trust="distributed",
        algorithm="proxy_lloyd",
    )
    assert (
        chosen.config == ProxyLloyd(Auto(5), bounds=(0, 1), trust="distributed").config
    )
    counted = FastLloyd(3, bounds=(0, 1), n_examples=PrivateCount(0.1)).config
    assert counted == FastLloyd(3, bounds=(0, 1), count_share=0.1).config
    own = FastLloyd(3, bounds=(0, 1), alpha=0.6).config
    assert (
        own
        == PrivateKMeans(3, bounds=(0, 1), algorithm=FastLloydOptions(alpha=0.6)).config
    )
    with pytest.raises(ConfigurationError, match="but the algorithm is 'fastlloyd'"):
        FastLloyd(3, bounds=(0, 1), weight_threshold=2)


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    return MetricRecord(
        {"round": server_round, "largest": float(arrays["centroids"].numpy().max())}
    )


@pytest.fixture
def small(tmp_path: Path) -> InProcessGrid:
    """Four nodes with fifty rows in the plane."""
    rows = np.random.default_rng(0).uniform(0, 10, (N_CLIENTS, 50, 2))
    return grid_of(
        client_app(lambda context: KMeansClient(rows[context.node_id - 2])), tmp_path
    )


@pytest.mark.parametrize(
    "known", [{"n_features": 2, "n_examples": 200}, {"n_features": 2}, {}], ids=str
)
def test_evaluation_on_the_server_is_refused_where_it_sees_nothing(
    small: InProcessGrid, known: dict[str, Any]
) -> None:
    forbid_messages()
    with (
        small.running(),
        pytest.raises(
            ConfigurationError,
            match=(
                "evaluate_fn was given, but under trust 'oblivious' the server has no"
            ),
        ),
    ):
        FastLloyd(3, bounds=(0, 10), **known).start(small, evaluate_fn=evaluate)


@pytest.mark.parametrize("trust", ["central", "distributed"])
def test_evaluation_on_the_server_works_where_it_sees_releases(
    small: InProcessGrid, trust: str
) -> None:
    with small.running():
        result = FastLloyd(
            3, bounds=(0, 10), n_examples=200, trust=trust, max_iter=3
        ).start(
            small,
            evaluate_fn=lambda index, arrays: (
                None if index == 2 else evaluate(index, arrays)
            ),
        )
    assert sorted(result.evaluate_metrics_serverapp) == [1, 3]
    assert all(
        metrics["round"] == index
        for index, metrics in result.evaluate_metrics_serverapp.items()
    )
    assert result.arrays["centroids"].numpy().shape == (3, 2)
    assert (
        result.evaluate_metrics_serverapp[3]["largest"]
        == result.arrays["centroids"].numpy().max()
    )
    assert (
        0
        <= result.arrays["centroids"].numpy().min()
        <= result.arrays["centroids"].numpy().max()
        <= 10
    )
    assert "movement" in result.train_metrics_clientapp[3]


def test_initial_arrays_are_refused(
    small: InProcessGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid_messages()
    with small.running():
        for trust in ("oblivious", "central"):
            with pytest.raises(ConfigurationError, match="initial_arrays are given"):
                FastLloyd(3, bounds=(0, 10), n_examples=200, trust=trust).start(
                    small, initial_arrays=ArrayRecord([np.zeros((3, 2))])
                )


def test_num_rounds_and_timeout_of_flowers_signature(small: InProcessGrid) -> None:
    seen: list[float | None] = []

    class Spying(InProcessGrid):
        def send_and_receive(
            self, messages: Any, *, timeout: float | None = None
        ) -> list[Message]:
            seen.append(timeout)
            return list(super().send_and_receive(messages, timeout=timeout))

    grid = Spying([])
    vars(grid).update(vars(small))
    with small.running():
        result = FastLloyd(3, bounds=(0, 10), n_examples=200).start(
            grid,
            ArrayRecord(),
            num_rounds=4,
            timeout=12.0,
            train_config=None,
            evaluate_config=None,
        )
    assert sorted(result.train_metrics_clientapp) == [1, 2, 3, 4]
    # One round trip for keys, one for each iteration, one to finish.
    assert seen == [12.0] * 6
    with small.running(), pytest.raises(ConfigurationError, match="max_iter is 0"):
        FastLloyd(3, bounds=(0, 10), n_examples=200).start(small, num_rounds=0)


def test_a_strategy_can_be_started_again(small: InProcessGrid, tmp_path: Path) -> None:
    strategy = FastLloyd(3, bounds=(0, 10), n_examples=200, max_iter=2)
    other = client_app(lambda _: KMeansClient(np.ones((50, 2))))
    for grid in (small, grid_of(other, tmp_path / "again", run_id=51)):
        with grid.running():
            result = strategy.start(grid)
        assert [step.round_index for step in result.steps] == [1, 2]
        assert result.privacy is not None
        assert result.privacy.n_attempts == 2


@pytest.mark.parametrize("config", [{}, {"task": "train"}, {"task": 3}, {"lr": 0.1}])
def test_client_without_the_mod_says_what_to_do(config: dict[str, Any]) -> None:
    with pytest.raises(LocalMisuseError, match="put the mod around this client"):
        KMeansClient([[0.0, 1.0]]).fit([], config)
    with pytest.raises(LocalMisuseError, match="a task without a plan reached"):
        KMeansClient([[0.0, 1.0]]).fit(
            [np.zeros((1, 2))], {"task": "statistic", "round": 1}
        )


def test_client_never_says_how_many_rows_it_has() -> None:
    client = KMeansClient(np.zeros((17, 2)))
    assert client.fit([], {"task": "describe"}) == ([], 0, {"n_features": 2})
    config = parse_config(n_clusters=2, bounds=((-1,), (1,)))
    plan = dump_plan(draft_plan(config, run_id=1, n_clients=2, seed=7, n_features=2))
    assert client.fit([], {"task": "statistic", "plan": plan, "round": 0})[1:] == (
        0,
        {},
    )


def test_answers_are_taken_in_under_flowers_round_number_zero() -> None:
    """Rounds here are numbered by the plan."""
    seen: list[int] = []

    class Watching(PrivateKMeans):
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            seen.append(server_round)
            return super().aggregate_train(server_round, replies)

    federation = make_federation(grid_parts((20, 20, 20)))
    federation.strategy_class = Watching
    federation.start(algorithm="glloyd", max_iter=1)
    assert seen
    assert set(seen) == {0}


def test_a_client_scales_its_table_for_the_plan_that_asks() -> None:
    """It keeps what it has scaled, and another run may have other bounds."""
    rows = np.arange(12.0).reshape(6, 2)
    client, answers = KMeansClient(rows), []
    for run_id, most in ((1, 16.0), (2, 32.0), (1, 16.0)):
        bounds = ((0.0,), (most,))
        config = parse_config(
            n_clusters=1, bounds=bounds, n_examples=100, algorithm="glloyd"
        )
        plan = draft_plan(config, run_id=run_id, n_clients=3, seed=1, n_features=2)
        task = {"task": "statistic", "plan": dump_plan(plan), "round": 1}
        state = [np.zeros((1, 2)), np.zeros(1), np.zeros(0)]
        (sums, _), *_ = client.fit(state, task)
        answers.append((sums / len(rows) + 1.0) * most / 2.0)
    assert all(answer.tolist() == [[5.0, 6.0]] for answer in answers)


def test_a_strategy_spends_by_default_what_every_other_door_does() -> None:
    assert (
        signature(PrivateKMeans.__init__).parameters["epsilon"].default
        == Settings.defaults()["epsilon"]
    )


def test_a_clustering_by_federate_is_in_the_units_of_the_data() -> None:
    """Centroids were those in the box."""
    rows = np.repeat([[-50.0, 3.0], [50.0, 7.0]], 200, axis=0)
    options: dict[str, Any] = {
        "epsilon": 8.0,
        "bounds": ([-100, 0], [100, 10]),
        "noise": "seeded",
        "random_state": 1,
    }
    found = federate("proxy_lloyd", [rows[::2], rows[1::2]], n_clusters=2, **options)
    assert list(found) == ["centroids", "cluster_centers_error", "scaled", "counts"]
    order = np.argsort(found["centroids"][:, 0])
    assert found["centroids"][order] == pytest.approx(
        np.array([[-50, 3], [50, 7]]), abs=2.0
    )
    assert found["scaled"] * [100, 5] + [0, 5] == pytest.approx(
        found["centroids"], abs=1e-9
    )


@pytest.mark.parametrize(
    "points",
    [
        np.full((30, 2), 40.0) + np.eye(30, 2),
        np.linspace(-9, 9, 60).reshape(30, 2) * [1, 99],
    ],
)
def test_server_points_that_would_be_clipped_are_refused_with_their_columns(
    points: Any,
) -> None:
    """In one corner they were called equal."""
    rows = np.repeat([[-5.0, 3.0], [5.0, 7.0]], 20, axis=0)
    with pytest.raises(DataError, match=r"points lie outside the bounds of column.* 1"):
        FederatedKMeans(2, bounds=(-10, 10), server_data=points).fit(
            [rows[::2], rows[1::2]]
        )
