"""Gaps that stay in the clustering: they add to no mean, share or spread, and centres
are shown without their pull.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from flwr_dpkmeans import ClientLevel, FederatedKMeans, Schema, federate
from flwr_dpkmeans.errors import ConfigurationError, PrivacyWarning
from flwr_dpkmeans.privacy.shown import error_text, rounded_text
from flwr_dpkmeans.results.model import Model

N = 20_000
PART_MISSING = 0.3
DEATHS, KILOS = 0.021, 65.0
WARDS = [0.7, 0.2, 0.1]
CLEAR = 4.0
"""Deviations within which a figure that is right lies, but in one of thousands of
tests.
"""
COLUMNS: dict[str, Any] = {
    "age": {"kind": "number", "bounds": [0, 110]},
    "weight": {"kind": "number", "bounds": [30, 180], "missing": "centre"},
    "ward": {
        "kind": "category",
        "values": ["A", "B", "C"],
        "weight": 0.3,
        "missing": "centre",
    },
    "dead": {"kind": "flag", "weight": 0, "missing": "centre"},
}
PROFILE = ("dead", "weight", "ward")
SCHEMA = Schema(columns=COLUMNS, profile=PROFILE)
CLUSTERED = {name: column for name, column in COLUMNS.items() if name != "dead"}
ENGINES = ["direct", "inprocess"]


@cache
def people(part_missing: float = PART_MISSING) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Two kinds of patients, whole, and with cells missing at random."""
    generator = np.random.default_rng(3)
    old = generator.random(N) < 0.5
    whole = pd.DataFrame(
        {"age": np.where(old, 70.0, 30.0) + generator.normal(0.0, 6.0, N)}
    )
    whole["weight"] = np.where(old, KILOS, 85.0) + generator.normal(0.0, 8.0, N)
    whole["dead"] = (generator.random(N) < DEATHS).astype(float)
    whole["ward"] = generator.choice(["A", "B", "C"], N, p=WARDS).astype(object)
    gappy = whole.copy()
    for name in ("weight", "dead", "ward"):
        gappy.loc[generator.random(N) < part_missing, name] = None
    return whole, gappy


def parties(rows: pd.DataFrame) -> list[pd.DataFrame]:
    return [rows[:6000], rows[6000:9000], rows[9000:]]


@cache
def fitted(
    schema: Schema = SCHEMA, engine: str = "direct", part_missing: float = PART_MISSING
) -> FederatedKMeans:
    options: dict[str, Any] = {
        "epsilon": 2.0,
        "noise": "seeded",
        "random_state": 5,
        "engine": engine,
    }
    return FederatedKMeans(2, bounds=schema, **options).fit(
        parties(people(part_missing)[1])
    )


def old_cluster(km: Any) -> int:
    return int(km.cluster_centers_[:, 0].argmax())


def figures(km: Any, cluster: str) -> pd.DataFrame:
    lines = km.profile_[km.profile_.cluster == cluster]
    return lines.set_index(["column", "figure", "value"])


def present(km: Any) -> pd.DataFrame:
    """The rows of the old, with their cells that are there."""
    rows = people()[1]
    return rows[km.predict(rows) == old_cluster(km)]


def is_within(line: Any, exact: float) -> bool:
    return bool(abs(line.estimate - exact) <= CLEAR * line.deviation)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_death_rate_with_gaps_is_that_of_the_cells_that_are_there(
    engine: str,
) -> None:
    """It was printed as 16.5%, as a gap counted as one half."""
    km = fitted(SCHEMA, engine)
    dead = figures(km, "all").loc[("dead", "share", "1")]
    assert is_within(dead, people()[1]["dead"].mean())
    assert dead.deviation < 0.003
    assert dead.estimate == pytest.approx(DEATHS, abs=0.01)


def test_a_mean_weight_with_gaps_is_that_of_the_cells_that_are_there() -> None:
    """It was 77.0 with an error of .05, as gaps counted as the middle of the bounds."""
    km = fitted()
    weight = figures(km, str(old_cluster(km))).loc[("weight", "mean", "")]
    assert is_within(weight, present(km)["weight"].mean())
    assert weight.deviation < 0.5
    assert weight.estimate == pytest.approx(KILOS, abs=1.0)


def test_spread_and_shares_are_those_of_the_cells_that_are_there() -> None:
    """A spread's own error is bounded from above."""
    km = fitted()
    lines, rows = figures(km, str(old_cluster(km))), present(km)
    spread = lines.loc[("weight", "spread", "")].estimate
    assert abs(spread - rows["weight"].std()) < 2.0
    shares = rows["ward"].value_counts(normalize=True)
    for ward in "ABC":
        assert is_within(lines.loc[("ward", "share", ward)], shares[ward])
    total = lines.loc["ward"].loc["share"].estimate.sum()
    assert total == pytest.approx(1.0, abs=0.02)


def test_the_share_missing_is_released_with_its_error() -> None:
    km = fitted()
    rows, all_rows = present(km), people()[1]
    shares = km.missing_shares_.set_index(["cluster", "column"])
    assert set(shares.index) == {
        (cluster, name) for cluster in ("all", "0", "1") for name in PROFILE
    }
    for name in PROFILE:
        assert is_within(shares.loc[("all", name)], all_rows[name].isna().mean())
        assert is_within(
            shares.loc[(str(old_cluster(km)), name)], rows[name].isna().mean()
        )
        assert shares.loc[("all", name)].deviation < 0.005


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "columns", [COLUMNS, CLUSTERED], ids=["profiled", "clustered only"]
)
def test_a_centre_is_shown_as_the_mean_of_the_cells_that_are_there(
    columns: dict[str, Any], engine: str
) -> None:
    profile = PROFILE if "dead" in columns else ()
    km = fitted(Schema(columns=columns, profile=profile), engine)
    old, rows = old_cluster(km), present(km)
    means = km.cell_means_[old]
    assert means[0] == km.cluster_centers_[old, 0]  # no gap is counted in it
    assert means[1] == pytest.approx(rows["weight"].mean(), abs=0.7)
    shares = rows["ward"].value_counts(normalize=True)[["A", "B", "C"]].to_numpy()
    error = km.cluster_centers_error_[old, 2:]
    assert (np.abs(means[2:] - shares) <= error).all()
    assert means[3:] == pytest.approx(shares[1:], abs=0.02)
    # The fitted space is as it was, for labels that agree with the clustering: there a
    # gap counts as the middle.
    pulled = rows["weight"].fillna(105.0).mean()
    assert km.cluster_centers_[old, 1] == pytest.approx(pulled, abs=0.7)
    assert km.schema_ is not None
    assert km.schema_.decode(km.cell_means_)["ward"][old]["A"] == pytest.approx(
        means[2]
    )


def test_labels_do_not_depend_on_what_is_counted() -> None:
    rows = people()[1]
    for columns in (COLUMNS, CLUSTERED):
        km = fitted(
            Schema(columns=columns, profile=PROFILE if "dead" in columns else ())
        )
        points = km.schema_.clustered.encode(rows).points  # type: ignore[union-attr]
        assert points.shape == (N, 5)
        inside = np.clip(km.model_.bounds.scale(points), -1.0, 1.0)
        distances = np.linalg.norm(inside[:, None] - km.model_.scaled, axis=2)
        assert (distances.argmin(axis=1) == km.predict(rows)).mean() > 0.9999


@cache
def files(part_missing: float = PART_MISSING) -> dict[str, str]:
    """What a fit writes."""
    km = fitted(Schema(columns=CLUSTERED), part_missing=part_missing)
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        paths = km.write(Path(folder) / "result")
        readable = [
            path for path in paths if path.suffix in (".html", ".md", ".json", ".csv")
        ]
        return {path.name: path.read_text() for path in readable}


def test_console_page_and_files_show_the_means_and_the_shares_missing() -> None:
    km = fitted(Schema(columns=CLUSTERED))
    old = old_cluster(km)
    shown = km.model_.shown()
    assert float(shown[1][old]) == pytest.approx(KILOS, abs=1.0)
    text = str(km.model_)
    error = km.model_.cell_means_error[old, 1]
    mean = rounded_text(km.cell_means_[old, 1], error)
    assert f" {mean} ± {error_text(error)} " in text
    assert "weight: missing" in text
    assert "age: missing" not in text
    for name in ("report.html", "report.md"):
        assert "weight: missing" in files()[name].replace("\\", "")
        assert f"{mean} ± " in files()[name]
    assert "all,weight,missing," in files()["federated_profile.csv"]
    plain = json.loads(files()["model.json"])
    assert plain["version"] == 3
    assert plain["cell_means"][old][1] == km.cell_means_[old, 1]
    assert plain["centroids"][old][1] == km.cluster_centers_[old, 1]


def test_a_saved_model_shows_the_same_and_an_older_one_still_loads(
    tmp_path: Path,
) -> None:
    km = fitted(Schema(columns=CLUSTERED))
    path = km.save(tmp_path / "model.json")
    again = FederatedKMeans.load(path)
    np.testing.assert_array_equal(again.cell_means_, km.cell_means_)
    pd.testing.assert_frame_equal(again.missing_shares_, km.missing_shares_)
    # A version before gaps were counted had neither the shares nor the means.
    plain = json.loads(path.read_text())
    del plain["cell_means"], plain["federated_profile"]
    path.write_text(json.dumps(plain | {"version": 1}))
    old = Model.load(path)
    np.testing.assert_array_equal(old.cell_means, old.centroids)
    assert ": missing" not in str(old)
    assert (old.predict(people()[1]) == km.predict(people()[1])).all()
    # One whose means are not those of its shares is refused.
    path.write_text(json.dumps(json.loads(km.model_.to_json()) | {"cell_means": []}))
    with pytest.raises(Exception, match="its cell_means cannot stand in a model"):
        Model.load(path)


def cautions(km: Any) -> list[str]:
    return [
        one for one in km.privacy_.warnings if one.startswith("Cells are missing in")
    ]


def test_above_a_twentieth_missing_the_report_says_what_gaps_do() -> None:
    schema = Schema(columns=CLUSTERED)
    (caution,) = cautions(fitted(schema))
    assert "'weight' (29%)" in caution
    assert "'ward' (30%)" in caution
    assert "counts as the middle of the bounds" in caution
    assert caution in fitted(schema).model_.privacy.warnings
    assert cautions(fitted(schema, part_missing=0.03)) == []
    assert cautions(fitted(schema, part_missing=0.07))


def test_gaps_of_columns_that_are_not_clustered_are_no_caution() -> None:
    columns = {"age": COLUMNS["age"], "dead": COLUMNS["dead"]}
    km = fitted(Schema(columns=columns, profile=["dead"]))
    assert cautions(km) == []
    np.testing.assert_array_equal(km.cell_means_, km.cluster_centers_)


@pytest.mark.parametrize("trust", ["oblivious", "distributed", "central"])
def test_every_trust_model_releases_the_same_description(trust: str) -> None:
    options: dict[str, Any] = {
        "epsilon": 4.0,
        "noise": "seeded",
        "random_state": 5,
        "trust": trust,
    }
    km = FederatedKMeans(2, bounds=SCHEMA, **options).fit(parties(people()[1]))
    lines = [line for line in km.privacy_.releases if line.array == "present_cells"]
    assert len(lines) == 1
    assert lines[0].sensitivity == pytest.approx(3**0.5 / 2)
    assert km.privacy_.epsilon <= 4.0
    assert is_within(
        figures(km, "all").loc[("dead", "share", "1")], people()[1]["dead"].mean()
    )


@pytest.mark.nightly
def test_clients_are_described_by_their_means() -> None:
    _, gappy = people()
    clients = [gappy[first : first + 40] for first in range(0, N, 40)]
    options: dict[str, Any] = {
        "epsilon": 40.0,
        "noise": "seeded",
        "random_state": 5,
        "engine": "direct",
    }
    km = FederatedKMeans(2, bounds=SCHEMA, unit=ClientLevel(40), **options).fit(clients)
    dead = figures(km, "all").loc[("dead", "share", "1")]
    assert is_within(dead, gappy["dead"].mean())
    assert dead.deviation < 0.01
    weight = figures(km, str(old_cluster(km))).loc[("weight", "mean", "")]
    assert is_within(weight, present(km)["weight"].mean())
    assert km.cell_means_[old_cluster(km), 1] == pytest.approx(KILOS, abs=1.5)
    (line,) = [line for line in km.privacy_.releases if line.array == "present_cells"]
    assert "S30" in line.theorem


@pytest.mark.nightly
def test_errors_are_of_the_size_that_is_printed() -> None:
    rows, errors = people()[1], list[float]()
    for seed in range(6):
        options: dict[str, Any] = {
            "epsilon": 1.0,
            "noise": "seeded",
            "random_state": seed,
            "engine": "direct",
        }
        km = FederatedKMeans(2, bounds=SCHEMA, **options).fit(parties(rows))
        labels = km.predict(rows)
        for cluster in (0, 1):
            lines, mine = figures(km, str(cluster)), rows[labels == cluster]
            exact = {
                ("dead", "share", "1"): mine["dead"].mean(),
                ("weight", "mean", ""): mine["weight"].mean(),
            }
            exact |= {
                (name, "missing", ""): mine[name].isna().mean() for name in PROFILE
            }
            exact |= {
                ("ward", "share", ward): (mine["ward"].dropna() == ward).mean()
                for ward in "ABC"
            }
            pairs = ((lines.loc[key], value) for key, value in exact.items())
            errors += [
                (line.estimate - value) / line.deviation for line, value in pairs
            ]
    assert len(errors) == 6 * 2 * 8
    assert 0.75 < np.sqrt(np.mean(np.square(errors))) < 1.25


def test_a_schema_without_such_gaps_releases_what_it_did() -> None:
    filled = {name: dict(column) for name, column in COLUMNS.items()}
    filled["weight"] |= {"missing": "fill", "fill": 70.0}
    filled["ward"] |= {"missing": "drop"}
    filled["dead"] |= {"missing": "drop"}
    schema = Schema(columns=filled, profile=PROFILE)
    assert schema.gap_columns == ()
    assert schema.n_beside == sum(schema.profile_widths)
    km = fitted(schema)
    arrays = [
        line.array for line in km.privacy_.releases if line.round_name == "profile"
    ]
    assert arrays == ["group_counts", "group_sums", "group_squares", "profile_cells"]
    assert json.loads(km.model_.to_json())["version"] == 2
    bare = Schema(columns={"age": COLUMNS["age"]})
    assert [
        line for line in fitted(bare).privacy_.releases if line.round_name == "profile"
    ] == []


def test_a_cluster_without_a_cell_of_a_column_shows_that_it_is_missing() -> None:
    gappy = people()[1].copy()
    gappy.loc[gappy["age"] > 50, ["weight", "ward"]] = None
    options: dict[str, Any] = {
        "epsilon": 4.0,
        "noise": "seeded",
        "random_state": 5,
        "engine": "direct",
    }
    km = FederatedKMeans(2, bounds=Schema(columns=CLUSTERED), **options).fit(
        parties(gappy)
    )
    old = old_cluster(km)
    assert np.isnan(km.cell_means_[old, 1:]).all()
    assert np.isfinite(km.cell_means_[1 - old]).all()
    assert [texts[old] for texts in km.model_.shown()][1:] == ["missing"] * 4
    assert json.loads(km.model_.to_json())["cell_means"][old][1] is None
    assert km.cluster_centers_[old, 1] == pytest.approx(105.0, abs=2.0)
    assert "nan" not in str(km.model_)


def test_nobody_counts_gaps_where_the_schema_says_so() -> None:
    schema = Schema(columns=CLUSTERED, gap_share=0.0)
    km = fitted(schema)
    assert [line for line in km.privacy_.releases if line.round_name == "profile"] == []
    assert km.missing_shares_ is None
    assert any(
        one.startswith("Missing cells of 'weight', 'ward' were not counted")
        for one in km.privacy_.warnings
    )
    assert Schema(**schema.to_dict()) == schema
    # What is profiled is counted all the same: its figures would be wrong.
    both = fitted(Schema(columns=COLUMNS, profile=["dead"], gap_share=0.0))
    assert set(both.missing_shares_["column"]) == {"dead"}


def test_what_reports_means_refuses_gaps_that_it_would_count_as_the_middle() -> None:
    with pytest.raises(ConfigurationError, match="'moments' would count such a gap"):
        federate("moments", parties(people()[1]), bounds=Schema(columns=CLUSTERED))


WRONG: list[tuple[dict[str, Any], str]] = [
    (
        {"columns": {"age": COLUMNS["age"]}, "gap_share": 0.1},
        "gap_share is 0.1, but missing is 'centre' for no column",
    ),
    (
        {
            "columns": COLUMNS,
            "profile": PROFILE,
            "profile_share": 0.4,
            "gap_share": 0.1,
        },
        (
            "profile_share and gap_share together are 0.5, but they must be below 0.5:"
            " lower one of them"
        ),
    ),
    ({"columns": CLUSTERED, "gap_share": 0.5}, "gap_share is 0.5"),
    ({"columns": CLUSTERED, "gap_share": -0.1}, "gap_share is -0.1"),
]


@pytest.mark.parametrize(("stated", "sentence"), WRONG)
def test_a_share_that_cannot_be_is_one_sentence(
    stated: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        Schema(**stated)


def test_gaps_do_not_follow_from_an_option() -> None:
    with pytest.raises(ConfigurationError, match="give a schema with missing"):
        FederatedKMeans(2, bounds=SCHEMA, gap_columns=(0,))


def test_a_count_of_gaps_that_is_mostly_noise_is_said_before_the_fit() -> None:
    rows = people()[1][:200]
    km = FederatedKMeans(
        2,
        bounds=Schema(columns=CLUSTERED),
        epsilon=0.5,
        engine="direct",
        random_state=1,
    )
    with pytest.warns(
        PrivacyWarning,
        match=(
            "The count of gaps by cluster is mostly noise.*raise epsilon or gap_share"
        ),
    ):
        km.fit([rows[:100], rows[100:]])


def distances(schema: Schema, rows: pd.DataFrame) -> NDArray[np.float64]:
    scaled = schema.bounds.scale(schema.clustered.encode(rows).points)
    return np.linalg.norm(scaled - scaled[0], axis=1)


def test_the_distance_that_a_gap_counts_is_what_the_page_says() -> None:
    """Half of a number's full range from either end."""
    number = Schema(columns={"weight": COLUMNS["weight"]})
    ends = distances(number, pd.DataFrame({"weight": [30.0, 180.0, None]}))
    assert ends[2] / ends[1] == pytest.approx(0.5)
    category = Schema(columns={"ward": COLUMNS["ward"]})
    apart = distances(category, pd.DataFrame({"ward": ["A", "B", None]}))
    assert apart[2] / apart[1] == pytest.approx(((1.0 - 1.0 / 3.0) / 2.0) ** 0.5)
