"""What the platform runs is pinned, and conda and the wheel ask for the same."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
SPEED = ROOT / ".github" / "asv" / "benchmarks"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PINNED = re.compile(r"[\w-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
ON_CONDA = {
    "matplotlib": "matplotlib-base",
    "prometheus-client": "prometheus_client",
    "ray": "ray-default",
}
"""Names that conda-forge spells otherwise."""

pytestmark = pytest.mark.skipif(
    not WORKFLOWS, reason="the source distribution has no .github"
)


def used_actions(text: str) -> list[str]:
    """Every action that a workflow names, with the comment behind it."""
    return re.findall(r"^\s*(?:- )?uses: *(.*\S)", text, re.MULTILINE)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_by_their_commits(path: Path) -> None:
    actions = used_actions(path.read_text())
    assert actions
    assert [action for action in actions if not PINNED.fullmatch(action)] == []


def test_an_action_that_is_not_pinned_is_seen() -> None:
    (action,) = used_actions("    steps:\n      - uses: actions/checkout@v4\n")
    assert not PINNED.fullmatch(action)


def test_one_action_has_one_commit() -> None:
    actions = {
        action for path in WORKFLOWS for action in used_actions(path.read_text())
    }
    names = [action.partition("@")[0] for action in actions]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_writes_nothing_but_what_a_job_asks_for(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] in ({}, {"contents": "read"})


def test_nothing_is_published_with_a_token() -> None:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    assert "secrets." not in text
    publish = yaml.safe_load(text)["jobs"]["publish"]
    assert publish["permissions"] == {"id-token": "write"}


def conda_requirements() -> dict[str, str]:
    """What the recipe needs to run: version bounds by name."""
    recipe: dict[str, Any] = yaml.safe_load(
        (ROOT / ".github" / "conda" / "recipe.yaml").read_text()
    )
    lines = [line.partition(" ") for line in recipe["requirements"]["run"]]
    return {name: bounds.replace(" ", "") for name, _, bounds in lines}


def test_the_conda_recipe_runs_with_what_the_wheel_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {}
    for line in project["dependencies"]:
        requirement = Requirement(line)
        name = canonicalize_name(requirement.name)
        wanted[ON_CONDA.get(name, name)] = requirement.specifier
    conda = conda_requirements()
    assert conda.pop("python") == ">=${{python_min}},<3.15"
    assert conda.keys() == wanted.keys()
    different = [
        name
        for name, specifier in wanted.items()
        if set(conda[name].split(",")) != set(str(specifier).split(","))
    ]
    assert different == []


def test_the_conda_recipe_is_of_this_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    recipe = (ROOT / ".github" / "conda" / "recipe.yaml").read_text()
    assert f'version: "{project["version"]}"' in recipe
    assert f'python_min: "{project["requires-python"][2:6]}"' in recipe


@pytest.mark.parametrize("path", sorted(SPEED.glob("[a-z]*.py")), ids=lambda p: p.stem)
def test_a_benchmark_finds_what_it_times(path: Path) -> None:
    names = runpy.run_path(str(path))
    kinds = [kind for kind in names.values() if isinstance(kind, type)]
    benchmarks = [kind for kind in kinds if kind.__module__ == "<run_path>"]
    assert benchmarks
    for kind in benchmarks:
        assert any(name.startswith("time_") for name in vars(kind))
