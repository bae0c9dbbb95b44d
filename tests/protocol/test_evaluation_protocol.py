"""Evaluations in the whole protocol: hostile states, missing labels, deployments,
dropouts, an oblivious server.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message
from support.machine import counting_bytes, replace_entropy
from support.messages import (
    RECORD,
    ServerRun,
    Stage,
    Status,
    parse_failure,
    stage_of,
)
from support.protocol_federation import (
    Federation,
    Truth,
    all_bytes,
    count_readable,
    grid_parts,
    make_federation,
    off_grid,
    outside,
    received_vectors,
    small_config,
    truth,
)
from support.states import with_extras
from support.watching import watch

from flwr_dpkmeans.data.loading.class_labels import as_classes
from flwr_dpkmeans.errors import CohortError, RefusalError
from flwr_dpkmeans.flower.client.node_table import load_client
from flwr_dpkmeans.flower.client_app import client_app
from flwr_dpkmeans.flower.in_process_grid import InProcessGrid, Node
from flwr_dpkmeans.flower.kmeans_client import KMeansClient
from flwr_dpkmeans.flower.strategy import PrivateKMeans
from flwr_dpkmeans.node.policy import ClientPolicy
from flwr_dpkmeans.options import read_config
from flwr_dpkmeans.sums.price import price
from flwr_dpkmeans.sums.round import State
from flwr_dpkmeans.sums.statement import epsilon_after
from flwr_dpkmeans.sums.wire.packed_state import unpack_state

__all__ = ["truth"]

SIZES = [80, 70, 90, 60]
BASE: dict[str, Any] = {
    "n_clusters": 3,
    "bounds": ((-1.0,), (1.0,)),
    "random_state": 3,
    "n_features": 2,
    "max_iter": 1,
}


def federation(**values: Any) -> Federation:
    return make_federation(grid_parts(SIZES), **values)


def labelled(n_classes: int = 3, without: int | None = None) -> Federation:
    """Every client has labels, except one."""
    running = federation()
    for node, client in running.clients.items():
        if node != without:
            client.labels = np.arange(len(client.points)) % n_classes
    return running


def with_server_points(running: Federation, **values: Any) -> Any:
    """A run in which the server alone goes from release to release."""
    config = read_config(
        **{
            "n_clusters": 3,
            "bounds": ((-1.0,), (1.0,)),
            "algorithm": "feddp_kmeans",
            "epsilon": 8.0,
            "delta": 1e-4,
            "n_examples": sum(SIZES),
            "random_state": 3,
            "n_init": 2,
            "evaluation": "private",
            **values,
        }
    )
    points = grid_parts([40], seed=9)[0]
    running.strategy = PrivateKMeans.from_config(
        config, server_points=points, on_step=lambda _: None
    )
    with running.grid.running():
        return running.strategy.start(running.grid)


@pytest.mark.parametrize("trust", ["oblivious", "central", "distributed"])
def test_everybody_who_may_know_has_the_same_evaluation(trust: str) -> None:
    running = labelled()
    result = running.start(trust=trust, evaluation="private", n_classes=3, epsilon=4.0)
    found = [client.evaluation_ for client in running.clients.values()]
    assert found[0] is not None
    assert found[0].accuracy is not None
    assert all(other == found[0] for other in found)
    assert result.evaluation == (None if trust == "oblivious" else found[0])
    assert result.privacy is not None
    assert result.privacy.epsilon <= 4.0 * (1.0 + 1e-9)
    assert [
        line.array
        for line in result.privacy.releases
        if line.round_name == "evaluation"
    ] == [
        "clipped_cost",
        "rows_beyond",
        "cell_counts",
    ]
    assert result.steps[-1].movement is None


def test_a_server_with_points_of_its_own_sends_the_evaluation_with_the_result() -> None:
    running = federation()
    result = with_server_points(running)
    assert result.evaluation is not None
    assert all(
        client.evaluation_ == result.evaluation for client in running.clients.values()
    )
    clients = list(running.clients.values())
    assert all(
        np.array_equal(client.cluster_centers_, clients[0].cluster_centers_)
        for client in clients
    )


def test_an_oblivious_server_reads_no_metric(truth: Truth) -> None:
    running = federation()
    running.start(evaluation="private", trust="oblivious")
    index = running.plan.last_round
    client = running.clients[2]
    assert client.evaluation_ is not None
    vectors = received_vectors(running.grid.received)[index, 0]
    assert sum(count_readable(vector) for vector in vectors.values()) == 0
    assert truth.released[index].tobytes() not in b"".join(
        map(all_bytes, running.grid.received)
    )


def too_many(state: State) -> State:
    return state.changed(centroids=np.zeros((4, 2)), counts=np.zeros(4))


def with_more(state: State) -> State:
    return with_extras(state, {"seed": np.zeros(1)})


@pytest.mark.parametrize("change", [off_grid, outside, too_many, with_more])
def test_hostile_centroids_get_no_evaluation(change: Callable[[State], State]) -> None:
    running = federation()

    def tamper(message: Message) -> bool:
        if stage_of(message.content) is Stage.SUM:
            record = message.content.config_records[RECORD]
            if '"round": 4' in str(record["header"]):
                record["state"] = change(unpack_state(record["state"])).packed
        return True

    running.faults.on_request = tamper
    with pytest.raises(CohortError):
        with_server_points(running)
    assert running.plan.rounds[3].name == "evaluation"
    assert all(
        running.attempts_in_ledger(node) == [(1, 0), (2, 0), (3, 0)]
        for node in running.clients
    )


@pytest.mark.parametrize("name", ["clipped_cost", "cell_counts"])
def test_a_result_without_its_evaluation_is_not_taken(name: str) -> None:
    running = federation()

    def tamper(message: Message) -> bool:
        if stage_of(message.content) is Stage.FINISH:
            record = message.content.config_records[RECORD]
            state = unpack_state(record["state"])
            extras = {key: value for key, value in state.extras.items() if key != name}
            record["state"] = with_extras(state, extras).packed
        return True

    running.faults.on_request = tamper
    result = with_server_points(running)
    assert result.confirmed == ()
    assert all(client.cluster_centers_ is None for client in running.clients.values())


def test_a_dropout_in_the_evaluation_is_survived_and_charged() -> None:
    running = federation()
    last = 3

    def lose(message: Message) -> bool:
        header = str(message.content.config_records[RECORD]["header"])
        first = f'"round": {last}, "attempt": 0' in header
        return not (
            message.metadata.dst_node_id == 3
            and stage_of(message.content) is Stage.SUM
            and first
        )

    running.faults.on_request = lose
    result = running.start(
        algorithm="glloyd", max_iter=2, evaluation="private", epsilon=60.0,
        trust="central",
    )  # fmt: skip
    assert running.plan.last_round == last
    assert running.attempts_in_ledger(2) == [(1, 0), (2, 0), (3, 0), (3, 1)]
    assert (
        running.plan.epsilon
        < result.privacy.epsilon
        <= running.plan.epsilon_worst_case * (1 + 1e-9)
    )
    assert result.evaluation is not None
    # 70 of 300 rows are missing, which the table itself says.
    assert result.evaluation.n_units_source == "released"
    assert result.evaluation.n_units.value == pytest.approx(
        230, abs=5 * result.evaluation.n_units.noise
    )
    assert (
        abs(result.evaluation.n_units.value - 300) > 5 * result.evaluation.n_units.noise
    )


@pytest.mark.parametrize("unit", ["record", "client"])
@pytest.mark.parametrize("trust", ["oblivious", "central"])
def test_a_client_that_never_joins_is_not_in_the_divisor(unit: str, trust: str) -> None:
    """Too little is missing to be seen through the noise, so the roster has to tell."""
    running = federation()
    running.faults.on_request = lambda message: message.metadata.dst_node_id != 3
    values = {
        "unit": unit,
        "n_examples": sum(SIZES) if unit == "record" else None,
        "algorithm": "sphere_packing",
    }
    result = running.start(
        read_config(
            **BASE, **values, epsilon=1.0, evaluation="private", trust=trust, delta=1e-4
        )
    )
    found = [running.clients[node].evaluation_ for node in (2, 4, 5)]
    assert all(other == found[0] for other in found)
    assert result.evaluation == (None if trust == "oblivious" else found[0])
    assert found[0] is not None
    if unit == "record":
        assert found[0].n_units_source == "released"
    else:
        assert (found[0].n_units.value, found[0].n_units_source) == (3.0, "known")


def test_laplace_and_gaussian_prices_do_not_fall() -> None:
    running = federation()
    running.start(
        algorithm="sulloyd", evaluation="private", trust="central", epsilon=2.0,
        max_iter=7,
    )  # fmt: skip
    # Seven Laplace releases alone are priced by addition: at more than with the
    # evaluation.
    assert (
        price(running.plan.events(range(1, 8)), running.plan.delta)
        > running.plan.epsilon
    )
    so_far = [
        epsilon_after(running.plan, [(r, 0) for r in range(1, last + 1)])
        for last in range(1, 9)
    ]
    assert so_far == sorted(so_far)
    assert so_far[-1] == pytest.approx(running.plan.epsilon)
    assert so_far[-1] <= 2.0


def test_a_client_without_labels_refuses_before_anything_is_charged() -> None:
    running = labelled(without=3)
    with pytest.raises(RefusalError, match="labels of 3 classes, but this client"):
        running.start(evaluation="private", n_classes=3)
    assert running.charges() == 0


LABELS = {
    "as declared": lambda n: np.arange(n) % 3,
    "one of a rare class": lambda n: np.where(np.arange(n) == 5, 41, 0),
    "negative, missing and in between": lambda n: np.resize(
        [-1.0, math.nan, 0.5, math.inf, 1e30], n
    ),
    "text": lambda n: np.resize(["b", "a"], n),
    "another number of them": lambda n: np.arange(n + 1),
    "objects": lambda n: np.resize(np.array([None, 1, "x"], dtype=object), n),
}
"""Labels that a node's file may hold; a server may not tell them apart."""


def replies_to_a_plan(
    monkeypatch: pytest.MonkeyPatch, kind: str, n_classes: int
) -> list[bytes]:
    """What the server gets in the key phase."""
    replace_entropy(monkeypatch, counting_bytes())
    parts = grid_parts(SIZES)
    clients = [
        KMeansClient(part, labels=lambda n=n: LABELS[kind](n))
        for part, n in zip(parts, SIZES, strict=True)
    ]
    running = make_federation(
        parts,
        loaders={i: lambda _, c=c: c for i, c in enumerate(clients, start=2)},
        run_id=77,
    )
    config = small_config(evaluation="private", n_classes=n_classes)
    server = ServerRun(config, run_id=77, seed=0, node_ids=running.grid.get_node_ids())
    with running.grid.running():
        replies = list(running.grid.send_and_receive(server.keys_messages()))
    assert all(parse_failure(reply.content)[0] is Status.OK for reply in replies)
    assert running.charges() == 0
    return [all_bytes(reply) for reply in replies]


@pytest.mark.parametrize("n_classes", [1, 3, 41, 42])
def test_no_reply_tells_a_label(
    monkeypatch: pytest.MonkeyPatch, n_classes: int
) -> None:
    """A server that sends plans and no sum request would not be charged."""
    replies = [replies_to_a_plan(monkeypatch, kind, n_classes) for kind in LABELS]
    assert all(other == replies[0] for other in replies)


@pytest.mark.sample(4)
@pytest.mark.parametrize("kind", LABELS)
def test_a_run_ends_whatever_the_labels_are(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    parts = grid_parts(SIZES)
    odd = KMeansClient(parts[1], labels=lambda: LABELS[kind](SIZES[1]))
    running = make_federation(parts, loaders={3: lambda _: odd})
    for node, client in running.clients.items():
        if node != 3:
            client.labels = np.arange(len(client.points)) % 3
    with caplog.at_level(logging.WARNING, "flwr_dpkmeans.client"):
        result = running.start(
            trust="central", evaluation="private", n_classes=3, epsilon=60.0
        )
    found = result.evaluation
    assert found is not None
    n_odd = {"as declared": 0, "one of a rare class": 1, "objects": 47}.get(
        kind, SIZES[1]
    )
    assert sum(row[3] for row in found.cells) == pytest.approx(
        n_odd, abs=5 * math.sqrt(3.0) * found.cells_noise
    )
    # They count for everything but accuracy and purity, so the cost is that of all
    # rows.
    assert (found.n_units.value, found.n_units_source) == (sum(SIZES), "known")
    assert sum(found.counts) == pytest.approx(
        sum(SIZES), abs=5 * math.sqrt(3.0) * found.counts_noise
    )
    told = [
        record.getMessage()
        for record in caplog.records
        if record.getMessage().startswith("labels of")
    ]
    whose = "ALL" if n_odd == SIZES[1] else "some"
    sentence = (
        f"labels of {whose} rows are none of the classes 0 to 2: these rows count as"
        " rows without a class"
    )
    assert told == ([] if n_odd == 0 else [sentence])


PLANS = {"none": ("none", 0), "one class": ("private", 1), "many": ("private", 98)}
OF_THE_RUN = [
    {"evaluation": "private", "n-classes": 1},
    {"evaluation": "private", "n-classes": 97},
    {"evaluation": "private", "n-classes": 98},
    {"evaluation": "none"},
    {"evaluation": "what ever", "n-classes": "x"},
]


def answers_of_an_app(
    monkeypatch: pytest.MonkeyPatch, folder: Path, run_config: dict[str, Any],
    own: dict[str, Any], plan: str,
) -> list[tuple[bytes, str]]:  # fmt: skip
    """The key phase with the ready-made app of two deployed nodes."""
    replace_entropy(monkeypatch, counting_bytes())
    paths = [
        {
            "data-path": str(folder / f"rows{i}.csv"),
            "ledger": str(folder / f"ledger{i}"),
            "columns": "a,b,age",
        }
        for i in range(2)
    ]
    app = client_app(load_client)
    own = {"policy": str(folder / "anything.toml")} | own
    grid = InProcessGrid(
        [Node(app, path | own) for path in paths], run_id=78, run_config=run_config
    )
    evaluation, n_classes = PLANS[plan]
    config = small_config(
        n_clusters=2, bounds=((0.0,), (1.0,)), n_features=None, evaluation=evaluation,
        n_classes=n_classes,
    )  # fmt: skip
    server = ServerRun(config, run_id=78, seed=0, node_ids=grid.get_node_ids())
    with grid.running():
        replies = list(grid.send_and_receive(server.keys_messages()))
    assert not [
        file
        for file in folder.glob("ledger*")
        if file.suffix not in {".plans", ".data"}
    ]
    return [
        (all_bytes(reply), str(parse_failure(reply.content)[1])) for reply in replies
    ]


@pytest.fixture
def hospitals(tmp_path: Path) -> Path:
    """Two tables of one schema."""
    ages = [[20, 97, 30, 41], [20, 33, 30, 41]]
    for i, own in enumerate(ages):
        rows = [
            f"0.{j},0.2,{age},w{j},{'' if (i, j) == (0, 2) else j}"
            for j, age in enumerate(own)
        ]
        (tmp_path / f"rows{i}.csv").write_text(
            "\n".join(["a,b,age,ward,remark", *rows]) + "\n"
        )
    (tmp_path / "anything.toml").write_text("allow-anything = true\n")
    (tmp_path / "policy.toml").write_text(
        'allow-anything = true\nallowed-evaluation = ["none"]\n'
    )
    return tmp_path


@pytest.mark.sample(3)
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("own", ["", "age", "ward"])
def test_the_server_chooses_no_labels_of_a_deployed_node(
    hospitals: Path, monkeypatch: pytest.MonkeyPatch, plan: str, own: str
) -> None:
    """Which column holds labels is the node's word."""
    node = {"label-column": own} if own else {}
    answers = []
    for column in ("age", "a", "remark", ""):
        for options in OF_THE_RUN:
            answers.append(
                answers_of_an_app(
                    monkeypatch, hospitals, options | {"label-column": column}, node,
                    plan,
                )
            )  # fmt: skip
    assert all(other == answers[0] for other in answers)
    # Without a word of the node it has no labels, which is schema.
    expected = "RefusalError" if not own and plan != "none" else ""
    assert [code for _, code in answers[0]] == [expected] * 2


@pytest.mark.parametrize("plan", PLANS)
def test_labels_that_are_missing_are_not_told(
    hospitals: Path, monkeypatch: pytest.MonkeyPatch, plan: str
) -> None:
    answers = answers_of_an_app(
        monkeypatch, hospitals, {}, {"label-column": "remark"}, plan
    )
    assert [code for _, code in answers] == ["", ""]


def test_a_policy_against_evaluations_holds_for_labels(
    hospitals: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch(as_classes, begin=lambda _: pytest.fail("labels were read"))
    own = {"label-column": "remark", "policy": str(hospitals / "policy.toml")}
    for plan, code in (("none", ""), ("many", "RefusalError")):
        for options in OF_THE_RUN:
            answers = answers_of_an_app(monkeypatch, hospitals, options, own, plan)
            assert [found for _, found in answers] == [code] * 2


@pytest.mark.parametrize("evaluation", ["none", "private"])
def test_without_classes_nobody_asks_for_labels(evaluation: str) -> None:
    running = labelled(n_classes=4, without=3)
    running.start(evaluation=evaluation, n_classes=0 if evaluation == "private" else 3)
    assert running.clients[3].cluster_centers_ is not None


def test_deployed_nodes_refuse_an_exact_evaluation_whatever_their_policy_is() -> None:
    running = federation(policy=ClientPolicy(allow_non_private=True))
    with pytest.raises(RefusalError, match="choose evaluation='private'"):
        running.start(evaluation="exact")
    assert running.charges() == 0


def test_a_policy_may_forbid_evaluations() -> None:
    running = federation(
        policy=ClientPolicy.from_mapping({"allowed-evaluation": ["none"]})
    )
    with pytest.raises(RefusalError, match="the plan's evaluation is 'private'"):
        running.start(evaluation="private")
    running.start(small_config(evaluation="none"))
    assert running.clients[2].evaluation_ is None


def test_labels_of_a_client_are_checked_when_they_are_given() -> None:
    rows = np.zeros((3, 2))
    for labels, text in (
        ([0, 1], r"labels have shape \(2,\), but the table has 3 rows"),
        ([0.5, 1, 2], "whole numbers"),
        (["a", "b", "c"], "whole numbers"),
        ([0, -1, 2], "from -1 to 2, but they must be at least 0"),
        ([math.nan, 1, 2], "whole numbers"),
    ):
        with pytest.raises(ValueError, match=text):
            KMeansClient(rows, labels=labels)
