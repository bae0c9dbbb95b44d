"""The site of the documentation is built without a warning: every link, heading and
name that it points to is there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.pages import DOCS, ROOT

pytest.importorskip("mkdocs", reason="mkdocs is of the group docs")
pytest.importorskip("mkdocstrings")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, as ``.ci/run`` builds it."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    config = str(ROOT / ".github" / "mkdocs.yml")
    built = subprocess.run(
        [*command, "-f", config, "--site-dir", str(folder)],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_every_page_is_built(site: Path) -> None:
    for page in DOCS.rglob("*.md"):
        path = page.relative_to(DOCS).with_suffix("")
        folder = site if path.name == "index" else site / path
        assert (folder / "index.html").is_file()


def test_the_reference_has_the_estimators_signature(site: Path) -> None:
    text = (site / "reference" / "api" / "index.html").read_text()
    assert 'id="flwr_dpkmeans.FederatedKMeans"' in text
    assert "n_clusters" in text


def test_pictures_and_files_outside_are_there(site: Path) -> None:
    for name in ("simulations/figures/fastlloyd_fig2.png", "LICENSE"):
        assert (site / "project" / name).is_file()


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    text = (site / "index.html").read_text()
    assert "fonts.googleapis" not in text
    assert 'src="http' not in text
