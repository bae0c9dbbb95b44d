"""Statistics over rows: exact, in blocks, the same on every machine."""

from flwr_dpkmeans.kernels.assignment import nearest_centroids
from flwr_dpkmeans.kernels.block_sums import in_blocks
from flwr_dpkmeans.kernels.grid import round_to_grid, toward_zero

__all__ = [
    "in_blocks",
    "nearest_centroids",
    "round_to_grid",
    "toward_zero",
]
