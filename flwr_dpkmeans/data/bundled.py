"""Where a table comes from: a data set of scikit-learn with bounds, or a file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from flwr_dpkmeans.data.loading.table import Table
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.data.validated import validate_points
from flwr_dpkmeans.errors import ConfigurationError

MOST_TABLES = 2
"""Tables that a process keeps parsed."""


TARGET_COLUMN = "target"
"""What scikit-learn calls the labels: rows of a bundled data set may be split by them.
"""


@dataclass(frozen=True)
class BundledData:
    """What is publicly known about a bundled data set, with scikit-learn's names.

    `n_clusters` counts its classes.

    Bounds are chosen from what a feature can plausibly be and never from its rows;
    images are height times width.
    """

    n_examples: int
    n_features: int
    n_clusters: int
    bounds: Bounds
    feature_names: tuple[str, ...]
    image_shape: tuple[int, int] | None = None


def _read_descriptions() -> Mapping[str, BundledData]:
    """What ``bundled.toml`` says.

    Pixels, whose names and ranges follow from the shape, are not written out there.
    """
    text = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    descriptions = {}
    for name, keys in tomllib.loads(text).items():
        shape = None
        ranges = keys.get("ranges")
        if "image_shape" in keys:
            height, width = keys["image_shape"]
            shape = (height, width)
            ranges = {
                f"pixel_{row}_{column}": keys["pixel"]
                for row in range(height)
                for column in range(width)
            }
        descriptions[name] = BundledData(
            keys["n_examples"],
            len(ranges),
            keys["n_clusters"],
            Bounds(*zip(*ranges.values(), strict=True)),
            tuple(ranges),
            shape,
        )
    return MappingProxyType(descriptions)


BUNDLED = _read_descriptions()


def load_bundled(name: str, *, partition_column: str = "") -> Table:
    """Load a key of ``BUNDLED`` with its labels, in scikit-learn's order.

    The only partition column is ``"target"``.
    """
    if partition_column not in ("", TARGET_COLUMN):
        raise ConfigurationError(
            f"partition_column is {partition_column!r}, but the rows of the bundled"
            f" data set {name!r} can be split by {TARGET_COLUMN!r} only: give it, or"
            " another partition."
        )
    from sklearn import datasets

    loaded = getattr(datasets, f"load_{name}")()
    values = loaded.target if partition_column else None
    return Table(
        validate_points(loaded.data),
        BUNDLED[name].feature_names,
        values,
        loaded.target,
    )
