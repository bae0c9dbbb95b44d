"""Rows in one place: checked, clipped to a ball, and projected to few dimensions."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.baselines.pooled import (
    FloatArray,
    require_count,
    require_enough,
    require_points,
)
from flwr_dpkmeans.errors import (
    LocalMisuseError,
)
from flwr_dpkmeans.kernels.clipping import largest_square_within
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.privacy.noise import NoiseSource

_MATRIX_BITS = 20
_POINT_BITS = 16
# A random direction sees a vector of length R as a normal variable of standard
# deviation R / sqrt(d).
_DEVIATIONS_IN_BOX = 3.0


class Draws(NamedTuple):
    """What is drawn at random: noise, and what protects nothing."""

    source: NoiseSource
    generator: np.random.Generator


class Table(NamedTuple):
    """Checked points, with the public number of them.

    And how many dimensions they are projected to, and their box's radius.
    """

    points: FloatArray
    n_examples: int
    n_components: int
    radius: float

    @classmethod
    def of(
        cls,
        points: npt.ArrayLike,
        n_clusters: int,
        n_examples: int | None,
        n_components: int | None,
        generator: np.random.Generator,
    ) -> Table:
        """From what a caller gave; one sentence for what cannot be."""
        n_clusters, table = (
            require_count("n_clusters", n_clusters),
            require_points(points),
        )
        n_examples = (
            len(table)
            if n_examples is None
            else require_count("n_examples", n_examples)
        )
        require_enough(n_examples, n_clusters)
        if not isinstance(generator, np.random.Generator):
            raise LocalMisuseError(
                f"generator is of type {type(generator).__name__!r}, but it must be a"
                " numpy Generator: give numpy.random.default_rng(seed)."
            )
        n_features = table.shape[1]
        n_components = min(
            n_components or default_components(n_examples, n_features), n_features
        )
        return cls(
            table,
            n_examples,
            n_components,
            math.nextafter(math.sqrt(n_features), math.inf),
        )

    def clipped_and_projected(
        self, generator: np.random.Generator
    ) -> tuple[FloatArray, FloatArray]:
        """Points, (n, d), in box and ball, and (n, n_components), in [-1, 1]."""
        clipped = clip_to_ball(self.points, self.radius)
        return clipped, project_to_box(
            clipped,
            self.radius,
            self.n_components,
            generator,
        )


def clip_to_ball(points: FloatArray, radius: float) -> FloatArray:
    """Clip every point to the box and to the ball around the origin.

    And round it toward zero to the 2^-16 grid.

    No row is longer than `radius` then, and each is a function of its own row alone.
    """
    scale = 2.0**_POINT_BITS
    boxed = np.trunc(np.clip(points, -1.0, 1.0) * scale) / scale
    # Squares are multiples of 2^-32: the sum is exact, in any order, and one row's does
    # not depend on others.
    squares = np.einsum("ij,ij->i", boxed, boxed)
    # Squares are compared, since a root may be rounded down to the radius.
    far = squares > largest_square_within(radius)
    # Rounding errors of the norm and of the product stay far below the part of 2^-40
    # that is taken off.
    factors = np.where(
        far,
        radius * (1.0 - 2.0**-40) / np.sqrt(np.maximum(squares, 4.0**-_POINT_BITS)),
        1.0,
    )
    clipped: FloatArray = np.trunc(boxed * factors[:, None] * scale) / scale
    return clipped


def default_components(n_examples: int, n_features: int) -> int:
    """Return about ``log(n) / 2`` dimensions, as in the paper's experiments.

    At most `n_features` and 8.
    """
    return max(1, min(n_features, round(0.5 * math.log(n_examples)), 8))


def project_to_box(
    points: FloatArray,
    radius: float,
    n_components: int,
    generator: np.random.Generator,
) -> FloatArray:
    """Project clipped points onto random orthogonal directions.

    They are scaled so that they fill [-1, 1]^n_components.

    With `n_components` equal to the number of features there is no projection.
    Otherwise coordinates are divided by 3 ``radius / sqrt(n_features)``, three standard
    deviations for a point at distance `radius`, and clipped. A row is a function of its
    own point alone, to the last bit: the matrix is rounded to multiples of 2^-20, so
    that all sums of products are exact in whatever order a library forms them, and the
    result lies on the 2^-16 grid. Source: Nguyen, Chaturvedi and Xu 2021, Algorithm 1,
    step 1.
    """
    n_features = points.shape[1]
    if n_components == n_features:
        return round_to_grid(np.clip(points / min(radius, 1.0), -1.0, 1.0))
    directions, _ = np.linalg.qr(generator.standard_normal((n_features, n_components)))
    matrix = round_to_grid(directions, _MATRIX_BITS)
    unit = _DEVIATIONS_IN_BOX * radius / math.sqrt(n_features)
    return round_to_grid(np.clip(points @ matrix / unit, -1.0, 1.0))
