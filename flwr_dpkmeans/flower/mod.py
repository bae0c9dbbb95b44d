"""The secure-aggregation mod: between Flower and the NumPyClient, so that no exact statistic leaves the node.

It decodes a message, has `flwr_dpkmeans.sums.client.Client` handle it, keeps what is to be remembered and encodes the
reply. A message that is not of the protocol never reaches the wrapped client, which would answer it without masks.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from numpy.typing import NDArray

from flwr_dpkmeans.errors import DataError, DPKMeansError, LocalMisuseError, PeerError, ProtocolError
from flwr_dpkmeans.flower.kmeans_client import KMeansClient, Task
from flwr_dpkmeans.flower.node import look_for_guard, node_settings, show_node_logs, stream_number
from flwr_dpkmeans.flower.records import RECORD, content_of, debug_size, packet_of, recall, remember
from flwr_dpkmeans.log import Place, placed
from flwr_dpkmeans.node.guard import NodeGuard, NodeSettings, crashed, failed, refused, took
from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.secagg.messages import Stage
from flwr_dpkmeans.sums.client import Client, Memory
from flwr_dpkmeans.sums.wire import Failure, Packet, Status, decode_request, encode_failure, encode_reply

INTERNAL_SENTENCE = "this client could not answer (the reason is in its own log): look there, then start a new run."
TABLE_SENTENCE = (
    "this client's table cannot be read as its configuration says (its own log says why): correct it there, then start "
    "a new run."
)
NextCall = Callable[[Message, Context], Message]
_EMPTY_TENSOR = "_empty"
_OK = 0


class SecureAggregation:
    """A Flower mod; `secure_aggregation_mod` is the instance with the default settings.

    Parameters
    ----------
    settings : callable, optional
        ``settings(context) -> NodeSettings``; by default read from the node's configuration.
    show_logs : callable, optional
        ``show_logs(context)`` is called first, to show this node's log; left out, the program's own logging does.

    Notes
    -----
    Exceptions never reach Flower, which would send their text to the server: the reply carries a fixed code and a
    sentence of public values, and the detail stays in the client's log.
    """

    def __init__(
        self,
        settings: Callable[[Context], NodeSettings] = node_settings,
        *,
        show_logs: Callable[[Context], None] | None = None,
    ) -> None:
        self._settings = settings
        self._show_logs = show_logs

    def __call__(self, message: Message, context: Context, call_next: NextCall) -> Message:
        """Answer a message of the protocol; anything else is refused."""
        with placed(Place(run=context.run_id, node=context.node_id)):
            return Message(content_of(self._guarded(message, context, call_next)), reply_to=message)

    def _guarded(self, message: Message, context: Context, call_next: NextCall) -> Packet:
        """Answer, and turn what goes wrong into a fixed code."""
        try:
            if self._show_logs is not None:
                self._show_logs(context)
            return self._answer(message, context, call_next)
        except PeerError as error:
            refused(error)
            return encode_failure(Failure(Status.REFUSED, type(error).__name__, str(error)))
        except DPKMeansError as error:
            # The sentence may describe local data, so only its kind travels.
            failed(error)
            sentence = TABLE_SENTENCE if isinstance(error, DataError) else INTERNAL_SENTENCE
            return encode_failure(Failure(Status.FAILED, type(error).__name__, sentence))
        except Exception as error:
            crashed(error)
            return encode_failure(Failure(Status.FAILED, "InternalError", INTERNAL_SENTENCE))

    def _answer(self, message: Message, context: Context, call_next: NextCall) -> Packet:
        """The memory changes only when the whole transition has succeeded."""
        if not message.has_content() or RECORD not in message.content:
            raise ProtocolError(
                "a message that is not of the private k-means protocol came, and the client behind the "
                "secure-aggregation mod answers no other: send it to a function without this mod."
            )
        debug_size("received", message.content)
        request = decode_request(packet_of(message.content))
        if request.stage is Stage.KEYS:
            look_for_guard()
        settings = self._settings(context)
        guard = NodeGuard(
            settings, context.run_id, context.node_id, stream_number(context), message.metadata.created_at
        )
        memory, reply = Client(guard, Wrapped(message, context, call_next), recall(context)).handle(request)
        packet = encode_reply(request.stage, reply)
        remember(context, memory)
        return packet


secure_aggregation_mod = SecureAggregation(show_logs=show_node_logs)
"""The mod with settings, and a log, as the node's configuration says."""


# -- calls to the wrapped client, in the record layout of Flower's own NumPyClient wrapper -----------------------------


class Wrapped:
    """The wrapped client as what computes the statistic of one message; see `flwr_dpkmeans.sums.client.Statistic`."""

    def __init__(self, message: Message, context: Context, call_next: NextCall) -> None:
        self._message, self._context, self._call_next = message, context, call_next

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
        start = time.perf_counter()
        if memory.plan.discovers(index):
            ranges = [np.array(side) for side in memory.found.box or ()]
            reply = self._call("fit", ranges, config)
        else:
            reply = self._call_with_state("fit", memory, config)
        took("the statistic", start)
        record: Any = reply.get("fitres.parameters") or {}
        return [array.numpy().astype(np.float64, copy=False) for name, array in record.items() if name != _EMPTY_TENSOR]

    def deliver(self, memory: Memory, report: Callable[[], PrivacyReport]) -> None:
        """Hand the final centroids and the report to the wrapped client."""
        result = {"report": json.dumps(report().to_dict()), "n_clients": len(memory.protocol.cohort.members)}
        self._call_with_state("evaluate", memory, {"plan": memory.plan_blob, **result})

    def _call_with_state(self, kind: str, memory: Memory, config: dict[str, Any]) -> RecordDict:
        """Call with the state so far: its arrays, whose names are in the configuration, and then the movements."""
        state = memory.clusters
        if state is None:
            raise LocalMisuseError("a statistic was asked for before the plan was final.")
        movements = np.asarray(state.movements, dtype=np.float64)
        config["arrays"] = json.dumps(list(state.arrays))
        return self._call(kind, [*state.arrays.values(), movements], config)

    def _call(self, kind: str, arrays: Sequence[NDArray[np.float64]], config: dict[str, Any]) -> RecordDict:
        """Call the wrapped app with content of our own and return its reply's content."""
        message = self._message
        # The inner call borrows the message, whose metadata only Flower can make, and puts its content back.
        original = message.content
        parameters = _array_record(arrays)
        message.content = RecordDict({f"{kind}ins.parameters": parameters, f"{kind}ins.config": ConfigRecord(config)})
        try:
            reply = self._call_next(message, self._context)
        finally:
            message.content = original
        if reply.has_error() or not reply.has_content():
            raise LocalMisuseError("the wrapped client answered with an error.")
        status: Any = reply.content.get(f"{kind}res.status")
        if status is not None and status.get("code", _OK) != _OK:
            # Its message may quote rows, so only the code is repeated.
            raise LocalMisuseError(f"the wrapped client failed with status code {status.get('code')}.")
        return reply.content


def run_numpy_client(client: KMeansClient, message: Message) -> RecordDict:
    """Serve one call of `Wrapped` with a NumPyClient."""
    content = message.content
    kind = "fit" if "fitins.parameters" in content else "evaluate"
    sent: Any = content[f"{kind}ins.parameters"]
    config: Any = dict(content[f"{kind}ins.config"])
    if kind == "evaluate":
        client.evaluate(sent.to_numpy_ndarrays(), config)
        return RecordDict()
    arrays, _, metrics = client.fit(sent.to_numpy_ndarrays(), config)
    return RecordDict({"fitres.parameters": _array_record(arrays), "fitres.metrics": ConfigRecord(dict(metrics))})


def _array_record(arrays: Sequence[NDArray[np.float64]]) -> ArrayRecord:
    """Arrays under consecutive keys, as Flower stores NumPyClient parameters."""
    return ArrayRecord.from_numpy_ndarrays(list(map(np.ascontiguousarray, arrays)))
