"""Tables that are made anew for each look, and checks whose sentences name a party."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from numpy.typing import ArrayLike

from flwr_dpkmeans.data.points import (
    column_labels,
    frame_columns,
    validate_points,
)
from flwr_dpkmeans.errors import (
    DataError,
)
from flwr_dpkmeans.log import printable
from flwr_dpkmeans.sums.round import Array

CheckedT = TypeVar("CheckedT")


@dataclass(frozen=True)
class Made(Sequence[Array]):
    """Tables that a function makes anew whenever they are looked at, so that one at a
    time is in memory.
    """

    load: Callable[[int], ArrayLike]
    n_clients: int
    # Of each table that was looked at.
    n_rows: dict[int, int] = field(default_factory=dict, repr=False)

    @cached_property
    def columns(self) -> tuple[tuple[str, ...], tuple[object, ...], int]:
        """Names, labels and number of the first one's columns."""
        width = check_of_party(
            "clients",
            "0",
            validate_points,
            first := self._made(0),
        ).shape[1]
        return frame_columns(first), tuple(column_labels(first)), width

    def _made(self, place: int) -> Any:
        try:
            return self.load(place)
        except Exception as error:
            # Also the end of an iterator, which would be that of whoever looks at all
            # tables.
            told = (
                f"clients({place}) raised {type(error).__name__}:"
                f" {printable(error, 300).rstrip('.')}"
            )
            raise DataError(
                f"{told}. It is called many times, and must make the same table each"
                " time."
            ) from error

    def __len__(self) -> int:
        return self.n_clients

    def __getitem__(self, place: Any) -> Any:
        if not 0 <= place < self.n_clients:
            raise IndexError(place)
        _, labels, width = self.columns
        if tuple(column_labels(table := self._made(place))) != labels:
            raise DataError(
                f"clients({place}) has other columns than clients(0): give all the"
                " same, in one order."
            )
        if (
            points := check_of_party(
                "clients",
                str(place),
                validate_points,
                table,
            )
        ).shape[1] != width:
            raise DataError(
                f"clients({place}) has {points.shape[1]} columns, clients(0) {width}:"
                " give all the same."
            )
        if (known := self.n_rows.setdefault(place, len(points))) != len(points):
            raise DataError(
                f"clients({place}) has {len(points)} rows, but had {known}: make the"
                " same table each time."
            )
        return points


def check_of_party(
    what: str, party: str, check: Callable[..., CheckedT], *values: Any
) -> CheckedT:
    """Check what one party gives.

    a sentence about it begins with its place in the list, or its name.
    """
    try:
        return check(*values)
    except DataError as error:
        raise DataError(f"{what}[{party}]: {error}") from error
