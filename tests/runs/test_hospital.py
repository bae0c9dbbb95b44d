"""From five parties' exported files to labels.

One schema, drafted by the tool, of which ten lines are filled in.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import adjusted_rand_score
from support import hospital

from flwr_dpkmeans import FederatedKMeans, Schema
from flwr_dpkmeans.__main__ import main
from flwr_dpkmeans.data.files.reader import open_table
from flwr_dpkmeans.data.files.whole_tables import whole_frame
from flwr_dpkmeans.data.loading.schema_tables import load_by_schema

STATED = ["--decimal", ",", "--dates", "%d.%m.%Y", "--missing", "999"]
FILLED = """\
"admission" = { kind = "date", bounds = [2026-01-01, 2027-01-01], weight = 0.25 }
"age" = { kind = "number", bounds = [18, 110], missing = "centre" }
"sex" = { kind = "category", values = ["m", "w"], weight = 0.5 }
"weight_kg" = { kind = "number", bounds = [30, 200], missing = "centre" }
"height_cm" = { kind = "number", bounds = [120, 220], missing = "centre" }
"crp" = { kind = "number", bounds = [0.1, 900], transform = "log", missing = "centre" }
"creatinine" = {kind="number", bounds=[0.1, 20], transform="log", missing="centre"}
"systolic" = { kind = "number", bounds = [50, 260], missing = "centre" }
"temperature" = { kind = "number", bounds = [32, 43], missing = "centre" }
"ward" = { kind = "category", values = ["A", "B", "C", "D"], weight = 0.5 }
""".splitlines()


@pytest.fixture
def schema_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The draft of the first clinic's file, filled in; the files are beside it."""
    files, _ = hospital.write(tmp_path)
    assert main(["schema", "draft", str(files[0]), *STATED]) == 0
    said = capsys.readouterr().out
    for sentence in (
        (
            "cells between semicolons, a header, utf-8, 16 named columns, 6000 of 6000"
            " records are rows"
        ),
        (
            "'patient_id': it looks like the id of a person, and several rows have the"
            " same id"
        ),
        "'stay_id': no two rows have the same value, so it looks like an id",
        "'hour': its whole numbers look like hours",
        "'note': it looks like text for people to read",
    ):
        assert sentence in said
    drafted = (tmp_path / "clinic_0.toml").read_text().splitlines()
    filled = {line.partition(" = ")[0]: line for line in FILLED}
    lines = [filled.pop(line.partition(" = ")[0], line) for line in drafted]
    assert not filled
    path = tmp_path / "schema.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_kinds_of_patients_are_those_that_were_drawn(
    schema_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files, kinds = hospital.write(tmp_path)
    for file in files[:3]:
        assert main(["schema", "check", str(schema_file), str(file)]) == 0
    assert "6000 of 6000 records are rows" in capsys.readouterr().out
    drawn = np.concatenate(kinds)
    agreements = []
    for seed in range(3):
        km = FederatedKMeans(
            3,
            epsilon=1.0,
            bounds=schema_file,
            noise="seeded",
            random_state=seed,
            engine="direct",
        )
        km.fit(files)
        labels = np.concatenate([km.predict(file) for file in files])
        assert (labels >= 0).all()
        agreements.append(adjusted_rand_score(drawn, labels))
    assert np.median(agreements) >= 0.9
    # The command labels the same file alike, line by line.
    km.save(tmp_path / "model.json")
    output = tmp_path / "labels.csv"
    assert (
        main(
            ["predict", str(tmp_path / "model.json"), str(files[1]), "-o", str(output)]
        )
        == 0
    )
    assert pd.read_csv(output)["label"].tolist() == km.predict(files[1]).tolist()


@pytest.mark.nightly
def test_a_node_reads_what_a_notebook_reads(schema_file: Path, tmp_path: Path) -> None:
    schema = Schema.load(schema_file)
    files, _ = hospital.write(tmp_path)
    for file in files:
        np.testing.assert_array_equal(
            load_by_schema(file, schema).points, schema.encode(file).points
        )


@pytest.mark.nightly
def test_a_party_may_write_its_file_in_another_way(
    schema_file: Path, tmp_path: Path
) -> None:
    """The schema's digest does not depend on how it is written."""
    schema = Schema.load(schema_file)
    files, _ = hospital.write(tmp_path)
    other = tmp_path / "other.csv"
    frame = pd.read_csv(
        files[1], sep=";", decimal=",", dtype={"patient_id": str}, keep_default_na=False
    )
    numbers = [
        "crp",
        "systolic",
        "weight_kg",
        "height_cm",
        "creatinine",
        "temperature",
        "age",
    ]
    frame[numbers] = frame[numbers].apply(
        lambda cells: cells.astype(str).str.replace(",", ".").replace("999", "")
    )
    frame["admission"] = pd.to_datetime(frame["admission"], format="%d.%m.%Y").dt.date
    frame[sorted(frame.columns)].to_csv(other, index=False)
    plain = Schema(**{**schema.to_dict(), "file": {}})
    assert plain.digest == schema.digest
    np.testing.assert_array_equal(
        plain.encode(other).points, schema.encode(files[1]).points
    )


@pytest.mark.nightly
def test_a_node_describes_its_own_rows_of_such_a_file(
    schema_file: Path, tmp_path: Path
) -> None:
    """The profile's rows are labelled again, from text."""
    files, _ = hospital.write(tmp_path)
    model = FederatedKMeans(
        2,
        epsilon=9.0,
        bounds=schema_file,
        noise="seeded",
        random_state=0,
        engine="direct",
    )
    model.fit(files[:2])
    opened = open_table(files[2], Schema.load(schema_file).file)
    profile = model.model_.profile(whole_frame(opened))
    of_all = profile[profile["cluster"] == "all"].set_index("column")
    assert of_all.loc["age", "rows"] == hospital.SIZES[2]
    assert of_all.loc["crp", "mean"] > 10.0
    assert of_all.loc["crp", "count"] > 0.9 * hospital.SIZES[2]
