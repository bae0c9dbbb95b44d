"""The secure-aggregation mod around any app whose answers are to be summed."""

from __future__ import annotations

from flwr_dpkmeans.flower.client.node_config import show_node_logs
from flwr_dpkmeans.flower.client.wrapped_app import WrappedApp
from flwr_dpkmeans.flower.mod import SecureAggregation

secure_sum_mod = SecureAggregation(show_logs=show_node_logs, wrapped=WrappedApp)
"""The same around any app whose answers are to be summed.

See `flwr_dpkmeans.SecureSum`.
"""
