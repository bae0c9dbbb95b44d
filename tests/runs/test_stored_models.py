"""A model that is stored and read again labels each row as it did before, whatever its
schema and the way.
"""

from __future__ import annotations

import copy
import functools
import io
import pickle
from collections.abc import Callable
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from support.stored import joblib_file

from flwr_dpkmeans import (
    Auto,
    ClientLevel,
    Cohort,
    DPKMeans,
    Evaluation,
    FastLloydOptions,
    FedDPKMeansOptions,
    FederatedKMeans,
    PrivateBounds,
    ProxyLloydOptions,
    Schema,
    SuLloydOptions,
)

AGE = {"kind": "number", "bounds": (0, 100)}
DAY = {"kind": "date", "bounds": ("2020-01-01", "2020-12-31")}
LOG = {"kind": "number", "bounds": (0, 100), "transform": "log"}
WARD = {"kind": "category", "values": ["A", "B", "C"]}
SCHEMAS: dict[str, dict[str, Any]] = {
    "number": {"columns": {"age": AGE}},
    "flag": {"columns": {"age": AGE, "smokes": {"kind": "flag"}}},
    "category": {"columns": {"age": AGE, "ward": WARD}},
    "date": {"columns": {"age": AGE, "day": DAY}},
    "cycle": {"columns": {"hour": {"kind": "cycle", "period": 24, "start": 1}}},
    "log": {"columns": {"crp": LOG}},
    "log with offset": {"columns": {"crp": LOG | {"offset": 0.5}}},
    "map": {
        "columns": {
            "age": AGE,
            "german": {"kind": "flag", "map": {"ja": True, "nein": False}},
        }
    },
    "missing values": {"columns": {"age": AGE | {"missing_values": [50, "-9"]}}},
    "outside": {"columns": {"crp": LOG | {"outside": "missing"}}},
    "drop": {"columns": {"gaps": AGE | {"missing": "drop"}}},
    "fill": {"columns": {"gaps": AGE | {"missing": "fill", "fill": 50}, "age": AGE}},
    "centre": {"columns": {"gaps": AGE | {"missing": "centre"}, "age": AGE}},
    "centre of a category": {
        "columns": {
            "age": AGE,
            "ward": WARD | {"values": ["A", "B"], "missing": "centre"},
        }
    },
    "profile": {
        "columns": {"age": AGE, "crp": AGE | {"weight": 0.0}, "ward": WARD},
        "profile": ["crp", "ward"],
    },
    "scale none": {"scale": "none", "columns": {"age": AGE, "crp": LOG}},
    "scale standard": {"scale": "standard", "columns": {"age": AGE, "day": DAY}},
    "weight": {"columns": {"age": AGE, "crp": AGE | {"weight": 0.1}}},
    "file": {
        "columns": {"age": AGE, "day": DAY},
        "file": {"separator": ";", "decimal": ",", "missing": ["?"]},
    },
}


def patients(n: int = 300) -> pd.DataFrame:
    """A table with a column for each kind of schema."""
    generator = np.random.default_rng(0)
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(
        generator.integers(0, 366, n), "D"
    )
    gaps = generator.uniform(0, 100, n)
    gaps[::5] = np.nan
    return pd.DataFrame(
        {
            "age": generator.integers(0, 101, n),
            "smokes": generator.integers(0, 2, n).astype(bool),
            "ward": generator.choice(["A", "B", "C"], n),
            "day": days.strftime("%Y-%m-%d"),
            "hour": generator.integers(1, 25, n),
            "crp": generator.exponential(40, n),
            "german": generator.choice(["ja", "nein"], n),
            "gaps": gaps,
        }
    )


@functools.cache
def fitted(kind: str) -> DPKMeans:
    """A clustering by one of the schemas."""
    schema = Schema(**SCHEMAS[kind])
    model = DPKMeans(3, epsilon=5.0, bounds=schema, noise="seeded", random_state=0)
    return model.fit(patients())


def own_file(model: Any, folder: Path) -> Any:
    """Through ``model.json``."""
    return type(model).load(model.save(folder / "model.json"))


def skops_file(model: Any, folder: Path) -> Any:
    """Through skops, which takes types of this package after a look at their names."""
    skops = pytest.importorskip("skops.io")
    stored = skops.dumps(model)
    names = skops.get_untrusted_types(data=stored)
    foreign = [name for name in names if not name.startswith("flwr_dpkmeans.")]
    assert not foreign
    return skops.loads(stored, trusted=names)


class TextPickler(pickle.Pickler):
    """Keeps members of enumerations that are texts as plain texts, and no others, as
    skops does.
    """

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, StrEnum):
            return str, (value.value,)
        assert not isinstance(value, Enum), f"{value!r} cannot be stored by skops"
        return NotImplemented


def enumerations_as_text(model: Any, folder: Path) -> Any:
    """Through a format that knows texts, but no enumerations."""
    TextPickler(stored := io.BytesIO()).dump(model)
    return pickle.loads(stored.getvalue())


def pickled(model: Any, folder: Path) -> Any:
    """Through pickle, in its oldest and newest forms alike."""
    oldest = pickle.loads(pickle.dumps(model, protocol=2))
    return pickle.load(io.BytesIO(pickle.dumps(oldest)))


def deep_copy(model: Any, folder: Path) -> Any:
    """As searches and ensembles copy what is fitted."""
    return copy.deepcopy(model)


def fitted_again(model: Any, folder: Path) -> Any:
    """A clone that saw the same rows: all that scikit-learn's `clone` keeps are
    parameters.
    """
    return clone(model).fit(patients())


WAYS: tuple[Callable[[Any, Path], Any], ...] = (
    own_file,
    joblib_file,
    skops_file,
    enumerations_as_text,
    pickled,
    deep_copy,
    fitted_again,
)


@pytest.mark.sample(12)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("kind", SCHEMAS)
def test_a_stored_model_labels_each_row_as_before(
    kind: str, way: Any, tmp_path: Path
) -> None:
    model, table = fitted(kind), patients()
    again = way(model, tmp_path)
    np.testing.assert_array_equal(again.predict(table), model.predict(table))
    np.testing.assert_array_equal(again.transform(table), model.transform(table))
    assert repr(again.schema_) == repr(model.schema_)
    assert again.schema_.digest == model.schema_.digest
    assert str(again.model_) == str(model.model_)
    assert again.score(table) == model.score(table)


PARAMETERS: dict[str, dict[str, Any]] = {
    "fastlloyd": {
        "algorithm": FastLloydOptions(schedule="constant", post_processing="truncate")
    },
    "sulloyd": {"algorithm": SuLloydOptions(packing="halve")},
    "proxy_lloyd": {"algorithm": ProxyLloydOptions()},
    "auto": {
        "n_clusters": Auto(4),
        "algorithm": FedDPKMeansOptions(),
        "server_data": np.eye(2).repeat(10, axis=0),
    },
    "evaluation": {"evaluation": Evaluation(share=0.1)},
    "cohort": {"cohort": Cohort(dropout="retry", max_silent=1)},
    "client": {"unit": ClientLevel(examples_per_client=60)},
    "private bounds": {"bounds": PrivateBounds(domain=(-10, 10))},
}


@functools.cache
def federated(name: str) -> FederatedKMeans:
    """A clustering of five parties with one of the objects that parameters may be."""
    generator = np.random.default_rng(0)
    parts = [generator.uniform(-1, 1, (60, 2)) for _ in range(5)]
    run: dict[str, Any] = {
        "bounds": (-1, 1),
        "epsilon": 50.0,
        "noise": "seeded",
        "random_state": 0,
        "engine": "direct",
    }
    return FederatedKMeans(**{"n_clusters": 2} | run | PARAMETERS[name]).fit(parts)


@pytest.mark.sample(15)
@pytest.mark.parametrize(
    "way",
    [joblib_file, skops_file, enumerations_as_text, pickled, deep_copy],
    ids=lambda way: way.__name__,
)
@pytest.mark.parametrize("name", PARAMETERS)
def test_a_stored_model_has_its_parameters_and_results(
    name: str, way: Any, tmp_path: Path
) -> None:
    model, rows = federated(name), np.random.default_rng(1).uniform(-1, 1, (50, 2))
    again = way(model, tmp_path)
    for parameter, value in model.get_params().items():
        np.testing.assert_equal(again.get_params()[parameter], value)
    assert (again.privacy_, again.evaluation_, again.history_) == (
        model.privacy_,
        model.evaluation_,
        model.history_,
    )
    np.testing.assert_array_equal(again.predict(rows), model.predict(rows))
    assert clone(again).get_params().keys() == clone(model).get_params().keys()
