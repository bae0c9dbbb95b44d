"""Tables that a function makes anew for each look."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, overload

from numpy.typing import ArrayLike

from flwr_dpkmeans.data.frame_names import frame_columns
from flwr_dpkmeans.data.table_labels import column_labels
from flwr_dpkmeans.data.validated import validate_points
from flwr_dpkmeans.errors import DataError
from flwr_dpkmeans.estimators.party_checks import check_of_party
from flwr_dpkmeans.log import printable
from flwr_dpkmeans.resources import limits
from flwr_dpkmeans.sums.round import Array


class MadeColumns(NamedTuple):
    """The columns of a table."""

    names: tuple[str, ...]
    labels: tuple[object, ...]
    """What a frame calls them, also where these are no names."""
    width: int


@dataclass
class MadeTables(Sequence[Array]):
    """Tables that a function makes anew whenever they are looked at.

    So that one at a time is in memory, beside the first 256 MB of them.
    """

    load: Callable[[int], ArrayLike]
    n_clients: int
    # Of each table that was looked at.
    n_rows: dict[int, int] = field(default_factory=dict, repr=False)
    retained: dict[int, Array] = field(default_factory=dict, repr=False)
    n_retained_bytes: int = 0

    @cached_property
    def columns(self) -> MadeColumns:
        """Those of the first table."""
        first = self._made(0)
        points = check_of_party(
            "clients",
            "0",
            validate_points,
            first,
        )
        names = frame_columns(first)
        labels = tuple(column_labels(first))
        return MadeColumns(names, labels, points.shape[1])

    @property
    def n_columns(self) -> int:
        """Width of each table, or else it is refused when it is looked at."""
        return self.columns.width

    def _made(self, client: int) -> ArrayLike:
        """Call the function for one client, whose errors then name it."""
        try:
            return self.load(client)
        except Exception as error:
            # Also the end of an iterator, which would be that of whoever looks at all
            # tables.
            raised = f"{type(error).__name__}: {printable(error, 300).rstrip('.')}"
            failure = f"clients({client}) raised {raised}"
            raise DataError(
                f"{failure}. It is called many times, and must make the same table each"
                " time."
            ) from error

    def __len__(self) -> int:
        return self.n_clients

    @overload
    def __getitem__(self, client: int) -> Array: ...

    @overload
    def __getitem__(self, client: slice) -> Sequence[Array]: ...

    def __getitem__(self, client: int | slice) -> Array | Sequence[Array]:
        if isinstance(client, slice):
            return [self[index] for index in range(self.n_clients)[client]]
        if not 0 <= client < self.n_clients:
            raise IndexError(client)
        if client not in self.retained:
            return self._checked(client)
        return self.retained[client]

    def _checked(self, client: int) -> Array:
        """Make a client's table, which must be as it was before and as the first."""
        columns = self.columns
        table = self._made(client)
        if tuple(column_labels(table)) != columns.labels:
            raise DataError(
                f"clients({client}) has other columns than clients(0): give all the"
                " same, in one order."
            )
        points = check_of_party(
            "clients",
            str(client),
            validate_points,
            table,
        )
        width = points.shape[1]
        if width != columns.width:
            raise DataError(
                f"clients({client}) has {width} columns, clients(0) {columns.width}:"
                " give all the same."
            )
        n_rows = len(points)
        n_rows_before = self.n_rows.setdefault(client, n_rows)
        if n_rows != n_rows_before:
            raise DataError(
                f"clients({client}) has {n_rows} rows, but had {n_rows_before}: make"
                " the same table each time."
            )
        if self.n_retained_bytes + points.nbytes <= limits().retained_bytes:
            self.n_retained_bytes += points.nbytes
            # A copy, as the function may fill one array again and again.
            self.retained[client] = points.copy()
        return points
