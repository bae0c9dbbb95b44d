"""Calls from the mod to the wrapped client, in the record layout that Flower's NumPyClient wrapper understands."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from numpy.typing import NDArray

from flwr_dpkmeans.errors import LocalMisuseError
from flwr_dpkmeans.flower.kmeans_client import KMeansClient, Task
from flwr_dpkmeans.node import client_log
from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.sums.client import Memory
from flwr_dpkmeans.sums.state import State

NextCall = Callable[[Message, Context], Message]
_EMPTY_TENSOR = "_empty"
_OK = 0


class Wrapped:
    """The wrapped client as what computes the statistic of one message; see `flwr_dpkmeans.sums.client.Statistic`."""

    def __init__(self, message: Message, context: Context, call_next: NextCall) -> None:
        self._call = partial(_call, message, context, call_next)

    def describe(self) -> tuple[int, tuple[str, ...], bool]:
        """Width of the table, its columns' names if the client knows them, and whether it has labels."""
        reply = self._call("fit", [], {"task": Task.DESCRIBE.value})
        metrics: Any = reply.get("fitres.metrics") or {}
        width = metrics.get("n_features")
        if not isinstance(width, int):
            raise LocalMisuseError("the wrapped client does not tell its number of features: wrap a KMeansClient.")
        names = tuple(str(name) for name in json.loads(str(metrics.get("feature_names", "[]"))))
        return width, names, bool(metrics.get("has_labels", False))

    def compute(self, memory: Memory, index: int) -> list[NDArray[np.float64]]:
        """The exact statistic of one round."""
        config: dict[str, Any] = {"task": Task.STATISTIC.value, "plan": memory.plan_blob, "round": index}
        with client_log.timed("the statistic"):
            if memory.plan.discovers(index):
                config["task"] = Task.PRELIMINARY.value
                reply = self._call("fit", [np.array(side) for side in memory.found.box or ()], config)
            else:
                reply = self._call("fit", _parameters(memory.clusters), config | _extra_names(memory.clusters))
        record: Any = reply.get("fitres.parameters") or {}
        return [array.numpy().astype(np.float64, copy=False) for name, array in record.items() if name != _EMPTY_TENSOR]

    def deliver(self, memory: Memory, report: Callable[[], PrivacyReport]) -> None:
        """Hand the final centroids and the report to the wrapped client."""
        config: dict[str, Any] = {"plan": memory.plan_blob, "report": json.dumps(report().to_dict())}
        config["n_clients"] = len(memory.protocol.cohort.members)
        self._call("evaluate", _parameters(memory.clusters), config | _extra_names(memory.clusters))


def run_numpy_client(client: KMeansClient, message: Message) -> RecordDict:
    """Serve one inner call with a NumPyClient; the inverse of the calls above."""
    content = message.content
    kind = "fit" if "fitins.parameters" in content else "evaluate"
    sent: Any = content[f"{kind}ins.parameters"]
    parameters = [array.numpy() for array in sent.values()]
    config: Any = dict(content[f"{kind}ins.config"])
    reply = RecordDict()
    if kind == "fit":
        arrays, _, metrics = client.fit(parameters, config)
        reply["fitres.parameters"] = _array_record(arrays)
        reply["fitres.metrics"] = ConfigRecord(dict(metrics))
    else:
        client.evaluate(parameters, config)
    return reply


def _parameters(clusters: State | None) -> list[NDArray[np.float64]]:
    """A clustering state as NumPyClient parameters."""
    if clusters is None:
        raise LocalMisuseError("a statistic was asked for before the plan was final.")
    movements = np.asarray(clusters.movements, dtype=np.float64)
    return [*clusters.arrays.values(), movements]


def _extra_names(clusters: State | None) -> dict[str, Any]:
    """The configuration that names the arrays before the last parameter, the movements."""
    return {} if clusters is None else {"arrays": json.dumps(list(clusters.arrays))}


def _call(
    message: Message,
    context: Context,
    call_next: NextCall,
    kind: str,
    arrays: Sequence[NDArray[np.float64]],
    config: dict[str, Any],
) -> RecordDict:
    """Call the wrapped app with content of our own and return its reply's content."""
    content = RecordDict()
    content[f"{kind}ins.parameters"] = _array_record(arrays)
    content[f"{kind}ins.config"] = ConfigRecord(config)
    # The inner call borrows the message, whose metadata only Flower can make, and puts its content back.
    original = message.content
    message.content = content
    try:
        reply = call_next(message, context)
    finally:
        message.content = original
    if reply.has_error() or not reply.has_content():
        raise LocalMisuseError("the wrapped client answered with an error.")
    status: Any = reply.content.get(f"{kind}res.status")
    if status is not None and status.get("code", _OK) != _OK:
        # Its message may quote rows, so only the code is repeated.
        raise LocalMisuseError(f"the wrapped client failed with status code {status.get('code')}.")
    return reply.content


def _array_record(arrays: Sequence[NDArray[np.float64]]) -> ArrayRecord:
    """Arrays under consecutive keys, as Flower stores NumPyClient parameters."""
    return ArrayRecord({str(i): Array(np.ascontiguousarray(array)) for i, array in enumerate(arrays)})
