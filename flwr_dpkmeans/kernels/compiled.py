"""The compiled kernels, called: each is None where NumPy has to do the work.

That is without the library, and for tables that a kernel leaves to NumPy: values off
the grid, or so large that a sum might be rounded. The interpreter's lock is released
during a call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.kernels.grid import GRID, FloatArray, LabelArray
from flwr_dpkmeans.kernels.implementation import kernels

_DONE = 0
_NO_MEMORY = 2
_Function = Callable[..., int]
_N = ctypes.c_int64
_REAL = ctypes.c_double
_POINTER = ctypes.c_void_p
_ARGUMENTS = {
    "scale_rows": (
        *(_POINTER, _N, _N),
        *(_POINTER, _POINTER, _POINTER, _POINTER, _REAL, _POINTER),
    ),
    "assign_rows": (_POINTER, _N, _N, _POINTER, _N, _POINTER, _POINTER),
    "residual_sums": (
        *(_POINTER, _N, _N),
        *(_POINTER, _POINTER, _POINTER, _N),
        *(_POINTER, _POINTER, _POINTER, _POINTER, _POINTER),
    ),
    "excess_sums": (
        *(_POINTER, _N, _N),
        *(_POINTER, _POINTER, _N, _POINTER, _POINTER, _N, _POINTER),
    ),
    "outer_products": (_POINTER, _N, _N, _POINTER, _REAL, _POINTER),
    "unit_residuals": (_POINTER, _N, _N, _REAL, _POINTER),
    "project_rows": (_POINTER, _N, _N, _POINTER, _N, _POINTER, _POINTER),
    "label_sums": (_POINTER, _N, _N, _POINTER, _N, _POINTER, _POINTER),
    "distance_counts": (_POINTER, _N, _N, _POINTER, _POINTER, _N, _POINTER),
    "clip_rows": (_POINTER, _N, _N, _REAL, _REAL, _POINTER, _POINTER),
}


def _function(name: str) -> _Function | None:
    """The library's function for this processor, if there is one."""
    there = kernels()
    if there.library is None:
        return None
    return _declared(name, there.library, there.variant)


@lru_cache(maxsize=32)
def _declared(name: str, library: ctypes.CDLL, variant: str) -> _Function:
    function: _Function = getattr(library, name + variant)
    function.argtypes = _ARGUMENTS[name]  # type: ignore[attr-defined]
    return function


def _rows(values: npt.ArrayLike) -> FloatArray:
    """A table as the kernels read it: float64, row by row."""
    return np.ascontiguousarray(values, np.float64)


def _address(array: npt.NDArray[np.generic] | None) -> int | None:
    """Where an array's values lie; the caller holds the array during the call."""
    if array is None:
        return None
    address: int = array.__array_interface__["data"][0]
    return address


def _is_done(status: int) -> bool:
    if status == _NO_MEMORY:
        raise MemoryError("no memory is left for a block of rows")
    return status == _DONE


def scaled_rows(
    rows: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    step: FloatArray,
    inverse: FloatArray,
    half: float,
) -> FloatArray | None:
    """Rows (n, d) in the box: see `flwr_dpkmeans.kernels.box.GridBox`."""
    function = _function("scale_rows")
    if function is None:
        return None
    table = _rows(rows)
    scaled = np.empty(table.shape)
    sides = [_address(side) for side in (lower, upper, step, inverse)]
    function(_address(table), *table.shape, *sides, half, _address(scaled))
    return scaled


def nearest(
    points: FloatArray,
    centroids: FloatArray,
    *,
    with_squares: bool,
) -> tuple[LabelArray, FloatArray] | None:
    """Labels (n,) of the nearest centroids, and squared distances, if asked for."""
    function = _function("assign_rows")
    if function is None:
        return None
    table = _rows(points)
    centers = _rows(centroids)
    labels = np.empty(len(table), np.int32)
    squares = np.empty(len(table) if with_squares else 0)
    status = function(
        _address(table),
        *table.shape,
        _address(centers),
        len(centers),
        _address(labels),
        _address(squares if with_squares else None),
    )
    return (labels, squares) if _is_done(status) else None


def residual_sums(
    rows: FloatArray,
    labels: LabelArray,
    weights: FloatArray | None,
    centers: FloatArray,
    radii: FloatArray,
    squared_radii: FloatArray | None,
) -> tuple[FloatArray, FloatArray, FloatArray] | None:
    """Sums (k, d), counts (k,) and squares (k,) of clipped residuals, in units."""
    function = _function("residual_sums")
    if function is None:
        return None
    table = _rows(rows)
    middles = _rows(centers)
    numbers = np.ascontiguousarray(labels, np.int32)
    k, d = middles.shape
    sums = np.zeros((k, d))
    counts = np.zeros(k)
    squares = np.zeros(k)
    status = function(
        _address(table),
        *table.shape,
        _address(numbers),
        _address(weights),
        _address(middles),
        k,
        _address(radii),
        _address(squared_radii),
        _address(sums),
        _address(counts),
        _address(squares),
    )
    return (sums / GRID, counts, squares / GRID) if _is_done(status) else None


def excess_sums(
    rows: FloatArray,
    labels: LabelArray,
    centers: FloatArray,
    radii: FloatArray,
    lengths: FloatArray,
) -> FloatArray | None:
    """Sums (k * n_shells, d) of what residuals have beyond their radius."""
    function = _function("excess_sums")
    if function is None:
        return None
    table = _rows(rows)
    numbers = np.ascontiguousarray(labels, np.int32)
    middles = _rows(centers)
    k, n_shells = lengths.shape
    bounds = (_rows(radii), _rows(lengths))
    if not all(np.isfinite(bound).all() and (bound > 0.0).all() for bound in bounds):
        return None
    sums = np.zeros((k * n_shells, table.shape[1]))
    limits = [_address(bound) for bound in bounds]
    status = function(
        _address(table),
        *table.shape,
        _address(numbers),
        _address(middles),
        k,
        *limits,
        n_shells,
        _address(sums),
    )
    return sums / GRID if _is_done(status) else None


def outer_products(
    rows: FloatArray,
    centre: FloatArray | None = None,
    radius: float = 1.0,
) -> FloatArray | None:
    """Triangle (d * (d + 1) / 2,) of the summed outer products of rows (n, d).

    Or of their residuals from a centre over the radius, of length at most 1.
    """
    function = _function("outer_products")
    if function is None:
        return None
    table = _rows(rows)
    d = table.shape[1]
    middle = None if centre is None else _rows(centre)
    triangle = np.zeros(d * (d + 1) // 2)
    outcome = _address(triangle)
    status = function(_address(table), *table.shape, _address(middle), radius, outcome)
    return triangle / GRID**2 if _is_done(status) else None


def unit_residuals(residuals: FloatArray, radius: float) -> FloatArray | None:
    """Residuals (n, d) over the radius, of length at most 1."""
    function = _function("unit_residuals")
    if function is None:
        return None
    table = _rows(residuals)
    units = np.empty(table.shape)
    status = function(_address(table), *table.shape, radius, _address(units))
    return units if _is_done(status) else None


def projected_rows(
    rows: FloatArray,
    axes: FloatArray,
    shift: FloatArray,
) -> FloatArray | None:
    """Rows (n, d) times axes (d, c) less a shift (c,), rounded to the grid."""
    function = _function("project_rows")
    if function is None:
        return None
    table = _rows(rows)
    directions = _rows(axes)
    width = directions.shape[1]
    start = _rows(shift) * GRID**2
    projected = np.empty((len(table), width))
    outcome = (_address(start), _address(projected))
    status = function(
        _address(table), *table.shape, _address(directions), width, *outcome
    )
    return projected if _is_done(status) else None


def label_sums(
    points: FloatArray,
    labels: LabelArray,
    n_labels: int,
) -> tuple[FloatArray, FloatArray] | None:
    """Sums (n_labels, d) and counts (n_labels,) of points by label."""
    function = _function("label_sums")
    if function is None:
        return None
    table = _rows(points)
    numbers = np.ascontiguousarray(labels, np.int32)
    sums = np.zeros((n_labels, table.shape[1]))
    counts = np.zeros(n_labels)
    outcomes = (_address(sums), _address(counts))
    status = function(
        _address(table), *table.shape, _address(numbers), n_labels, *outcomes
    )
    return (sums / GRID, counts) if _is_done(status) else None


def distance_counts(
    points: FloatArray,
    centre: FloatArray,
    rising_edges: FloatArray,
) -> FloatArray | None:
    """Counts of points by their squared distance from a centre, (n_edges,)."""
    function = _function("distance_counts")
    if function is None:
        return None
    table = _rows(points)
    middle = _rows(centre)
    edges = _rows(rising_edges)
    counts = np.zeros(len(edges))
    addresses = (_address(middle), _address(edges), len(edges), _address(counts))
    status = function(_address(table), *table.shape, *addresses)
    return counts if _is_done(status) else None


def clipped_rows(
    rows: FloatArray,
    largest_square: float,
    shaded_radius: float,
) -> tuple[FloatArray, int] | None:
    """Rows (n, d) within the radius, and how many were pulled back to it."""
    function = _function("clip_rows")
    if function is None:
        return None
    table = _rows(rows)
    clipped = np.empty(table.shape)
    n_clipped = np.zeros(1, np.int64)
    outcomes = (_address(clipped), _address(n_clipped))
    status = function(
        _address(table), *table.shape, largest_square, shaded_radius, *outcomes
    )
    return (clipped, int(n_clipped[0])) if _is_done(status) else None
