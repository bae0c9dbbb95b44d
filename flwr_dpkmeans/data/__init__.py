"""Tables, public bounds, partitions and the papers' federated data: everything between a file and points in [-1, 1]."""

from __future__ import annotations

from flwr_dpkmeans.data.bounds import Bounds, parse_bounds
from flwr_dpkmeans.data.bundled import BUNDLED, BundledData, load_bundled, load_server_table, load_source
from flwr_dpkmeans.data.declared import Schema, load_declared
from flwr_dpkmeans.data.mixtures import GaussianMixture, draw_gaussian_mixture
from flwr_dpkmeans.data.partition import Partition, partition_indices
from flwr_dpkmeans.data.tables import Table, load_table, validate_points

__all__ = [
    "BUNDLED",
    "Bounds",
    "BundledData",
    "GaussianMixture",
    "Partition",
    "Schema",
    "Table",
    "draw_gaussian_mixture",
    "load_bundled",
    "load_declared",
    "load_server_table",
    "load_source",
    "load_table",
    "parse_bounds",
    "partition_indices",
    "validate_points",
]
