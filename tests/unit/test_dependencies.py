"""What is imported is declared: as a dependency, or as an extra that errors name."""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support.machine import replace_call

from flwr_dpkmeans import FederatedKMeans
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.server import Server

ROOT = Path(__file__).resolve().parents[2]
DECLARED: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = DECLARED["project"]["optional-dependencies"]
GROUPS = DECLARED["dependency-groups"]
DISTRIBUTION_OF = {
    "PIL": "pillow",
    "dask": "distributed",
    "hydra": "hydra-core",
    "opendp": "opendp",
    "pydantic_core": "pydantic",  # each release of which needs exactly one of it
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
"""Distributions whose modules have another name, or that bring another's module."""
OFFERED = ("opendp", "database", "dask", "excel")
"""Extras of which the package's own sentences speak."""
EXPLAINED = {"folktables", "h5py", "sentence-transformers", "diffprivlib", "mbi"}
"""Of experiments: where one is missing, its own sentence says so."""
HELPERS = {"flwr-dpkmeans", "simulations", "atheris"}
"""The project itself, and a fuzzer that runs by hand."""
OF_PEOPLE = ("flwr", "numpy", "scipy", "dp-accounting", "ray")
"""Whoever clones the project expects these to come with it."""


def names_of(requirements: list[Any]) -> set[str]:
    """Canonical names of what a list of requirements asks for."""
    lines = [line for line in requirements if isinstance(line, str)]
    return {canonicalize_name(Requirement(line).name) for line in lines}


def is_for_types(node: ast.AST) -> bool:
    """Whether only a type checker reads a statement."""
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def uninstall_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no package be installed."""
    replace_call(monkeypatch, "distributions", lambda **_: [], of=importlib.metadata)


def imports_in(tree: ast.AST) -> Iterator[str]:
    """First parts of the names of all modules that a file imports."""
    for node in ast.iter_child_nodes(tree):
        if is_for_types(node):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
        yield from imports_in(node)


@functools.cache
def distributions_in(folder: str) -> dict[str, str]:
    """What the files of a folder import from others, each with one of the files."""
    of_tests = list((ROOT / "tests").rglob("*.py"))
    packages = {path.parent.name for path in of_tests if path.name == "__init__.py"}
    helpers = {path.stem for path in of_tests} | packages
    users = {}
    for path in sorted((ROOT / folder).rglob("*.py")):
        for module in set(imports_in(ast.parse(path.read_text()))):
            is_theirs = module not in sys.stdlib_module_names | helpers
            if is_theirs and not module.startswith("_"):
                name = canonicalize_name(DISTRIBUTION_OF.get(module, module))
                users[name] = str(path.relative_to(ROOT))
    return {name: users[name] for name in users.keys() - HELPERS}


REQUIRED = names_of(DECLARED["project"]["dependencies"])
BUILDS = names_of(DECLARED["build-system"]["requires"])
"""What builds the package, as its own hook does, is in no environment of a user."""
OPTIONAL = {name for extra in OFFERED for name in names_of(EXTRAS[extra])}


def test_what_the_package_imports_is_declared() -> None:
    users = distributions_in("flwr_dpkmeans")
    declared = REQUIRED | OPTIONAL | BUILDS
    undeclared = {name: users[name] for name in users.keys() - declared}
    undeclared.pop("flwr-dpkmeans", None)
    assert undeclared == {}


def test_what_is_declared_is_imported() -> None:
    by_pandas = {"openpyxl"}
    users = distributions_in("flwr_dpkmeans")
    assert (REQUIRED | OPTIONAL) - users.keys() - by_pandas == set()


def test_what_experiments_import_is_declared() -> None:
    declared = REQUIRED | names_of(EXTRAS["simulations"]) | EXPLAINED
    users = distributions_in("simulations")
    assert {name: users[name] for name in users.keys() - declared} == {}


def test_what_tests_import_is_declared() -> None:
    declared = REQUIRED | names_of(EXTRAS["test"]) | OPTIONAL
    users = distributions_in("tests")
    assert {name: users[name] for name in users.keys() - declared} == {}


@pytest.mark.parametrize("name", OF_PEOPLE)
def test_what_the_projects_card_names_is_required(name: str) -> None:
    assert name in REQUIRED


def test_an_undeclared_import_is_seen() -> None:
    source = "def f():\n    try:\n        import requests.adapters\n    finally: ...\n"
    assert list(imports_in(ast.parse(source))) == ["requests"]


def test_the_extra_for_tests_is_what_its_groups_say() -> None:
    groups = [*GROUPS["test"], *GROUPS["lint"], *GROUPS["build"]]
    assert sorted(groups) == sorted(EXTRAS["test"])


def test_groups_for_development_include_groups_that_exist() -> None:
    entries = [entry for group in GROUPS.values() for entry in group]
    included = {entry["include-group"] for entry in entries if isinstance(entry, dict)}
    assert included <= GROUPS.keys()
    for entry in entries:
        if isinstance(entry, str):
            Requirement(entry)


@pytest.mark.parametrize("extra", OFFERED)
def test_a_sentence_says_which_extra_is_missing(extra: str) -> None:
    pattern = rf"flwr-dpkmeans\[{extra}\]"
    sources = (ROOT / "flwr_dpkmeans").rglob("*.py")
    assert any(re.search(pattern, path.read_text()) for path in sources)


@pytest.mark.parametrize(
    ("algorithm", "noise"), [("sulloyd", "secure"), ("glloyd", "opendp")]
)
def test_noise_of_a_missing_opendp_is_refused_before_a_client_is_asked(
    algorithm: str, noise: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = parse_config(
        n_clusters=3, bounds=((-1,), (1,)), n_examples=1000, epsilon=1.0,
        algorithm=algorithm, noise=noise,
    )  # fmt: skip
    plan = draft_plan(config, run_id=1, n_clients=2, seed=7, n_features=2)
    Server(plan, node_ids=[1, 2])
    uninstall_all(monkeypatch)
    with pytest.raises(ConfigurationError, match=r"flwr-dpkmeans\[opendp\]"):
        Server(plan, node_ids=[1, 2])


def test_gaussian_noise_needs_no_opendp(monkeypatch: pytest.MonkeyPatch) -> None:
    uninstall_all(monkeypatch)
    rows = np.random.default_rng(0).uniform(-1.0, 1.0, (50, 2))
    model = FederatedKMeans(
        3, algorithm="glloyd", epsilon=1.0, bounds=(-1.0, 1.0), n_examples=100
    )
    assert model.fit([rows, rows]).cluster_centers_.shape == (3, 2)
