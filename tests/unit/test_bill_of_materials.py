"""A released wheel lists what it was tested with."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
CI = ROOT / ".ci"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

pytestmark = pytest.mark.skipif(
    not CI.is_dir(), reason="the source distribution has no .ci"
)


def wheel(folder: Path, *, with_bill: bool) -> zipfile.ZipFile:
    """Build a wheel into a folder."""
    environment = os.environ | {
        "FLWR_DPKMEANS_SBOM": str(int(with_bill)),
        "FLWR_DPKMEANS_KERNELS": "numpy",
    }
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT, env=environment, check=True, capture_output=True,
    )  # fmt: skip
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


@pytest.fixture(scope="module")
def bill(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    built = wheel(tmp_path_factory.mktemp("wheel"), with_bill=True)
    (name,) = [name for name in built.namelist() if "/sboms/" in name]
    assert re.fullmatch(
        r"[\w.]+-[\w.]+\.dist-info/sboms/flwr-dpkmeans\.cdx\.json", name
    )
    return json.loads(built.read(name))


def test_a_bill_names_the_release_that_it_is_of(bill: dict[str, Any]) -> None:
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    itself = bill["metadata"]["component"]
    assert itself["purl"] == f"pkg:pypi/flwr-dpkmeans@{PROJECT['version']}"


def test_a_bill_has_every_dependency_in_the_locked_release(
    bill: dict[str, Any],
) -> None:
    listed = {(part["name"], part["version"]) for part in bill["components"]}
    needed = {canonicalize_name(Requirement(x).name) for x in PROJECT["dependencies"]}
    assert needed <= {name for name, _ in listed}
    lock = (CI / "requirements.lock").read_text()
    locked = set(re.findall(r"^([a-z0-9-]+)==([^ ]+)", lock, re.MULTILINE))
    assert listed <= locked, "run 'bash .ci/lock'"
    assert "pytest" not in {name for name, _ in listed}


def test_a_bill_says_what_needs_what(bill: dict[str, Any]) -> None:
    references = {part["bom-ref"] for part in bill["components"]}
    needs = {entry["ref"]: entry["dependsOn"] for entry in bill["dependencies"]}
    direct = needs.pop(bill["metadata"]["component"]["bom-ref"])
    reached = set(direct)
    for _ in references:
        reached |= {other for reference in reached for other in needs[reference]}
    assert reached == references
    (accounting,) = [name for name in references if "/dp-accounting@" in name]
    assert any("/dm-tree@" in name for name in needs[accounting])


def test_a_copy_without_the_projects_tools_can_be_built(tmp_path: Path) -> None:
    built = wheel(tmp_path, with_bill=False)
    assert not any("/sboms/" in name for name in built.namelist())
