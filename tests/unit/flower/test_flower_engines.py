"""Tables of parties, and the grid of one process, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.supercore.task_identity import TaskIdentity
from numpy.typing import NDArray
from support.wrong_tasks import plant_arrays

from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.estimators.federate import federate
from flwr_dpkmeans.flower.in_process_grid import InProcessGrid, Node

ROWS = np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])


def test_sums_without_messages_need_no_recovery() -> None:
    with pytest.raises(ConfigurationError, match="engine='direct' has no messages"):
        federate(
            "moments", [ROWS, ROWS], bounds=(0, 10), engine="direct", dropout="recover"
        )
    found = federate(
        "moments", [ROWS, ROWS], bounds=(0, 10), engine="direct", dropout="retry"
    )
    assert found["mean"].shape == (2,)


def test_the_grid_of_one_process_loses_nothing_and_keeps_no_state_of_who_fails() -> (
    None
):
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Any) -> Message:
        context.state["seen"] = ConfigRecord({"n": len(context.state) + 1})
        if "fail" in message.content:
            raise ValueError("secret")
        return Message(message.content, reply_to=message)

    grid = InProcessGrid(
        [Node(app), Node(app, {"a": 1})], run_id=5, run_config={"b": 2}
    )
    assert (
        list(grid.get_node_ids()),
        [grid.contexts[node].node_config for node in (2, 3)],
    ) == ([2, 3], [{}, {"a": 1}])
    assert (
        {context.run_id for context in grid.contexts.values()}
        == {grid.run.run_id}
        == {5}
    )
    before = (TaskIdentity._task_id, TaskIdentity._run_id, TaskIdentity._node_id)
    with grid.running():
        assert (TaskIdentity._task_id, TaskIdentity._run_id, TaskIdentity._node_id) == (
            1,
            5,
            1,
        )
        content = {
            name: RecordDict({name: ConfigRecord({})}) for name in ("good", "fail")
        }
        sent = [
            Message(content[name], node, "train")
            for node, name in ((2, "good"), (3, "fail"), (4, "good"))
        ]
        ids = list(grid.push_messages(sent))
        good, failed, absent = grid.pull_messages(ids)
        assert list(grid.pull_messages(ids)) == []
    assert (
        TaskIdentity._task_id,
        TaskIdentity._run_id,
        TaskIdentity._node_id,
    ) == before
    assert len(set(ids)) == 3
    assert (good.metadata.src_node_id, good.has_error()) == (2, False)
    assert [failed.error.code, absent.error.code] == [
        ErrorCode.CLIENT_APP_RAISED_EXCEPTION,
        ErrorCode.NODE_UNAVAILABLE,
    ]
    assert ["seen" in grid.contexts[node].state for node in (2, 3)] == [True, False]


@pytest.mark.filterwarnings("ignore::flwr_dpkmeans.errors.PrivacyWarning")
def test_a_result_is_there_although_the_first_party_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The others paid for it, and one of them has it."""

    def change(name: str, array: NDArray[Any], rows: NDArray[Any], _: Any) -> Any:
        if rows[0, 0] == 0.5:
            raise ValueError("no such row")
        return array

    plant_arrays(monkeypatch, "moments", change)
    parts = [np.full((200, 2), value) for value in (0.5, 0.25, 0.25, 0.25)]
    given: dict[str, Any] = {
        "bounds": (-1.0, 1.0),
        "epsilon": 50.0,
        "noise": "seeded",
        "random_state": 0,
    }
    found = federate("moments", parts, n_examples=800, **given)
    assert found.privacy.n_attempts > len(found.plan.rounds)
    assert all(np.isfinite(found[name]).all() for name in found.keys())  # noqa: SIM118
