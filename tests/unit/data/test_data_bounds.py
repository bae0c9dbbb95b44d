"""Bounds: checks, scaling and every form in which they can be given."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from flwr_dpkmeans.algorithms.server.box_units import in_box
from flwr_dpkmeans.data.bounds.stated_bounds import read_ranges
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.errors import ConfigurationError, DataError
from flwr_dpkmeans.kernels.grid import round_to_grid

FINITE = st.floats(-1e300, 1e300)


def bounds_of(value: Any, feature_names: Sequence[str] | None = None) -> Bounds:
    found = read_ranges(value).matched(feature_names)
    return found if feature_names is None else found.for_features(len(feature_names))


def failure(value: object, feature_names: list[str] | None = None) -> str:
    with pytest.raises(ConfigurationError) as caught:
        bounds_of(value, feature_names=feature_names)
    return str(caught.value)


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_scale_maps_the_bounds_to_the_ends_and_clips() -> None:
    bounds = Bounds((0.0, -5.0), (10.0, 5.0))
    points = np.array([[0.0, -5.0], [10.0, 5.0], [5.0, 0.0], [-1.0, 99.0]])
    assert bounds.scale(points).tolist() == [
        [-1.0, -1.0],
        [1.0, 1.0],
        [0.0, 0.0],
        [-1.0, 1.0],
    ]
    assert points[3].tolist() == [-1.0, 99.0]


def test_unscaling_goes_on_beyond_the_bounds() -> None:
    bounds = Bounds((0.0, -5.0), (10.0, 5.0))
    assert bounds.unscale([[-3.0, 3.0]]).tolist() == [[-10.0, 15.0]]


def test_single_range_scales_any_width() -> None:
    assert Bounds((0.0,), (2.0,)).scale([[0.0, 1.0, 2.0]]).tolist() == [
        [-1.0, 0.0, 1.0]
    ]


@given(low=FINITE, high=FINITE, points=arrays(np.float64, (4, 1), elements=FINITE))
def test_scaled_values_never_leave_the_cube(
    low: float, high: float, points: np.ndarray
) -> None:
    if not low < high:
        low, high = high, low
    if high - low < 2.0**-900:
        return
    bounds = Bounds((low,), (high,))
    assert np.abs(bounds.scale(points)).max() <= 1.0
    assert np.array_equal(
        in_box(bounds, points, 16), round_to_grid(bounds.scale(points))
    )
    assert bounds.scale([[low], [high]]).tolist() == [[-1.0], [1.0]]
    assert bounds.unscale([[-1.0], [1.0]]).tolist() == [[low], [high]]


@given(arrays(np.float64, (5, 3), elements=st.floats(-7.0, 30.0)))
def test_unscale_inverts_scale_inside_the_bounds(points: np.ndarray) -> None:
    bounds = Bounds((-7.0, -10.0, -1000.0), (30.0, 31.5, 1000.0))
    np.testing.assert_allclose(
        bounds.unscale(bounds.scale(points)), points, rtol=0, atol=1e-11
    )


@given(
    arrays(np.float64, (6, 2), elements=st.floats(-10.0, 10.0)),
    st.permutations(range(6)),
)
def test_scaling_does_not_depend_on_other_rows(
    points: np.ndarray, order: list[int]
) -> None:
    bounds = Bounds((-3.0, -0.1), (7.0, 0.3))
    whole = bounds.scale(points)
    assert bounds.scale(points[order]).tobytes() == whole[order].tobytes()
    assert (
        b"".join(bounds.scale(points[i : i + 1]).tobytes() for i in range(6))
        == whole.tobytes()
    )


def test_unscale_continues_outside() -> None:
    assert Bounds((0.0,), (10.0,)).unscale([[2.0, -3.0]]).tolist() == [[15.0, -10.0]]


@pytest.mark.parametrize("method", ["scale", "unscale"])
def test_values_that_are_not_finite_are_refused(method: str) -> None:
    with pytest.raises(DataError, match="1 rows with a missing or infinite value"):
        getattr(Bounds((0.0,), (1.0,)), method)([[np.nan]])


def test_for_features() -> None:
    assert Bounds((0.0,), (1.0,)).for_features(2) == Bounds((0.0, 0.0), (1.0, 1.0))
    same = Bounds((0.0, 0.0), (1.0, 1.0))
    assert same.for_features(2) is same
    with pytest.raises(ConfigurationError) as caught:
        same.for_features(3)
    assert (
        str(caught.value)
        == "the bounds have 2 ranges, but the points have 3 features: give one range"
        " per feature, or a single one for all."
    )
    with pytest.raises(ConfigurationError, match="the points have 1 features"):
        same.scale([[0.5]])
    with pytest.raises(ConfigurationError, match="but the points have 0 features"):
        Bounds((0.0,), (1.0,)).for_features(0)


@pytest.mark.parametrize(
    "value",
    [
        Bounds((0.0, 0.0), (1.0, 5.0)),
        ((0, 0), (1, 5)),
        [[0, 0], [1, 5]],
        np.array([[0, 0], [1, 5]]),
        (np.zeros(2), np.array([1.0, 5.0])),
        (0, [1, 5]),
        [(0, 0), [1, 5]],
    ],
)
def test_forms_of_one_range_per_feature(value: object) -> None:
    assert bounds_of(value) == Bounds((0.0, 0.0), (1.0, 5.0))


@pytest.mark.parametrize(
    "value",
    ["-1,1", " -1 , 1.0 ", (-1, 1), [-1.0, 1], np.array([-1, 1]), (np.float32(-1), 1)],
)
def test_forms_of_one_range_for_all(value: object) -> None:
    assert bounds_of(value) == Bounds((-1.0,), (1.0,))
    assert bounds_of(value, feature_names=["a", "b"]) == Bounds(
        (-1.0, -1.0), (1.0, 1.0)
    )


def test_bounds_are_hashable_and_hold_plain_floats() -> None:
    bounds = bounds_of((np.zeros(2, dtype=np.float32), np.ones(2, dtype=np.int64)))
    assert all(type(value) is float for value in (*bounds.lower, *bounds.upper))
    assert hash(bounds) == hash(Bounds((0.0, 0.0), (1.0, 1.0)))


def test_constant_reversed_and_infinite_ranges() -> None:
    assert (
        failure(((0, 0, 0, 5), (1, 1, 1, 5)))
        == "feature 3 has lower bound 5.0 and upper bound 5.0, but the lower one must"
        " be smaller: widen the range around a constant value, or leave the feature"
        " out."
    )
    assert (
        failure(((0, 9), (1, 1)))
        == "feature 1 has lower bound 9.0 and upper bound 1.0, but the lower one must"
        " be smaller: exchange the two."
    )
    assert (
        failure("0,nan")
        == "every feature has lower bound 0.0 and upper bound nan, but both must be"
        " finite: give the public range of the feature."
    )
    assert "lower bound -inf and upper bound 1.0, but both must be finite" in failure(
        (float("-inf"), 1)
    )
    assert "lower bound 0.0 and upper bound inf, but both must be finite" in failure(
        (0, 10**400)
    )
    assert "lower bound -inf and upper bound 0.0, but both must be finite" in failure(
        (-(10**400), 0)
    )
    assert (
        "but their distance must be a finite number: give a narrower range."
        in failure((-1.7e308, 1.7e308))
    )
    assert (
        "but their distance must be at least 1.18e-271: give another unit"
        in failure((0.0, 2.0**-901))
    )


@pytest.mark.parametrize(
    "width", [9.06615e-319, 2.0**-1060, 2.0**-901, 2.0**-900, 1e308]
)
def test_no_plan_s_bounds_let_a_row_leave_the_box_that_sensitivities_are_of(
    width: float,
) -> None:
    """A step of 9.07e-319 over 2^17 is rounded to 1 / 1.4 of itself."""
    rows = np.array([[1e308], [width], [width / 3.0], [0.0], [-1e308]])
    try:
        scaled = [in_box(Bounds((0.0,), (width,)), rows, bits) for bits in (16, 52)]
    except ConfigurationError:
        assert width < 2.0**-900
    else:
        assert all(np.abs(one).max() == 1.0 for one in scaled)


def test_wrong_counts() -> None:
    assert (
        failure(((0, 0, 0), (1, 1)))
        == "the bounds have 3 lower and 2 upper values, but each feature needs one of"
        " both: give two sequences of the same length."
    )
    assert "the bounds have 0 ranges, but at least 1 is needed" in failure(((), ()))
    for n in (3, 2):  # read as two ends, two pairs would be a box that nobody means
        assert (
            failure([(0, 120), (20, 200), (0, 1)][:n])
            == f"the bounds have {n} parts, but they must be the pair (lower, upper):"
            " turn a list of one pair per feature into it by tuple(zip(*pairs))."
        )
    assert "the bounds have 2 ranges, but the points have 3 features" in failure(
        ((0, 0), (1, 1)), ["a", "b", "c"]
    )


@pytest.mark.parametrize("text", ["", "low", "1", "1,2,3", "0;1", "bounds.yaml"])
def test_unparsable_text(text: str) -> None:
    assert (
        failure(text)
        == f"the bounds are {text!r}, but they must be two numbers or a file: give"
        " lower and upper as in '0,100', or the path of a .csv, .json, .toml or"
        " .npz file."
    )


@pytest.mark.parametrize(
    ("value", "found"), [(("0", 1), "'0'"), ((True, 1), "True"), ((None, 1), "None")]
)
def test_what_is_no_number(value: object, found: str) -> None:
    assert (
        f"the lower bounds hold {found}, but they must be one number or a flat sequence"
        in failure(value)
    )


def test_other_types() -> None:
    assert (
        "the bounds are of type int, but they must be a pair (lower, upper), text or a"
        " path" in failure(5)
    )
    assert "the bounds are of type NoneType" in failure(None)
    assert "the upper bounds hold [1, 2]" in failure((0, [[1, 2]]))


@pytest.fixture(params=["csv", "json", "toml", "npz"])
def named_file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A file with ranges for b, a and c, in this order."""
    names, lower, upper = ["b", "a", "c"], [0.0, -1.0, 5.0], [10.0, 1.0, 6.5]
    path = tmp_path / f"bounds.{request.param}"
    if request.param == "csv":
        rows = "".join(
            f"{n}, {low}, {high}\n"
            for n, low, high in zip(names, lower, upper, strict=True)
        )
        path.write_text("\ufeffFeature,lower,upper\n" + rows, encoding="utf-8")
    elif request.param == "json":
        path.write_text(json.dumps({"feature": names, "lower": lower, "upper": upper}))
    elif request.param == "toml":
        path.write_text(f"feature = {names}\nlower = {lower}\nupper = {upper}\n")
    else:
        np.savez(path, feature=np.array(names), lower=lower, upper=upper)
    return path


def test_file_is_matched_by_name(named_file: Path) -> None:
    assert bounds_of(named_file, feature_names=["a", "b"]) == Bounds(
        (-1.0, 0.0), (1.0, 10.0)
    )


def test_file_without_names_asked_for_keeps_its_order(named_file: Path) -> None:
    assert bounds_of(str(named_file)) == Bounds((0.0, -1.0, 5.0), (10.0, 1.0, 6.5))


def test_feature_without_a_row(named_file: Path) -> None:
    message = failure(named_file, ["a", "cc"])
    assert (
        message
        == f"feature 'cc' has no row in the bounds file {str(named_file)!r}, but every"
        " feature needs a range: did you mean 'c'?"
    )
    # Not one that another feature has.
    assert failure(named_file, ["a", "c", "b", "cc"]).endswith(
        "needs a range: add it; no name is left that could be meant."
    )


def test_csv_in_feature_order_ignores_other_columns(tmp_path: Path) -> None:
    path = write(tmp_path, "bounds.csv", "upper,unit,lower\n10,cm,0\n\n1,kg,-1\n")
    expected = Bounds((0.0, -1.0), (10.0, 1.0))
    assert bounds_of(path) == expected
    assert bounds_of(path, feature_names=["p", "q"]) == expected
    assert "have 2 ranges, but the points have 1 features" in failure(path, ["p"])


@pytest.mark.parametrize("name", ["b.json", "b.toml", "b.npz"])
def test_single_range_in_a_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "b.npz":
        np.savez(path, lower=0, upper=16)
    else:
        path.write_text(
            '{"lower": 0, "upper": 16}'
            if name == "b.json"
            else "lower = 0\nupper = 16\n"
        )
    assert bounds_of(path) == Bounds((0.0,), (16.0,))
    assert bounds_of(path, feature_names=["a", "b"]) == Bounds((0.0, 0.0), (16.0, 16.0))


def test_single_range_for_all_names_of_a_file(tmp_path: Path) -> None:
    path = write(
        tmp_path, "bounds.toml", 'feature = ["a", "b"]\nlower = 0\nupper = 16\n'
    )
    assert bounds_of(path, feature_names=["b"]) == Bounds((0.0,), (16.0,))
    assert bounds_of(path) == Bounds((0.0, 0.0), (16.0, 16.0))


@pytest.mark.parametrize("pair", [(1,), (0, 1, 2), "01", 5, None, {0, 1}])
def test_a_mapping_has_a_pair_for_each_feature(pair: object) -> None:
    assert bounds_of({"a": (0, 1), "b": np.array([2, 3])}) == Bounds(
        (0.0, 2.0), (1.0, 3.0)
    )
    told = f"the bounds of 'b' are {pair!r}, but they must be a pair: give (0, 100)."
    assert failure({"a": (0, 1), "b": pair}) == told


@pytest.mark.parametrize(
    ("told", "name"),
    [("2020", "2020"), ('"age"', "age"), ('"all"', "all"), ('["all"]', "all")],
)
def test_a_file_of_one_feature_may_call_it_by_a_number_or_a_word(
    tmp_path: Path, told: str, name: str
) -> None:
    path = write(
        tmp_path, "bounds.json", f'{{"feature": {told}, "lower": 0, "upper": 16}}'
    )
    assert bounds_of(path, feature_names=[name]) == Bounds((0.0,), (16.0,))


def test_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "bounds.csv", "lower,upper\n0,1\n")
    monkeypatch.chdir(tmp_path)
    assert bounds_of("bounds.csv") == Bounds((0.0,), (1.0,))
    assert (
        failure("absent.csv")
        == f"the bounds file {str(tmp_path / 'absent.csv')!r} does not exist, but it"
        " must be a file on this machine: correct the path, which begins in the"
        f" working directory, {str(tmp_path)!r}."
    )
    assert failure(str(tmp_path / "absent.csv")).endswith(
        "a file on this machine: correct the path."
    )


def test_file_errors(tmp_path: Path) -> None:
    constant = write(tmp_path, "constant.csv", "feature,lower,upper\nage,5,5\n")
    assert failure(constant).startswith(
        "feature 'age' has lower bound 5.0 and upper bound 5.0, but the lower one"
    )
    words = write(tmp_path, "words.csv", "lower,upper\n0,1\n0,high\n")
    assert "the upper bound in row 1 of the bounds file" in failure(words)
    assert (
        "is 'high', but it must be a number: write it with a decimal point"
        in failure(words)
    )
    short = write(tmp_path, "short.csv", "lower,upper\n0\n")
    assert "the upper bound in row 0" in failure(short)
    headerless = write(tmp_path, "headerless.csv", "0,1\n")
    assert "has no 'lower', but it needs 'lower' and 'upper'" in failure(headerless)
    assert "has no 'lower', but it needs" in failure(
        write(tmp_path, "list.json", "[1, 2]")
    )
    assert "has no 'lower', but it needs" in failure(
        write(tmp_path, "number.json", "5")
    )
    assert "has no 'upper', but it needs" in failure(
        write(tmp_path, "half.toml", "lower = 1")
    )
    assert "has no 'lower', but it needs" in failure(write(tmp_path, "empty.csv", ""))
    assert "have 0 ranges" in failure(write(tmp_path, "rowless.csv", "lower,upper\n"))
    assert "cannot be read as .json (" in failure(write(tmp_path, "broken.json", "{"))
    assert "cannot be read as .toml (" in failure(
        write(tmp_path, "broken.toml", "lower")
    )
    assert "cannot be read as .npz (" in failure(write(tmp_path, "broken.npz", "x"))
    assert "has the suffix '.txt', but only .csv, .json, .toml and .npz" in failure(
        write(tmp_path, "b.txt", "0,1")
    )
    twice = write(tmp_path, "twice.csv", "feature,lower,upper\na,0,1\na,0,2\n")
    assert (
        "has 2 rows for the feature 'a', but it must have one: remove the others."
        in failure(twice)
    )
    uneven = write(
        tmp_path,
        "uneven.json",
        '{"feature": ["a", "b"], "lower": [0, 0, 0], "upper": [1, 1, 1]}',
    )
    assert (
        "has 2 features, 3 lower and 3 upper values, but each feature needs one of both"
        in failure(uneven)
    )


def test_a_single_number_on_one_side_is_repeated() -> None:
    assert bounds_of((0.0, (1.0, 2.0))) == Bounds((0.0, 0.0), (1.0, 2.0))
    assert bounds_of(((0.0, -1.0), 2.0)) == Bounds((0.0, -1.0), (2.0, 2.0))
    assert bounds_of(((0.0, -1.0), (2.0, 3.0))) == Bounds((0.0, -1.0), (2.0, 3.0))
    assert bounds_of((0.0, 1.0)) == Bounds((0.0,), (1.0,))
    assert "the bounds have 2 lower and 3 upper values" in failure(
        ((0.0, 1.0), (2.0, 3.0, 4.0))
    )
