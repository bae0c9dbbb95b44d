"""What answers for somebody else's app: a vector of fixed size, whatever the app does.

It is clipped, noised, masked and charged as every vector of this project is.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict

from flwr_dpkmeans.algorithms.statistics.array_sum import ArraySumTask
from flwr_dpkmeans.deploy.gate.app_process import AppAnswer
from flwr_dpkmeans.deploy.gate.gate_options import GateOptions
from flwr_dpkmeans.deploy.guard.gated_program import (
    MisfitError,
    layout_of,
    only_arrays,
)
from flwr_dpkmeans.errors import ProtocolError
from flwr_dpkmeans.flower.client.wrapped_app import WrappedApp
from flwr_dpkmeans.log import event
from flwr_dpkmeans.node.guard import NodeGuard
from flwr_dpkmeans.node.node_log import logger as node_logger
from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.sums.build import task_round
from flwr_dpkmeans.sums.client import Memory
from flwr_dpkmeans.sums.round import Array

_STATE = "gate.app"
"""Record of a node's context that has what the app remembers, which only it reads."""
_DOUBLE_BYTES = 8
_MOST_OUTPUT = 10_000_000
"""Bytes of the file with what apps printed, after which it gets no more."""

Ask = Callable[
    [Message, Context, bytes, tuple[str, ...], int],
    AppAnswer,
]
"""``ask(message, context, state, metrics, n_bytes)`` is what an app answers.

Where it remembers `state`, as it gave it before, and so many metrics are asked for.
"""


@dataclass(frozen=True)
class Gate:
    """A site's gate around one app."""

    options: GateOptions
    ask: Ask
    output: Path | None = None
    """File of the owner's that gets what the app prints; None: it is dropped."""


class GatedApp(WrappedApp):
    """Somebody else's app as what answers `ArraySumTask`.

    What the app answers decides the vector that is clipped, and nothing else: an answer
    that does not fit, or none, counts as zeros. A refusal would tell of rows.
    """

    def __init__(
        self,
        message: Message,
        context: Context,
        guard: NodeGuard,
        gate: Gate,
    ) -> None:
        super().__init__(message, context, _never, guard)
        self._gate = gate

    def compute(self, memory: Memory, index: int) -> list[Array]:
        """What the app adds to the arrays that came with the message, clipped."""
        task, state = self._task_and_state(memory)
        content = self.content_for_app()
        vector = self._vector(content, task, index, memory.plan.n_clients)
        return list(task_round(memory.plan, index).statistic(vector, state))

    def content_for_app(self) -> RecordDict:
        """What came for the app, whose arrays are those that the gate lists.

        They are the server's own, so a refusal tells nothing.
        """
        if self._message.metadata.message_type != "train":
            raise ProtocolError(
                "a sum was asked of another function than the app's 'train': stop the"
                " run."
            )
        content = super().content_for_app()
        listed = {
            name: (array.shape, array.dtype)
            for name, array in self._gate.options.arrays.items()
        }
        try:
            arrays = only_arrays(content)
        except MisfitError as error:
            raise ProtocolError(
                f"a message for the app behind the gate is wrong ({error}): use"
                " SecureMean on the server."
            ) from error
        sent = layout_of(arrays)
        if sent != listed:
            raise ProtocolError(
                f"the server's arrays are {sent}, but this node's gate lists {listed}:"
                " begin with such arrays."
            )
        return content

    def _vector(
        self, content: RecordDict, task: ArraySumTask, index: int, n_clients: int
    ) -> Array:
        """The app's part, and its weight; of an answer that does not fit, all NaN.

        Those add nothing, as `ArraySumTask.released_part` says.
        """
        message, context = self._message, self._context
        record = context.state.config_records.get(_STATE, ConfigRecord())
        # The node's own paths and memory are none of the app's.
        of_app = Context(
            context.run_id,
            context.node_id,
            dict(self._gate.options.node_config),
            RecordDict(),
            context.run_config,
        )
        names = tuple(name for name, _, _ in task.metrics)
        n_numbers = task.size + 1 + len(names)
        # As in `reply_of_app`: only Flower makes metadata.
        original, message.content = message.content, content
        try:
            answer = self._gate.ask(
                message,
                of_app,
                cast("bytes", record.get("state", b"")),
                names,
                n_numbers * _DOUBLE_BYTES,
            )
        finally:
            message.content = original
        if answer.state is not None:
            context.state[_STATE] = ConfigRecord({"state": answer.state})
        self._keep_output(f"run {context.run_id}, round {index}\n{answer.output}\n")
        if answer.numbers is None:
            node_logger.warning(
                "round %d: the app's answer does not fit the gate, and counts as zeros;"
                " home/app-output.log has what it printed",
                index,
                extra=event("misfit"),
            )
            return np.full(n_numbers, np.nan)
        vector = np.frombuffer(answer.numbers, np.float64).copy()
        # A sum has no weights, whatever the app says.
        if task.most_examples:
            vector[task.size] /= task.most_examples
        else:
            vector[task.size] = 1.0
        for sentence in task.remarks(vector[: task.size + 1], n_clients):
            node_logger.warning(
                "round %d: %s", index, sentence, extra=event("changed_part")
            )
        return vector

    def _keep_output(self, printed: str) -> None:
        """Write what an app printed into the owner's file, while there is room.

        Where that cannot be, nothing of a message depends on it.
        """
        path = self._gate.output
        if path is None:
            return
        with contextlib.suppress(OSError):
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
            with os.fdopen(os.open(path, flags, 0o600), "a") as file:
                if file.tell() < _MOST_OUTPUT:
                    file.write(printed)

    def _hand_on(self, memory: Memory, report: PrivacyReport) -> None:
        """Hand nothing to the app: the result is the server's."""


def _never(message: Message, context: Context) -> Message:
    raise ProtocolError("an app behind the gate is not called in this process.")
