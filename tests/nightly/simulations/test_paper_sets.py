"""The FastLloyd paper's sets from files as they come.

Columns, images, a draw, and files that are others.
"""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import numpy as np
import pytest
import yaml

from flwr_dpkmeans.errors import DataError
from simulations.experiments.expansion import CONFIGURATION
from simulations.sources.paper_sets import (
    known_sets,
    main,
    prepare,
    read_rows,
    rows_hash,
)


def test_every_set_that_has_a_file_is_described_with_the_papers_shape() -> None:
    text = (CONFIGURATION / "experiment" / "fastlloyd_fig2.yaml").read_text()
    named = yaml.safe_load(text)["sweep"]["grids"][0]["data"].split(",")
    assert len(named) == 10
    assert set(named) - {"iris", "wine"} == set(known_sets())
    for name, given in known_sets().items():
        assert len(given["sha256"]) == len(given["files"])
        assert (
            yaml.safe_load((CONFIGURATION / "data" / f"{name}.yaml").read_text())[
                "path"
            ]
            == f"${{data_dir}}/{name}.npz"
        )
        assert all(len(known) in (0, 64) for known in (*given["sha256"], given["rows"]))


def test_columns_of_text_and_images(tmp_path: Path) -> None:
    (tmp_path / "a.arff").write_text(
        "% says\n@DATA\n\n7.00, 4.00, malignant\nx 2 3\n".replace("x", "1")
    )
    assert read_rows(tmp_path / "a.arff", [1, 0]).tolist() == [[4.0, 7.0], [2.0, 1.0]]
    images = np.arange(24, dtype=np.uint8)
    header = b"\x00\x00\x08\x03" + np.array([2, 3, 4], ">u4").tobytes()
    (tmp_path / "i.gz").write_bytes(gzip.compress(header + images.tobytes()))
    assert read_rows(tmp_path / "i.gz", None).tolist() == images.reshape(2, 12).tolist()
    (tmp_path / "bad").write_text("1 ?\n")
    with pytest.raises(DataError, match=r"cannot be read \(ValueError\), but each"):
        read_rows(tmp_path / "bad", [0, 1])


def test_a_set_is_prepared_once_its_file_is_there(
    tmp_path: Path,
) -> None:
    given = {
        "shape": [3, 2],
        "drawn_from": 5,
        "files": ["b.txt"],
        "columns": [0, 1],
        "where": "a shelf",
    }
    known = {"b": {**given, "sha256": [""], "rows": ""}}
    raw, folder = tmp_path / "raw", tmp_path / "data"
    assert "missing: put b.txt into" in prepare("b", raw, folder, known)
    raw.mkdir()
    (raw / "b.txt").write_text("1 2\n3 4\n5 6\n7 8\n9 10\n")
    assert "unknown before" in prepare("b", raw, folder, known)
    rows = np.load(folder / "b.npz")["X"]
    assert rows.shape == (3, 2)
    assert set(map(tuple, rows)) <= {(1, 2), (3, 4), (5, 6), (7, 8), (9, 10)}
    (raw / "b.txt").rename(raw / "c.txt")
    assert (
        prepare("b", raw, folder, known)
        == f"there; 3 x 2, rows {rows_hash(rows)} (unknown before)"
    )
    known["b"] |= {"files": ["c.txt"], "sha256": ["0" * 64]}
    with pytest.raises(
        DataError, match=hashlib.sha256((raw / "c.txt").read_bytes()).hexdigest()
    ):
        prepare("b", raw, folder, known)
    known["b"] |= {"sha256": [""], "drawn_from": 6}
    with pytest.raises(DataError, match=r"\(5, 2\), but the paper's have \(6, 2\)"):
        prepare("b", raw, folder, known)
    assert main([str(raw), "--data-dir", str(folder)], known) == 1
