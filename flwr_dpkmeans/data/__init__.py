"""Tables, public bounds and partitions: everything between a file and points in [-1, 1]."""

from __future__ import annotations

from flwr_dpkmeans.data.bounds import Bounds, parse_bounds
from flwr_dpkmeans.data.bundled import BUNDLED, BundledData, load_bundled, load_source
from flwr_dpkmeans.data.partition import Partition, partition_indices
from flwr_dpkmeans.data.tables import Table, load_table, validate_points

__all__ = [
    "BUNDLED",
    "Bounds",
    "BundledData",
    "Partition",
    "Table",
    "load_bundled",
    "load_source",
    "load_table",
    "parse_bounds",
    "partition_indices",
    "validate_points",
]
