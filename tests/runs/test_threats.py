"""Pages and docstrings name only tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.pages import PAGES, ROOT, name_of


def defined_tests() -> set[str]:
    """Names of all test functions and test modules."""
    paths = [*(ROOT / "tests").rglob("test_*.py")]
    names = {path.name for path in paths} | {path.stem for path in paths}
    return names | {
        name
        for path in paths
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    }


@pytest.mark.parametrize("page", PAGES, ids=[name_of(page) for page in PAGES])
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    named = set(re.findall(r"`(test_\w+(?:\.py)?)`", page.read_text()))
    assert sorted(named - defined_tests()) == []


def test_every_test_that_the_package_names_exists() -> None:
    package = ROOT / "flwr_dpkmeans"
    texts = [path.read_text() for path in package.rglob("*.py")]
    named = {name for text in texts for name in re.findall(r"`(test_\w+)`", text)}
    assert len(named) >= 7
    assert sorted(named - defined_tests()) == []


def test_the_threat_model_names_tests() -> None:
    page = ROOT / "flwr_dpkmeans" / "docs" / "reference" / "threats.md"
    assert page in PAGES
    assert len(re.findall(r"`test_\w+`", page.read_text())) > 40
