"""What a client does with its labels, its names and a result that it gets, by hand."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from flwr_dpkmeans import KMeansClient
from flwr_dpkmeans.data.rows import Rows
from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.errors import ConfigurationError, DataError, LocalMisuseError
from flwr_dpkmeans.flower.kmeans_client import a_second
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.statement import build_report
from flwr_dpkmeans.sums.wire import dump_plan

ROWS = np.array([[0.0, 0.5], [0.25, 3.0], [-2.0, 0.0]])


def test_what_a_client_is_made_of_is_told_or_refused_at_once(tmp_path: Path) -> None:
    frame = pd.DataFrame(ROWS, columns=["a", "b"])
    given = (
        (frame, None), (frame, ("x", "y")), (frame, ()), (ROWS, None),
        (ROWS, ("x", "y")),
    )  # fmt: skip
    found = [
        KMeansClient(rows, feature_names=names).feature_names for rows, names in given
    ]
    assert found == [("a", "b"), ("x", "y"), (), (), ("x", "y")]
    for wrong in ({"feature_names": ("x",)}, {"labels": [0, 1]}):
        with pytest.raises(DataError):
            KMeansClient(ROWS, **wrong)
    for shape in (
        (5, 5),
        (2,),
        (2, 1, 1),
    ):  # noticed with the last release, when all was paid for
        with pytest.raises(ConfigurationError, match="but a row has 2 columns"):
            KMeansClient(ROWS, image_shape=shape)
    assert KMeansClient(ROWS, image_shape=(2, 1)).image_shape == (2, 1)
    *_, told = KMeansClient(frame, labels=[0, 1, 2]).fit([], {"task": "describe"})
    assert told == {"n_features": 2, "feature_names": '["a", "b"]', "has_labels": True}
    (tmp_path / "file").touch()
    with pytest.raises(LocalMisuseError, match="choose another output folder"):
        KMeansClient(frame, output_dir=tmp_path / "file" / "run-1").fit(
            [], {"task": "describe"}
        )
    schemas = [
        Schema(columns={"age": {"kind": "number", "bounds": (0, top)}})
        for top in (100, 90)
    ]
    agreed = [
        KMeansClient(ROWS[:, :1], schema=schema).fit([], {"task": "describe"})[2]
        for schema in schemas
    ]
    assert [
        (one["feature_names"], one["used"], len(str(one["schema"]))) for one in agreed
    ] == [('["age"]',) * 2 + (64,)] * 2
    assert agreed[0]["schema"] != agreed[1]["schema"]


def test_what_own_rows_say_against_a_result_is_logged_or_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = parse_config(
        n_clusters=2, bounds=((-1.0,), (1.0,)), n_examples=100, algorithm="glloyd",
        max_iter=1,
    )  # fmt: skip
    plan = draft_plan(config, run_id=1, n_clients=2, seed=0, n_features=2)
    report = build_report(plan, [(1, 0)])
    told: dict[str, Any] = {
        "plan": dump_plan(plan),
        "report": json.dumps(report.to_dict()),
    }
    centroids, counts, forgotten = (
        np.array([[0.5, 0.0], [-0.5, 0.0]]),
        np.array([60.0, 40.0]),
        list[int](),
    )
    kept = Rows(ROWS.shape, lambda asked: ROWS[asked], lambda: forgotten.append(1))
    for client, words in (
        (KMeansClient(ROWS), ()),
        (KMeansClient(kept), ("lloyd-1: 3 rows",)),
    ):
        given = [centroids, counts, np.array([0.25])]
        with caplog.at_level(logging.INFO):
            sums, *nothing = client.fit(given, told | {"task": "statistic", "round": 1})
            assert client.evaluate(given, told) == (0.0, 0, {})
        assert nothing == [0, {}]
        # Clipped to the box, the rows are (0, 0.5), (0.25, 1) and (-1, 0).
        assert [each.tolist() for each in sums] == [
            [[0.25, 1.5], [-1.0, 0.0]],
            [2.0, 1.0],
        ]
        assert "More than 5% of the rows lie outside the bounds of" in " ".join(
            client.local_warnings_
        )
        assert [record.getMessage().split(",")[0] for record in caplog.records] == list(
            words
        )
        assert client.outside(told).tolist() == [3, 1, 1]
        assert client.cluster_centers_ is not None
        assert (client.cluster_centers_.tolist(), client.evaluation_) == (
            centroids.tolist(),
            None,
        )
        assert (client.privacy_, client.bounds_) == (report, ((-1.0,), (1.0,)))
        assert client.counts_ is not None
        assert (client.counts_.tolist(), client.cost_curve_) == ([60.0, 40.0], None)
    assert forgotten == [1]


def test_a_clock_that_stands_still_divides_by_no_zero() -> None:
    """The line of a log must not cost a round."""
    assert a_second(5.0, time.monotonic() + 1e6) == pytest.approx(5e9)


def test_rows_on_the_disk_go_even_if_the_result_cannot_be_taken() -> None:
    """No other message would delete them."""
    forgotten: list[int] = []
    rows = Rows(ROWS.shape, lambda asked: ROWS[asked], lambda: forgotten.append(1))
    with pytest.raises(LocalMisuseError, match="a task without a plan"):
        KMeansClient(rows).evaluate([], {})
    assert forgotten
