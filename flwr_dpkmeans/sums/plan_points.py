"""The server's points as a plan shows them to every client."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from flwr_dpkmeans.errors import ProtocolError
from flwr_dpkmeans.sums.round import Array


@dataclass(frozen=True)
class PublicPoints:
    """Server points that every client may see (trust model ``oblivious``)."""

    n_points: int
    n_features: int
    grid_values: str
    """Base64 of the values in the box [-1, 1]^d times 2^16, as little-endian 32-bit
    integers.
    """

    @classmethod
    def of(cls, points: Array) -> PublicPoints:
        """Write a table of grid values."""
        values = np.rint(points * 2.0**16).astype("<i4")
        text = base64.b64encode(values.tobytes()).decode()
        n_points, n_features = points.shape
        return cls(n_points, n_features, text)

    @cached_property
    def table(self) -> Array:
        """The points, read-only.

        Text that is not base64 of so many values inside the box is a `ProtocolError`.
        """
        try:
            data = base64.b64decode(self.grid_values.encode(), validate=True)
        except ValueError as error:
            raise ProtocolError(
                "the plan's server points are not base64: stop the run."
            ) from error
        if len(data) != 4 * self.n_points * self.n_features:
            raise ProtocolError(
                "the plan's server points have another shape than it says: stop the"
                " run."
            )
        values = np.frombuffer(data, dtype="<i4").astype(np.float64) / 2.0**16
        if bool(np.any(np.abs(values) > 1.0)):
            raise ProtocolError(
                "the plan's server points leave the box of its bounds: stop the run."
            )
        table: Array = values.reshape(self.n_points, self.n_features)
        table.flags.writeable = False
        return table
