"""What stands beside the rows of a frame belongs to the row of its label, not to the
one at its position.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from flwr_dpkmeans import (
    DPKMeans,
    Evaluation,
    FederatedKMeans,
    FederatedNaiveBayes,
    Schema,
    federate,
)
from flwr_dpkmeans.errors import ConfigurationError, DataError, PrivacyWarning

SEEDED: dict[str, Any] = {"noise": "seeded", "random_state": 1, "epsilon": 20.0}
N = 600
AGE = Schema(
    columns={
        "age": {"kind": "number", "bounds": (-10, 20)},
        "b": {"kind": "number", "bounds": (-10, 20)},
    }
)


def labelled(seed: int) -> tuple[pd.DataFrame, pd.Series]:
    """Two clear groups, and which of them each row is in.

    Rows are called by letters and numbers.
    """
    generator = np.random.default_rng(seed)
    classes = generator.integers(0, 2, N)
    points = 10.0 * classes[:, None] + generator.normal(0.0, 1.0, (N, 2))
    index = [f"row {seed} {number}" for number in range(N)]
    return pd.DataFrame(points, columns=["age", "b"], index=index), pd.Series(
        classes, index=index
    )


def shuffled(values: Any) -> Any:
    return values.sample(frac=1.0, random_state=7)


def accuracy(model: Any) -> float:
    return float(model.evaluation_.accuracy.value)


TABLES = [labelled(seed) for seed in range(2)]
FRAMES, CLASSES = [frame for frame, _ in TABLES], [classes for _, classes in TABLES]
TOGETHER, ALL_CLASSES = pd.concat(FRAMES), pd.concat(CLASSES)
PARTIES = pd.Series(np.repeat(["north", "south"], N), index=TOGETHER.index)


@pytest.mark.parametrize("bounds", [(-10, 20), AGE], ids=["bounds", "schema"])
@pytest.mark.parametrize("way", ["list", "mapping", "groups", "alone"])
def test_labels_in_another_order_are_put_into_that_of_the_rows(
    way: str, bounds: Any
) -> None:
    options = SEEDED | {
        "bounds": bounds,
        "evaluation": Evaluation(n_classes=2),
        "n_examples": 2 * N,
    }
    mixed = [shuffled(classes) for classes in CLASSES]
    if way == "list":
        model: Any = FederatedKMeans(2, **options).fit(FRAMES, mixed)
    elif way == "mapping":
        named = (
            dict(zip("ab", FRAMES, strict=True)),
            dict(zip("ab", mixed, strict=True)),
        )
        model = FederatedKMeans(2, **options).fit(*named)
    elif way == "groups":
        model = FederatedKMeans(2, **options).fit(
            TOGETHER, shuffled(ALL_CLASSES), groups=PARTIES
        )
    else:
        model = DPKMeans(2, **options).fit(TOGETHER, shuffled(ALL_CLASSES))
    assert accuracy(model) > 0.95


@pytest.mark.parametrize(
    "order",
    [None, shuffled, np.asarray, list],
    ids=["same", "shuffled", "array", "list"],
)
def test_parties_in_another_order_are_put_into_that_of_the_rows(order: Any) -> None:
    """A warning names the one out of bounds."""
    table = TOGETHER.assign(b=np.where(PARTIES == "south", 1e6, 0.0))
    groups = order(PARTIES) if order else PARTIES
    with pytest.warns(
        PrivacyWarning,
        match=r"Most rows of party 'south' lie outside the bounds of column 'b'",
    ):
        FederatedKMeans(2, bounds=(-10, 20), **SEEDED).fit(table, groups=groups)


def test_naive_bayes_learns_and_scores_by_the_labels_of_the_rows() -> None:
    mixed = [shuffled(classes) for classes in CLASSES]
    model = FederatedNaiveBayes(2, bounds=(-10, 20), **SEEDED).fit(FRAMES, mixed)
    assert model.score(FRAMES[0], CLASSES[0].to_numpy()) > 0.95
    assert model.score(FRAMES[0], mixed[0]) > 0.95
    found = federate("naive_bayes", FRAMES, bounds=(-10, 20), labels=mixed, **SEEDED)
    np.testing.assert_array_equal(found["theta"], model.theta_)


def test_weights_of_a_score_are_those_of_the_rows() -> None:
    model = FederatedNaiveBayes(2, bounds=(-10, 20), **SEEDED).fit(FRAMES, CLASSES)
    right = model.predict(FRAMES[0]) == CLASSES[0]
    wrong_row = CLASSES[0].copy()
    wrong_row.iloc[5] = 1 - wrong_row.iloc[5]
    weights = right.astype(float)
    weights.iloc[5] = 1000.0
    scores = [
        model.score(FRAMES[0], wrong_row, sample_weight=values)
        for values in (weights, shuffled(weights))
    ]
    assert scores[0] == scores[1] < 0.5


def all_doors(y: Any, groups: Any) -> list[Any]:
    """Calls with labels, (n,), of the first table, and parties, (2n,), of both
    together.
    """
    evaluated = SEEDED | {"bounds": (-10, 20), "evaluation": Evaluation(n_classes=2)}
    return [
        lambda: DPKMeans(2, **evaluated).fit(FRAMES[0], y),
        lambda: FederatedKMeans(2, **evaluated).fit(FRAMES, [y, CLASSES[1]]),
        lambda: FederatedNaiveBayes(2, bounds=(-10, 20), **SEEDED).fit(
            FRAMES, [y, CLASSES[1]]
        ),
        lambda: FederatedKMeans(2, bounds=(-10, 20), **SEEDED).fit(
            TOGETHER, groups=groups
        ),
    ]


@pytest.mark.parametrize("door", range(4))
def test_other_row_labels_are_refused(door: int) -> None:
    others = all_doors(
        CLASSES[0].reset_index(drop=True), PARTIES.reset_index(drop=True)
    )
    with pytest.raises(DataError, match=r"index .*: give .*\.to_numpy\(\) .*, or"):
        others[door]()


@pytest.mark.parametrize("order", [None, shuffled], ids=["same", "shuffled"])
@pytest.mark.parametrize("door", range(4))
def test_row_labels_that_occur_twice_are_refused_in_another_order(
    door: int, order: Any
) -> None:
    """No label says then which of its rows is meant."""
    days = [f"day {number % 7}" for number in range(N)]
    frames = [frame.set_axis(days) for frame in FRAMES]
    y, groups = CLASSES[0].set_axis(days), PARTIES.set_axis(days * 2)
    if order:
        y, groups = order(y), order(groups)
    evaluated = SEEDED | {"bounds": (-10, 20), "evaluation": Evaluation(n_classes=2)}
    both = [y, CLASSES[1].to_numpy()]
    calls: list[Any] = [
        lambda: DPKMeans(2, **evaluated).fit(frames[0], y),
        lambda: FederatedKMeans(2, **evaluated).fit(frames, both),
        lambda: FederatedNaiveBayes(2, bounds=(-10, 20), **SEEDED).fit(frames, both),
        lambda: FederatedKMeans(2, bounds=(-10, 20), **SEEDED).fit(
            pd.concat(frames), groups=groups
        ),
    ]
    if order:
        with pytest.raises(DataError, match=r"labels that occur twice"):
            calls[door]()
    else:
        calls[door]()


def series_of_polars(values: Any) -> Any:
    return pytest.importorskip("polars").Series(values)


@pytest.mark.parametrize(
    "make", [np.asarray, list, series_of_polars], ids=["array", "list", "polars"]
)
def test_what_has_no_index_is_taken_by_position(make: Any) -> None:
    options = SEEDED | {"bounds": (-10, 20), "evaluation": Evaluation(n_classes=2)}
    assert (
        accuracy(DPKMeans(2, **options).fit(FRAMES[0], make(CLASSES[0].to_numpy())))
        > 0.95
    )
    assert accuracy(DPKMeans(2, **options).fit(FRAMES[0].to_numpy(), CLASSES[0])) > 0.95
    groups = make(PARTIES.to_numpy())
    FederatedKMeans(2, bounds=(-10, 20), **SEEDED).fit(
        TOGETHER.to_numpy(), groups=groups
    )


def test_frames_of_polars_have_no_index() -> None:
    polars = pytest.importorskip("polars")
    bounded = SEEDED | {"bounds": (-10, 20)}
    alone = DPKMeans(2, **bounded, evaluation=Evaluation(n_classes=2))
    alone.fit(polars.from_pandas(FRAMES[0]), CLASSES[0])
    assert accuracy(alone) > 0.95
    together = polars.from_pandas(TOGETHER)
    FederatedKMeans(2, **bounded).fit(together, groups=PARTIES.to_numpy())


def test_labels_of_another_length_are_refused() -> None:
    options = SEEDED | {"bounds": (-10, 20), "evaluation": Evaluation(n_classes=2)}
    words = r"labels have shape \(5,\), but the table has 600 rows"
    with pytest.raises(DataError, match=words):
        DPKMeans(2, **options).fit(FRAMES[0], CLASSES[0][:5])


def test_a_mapping_of_series_has_their_index() -> None:
    columns = {name: FRAMES[0][name] for name in FRAMES[0]}
    options = SEEDED | {"bounds": AGE, "n_examples": N}
    model = DPKMeans(2, **options, evaluation=Evaluation(n_classes=2))
    assert accuracy(model.fit(columns, shuffled(CLASSES[0]))) > 0.95


def test_no_weights_are_passed_through() -> None:
    """As meta-estimators of scikit-learn pass them."""
    options = SEEDED | {"bounds": (-10, 20)}
    table, none = FRAMES[0], {"sample_weight": None}
    federated, alone = FederatedKMeans(2, **options), DPKMeans(2, **options)
    federated.fit(FRAMES, **none)
    assert len(federated.fit_predict(FRAMES, **none)) == 2
    assert len(federated.fit_transform(TOGETHER, groups=PARTIES, **none)) == 2 * N
    alone.fit(table, **none)
    assert alone.score(table, **none) == alone.score(table)
    assert len(alone.fit_predict(table, **none)) == N
    bayes = FederatedNaiveBayes(2, **options).fit(FRAMES, CLASSES, **none)
    assert bayes.score(table, CLASSES[0], **none) > 0.95


# -- weights ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "weights", [np.ones(N), [1.0] * N, 1, 0], ids=["array", "list", "one", "zero"]
)
def test_weights_without_a_maximum_are_refused_at_all_doors(weights: Any) -> None:
    options = SEEDED | {"bounds": (-10, 20)}
    calls: list[Any] = [
        lambda: DPKMeans(2, **options).fit(FRAMES[0], sample_weight=weights),
        lambda: DPKMeans(2, **options).fit_predict(FRAMES[0], sample_weight=weights),
        lambda: FederatedKMeans(2, **options).fit(FRAMES, sample_weight=weights),
        lambda: FederatedNaiveBayes(2, **options).fit(
            FRAMES, CLASSES, sample_weight=weights
        ),
    ]
    for call in calls:
        with pytest.raises(ConfigurationError, match="but max_weight was not, which"):
            call()


# -- decimals --------------------------------------------------------------------------


def decimals(values: NDArray[np.float64]) -> list[Decimal]:
    return [Decimal(f"{value:.3f}") for value in values]


def decimal_frame(kind: str, frame: pd.DataFrame) -> Any:
    columns = {name: decimals(frame[name].to_numpy()) for name in frame}
    if kind == "pandas":
        return pd.DataFrame(columns)
    if kind == "beside numbers":
        return pd.DataFrame(columns | {"b": frame["b"].round(3).to_numpy()})
    if kind == "polars":
        polars = pytest.importorskip("polars")
        return polars.DataFrame(
            columns, schema=dict.fromkeys(columns, polars.Decimal(10, 3))
        )
    table = pa.table(
        {name: pa.array(cells, pa.decimal128(10, 3)) for name, cells in columns.items()}
    )
    if kind == "pyarrow":
        return table
    return table.to_pandas(types_mapper=pd.ArrowDtype)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "kind", ["pandas", "beside numbers", "polars", "pyarrow", "ArrowDtype"]
)
def test_decimals_are_numbers(kind: str) -> None:
    plain = FRAMES[0].round(3)
    options = SEEDED | {"bounds": (-10, 20)}
    expected = DPKMeans(2, **options).fit(plain)
    model = DPKMeans(2, **options).fit(decimal_frame(kind, plain))
    np.testing.assert_array_equal(model.cluster_centers_, expected.cluster_centers_)
    np.testing.assert_array_equal(
        model.predict(decimal_frame(kind, plain)), expected.predict(plain)
    )
    by_schema = [
        DPKMeans(2, bounds=AGE, **SEEDED).fit(table)
        for table in (plain, decimal_frame(kind, plain))
    ]
    np.testing.assert_array_equal(
        by_schema[0].cluster_centers_, by_schema[1].cluster_centers_
    )


@pytest.mark.parametrize("cell", ["NaN", "sNaN", "Infinity", "1e999"])
def test_a_decimal_that_is_no_finite_number_is_refused_by_its_column(cell: str) -> None:
    cells = [*decimals(FRAMES[0]["age"].to_numpy()[:-1]), Decimal(cell)]
    frame = FRAMES[0].reset_index(drop=True).assign(age=pd.Series(cells, dtype=object))
    with pytest.raises(DataError, match="1 rows with a missing or infinite value"):
        DPKMeans(2, bounds=(-10, 20), **SEEDED).fit(frame)


def test_labels_that_are_decimals_are_classes() -> None:
    options = SEEDED | {"bounds": (-10, 20), "evaluation": Evaluation(n_classes=2)}
    y = pd.Series([Decimal(int(value)) for value in CLASSES[0]], index=CLASSES[0].index)
    assert accuracy(DPKMeans(2, **options).fit(FRAMES[0], y)) > 0.95
