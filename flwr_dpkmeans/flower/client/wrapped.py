"""What computes the statistic of one message: a wrapped client."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from numpy.typing import NDArray

from flwr_dpkmeans.data.loading.row_facts import RowFacts
from flwr_dpkmeans.errors import DPKMeansError, LocalMisuseError
from flwr_dpkmeans.flower.client.cached_rows import CHANGED, TABLE
from flwr_dpkmeans.flower.kmeans_client import DESCRIBE, STATISTIC, KMeansClient
from flwr_dpkmeans.log import event, printable, where_raised
from flwr_dpkmeans.node.guard import NodeGuard
from flwr_dpkmeans.node.node_log import logger as node_logger
from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.sums.client import Memory
from flwr_dpkmeans.sums.client.injected import TableFacts
from flwr_dpkmeans.sums.round import Array
from flwr_dpkmeans.sums.statement import LOCAL

NextCall = Callable[[Message, Context], Message]

ConfigValue = (
    int
    | float
    | str
    | bytes
    | list[int]
    | list[float]
    | list[str]
    | list[bytes]
    | list[bool]
)
"""What Flower carries in a configuration."""

ArraysAndMetrics = tuple[Sequence[NDArray[np.generic]], Mapping[str, object]]
"""What a NumPyClient answers."""

_EMPTY_TENSOR = "_empty"

_OK = 0


class Wrapped:
    """The wrapped client as what computes the statistic of one message.

    See `flwr_dpkmeans.sums.client.Statistic`.
    """

    def __init__(
        self,
        message: Message,
        context: Context,
        call_next: NextCall,
        guard: NodeGuard,
    ) -> None:
        self._message = message
        self._context = context
        self._call_next = call_next
        self._guard = guard

    def describe(self) -> TableFacts:
        """See `flwr_dpkmeans.sums.client.Statistic`."""
        belongs = self._guard.settings.belonging is not None
        config: dict[str, ConfigValue] = {"task": DESCRIBE, "rows": belongs}
        _, metrics = self._call("fit", [], config)
        width = metrics.get("n_features")
        if not isinstance(width, int):
            raise LocalMisuseError(
                "the wrapped client does not tell its number of features: wrap a"
                " KMeansClient."
            )
        names = json.loads(str(metrics.get("feature_names", "[]")))
        if "used" in metrics:
            # Columns that are only profiled have no names among those of the points.
            self._guard.settings.policy.check_columns(json.loads(str(metrics["used"])))
        return TableFacts(
            width,
            tuple(map(str, names)),
            has_labels=bool(metrics.get("has_labels", False)),
            schema=str(metrics.get("schema", "")),
            has_persons=bool(metrics.get("has_persons", False)),
            has_weights=bool(metrics.get("has_weights", False)),
            rows=_row_facts(str(metrics.get("rows", ""))),
        )

    def compute(
        self,
        memory: Memory,
        index: int,
    ) -> list[Array]:
        """The exact statistic of one round."""
        config: dict[str, ConfigValue] = {
            "task": STATISTIC,
            "plan": memory.plan_blob,
            "round": index,
        }
        start = time.perf_counter()
        if memory.plan.is_preliminary(index):
            # Of what was discovered, a statistic looks at the coarse ranges only.
            sides = memory.discoveries.box or ()
            arrays, _ = self._call("fit", [np.array(side) for side in sides], config)
        else:
            arrays, _ = self._call_with_state("fit", memory, config)
        node_logger.debug("the statistic took %.3f s", time.perf_counter() - start)
        return [np.asarray(array, dtype=np.float64) for array in arrays]

    def deliver(
        self,
        memory: Memory,
        report: Callable[[], PrivacyReport],
    ) -> bool:
        """Hand the result on: whatever goes wrong now is for this log and ledger only.

        And the server gets its tag.

        What a client writes holds facts of its own rows. Were an error of that an
        answer, a server could choose names or bounds with which it fails for some rows
        only, and would learn of them at no cost.
        """
        try:
            self._hand_on(memory, report())
            return True
        except Exception as error:
            why = where_raised(error, verbose=node_logger.isEnabledFor(logging.DEBUG))
            if isinstance(error, DPKMeansError):
                why = printable(error)
            node_logger.error(
                "the result is not written: %s",
                why,
                extra=event("unwritten", kind=type(error).__name__),
            )
            return False

    def _hand_on(
        self,
        memory: Memory,
        report: PrivacyReport,
    ) -> None:
        """Hand the final centroids and the report to the wrapped client."""
        table = self._context.state.config_records.get(TABLE)
        if table is not None and table.get("changed"):
            report = replace(report, warnings=(*report.warnings, LOCAL + CHANGED))
        config: dict[str, ConfigValue] = {
            "report": json.dumps(report.to_dict()),
            "n_clients": len(memory.party.cohort.members),
            "spent": self._guard.spent(memory.plan),
            "plan": memory.plan_blob,
        }
        self._call_with_state("evaluate", memory, config)

    def _call_with_state(
        self,
        kind: str,
        memory: Memory,
        config: dict[str, ConfigValue],
    ) -> ArraysAndMetrics:
        """Call with the state so far.

        Its arrays, whose names are in the configuration, and then the movements.
        """
        state = memory.clusters
        if state is None:
            raise LocalMisuseError(
                "a statistic was asked for before the plan was final."
            )
        movements = np.asarray(state.movements, dtype=np.float64)
        config["arrays"] = json.dumps(list(state.arrays))
        return self._call(kind, [*state.arrays.values(), movements], config)

    def _call(
        self,
        kind: str,
        arrays: Sequence[Array],
        config: dict[str, ConfigValue],
    ) -> ArraysAndMetrics:
        """Call the wrapped NumPyClient, with arrays under consecutive keys.

        As Flower stores them.
        """
        parameters = ArrayRecord.from_numpy_ndarrays(
            list(map(np.ascontiguousarray, arrays))
        )
        content = self.reply_of_app(
            {
                f"{kind}ins.parameters": parameters,
                f"{kind}ins.config": ConfigRecord(config),
            }
        )
        status = content.config_records.get(f"{kind}res.status")
        if status is not None and status.get("code", _OK) != _OK:
            # Its message may quote rows, so only the code is repeated.
            raise LocalMisuseError(
                f"the wrapped client failed with status code {status.get('code')!r}."
            )
        if kind == "evaluate":
            # What it answers is never sent.
            return [], {}
        record = content.array_records.get("fitres.parameters", ArrayRecord())
        metrics = content.config_records.get("fitres.metrics", ConfigRecord())
        numbers = [
            array.numpy() for name, array in record.items() if name != _EMPTY_TENSOR
        ]
        return numbers, metrics

    def reply_of_app(
        self, content: Mapping[str, ArrayRecord | ConfigRecord]
    ) -> RecordDict:
        """Return what the wrapped app replies to content of our own."""
        message = self._message
        # The inner call borrows the message, whose metadata only Flower can make, and
        # puts its content back.
        original, message.content = message.content, RecordDict({**content})
        try:
            reply = self._call_next(message, self._context)
        finally:
            message.content = original
        if reply.has_error() or not reply.has_content():
            raise LocalMisuseError("the wrapped client answered with an error.")
        return reply.content


def _row_facts(text: str) -> RowFacts | None:
    """Read what `KMeansClient` says of its rows; an own client may say nothing."""
    if not text:
        return None
    n_rows, columns, contents = json.loads(text)
    return RowFacts(n_rows, tuple(columns), tuple(contents))


class InProcessClient(Wrapped):
    """A client of this process.

    It is called as it is, where records would take more time than the statistic.
    ``load(context)`` makes it, once for a message.
    """

    def __init__(
        self,
        context: Context,
        load: Callable[[Context], KMeansClient],
        guard: NodeGuard,
    ) -> None:
        self._context = context
        self._load = load
        self._guard = guard
        self._client: Any = None

    def _call(
        self,
        kind: str,
        arrays: Sequence[Array],
        config: dict[str, ConfigValue],
    ) -> ArraysAndMetrics:
        if self._client is None:
            self._client = self._load(self._context)
        if kind == "evaluate":
            self._client.evaluate(list(arrays), config)
            return [], {}
        arrays, _, metrics = self._client.fit(list(arrays), config)
        return arrays, metrics
