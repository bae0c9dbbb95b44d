"""The guard of a deployed node leaves nothing to the one that lets everything pass."""

from __future__ import annotations

from flwr_dpkmeans.node.guard import NodeGuard
from flwr_dpkmeans.sums.client import Guard


def test_every_decision_of_a_node_is_its_own() -> None:
    """What `NodeGuard` forgot would be answered by `Guard`, which refuses nothing."""
    asked = {
        name
        for name, value in vars(Guard).items()
        if callable(value) and not name.startswith("_")
    }
    assert len(asked) > 10
    assert asked <= vars(NodeGuard).keys()
