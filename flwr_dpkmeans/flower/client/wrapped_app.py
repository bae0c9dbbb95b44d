"""What computes the statistic of one message: an app of anybody's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from flwr_dpkmeans.errors import LocalMisuseError, ProtocolError
from flwr_dpkmeans.flower.client.node_config import show_node_logs
from flwr_dpkmeans.flower.client.wrapped import ConfigValue, Wrapped
from flwr_dpkmeans.flower.messages.message_records import RECORD, VECTOR_RECORD
from flwr_dpkmeans.flower.mod import SecureAggregation
from flwr_dpkmeans.log import event
from flwr_dpkmeans.node.node_log import logger as node_logger
from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.sums.build import task_round
from flwr_dpkmeans.sums.client import Memory
from flwr_dpkmeans.sums.client.injected import TableFacts
from flwr_dpkmeans.sums.round import Array, State

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flwr_dpkmeans.algorithms.statistics.array_sum import ArraySumTask

    Content = Mapping[str, ArrayRecord | ConfigRecord]


class WrappedApp(Wrapped):
    """An app of Flower's Message API as what answers `ArraySumTask`.

    It gets and gives what Flower's `FedAvg` asks for.
    """

    def describe(self) -> TableFacts:
        """There is no table."""
        return TableFacts(1, (), has_labels=False, schema="")

    def compute(
        self,
        memory: Memory,
        index: int,
    ) -> list[Array]:
        """What the app makes of the arrays so far, clipped.

        What its ``evaluate`` answers is never sent.
        """
        if self._message.metadata.message_type != "train":
            raise ProtocolError(
                "a sum was asked of another function than the app's 'train': stop the"
                " run."
            )
        task, state = self._task_and_state(memory)
        n_clients = memory.plan.n_clients
        content = self.content_for_app()
        records = list(content.array_records.values())
        if records:
            # The server's strategy moves the arrays between two rounds.
            before = {name: array.numpy() for name, array in records[0].items()}
            reply = self.reply_of_app(cast("Content", content))
        else:
            before = task.named(state, n_clients)
            reply = self._answer_of_app(before, {"server-round": index})
        array_records = list(reply.array_records.values())
        metric_records = list(reply.metric_records.values())
        if len(array_records) != 1 or len(metric_records) > 1:
            raise LocalMisuseError(
                f"the app answered with {len(array_records)} ArrayRecords and"
                f" {len(metric_records)} MetricRecords, but its sum is of one, with at"
                " most one: join them."
            )
        n_examples = None
        if metric_records:
            n_examples = metric_records[0].get("num-examples")
        after = {name: array.numpy() for name, array in array_records[0].items()}
        added = task.contribution(before, after, n_examples)
        stated = metric_records[0] if metric_records else {}
        metrics = task.metric_values(stated)
        for sentence in task.remarks(added, n_clients):
            node_logger.warning(
                "round %d: %s",
                index,
                sentence,
                extra=event("changed_part"),
            )
        vector = np.concatenate([added, metrics])
        return list(task_round(memory.plan, index).statistic(vector, state))

    def content_for_app(self) -> RecordDict:
        """What came beside the protocol's own records, for the app."""
        content = self._message.content
        others = content.keys() - {RECORD, VECTOR_RECORD}
        return RecordDict({name: content[name] for name in content if name in others})

    def _hand_on(
        self,
        memory: Memory,
        report: PrivacyReport,
    ) -> None:
        """Hand the last arrays to the app's ``evaluate``, with the report.

        Nothing that it answers is sent.
        """
        task, state = self._task_and_state(memory)
        arrays = task.named(state, memory.plan.n_clients)
        self._answer_of_app(arrays, {"report": json.dumps(report.to_dict())})

    def _task_and_state(self, memory: Memory) -> tuple[ArraySumTask, State]:
        from flwr_dpkmeans.algorithms.statistics.array_sum import ArraySumTask

        task = memory.plan.task
        state = memory.clusters
        if not isinstance(task, ArraySumTask) or state is None:
            raise ProtocolError(
                f"the plan computes {task.name!r}, but this node's app answers sums of"
                " arrays only."
            )
        return task, state

    def _answer_of_app(
        self,
        arrays: Mapping[str, NDArray[np.generic]],
        config: dict[str, ConfigValue],
    ) -> RecordDict:
        record = ArrayRecord(
            {name: FlowerArray(array) for name, array in arrays.items()}
        )
        return self.reply_of_app({"arrays": record, "config": ConfigRecord(config)})


secure_sum_mod = SecureAggregation(show_logs=show_node_logs, wrapped=WrappedApp)
"""The same around any app whose answers are to be summed.

See `flwr_dpkmeans.SecureSum`.
"""
