"""Compiled and NumPy's kernels make the same bits of every table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from runpy import run_path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.installed import forget
from support.on_the_grid import on_grid

from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.kernels import implementation
from flwr_dpkmeans.kernels.assignment import nearest_centroids, nearest_labels
from flwr_dpkmeans.kernels.box import GridBox
from flwr_dpkmeans.kernels.clipping import clip_rows
from flwr_dpkmeans.kernels.grid import GRID
from flwr_dpkmeans.kernels.implementation import (
    Implementation,
    kernels,
    using,
)
from flwr_dpkmeans.kernels.label_sums import sums_and_counts
from flwr_dpkmeans.kernels.outer_products import (
    outer_product_sums,
    outer_product_triangle,
)
from flwr_dpkmeans.kernels.projected_labels import project
from flwr_dpkmeans.kernels.residual_sums import (
    UnitResiduals,
    residual_sums,
    unit_residuals,
)
from flwr_dpkmeans.kmeans.proxies.distances import distance_counts
from flwr_dpkmeans.kmeans.residuals.excess_sums import excess_sums

needs_library = pytest.mark.skipif(
    kernels().library is None, reason="no compiled kernels are installed"
)
NATIVE = Path(implementation.__file__).with_name("native")
Array = Any


def both(function: Callable[[], Any]) -> tuple[Any, Any]:
    """What a function returns with either implementation."""
    with using(Implementation.NUMPY):
        reference = function()
    with using(Implementation.COMPILED):
        return reference, function()


def assert_same_bits(function: Callable[[], Any]) -> None:
    reference, outcome = both(function)
    if not isinstance(reference, tuple):
        reference, outcome = (reference,), (outcome,)
    for expected, array in zip(reference, outcome, strict=True):
        assert (expected.dtype, expected.shape) == (array.dtype, array.shape)
        assert expected.tobytes() == np.ascontiguousarray(array).tobytes()


def tables(seed: int, n: int, d: int, k: int, kind: str) -> tuple[Array, Array]:
    """Rows and centroids on the grid, of a kind that is hard for floats."""
    draws = np.random.default_rng(seed)
    rows = on_grid(draws.uniform(-1, 1, (n, d)))
    centers = on_grid(draws.uniform(-1, 1, (k, d)))
    if kind == "corners":
        rows = draws.choice([-1.0, 1.0], (n, d))
        centers = draws.choice([-1.0, 1.0], (k, d))
    if kind == "equal":
        centers[:] = centers[0]
    if kind == "one step off":
        centers[:] = centers[0]
        steps = draws.integers(-1, 2, (k, d))
        centers = np.clip(centers + steps / GRID, -1, 1)
    if kind == "midpoints" and n and k > 1:
        pairs = draws.integers(0, k, (n, 2))
        steps = draws.integers(-1, 2, (n, d)) / GRID
        rows = on_grid((centers[pairs[:, 0]] + centers[pairs[:, 1]]) / 2) + steps
    if kind == "on centroids":
        rows = centers[draws.integers(0, k, n)]
    if kind == "far centroids":
        centers = on_grid(draws.uniform(-200, 200, (k, d)))
    if kind == "one rounding over and over":
        # In a sum of equal products every rounding goes in the same direction.
        centers = np.repeat(on_grid(draws.uniform(-1, 1, (k, 1))), d, axis=1)
        pairs = draws.integers(0, k, (n, 2))
        sums = centers[pairs[:, 0]] + centers[pairs[:, 1]]
        rows = np.trunc(sums / 2 * GRID) / GRID + 0.0
    if kind == "tiny":
        rows = draws.integers(-2, 3, (n, d)) / GRID
        centers = draws.integers(-2, 3, (k, d)) / GRID
    return rows, centers


KINDS = (
    *("uniform", "corners", "equal", "one step off"),
    *("midpoints", "on centroids", "far centroids", "tiny"),
    "one rounding over and over",
)
shapes = st.tuples(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0, 1, 2, 31, 32, 33, 63, 64, 65, 200]),
    st.sampled_from([1, 2, 3, 4, 5, 7, 8, 9, 16, 20, 33, 63, 64, 65, 129, 300]),
    st.sampled_from([1, 2, 3, 8, 17, 257]),
    st.sampled_from(KINDS),
)
at_length = settings(max_examples=60, deadline=None)


@needs_library
@given(shapes)
@at_length
def test_labels_and_squares(shape: tuple[int, int, int, int, str]) -> None:
    rows, centers = tables(*shape)
    assert_same_bits(lambda: nearest_centroids(rows, centers))
    assert_same_bits(lambda: nearest_labels(rows, centers))


@needs_library
@given(
    shapes,
    st.sampled_from([0.0, 2.0**-16, 2.0**-12, 0.3, 1.0, 70.0]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
@at_length
def test_residuals(
    shape: tuple[int, int, int, int, str],
    radius: float,
    has_own_radii: bool,
    drop: bool,
    is_weighted: bool,
) -> None:
    rows, centers = tables(*shape)
    draws = np.random.default_rng(shape[0])
    labels = draws.integers(0, len(centers) + 2, len(rows)).astype(np.int32)
    weights = None
    if is_weighted:
        weights = np.trunc(draws.uniform(0, 1, len(rows)) * GRID) / GRID
    radii: Any = radius
    if has_own_radii:
        typical = radius * np.sqrt(rows.shape[1])
        radii = on_grid(draws.uniform(0, 2, len(centers)) * typical)

    def sums() -> tuple[Array, Array, Array]:
        n_rows = len(centers) + 1
        result = residual_sums(
            rows, labels, centers, radii, n_rows, weights=weights, drop=drop
        )
        return result.sums, result.counts, result.squares

    assert_same_bits(sums)
    assert_same_bits(lambda: unit_residuals(rows - centers[0], radius))


@needs_library
@given(
    shapes,
    st.sampled_from([0.0, 2.0**-16, 2.0**-12, 0.3, 1.0, 70.0]),
    st.integers(1, 5),
)
@at_length
def test_what_lies_beyond_radii(
    shape: tuple[int, int, int, int, str], radius: float, n_shells: int
) -> None:
    rows, centers = tables(*shape)
    draws = np.random.default_rng(shape[0])
    k = len(centers)
    labels = draws.integers(0, k + 2, len(rows)).astype(np.int32)
    radii = draws.uniform(0, 2, k) * radius
    growing = np.cumsum(draws.uniform(0.1, 1.0, (k, n_shells)), axis=1)
    lengths = (2.0**-16 + radii[:, None]) * growing
    assert_same_bits(lambda: excess_sums(rows, labels, centers, radii, lengths, k + 1))
    # No row is beyond a shell's end by rounding alone.
    exact = np.sqrt(np.square(rows - centers[0]).sum(axis=1))
    if len(exact) and exact.max() > radius:
        ends = np.full((1, n_shells), exact.max() - radius)
        middle, bound = centers[:1], np.full(1, radius)
        assert_same_bits(lambda: excess_sums(rows, labels, middle, bound, ends, 1))


@needs_library
@given(shapes, st.sampled_from([2.0**-16, 0.3, 1.0, 70.0]))
@at_length
def test_outer_products(shape: tuple[int, int, int, int, str], radius: float) -> None:
    rows, centers = tables(*shape)
    residuals = UnitResiduals(centers[0], radius)
    assert_same_bits(lambda: outer_product_sums(rows, residuals))
    assert_same_bits(lambda: outer_product_triangle(rows))
    assert_same_bits(lambda: outer_product_triangle(rows * 2.0**7))


@needs_library
def test_sums_of_products_that_might_be_rounded_are_left_to_numpy() -> None:
    draws = np.random.default_rng(0)
    steps = draws.integers(2**21, 2**22, (1000, 2)) * 2 + 1
    assert_same_bits(lambda: outer_product_triangle(steps / GRID))


@needs_library
@given(shapes)
@at_length
def test_sums_distances_and_clipped_rows(shape: tuple[int, int, int, int, str]) -> None:
    rows, centers = tables(*shape)
    draws = np.random.default_rng(shape[0])
    labels = draws.integers(0, len(centers), len(rows)).astype(np.int32)
    assert_same_bits(lambda: sums_and_counts(rows, labels, len(centers)))
    assert_same_bits(lambda: distance_counts(rows, centers[0]))
    assert_same_bits(lambda: clip_rows(rows, 0.7))
    assert_same_bits(lambda: clip_rows(rows, 0.0))
    if len(rows) and rows.shape[1] == 1:
        assert_same_bits(lambda: clip_rows(rows, abs(float(rows[0, 0]))))
    axes = centers[: min(len(centers), 70)].T
    if axes.shape[0] == rows.shape[1]:
        assert_same_bits(lambda: project(rows, np.ascontiguousarray(axes)))


@needs_library
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 70),
    st.sampled_from([1, 16, 20, 30]),
)
@at_length
def test_rows_in_the_box(seed: int, d: int, bits: int) -> None:
    draws = np.random.default_rng(seed)
    lower = draws.uniform(-10, 0, d)
    upper = lower + np.exp(draws.uniform(-30, 30, d))
    box = GridBox(lower, upper, bits)
    rows = lower + (upper - lower) * draws.uniform(-0.2, 1.2, (50, d))
    # Halves of a step are where a product may round otherwise than a quotient.
    halves = np.rint(draws.uniform(0, 2.0 ** (bits + 1), (50, d))) + 0.5
    rows = np.vstack([rows, lower + halves * box.step, lower[None], upper[None]])
    rows[0, 0] = np.nan
    assert_same_bits(lambda: box.to_grid(rows))
    assert_same_bits(lambda: box.to_grid(np.asfortranarray(rows)))


@needs_library
@pytest.mark.parametrize(
    "spoil",
    [
        lambda rows: rows + 2.0**-20,
        lambda rows: rows * np.nan,
        lambda rows: rows + np.inf,
        lambda rows: rows + 2.0**40,
        lambda rows: rows * 2.0**-1060,
    ],
    ids=["off the grid", "not numbers", "infinite", "too large", "denormal"],
)
def test_what_is_not_exact_is_left_to_numpy(spoil: Callable[[Array], Array]) -> None:
    rows, centers = tables(5, 60, 6, 4, "uniform")
    labels = np.zeros(60, np.int32)
    ends = np.ones((4, 2))
    with np.errstate(all="ignore"):
        for bad in (spoil(rows), np.vstack([rows[:-1], spoil(rows[-1:])])):
            assert_same_bits(lambda bad=bad: nearest_centroids(bad, centers))
            assert_same_bits(lambda bad=bad: sums_and_counts(bad, labels, 2))
            assert_same_bits(lambda bad=bad: clip_rows(bad, 0.5))
            assert_same_bits(lambda bad=bad: project(bad, rows[:6]))
            assert_same_bits(
                lambda bad=bad: excess_sums(bad, labels, centers, ends[:, 0], ends, 4)
            )
        assert_same_bits(lambda: nearest_centroids(rows, spoil(centers)))


@needs_library
@pytest.mark.parametrize("d", [1, 19, 784, 4000])
@pytest.mark.parametrize("k", [1, 2, 1000])
@pytest.mark.parametrize("kind", ["one step off", "one rounding over and over"])
def test_wide_tables_and_many_centroids(d: int, k: int, kind: str) -> None:
    rows, centers = tables(d + k, 70, d, k, kind)
    assert_same_bits(lambda: nearest_centroids(rows, centers))


@needs_library
def test_rows_that_floats_cannot_tell_apart_are_decided_exactly() -> None:
    # Two centroids a step apart, and rows whose squares differ in the 34th bit.
    centers = np.array([[1.0 - 1 / GRID, 1.0], [1.0, 1.0 - 1 / GRID]])
    rows = np.array([[1.0, 1.0], [1.0, 1.0 - 1 / GRID], [0.5, 0.5 + 1 / GRID]])
    with using(Implementation.COMPILED):
        assert nearest_labels(rows, centers).tolist() == [0, 1, 0]


def test_the_library_was_built_from_the_source_that_is_here() -> None:
    library = pytest.importorskip("flwr_dpkmeans_kernels")
    source = run_path(str(NATIVE / "build_hook.py"))
    assert source["source_digest"]() == library.SOURCE, "install the package again"


@pytest.fixture
def fresh_look(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A process that has not looked for the library yet."""
    implementation.look_again()
    yield monkeypatch
    monkeypatch.undo()
    implementation.look_again()


def test_the_environment_chooses(fresh_look: pytest.MonkeyPatch) -> None:
    fresh_look.setenv("FLWR_DPKMEANS_KERNELS", "numpy")
    assert kernels().implementation is Implementation.NUMPY
    assert "FLWR_DPKMEANS_KERNELS" in kernels().because


def test_a_wrong_choice_is_refused(fresh_look: pytest.MonkeyPatch) -> None:
    fresh_look.setenv("FLWR_DPKMEANS_KERNELS", "fortran")
    with pytest.raises(ConfigurationError, match="'fortran'"):
        kernels()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("raise ImportError", "No compiled kernels are installed"),
        ("LIBRARY = __file__", "cannot be loaded"),
        ("LIBRARY = 'libc.so.6'", "cannot be loaded"),
    ],
)
def test_a_library_that_is_no_good_leaves_the_work_to_numpy(
    content: str, reason: str, fresh_look: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    import sys

    (tmp_path / "flwr_dpkmeans_kernels.py").write_text(content)
    fresh_look.syspath_prepend(tmp_path)
    forget(fresh_look, "flwr_dpkmeans_kernels")
    fresh_look.delenv("FLWR_DPKMEANS_KERNELS", raising=False)
    assert kernels().implementation is Implementation.NUMPY
    assert reason in kernels().because
    with pytest.raises(ConfigurationError), using(Implementation.COMPILED):
        pass
    fresh_look.setenv("FLWR_DPKMEANS_KERNELS", "compiled")
    implementation.look_again()
    with pytest.raises(ConfigurationError, match="C compiler"):
        kernels()
    sys.modules.pop("flwr_dpkmeans_kernels", None)
