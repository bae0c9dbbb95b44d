"""A node's own decisions, which no server of a deployment can set."""

from __future__ import annotations

from dataclasses import dataclass

from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.node.belonging import Belonging
from flwr_dpkmeans.node.identity import Identity
from flwr_dpkmeans.node.ledger import MemoryLedger
from flwr_dpkmeans.node.policy import ClientPolicy


@dataclass(frozen=True)
class NodeSettings:
    """Policy, ledger and identity of one node.

    A policy that pins peers, on a node without an identity of its own, is a
    ConfigurationError.
    """

    policy: ClientPolicy
    ledger: MemoryLedger
    data_id: str
    """Name of the data set in the ledger."""
    simulated: bool = False
    """Whether this node is part of a simulation, where an exact evaluation protects
    nobody's rows.
    """
    identity: Identity | None = None
    """Signs the node's key in every run."""
    belonging: Belonging | None = None
    """Knows the data again that the ledger was charged for; None: nobody looks."""

    def __post_init__(self) -> None:
        """Refuse pins that nobody could answer with pins of their own."""
        if self.policy.pinned_peers is not None and self.identity is None:
            raise ConfigurationError(
                "the node's policy pins peers, but the node has no 'identity' that they"
                " could pin: make one with 'python -m flwr_dpkmeans identity new PATH'"
                " and give its path in the node's configuration."
            )
