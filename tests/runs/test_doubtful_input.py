"""What a fit doubts in bounds and rows is said to its caller, before it costs anything,
and stands in no result.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from flwr_dpkmeans import (
    DPKMeans,
    FederatedKMeans,
    FederatedNaiveBayes,
    PrivateBounds,
    Schema,
    federate,
)
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.errors import ConfigurationError, InputWarning, warn_once

SEEDED: dict[str, Any] = {"noise": "seeded", "random_state": 1, "epsilon": 20.0}


@pytest.fixture(autouse=True)
def forget_what_was_said() -> None:
    warn_once.cache_clear()


def doubts_of(fit: Callable[[], Any]) -> tuple[Any, list[str]]:
    """What a fit returns, and what it doubts."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = fit()
    doubts = [warning for warning in caught if warning.category is InputWarning]
    assert {warning.filename for warning in doubts} <= {__file__}
    return model, [str(warning.message) for warning in doubts]


def published(model: Any) -> str:
    """All that a run's files and objects say."""
    report = model.privacy_
    return (
        f"{report} {report.details()} {report.to_dict()} {report.warnings}"
        f" {model.model_}"
    )


def adults(seed: int, n: int = 500) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    columns = {
        "age": generator.normal(60, 15, n).clip(18, 100),
        "kg": generator.normal(75, 14, n).clip(35, 200),
    }
    return pd.DataFrame(columns | {"cm": generator.normal(170, 9, n)})


ADULTS = [adults(seed) for seed in range(3)]
WIDE: dict[str, Any] = SEEDED | {"bounds": (0, 500)}


# -- bounds of two columns -------------------------------------------------------------

PAIRS = [[0, 10], [5, 20]]
SQUARE = [np.random.default_rng(seed).uniform(0, 20, (300, 2)) for seed in range(2)]


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "bounds",
    [
        PAIRS,
        tuple(PAIRS),
        np.array(PAIRS),
        ((0, 10), (5, 20)),
        tuple(map(np.array, PAIRS)),
        [(0, 10), [5, 20]],
    ],
    ids=["lists", "tuple of lists", "array", "tuples", "tuple of arrays", "mixed"],
)
def test_two_pairs_of_two_columns_say_how_they_were_read(bounds: Any) -> None:
    both = np.concatenate(SQUARE)
    labels = [np.zeros(300, dtype=int), np.ones(300, dtype=int)]
    options = SEEDED | {"bounds": bounds}
    fits: list[Callable[[], Any]] = [
        lambda: FederatedKMeans(2, **options).fit(SQUARE),
        lambda: FederatedKMeans(2, **options).fit(both, groups=[0, 1] * 300),
        lambda: DPKMeans(2, **options).fit(both),
        lambda: FederatedKMeans(
            2, **(SEEDED | {"bounds": PrivateBounds(domain=bounds)})
        ).fit(SQUARE),
        lambda: FederatedNaiveBayes(2, **options).fit(SQUARE, labels),
        lambda: federate("moments", SQUARE, **options),
    ]
    for fit in fits:
        _, [doubt] = doubts_of(fit)
        assert (
            "were read as lower=(0, 10), upper=(5, 20), so that the columns go from 0"
            " to 5 and" in doubt
        )
        assert (
            "one pair for each column would go from 0 to 10 and from 5 to 20" in doubt
        )
        assert (
            "Bounds(lower=(0, 10), upper=(5, 20)) for the former, Bounds(lower=(0, 5),"
            " upper=(10, 20))" in doubt
        )


def test_categories_do_not_hide_how_two_pairs_were_read() -> None:
    tables = [np.column_stack([table[:, 0], table[:, 1] > 10]) for table in SQUARE]
    labels = [np.zeros(300, dtype=int), np.ones(300, dtype=int)]
    model = FederatedNaiveBayes(2, categories=[0, 2], bounds=PAIRS, **SEEDED)
    _, [doubt] = doubts_of(lambda: model.fit(tables, labels))
    assert "were read as lower=(0, 10), upper=(5, 20)" in doubt


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "bounds",
    [
        Bounds((0, 10), (5, 20)),
        {"a": (0, 10), "b": (5, 20)},
        (0, 20),
        [0, 20],
        ([0, 0], [20, 20]),
        [[0, 1], [1, 20]],
        [[0, 0], [10, 20]],
        (0, [20, 30]),
    ],
    ids=[
        "Bounds",
        "names",
        "pair",
        "list",
        "sides",
        "symmetric",
        "one reading",
        "one number",
    ],
)
def test_bounds_of_one_reading_are_not_doubted(bounds: Any) -> None:
    tables = [pd.DataFrame(table, columns=["a", "b"]) for table in SQUARE]
    _, doubts = doubts_of(
        lambda: FederatedKMeans(2, bounds=bounds, **SEEDED).fit(tables)
    )
    assert doubts == []


def test_a_constant_column_of_stated_sides_has_the_sentence_of_before() -> None:
    with pytest.raises(ConfigurationError, match=r"^feature 1 has lower bound 2.0"):
        FederatedKMeans(2, bounds=((0, 2), (1, 2)), **SEEDED).fit(SQUARE)


@pytest.mark.parametrize(
    "bounds", [[[0, 10], [0, 20]], ([0, 10], [0, 20]), np.array([[0, 10], [0, 20]])]
)
def test_pairs_of_columns_that_are_no_sides_are_refused_with_their_mend(
    bounds: Any,
) -> None:
    with pytest.raises(ConfigurationError, match=r"read as lower=\(0, 10\)"):
        FederatedKMeans(2, bounds=bounds, **SEEDED).fit(SQUARE)
    mended = FederatedKMeans(2, bounds=tuple(zip(*bounds, strict=True)), **SEEDED).fit(
        SQUARE
    )
    assert mended.bounds_ == ((0.0, 0.0), (10.0, 20.0))


def test_a_loaded_estimator_does_not_doubt_its_own_bounds(tmp_path: Any) -> None:
    model = FederatedKMeans(2, bounds=Bounds((0, 10), (5, 20)), **SEEDED).fit(SQUARE)
    model.save(tmp_path / "model.json")
    loaded = FederatedKMeans.load(tmp_path / "model.json")
    _, doubts = doubts_of(lambda: loaded.fit(SQUARE))
    assert doubts == []
    assert loaded.bounds_ == model.bounds_


# -- units -----------------------------------------------------------------------------


@pytest.mark.sample(7)
@pytest.mark.parametrize(
    ("column", "change", "units"),
    [
        ("kg", lambda kg: kg * 2.20462, "by a factor of about 2.2, as pounds and"),
        ("kg", lambda kg: kg * 1000, "by a factor of about 1e+03, as kilograms and"),
        ("cm", lambda cm: cm / 2.54, "by a factor of about 2.54, as centimetres and"),
        ("cm", lambda cm: cm / 100, "by a factor of about 100, as metres and"),
        ("age", lambda age: age * 12, "by a factor of about 12, as years and months"),
        ("age", lambda age: age * 365.25, "as years and days do"),
    ],
)
@pytest.mark.parametrize("way", ["list", "names", "groups"])
def test_a_party_of_another_unit_is_said_to_the_caller_alone(
    column: str, change: Any, units: str, way: str
) -> None:
    tables = [table.copy() for table in ADULTS]
    tables[1][column] = change(tables[1][column])
    names = ["north", "south", "west"]
    model = FederatedKMeans(2, engine="direct", **SEEDED, bounds=(0, 1e6))
    if way == "list":
        fitted, doubts = doubts_of(lambda: model.fit(tables))
    elif way == "names":
        fitted, doubts = doubts_of(
            lambda: model.fit(dict(zip(names, tables, strict=True)))
        )
    else:
        groups = np.repeat(names, [len(table) for table in tables])
        fitted, doubts = doubts_of(lambda: model.fit(pd.concat(tables), groups=groups))
    [doubt] = doubts
    party = "1" if way == "list" else "'south'"
    assert f"the median of column '{column}' is" in doubt
    assert f"at party {party}, but" in doubt
    assert units in doubt
    assert "exact rows say so, and nothing of it is released" in doubt
    assert doubt not in fitted.privacy_.warnings
    assert "median" not in published(fitted)


def test_degrees_are_told_by_both_their_middle_and_their_spread() -> None:
    tables = [
        table.assign(heat=np.random.default_rng(n).normal(37, 0.6, 500))
        for n, table in enumerate(ADULTS)
    ]
    tables[2]["heat"] = tables[2]["heat"] * 1.8 + 32
    _, [doubt] = doubts_of(lambda: FederatedKMeans(2, **WIDE).fit(tables))
    assert "degrees Celsius and Fahrenheit" in doubt


def test_a_schema_s_numbers_are_compared_too() -> None:
    columns: dict[str, Any] = {
        name: {"kind": "number", "bounds": (0, 500)} for name in ("age", "kg", "cm")
    }
    tables = [table.assign(ward="AB"[n % 2]) for n, table in enumerate(ADULTS)]
    tables[1]["kg"] *= 2.20462
    columns["ward"] = {"kind": "category", "values": ["A", "B"]}
    schema = Schema(columns=columns)
    _, [doubt] = doubts_of(
        lambda: FederatedKMeans(2, bounds=schema, n_examples=1500, **SEEDED).fit(tables)
    )
    assert "column 'kg'" in doubt


def test_clear_kinds_of_a_wide_column_do_not_hide_another_unit() -> None:
    """The issue's case: agreement with the kinds falls from 1 to .6."""
    kinds = np.array([[20.0, 20.0], [50.0, 60.0], [80.0, 95.0]])
    generator = np.random.default_rng(0)
    tables = [
        kinds[generator.integers(0, 3, 600)] + generator.normal(0, 3, (600, 2))
        for _ in range(3)
    ]
    _, doubts = doubts_of(lambda: FederatedKMeans(3, **WIDE).fit(tables))
    assert doubts == []
    tables[0][:, 1] *= 2.20462
    _, [doubt] = doubts_of(lambda: FederatedKMeans(3, **WIDE).fit(tables))
    assert "column 1 (counted from 0)" in doubt
    assert "pounds and kilograms" in doubt


def split_by_value(
    rows: NDArray[np.float64], n_parties: int
) -> list[NDArray[np.float64]]:
    return np.array_split(rows[np.argsort(rows[:, 0])], n_parties)


@pytest.mark.sample(3)
@pytest.mark.parametrize("n_parties", [2, 3, 10])
@pytest.mark.parametrize("split", ["iid", "by value", "small", "kinds"])
def test_parties_that_merely_differ_are_not_doubted(split: str, n_parties: int) -> None:
    generator = np.random.default_rng(n_parties)
    kinds = generator.integers(0, 4, 3000)
    middles = generator.uniform(1, 100, (4, 5))
    gaussians = middles[kinds] + generator.normal(0, 5, (3000, 5))
    skewed = np.exp(generator.normal(0, 0.6, (3000, 5)) + 0.3 * kinds[:, None])
    for rows in (gaussians, skewed):
        if split == "iid":
            parts = np.array_split(generator.permutation(rows), n_parties)
        elif split == "by value":
            parts = split_by_value(rows, n_parties)
        elif split == "small":
            parts = np.array_split(rows[: 12 * n_parties], n_parties)
        else:
            shares = generator.dirichlet(np.full(n_parties, 0.3), 4)
            of = np.array(
                [generator.choice(n_parties, p=shares[kind]) for kind in kinds]
            )
            parts = [rows[of == party] for party in range(n_parties)]
        model = FederatedKMeans(
            2, bounds=(-50, 200), engine="direct", n_examples=3000, **SEEDED
        )
        _, doubts = doubts_of(lambda model=model, parts=parts: model.fit(parts))
        assert doubts == []


# -- ids, indices, codes, constants, persons -------------------------------------------


def doubtful(**columns: Any) -> list[pd.DataFrame]:
    """The adults' tables with more columns, of which each party has its part."""
    whole = pd.concat(ADULTS, ignore_index=True).assign(**columns)
    return [whole[start : start + 500] for start in range(0, 1500, 500)]


NUMBERS = np.arange(1500)
SHUFFLED = np.random.default_rng(5).permutation(1500)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("name", "values", "sentence"),
    [
        ("Unnamed: 0", NUMBERS, "what looks like an index"),
        ("", NUMBERS, "what looks like an index"),
        ("index", SHUFFLED * 3, "what looks like an index"),
        ("Obs", NUMBERS % 500, "what looks like an index"),
        ("row_names", NUMBERS + 1, "what looks like an index"),
        ("measure", NUMBERS, "what looks like an identifier"),
        ("measure", SHUFFLED, "what looks like an identifier"),
        ("measure", NUMBERS % 500, "what looks like an identifier"),
        ("id", SHUFFLED * 7919, "what looks like an identifier"),
        ("PatientID", 10_000_019 + SHUFFLED * 31, "what looks like an identifier"),
        ("patientid", SHUFFLED * 7, "what looks like an identifier"),
        ("fever", np.full(1500, 3.0), "all rows have one value"),
    ],
)
def test_columns_that_nobody_means_to_cluster_are_said(
    name: str, values: Any, sentence: str
) -> None:
    tables = doubtful(**{name: values})
    options = WIDE | {"bounds": (0, 1e8)}
    begins_anew = np.max(values) == 499
    alone = tables[0] if begins_anew else pd.concat(tables)
    fits: list[Callable[[], Any]] = [
        lambda: FederatedKMeans(2, engine="direct", **options).fit(tables),
        lambda: FederatedKMeans(2, engine="direct", **options).fit(
            pd.concat(tables), groups=NUMBERS // 500
        ),
        lambda: DPKMeans(2, **options).fit(alone),
        lambda: federate("moments", tables, engine="direct", **options),
    ]
    for fit in fits:
        fitted, [doubt] = doubts_of(fit)
        assert sentence in doubt
        assert f"column {name!r}" in doubt
        if hasattr(fitted, "privacy_"):
            assert sentence not in published(fitted)


@pytest.mark.parametrize("name", ["pid", "subject", "PatientNr", "userid"])
def test_persons_with_several_rows_are_said_beside_their_identifier(name: str) -> None:
    tables = doubtful(**{name: SHUFFLED // 3})
    model = FederatedKMeans(2, engine="direct", **(WIDE | {"bounds": (0, 1e8)}))
    _, [clustered, repeated] = doubts_of(lambda: model.fit(tables))
    assert f"what looks like an identifier is clustered in column {name!r}" in clustered
    assert (
        "what looks like an identifier has several rows for one value in column"
        f" {name!r}" in repeated
    )
    assert "protects whoever has several of them less" in repeated


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("patient_age", SHUFFLED % 90),
        ("index", SHUFFLED / 7.0),
        ("id", NUMBERS % 5),
        ("humid", SHUFFLED * 3),
        ("children", SHUFFLED % 4),
        ("income", SHUFFLED * 100),
        ("flag", NUMBERS % 2),
        ("Unnamed: 3", SHUFFLED / 3.0),
    ],
)
def test_measures_are_not_doubted(name: str, values: Any) -> None:
    tables = doubtful(**{name: values})
    _, doubts = doubts_of(
        lambda: FederatedKMeans(
            2, engine="direct", **(WIDE | {"bounds": (0, 1e8)})
        ).fit(tables)
    )
    assert doubts == []


def test_several_columns_of_one_kind_are_one_sentence() -> None:
    tables = doubtful(a=1.0, b=2.0)
    _, [doubt] = doubts_of(lambda: FederatedKMeans(2, **WIDE).fit(tables))
    assert "one value in columns 'a', 'b'" in doubt


def frame_of_polars(frame: pd.DataFrame) -> Any:
    return pytest.importorskip("polars").from_pandas(frame)


@pytest.mark.parametrize(
    "make",
    [lambda frame: frame, frame_of_polars, pa.Table.from_pandas, dict],
    ids=["pandas", "polars", "pyarrow", "mapping"],
)
def test_codes_and_persons_of_a_schema_s_tables_are_said(make: Any) -> None:
    texts = {
        "zip": [f"{number * 7:05d}" for number in NUMBERS],
        "patient": [f"P{n // 4}" for n in NUMBERS],
    }
    tables = [make(table.reset_index(drop=True)) for table in doubtful(**texts)]
    numbers = {"kind": "number", "bounds": (0, 500)}
    columns = {
        "age": numbers,
        "kg": numbers,
        "zip": {"kind": "number", "bounds": (0, 99_999)},
    }
    model = FederatedKMeans(
        2, bounds=Schema(columns=columns), n_examples=1500, engine="direct", **SEEDED
    )
    fitted, doubts = doubts_of(lambda: model.fit(tables))
    assert sorted(["zip" in doubt for doubt in doubts]) == [False, True]
    assert any("begin with 0" in doubt and "'zip'" in doubt for doubt in doubts)
    assert any(
        "several rows for one value" in doubt and "'patient'" in doubt
        for doubt in doubts
    )
    assert "patient" not in published(fitted)


def test_numbers_of_persons_may_begin_anew_at_each_party() -> None:
    tables = doubtful(patient=[f"P{number % 500}" for number in NUMBERS])
    schema = Schema(columns={"age": {"kind": "number", "bounds": (0, 500)}})
    _, doubts = doubts_of(
        lambda: FederatedKMeans(2, bounds=schema, n_examples=1500, **SEEDED).fit(tables)
    )
    assert doubts == []


def test_tables_that_are_made_anew_are_not_looked_at() -> None:
    tables = doubtful(id=NUMBERS)
    model = FederatedKMeans(2, engine="direct", **(WIDE | {"bounds": (0, 1e8)}))
    _, doubts = doubts_of(
        lambda: model.fit(clients=lambda party: tables[party], n_clients=3)
    )
    assert doubts == []


def test_a_doubt_that_is_an_error_ends_a_fit_before_it_costs_anything() -> None:
    model = FederatedKMeans(2, **WIDE)
    with warnings.catch_warnings():
        warnings.simplefilter("error", InputWarning)
        with pytest.raises(InputWarning, match="one value"):
            model.fit(doubtful(a=1.0))
    assert not hasattr(model, "privacy_")


def test_a_score_of_several_tables_warns_of_their_names_once() -> None:
    model = FederatedKMeans(2, **WIDE).fit(ADULTS)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.score([ADULTS[0], ADULTS[1].to_numpy(), ADULTS[2].to_numpy()])
    assert len(caught) == 1


# -- one warning for one text ----------------------------------------------------------
