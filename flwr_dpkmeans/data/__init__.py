"""Tables, public bounds, partitions and the papers' federated data: everything between a file and points in [-1, 1]."""

from __future__ import annotations

from flwr_dpkmeans.data.bounds import Bounds, parse_bounds
from flwr_dpkmeans.data.bundled import BUNDLED, BundledData, load_bundled, load_source
from flwr_dpkmeans.data.census import Employment, load_census
from flwr_dpkmeans.data.census_codes import CODEBOOK_2018, read_codebook
from flwr_dpkmeans.data.declared import Schema, load_declared
from flwr_dpkmeans.data.federated import FederatedData
from flwr_dpkmeans.data.mixtures import GaussianMixture, LabelledPoints, draw_gaussian_mixture, draw_max_cover_mixture
from flwr_dpkmeans.data.partition import Partition, partition_indices
from flwr_dpkmeans.data.separation import separation_index
from flwr_dpkmeans.data.server_data import load_server_points
from flwr_dpkmeans.data.stack_overflow import load_stack_overflow
from flwr_dpkmeans.data.synthetic import draw_balanced_clusters, draw_g2, draw_separated_clusters
from flwr_dpkmeans.data.tables import Table, load_table, validate_points

__all__ = [
    "BUNDLED",
    "CODEBOOK_2018",
    "Bounds",
    "BundledData",
    "Employment",
    "FederatedData",
    "GaussianMixture",
    "LabelledPoints",
    "Partition",
    "Schema",
    "Table",
    "draw_balanced_clusters",
    "draw_g2",
    "draw_gaussian_mixture",
    "draw_max_cover_mixture",
    "draw_separated_clusters",
    "load_bundled",
    "load_census",
    "load_declared",
    "load_server_points",
    "load_source",
    "load_stack_overflow",
    "load_table",
    "parse_bounds",
    "partition_indices",
    "read_codebook",
    "separation_index",
    "validate_points",
]
