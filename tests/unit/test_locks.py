"""CI installs what pyproject.toml asks for.

The locks satisfy it, and its lower bounds are those that are tested.
"""

from __future__ import annotations

import importlib.util
import re
import tomllib
from collections import defaultdict
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

PROJECT = Path(__file__).resolve().parents[2]
CI = PROJECT / ".ci"
with open(PROJECT / "pyproject.toml", "rb") as _file:
    DECLARED: dict[str, Any] = tomllib.load(_file)
EXTRAS = DECLARED["project"]["optional-dependencies"]
DIRECT = [
    Requirement(text)
    for text in [
        *DECLARED["project"]["dependencies"],
        *EXTRAS["test"],
        *EXTRAS["simulations"],
    ]
]
BUILD = [Requirement(text) for text in DECLARED["build-system"]["requires"]]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")

pytestmark = pytest.mark.skipif(
    not CI.is_dir(), reason="the source distribution has no .ci"
)


def pinned(name: str) -> dict[str, list[Requirement]]:
    """Every line of a lock, by package."""
    found = defaultdict(list)
    for line in (CI / name).read_text().replace("\\\n", "").splitlines():
        if line.strip() and not line.startswith("#"):
            requirement = Requirement(line.split("--hash=")[0].strip())
            found[canonicalize_name(requirement.name)].append(requirement)
    return found


def version_for(lines: list[Requirement], python: str) -> str:
    """The one release that a lock has for one Python on Linux."""
    environment = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": "linux",
    }
    chosen = [
        line
        for line in lines
        if line.marker is None or line.marker.evaluate(environment)
    ]
    assert len(chosen) == 1, f"{[str(line) for line in chosen]} for Python {python}"
    (specifier,) = chosen[0].specifier
    assert specifier.operator == "=="
    return specifier.version


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", ["requirements.lock", "oldest.txt"])
def test_a_lock_satisfies_what_is_declared(name: str, python: str) -> None:
    lock = pinned(name)
    for requirement in DIRECT + (BUILD if name == "requirements.lock" else []):
        version = version_for(lock[canonicalize_name(requirement.name)], python)
        assert version in requirement.specifier, (
            f"{name} has {requirement.name} {version}: run 'bash .ci/lock'"
        )


def test_every_supported_python_is_covered() -> None:
    supported = SpecifierSet(DECLARED["project"]["requires-python"])
    assert [f"3.{minor}" for minor in range(30) if f"3.{minor}" in supported] == list(
        PYTHONS
    )


@pytest.mark.parametrize("name", ["requirements.lock", "tools.lock", "wheels.lock"])
def test_every_line_of_a_lock_has_one_release_and_hashes(name: str) -> None:
    lines = (CI / name).read_text().replace("\\\n", "").splitlines()
    for line in [line for line in lines if line.strip() and not line.startswith("#")]:
        assert re.match(r"[a-z0-9-]+==[^ ]+ ", line), line
        assert re.search(r"--hash=sha256:[0-9a-f]{64}(\s|$)", line), line


@pytest.mark.parametrize(
    "requirement", DIRECT, ids=[requirement.name for requirement in DIRECT]
)
def test_the_lower_bounds_are_those_that_are_tested(requirement: Requirement) -> None:
    """A lower bound that nothing can be installed with is not one."""
    (bound,) = (one.version for one in requirement.specifier if one.operator == ">=")
    oldest = version_for(
        pinned("oldest.txt")[canonicalize_name(requirement.name)], PYTHONS[0]
    )
    assert oldest.startswith(bound), (
        f"the bound is {bound}, but the oldest that can be installed is {oldest}"
    )


def test_the_workflow_of_ci_uses_the_locks() -> None:
    run = (CI / "run").read_text()
    assert "PIP_NO_INDEX=1" in run
    assert "PIP_FIND_LINKS" in run
    assert ".ci/audit" in run


# -- the audit -------------------------------------------------------------------------


def audit() -> Any:
    """`.ci/audit` as a module."""
    loader = SourceFileLoader("audit", str(CI / "audit"))
    spec = importlib.util.spec_from_loader("audit", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


REPORT = [
    {"name": "safe", "version": "1", "vulns": []},
    {"name": "unknown", "skip_reason": "Dependency not found"},
    {"name": "open", "version": "2",
     "vulns": [{"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": ["3"]}]},
]  # fmt: skip


@pytest.mark.parametrize(
    ("accepted", "n_found"),
    [(set(), 1), ({"CVE-1"}, 0), ({"PYSEC-1"}, 0), ({"CVE-2"}, 1)],
)
def test_the_audit_finds_what_nobody_accepted(accepted: set[str], n_found: int) -> None:
    asked, skipped, found = audit().judge(REPORT, accepted)
    assert (asked, skipped) == (["safe", "open"], ["unknown"])
    assert found == ["open 2: PYSEC-1, mended in 3"][:n_found]


def test_the_audit_accepts_nothing_without_a_reason() -> None:
    assert audit().accepted_ids("# comment\n\nCVE-1 we never parse XML\n") == {"CVE-1"}
    with pytest.raises(SystemExit, match="CVE-2 is accepted without a reason"):
        audit().accepted_ids("CVE-2\n")
    audit().accepted_ids((CI / "accepted.txt").read_text())


@pytest.mark.parametrize(
    "output",
    ["", "not JSON", '{"dependencies": [{"name": "a", "skip_reason": "unknown"}]}'],
)
def test_the_audit_says_that_nothing_could_be_asked(
    output: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tool = tmp_path / "pip-audit"
    tool.write_text(f"#!/bin/sh\ncat <<'END'\n{output}\nEND\n")
    tool.chmod(0o700)
    assert audit().main([str(tool), str(CI / "tools.lock")]) == 0
    out = capsys.readouterr().out
    assert out.startswith("audit: tools.lock: NOT AUDITED")
    assert out.count("\n") == 1


def test_the_audit_fails_on_a_vulnerability(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tool = tmp_path / "pip-audit"
    answer = (
        '{"dependencies": [{"name": "a", "version": "1", "vulns": [{"id": "X-1",'
        ' "aliases": [], "fix_versions": []}]}]}'
    )
    tool.write_text(f"#!/bin/sh\necho '{answer}'\nexit 1\n")
    tool.chmod(0o700)
    assert audit().main([str(tool), str(CI / "tools.lock")]) == 1
    assert "a 1: X-1, mended in no release yet" in capsys.readouterr().out
