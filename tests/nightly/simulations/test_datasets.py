"""Data of experiments: sources, splits, bounds, and the box in which methods are
compared.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("hydra")

from flwr_dpkmeans.data.bundled import BUNDLED, load_bundled
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.errors import ConfigurationError
from simulations.experiments.datasets import load_data_set, own_range
from simulations.experiments.federation import (
    bounds_of,
    gives_server_points,
    reference_box,
    server_points_of,
    split,
)


def settings_of(source: str, n_clients: int = 3, **more: Any) -> dict[str, Any]:
    """The groups that data need, with what conf/data sets."""
    data = {
        "name": source,
        "source": source,
        "n_clusters": 3,
        "bounds": None,
        "label_column": None,
        "server": None,
    }
    partition = {"kind": "iid", "seed": 0, "column": None, "alpha": 0.5, "sizes": None}
    for name, value in more.items():
        (
            partition
            if name in partition and name != "seed" and source == "iris"
            else data
        )[name] = value
    return {
        "algorithm": {"name": "proxy_lloyd"},
        "data": data,
        "partition": partition,
        "n_clients": n_clients,
    }


def test_a_file_is_read_as_the_configuration_says_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("2019;2020\n1,5;2\n3;4,25\n")
    file = {"decimal": ",", "header": True}
    data = load_data_set(
        settings_of("file", path=str(tmp_path / "rows.csv"), file=file)
    )
    assert (data.names, data.points.tolist()) == (
        ("2019", "2020"),
        [[1.5, 2.0], [3.0, 4.25]],
    )


@pytest.mark.parametrize("name", sorted(BUNDLED))
def test_bundled_sets_have_documented_bounds_and_labels_for_metrics_only(
    name: str,
) -> None:
    settings = settings_of(name, label_column="target")
    data = load_data_set(settings)
    assert np.array_equal(data.points, load_bundled(name).points)
    assert data.labels is not None
    assert len(data.labels) == len(data.points)
    assert data.bounds == BUNDLED[name].bounds
    assert load_data_set(settings_of(name)).labels is None
    assert reference_box(settings, data) == BUNDLED[name].bounds.for_features(
        data.points.shape[1]
    )


DRAWN = {
    "synth": {
        "n_points": 300,
        "n_features": 4,
        "separation": 0.3,
        "sizes": "increasing",
        "n_outliers": 5,
    },
    "time_synth": {"n_points": 300, "n_features": 4},
    "g2": {"n_features": 4, "deviation": 10.0},
    "max_cover": {"n_points": 300},
}


@pytest.mark.parametrize("name", sorted(DRAWN))
def test_drawn_sets_follow_their_seed(name: str) -> None:
    first, again, other = (
        load_data_set(
            settings_of(name, seed=seed, bounds="range", note=note, **DRAWN[name])
        )
        for seed, note in ((1, "a"), (1, "b"), (2, "a"))
    )
    assert first is not again
    assert np.array_equal(first.points, again.points)
    assert not np.array_equal(first.points, other.points)
    assert first.labels is not None
    assert len(first.labels) == len(first.points)


def test_the_mixtures_clients_have_their_own_rows() -> None:
    settings = settings_of("mixture", seed=4, rows_per_client=20, missing_components=0)
    data = load_data_set(settings)
    parts = [data.points[rows] for rows in split(settings, data)]
    assert [len(part) for part in parts] == [20, 20, 20]
    # A client's rows do not depend on how many others there are.
    more = settings_of(
        "mixture", n_clients=5, seed=4, rows_per_client=20, missing_components=0
    )
    assert np.array_equal(load_data_set(more).points[:60], data.points)
    assert data.means is not None
    assert data.means.shape == (10, 100)


@pytest.mark.parametrize(
    ("more", "sizes"),
    [
        ({"kind": "iid"}, [50, 50, 50]),
        ({"kind": "contiguous"}, [50, 50, 50]),
        ({"kind": "fixed_sizes", "sizes": "100,40,10"}, [100, 40, 10]),
        ({"kind": "fixed_sizes", "sizes": [100, 40, 10]}, [100, 40, 10]),
        ({"kind": "by_value", "column": "target"}, [50, 50, 50]),
        ({"kind": "one_client_per_value", "column": "target"}, [50, 50, 50]),
        ({"kind": "dirichlet", "column": "target"}, None),
    ],
)
def test_a_split_gives_each_row_to_one_client(
    more: dict[str, Any], sizes: list[int] | None
) -> None:
    settings = settings_of("iris", **more)
    parts = split(settings, load_data_set(settings))
    assert sorted(np.concatenate(parts).tolist()) == list(range(150))
    assert sizes is None or [len(part) for part in parts] == sizes


def test_bounds_are_given_documented_private_or_the_rows_range() -> None:
    data = load_data_set(settings_of("iris"))
    points = data.points
    whole = own_range(points)
    assert bounds_of(settings_of("iris"), data, None) == BUNDLED[
        "iris"
    ].bounds.for_features(4)
    assert bounds_of(settings_of("iris"), data, points[:9]) is None
    for given, expected, box in (
        ("range", whole, whole),
        ("private", "private", BUNDLED["iris"].bounds.for_features(4)),
        ("0,10", Bounds((0.0,) * 4, (10.0,) * 4), Bounds((0.0,) * 4, (10.0,) * 4)),
        ([0, 10], Bounds((0.0,) * 4, (10.0,) * 4), Bounds((0.0,) * 4, (10.0,) * 4)),
    ):
        settings = settings_of("iris", bounds=given)
        assert bounds_of(settings, data, None) == expected
        # Given ones count even with points of the server's.
        assert bounds_of(settings, data, points[:9]) == expected
        assert reference_box(settings, data) == box


def test_a_file_has_no_bounds_of_its_own(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", load_bundled("iris").points)
    settings = settings_of("file", path=str(tmp_path / "rows.npy"))
    data = load_data_set(settings)
    with pytest.raises(ConfigurationError, match="no public ones come with these data"):
        bounds_of(settings, data, None)
    assert reference_box(settings, data) == own_range(data.points)


@pytest.mark.parametrize(
    ("algorithm", "server", "gives"),
    [
        ("feddp_kmeans", None, True),
        ("feddp_kmeans", "own", True),
        ("proxy_lloyd", None, False),
        ("proxy_lloyd", "own", True),
        ("proxy_lloyd", "held_out", True),
        ("fastlloyd", "own", False),
        ("fastlloyd", "held_out", False),
        ("max_cover", "held_out", False),
        ("optimal", None, False),
    ],
)
def test_who_is_given_points_of_the_servers(
    algorithm: str, server: str | None, gives: bool
) -> None:
    settings = settings_of("iris", server=server) | {"algorithm": {"name": algorithm}}
    assert gives_server_points(settings) == gives
    if gives and server == "held_out":
        data = load_data_set(settings)
        assert server_points_of(settings, data) is data.server_points
    if gives and server != "held_out":
        with pytest.raises(ConfigurationError, match="starts from the server's own"):
            server_points_of(settings, load_data_set(settings))


def test_held_back_rows_are_the_same_for_every_method() -> None:
    first = load_data_set(settings_of("iris", server="held_out", label_column="target"))
    again = load_data_set(
        settings_of("iris", server="held_out", label_column="target", n_clients=5)
    )
    assert first is not again
    assert np.array_equal(first.points, again.points)
    assert first.server_points is not None
    assert again.server_points is not None
    assert np.array_equal(first.server_points, again.server_points)
    assert first.labels is not None
    assert len(first.labels) == len(first.points) == 135
    with pytest.raises(ConfigurationError, match="belong to clients"):
        load_data_set(
            settings_of(
                "mixture",
                server="held_out",
                seed=0,
                rows_per_client=9,
                missing_components=0,
            )
        )


def test_data_that_are_spread_already_have_their_number_of_clients() -> None:
    settings = settings_of("mixture", seed=4, rows_per_client=20, missing_components=0)
    data = load_data_set(settings)
    with pytest.raises(ConfigurationError, match="spread over 3 clients already"):
        split({**settings, "n_clients": 2}, data)
