"""Partitioners of Flower Datasets as the page types them, where that package is
installed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr_datasets")
DOCS = Path(__file__).resolve().parents[3] / "flwr_dpkmeans" / "docs"
PAGE = DOCS / "tutorials" / "ten_clients.md"


def test_partitions_are_parties() -> None:
    (code,) = re.findall(
        r"^```python flower-datasets\n(.*?)^```$",
        PAGE.read_text(),
        re.MULTILINE | re.DOTALL,
    )
    found: dict[str, Any] = {}
    exec(code, found)
    parts = [found["part"](i) for i in range(5)]
    assert sum(map(len, parts)) == 150
    assert {tuple(part.columns) for part in parts} == {
        tuple(found["frame"].columns[:4])
    }
    assert found["km"].cluster_centers_.shape == (3, 4)
