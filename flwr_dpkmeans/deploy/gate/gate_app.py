"""The ClientApp that a node runs in the place of somebody else's app."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from flwr_dpkmeans.deploy.gate.app_process import AppProcess
from flwr_dpkmeans.deploy.gate.gate_options import GateOptions
from flwr_dpkmeans.deploy.gate.gate_policy import GatePolicy
from flwr_dpkmeans.deploy.gate.gated_app import Gate, GatedApp
from flwr_dpkmeans.flower._private import Load
from flwr_dpkmeans.flower.client.node_config import node_settings, show_node_logs
from flwr_dpkmeans.flower.mod import SecureAggregation
from flwr_dpkmeans.node.node_settings import NodeSettings


class GateApp(ClientApp):
    """The ClientApp that a node runs in the place of the one behind the gate."""

    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self._gate = gate
        settings = partial(_gate_settings, gate.options)
        self._aggregation = SecureAggregation(
            settings,
            show_logs=show_node_logs,
        )

    def __call__(self, message: Message, context: Context) -> Message:
        """Answer a message of the protocol; anything else is refused."""
        wrap = partial(
            GatedApp,
            message,
            context,
            gate=self._gate,
        )
        return self._aggregation.answer(
            message,
            context,
            wrap,
        )


def gate_around(file: Path, folder: Path, output: Path) -> Load:
    """What loads, in the place of an app that was unpacked, the gate around it.

    Parameters
    ----------
    file : Path
        The gate's options, as JSON.
    folder : Path
        Where the app was unpacked.
    output : Path
        The owner's file for what it prints.
    """
    content = file.read_text()
    options = GateOptions.model_validate_json(content)

    def load(
        app_id: str,
        version: str,
        digest: str,
    ) -> GateApp:
        process = AppProcess(
            folder,
            (app_id, version, digest),
            options.seconds,
            options.confined,
        )
        gate = Gate(
            options,
            process.ask,
            output,
        )
        return GateApp(gate)

    return load


def _gate_settings(options: GateOptions, context: Context) -> NodeSettings:
    """The node's own settings, whose policy is the gate's, too."""
    settings = node_settings(context)
    policy = GatePolicy.around(settings.policy, options)
    return replace(settings, policy=policy)
