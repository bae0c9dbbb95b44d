"""Imports point downhill, and heavy libraries stay where they belong."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "flwr_dpkmeans"
MODULES = sorted((ROOT / PACKAGE).rglob("*.py"))
# Beside the standard library and third parties, a room may import itself, errors, and these.
ALLOWED = {
    "errors": set(),
    "threads": set(),
    "kmeans": set(),
    "privacy": set(),
    "secagg": set(),
    "rounds": {"privacy"},
    "config_checks": {"privacy"},
    "config": {"kmeans", "privacy", "config_checks"},
    "server_facts": {"kmeans", "privacy", "config"},
    "algorithms": {"rounds", "kmeans", "privacy", "config", "server_facts"},
    "trust": {"rounds", "privacy", "secagg"},
    "plan": {"trust", "privacy", "secagg", "config", "server_facts"},
    "columns": {"plan"},
    "plan_checks": {"plan", "trust", "privacy", "secagg", "config"},
    "plan_defaults": {"privacy", "secagg", "config"},
    "preliminary": {"plan", "plan_defaults", "kmeans", "privacy", "config"},
    "planning": {
        *("plan", "plan_checks", "plan_defaults", "preliminary", "algorithms", "trust", "rounds", "privacy"),
        *("secagg", "config", "server_facts", "columns"),
    },
    "agreement": {"plan", "planning", "algorithms", "rounds", "trust", "privacy", "secagg", "config"},
    "plausible": {"plan", "plan_checks", "preliminary", "trust", "privacy"},
    "direct": {"plan", "planning", "preliminary", "reporting", "trust", "rounds", "privacy", "secagg"},
    "baselines": {"kmeans", "privacy"},
    "cautions": {"plan", "privacy", "config"},
    "central": {"baselines", "cautions", "kmeans", "privacy", "config", "reporting"},
    "reporting": {
        *("algorithms", "cautions", "columns", "plan", "planning", "plan_defaults", "trust", "privacy", "secagg"),
        "config",
    },
    "data": set(),
    "results": {"privacy", "kmeans"},
    "ledger": {"privacy"},
    "identity": {"secagg"},
    "__main__": {"planner", "ledger", "identity", "flower"},
    "evaluation": {"plan", "algorithms", "rounds", "privacy", "config", "reporting", "results"},
    "planner": {
        *("plan", "planning", "algorithms", "trust", "rounds", "privacy", "secagg", "kmeans", "config"),
        *("cautions", "config_checks", "data", "results", "flower"),
    },
}


def imports_of(source: str, name: str, *, is_package: bool) -> Iterator[str]:
    """Every imported module's dotted name, imports inside functions and of relative names included.

    Those of a module as a program (``if __name__ == "__main__"``) are not: nobody who imports the module runs them.
    """
    package = name if is_package else name.rpartition(".")[0]
    tree = ast.parse(source)
    tree.body = [node for node in tree.body if not is_program(node)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            # ``from package import room`` imports the room.
            yield from (f"{module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__"):
            argument = node.args[0] if node.args else None
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                yield argument.value


def is_program(node: ast.stmt) -> bool:
    """Whether a statement is what a module does when it is run."""
    return isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    """The second part of a dotted name of the package; empty for the package itself."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[0] == PACKAGE else ""


def imports_in(path: Path) -> list[str]:
    return list(imports_of(path.read_text(), module_name(path), is_package=path.name == "__init__.py"))


def violations(name: str, imported: list[str]) -> list[str]:
    """Imports that break a rule, as sentences."""
    room, found = room_of(name), []
    for module in imported:
        target = room_of(module)
        if (
            target
            and target not in (room, "errors", "threads", "__version__")
            and target not in ALLOWED.get(room, {target})
        ):
            found.append(f"{name} imports {module}")
        top = module.split(".")[0]
        if top in ("simulations", "tests", "hydra", "omegaconf", "ray"):
            found.append(f"{name} imports {module}")
        if top == "matplotlib" and name not in (f"{PACKAGE}.results.picture", f"{PACKAGE}.planner.picture"):
            found.append(f"{name} imports {module}")
        if top == "flwr" and room != "flower" and name != f"{PACKAGE}.estimator":
            found.append(f"{name} imports {module}")
    return found


def test_there_are_modules_to_look_at() -> None:
    assert len(MODULES) > 50
    rooms = {room_of(module_name(path)) for path in MODULES}
    assert set(ALLOWED) <= rooms
    # A new room needs a rule of its own.
    assert rooms - set(ALLOWED) == {"", "flower", "estimator"}


@pytest.mark.parametrize("path", MODULES, ids=[module_name(path) for path in MODULES])
def test_imports_point_downhill(path: Path) -> None:
    assert violations(module_name(path), imports_in(path)) == []


def test_the_rules_have_no_circle() -> None:
    seen: set[str] = set()
    remaining = dict(ALLOWED)
    while remaining:
        free = {room for room, below in remaining.items() if below <= seen | {"errors", "threads", "flower"}}
        assert free, f"these rooms import each other: {sorted(remaining)}"
        seen |= free
        remaining = {room: below for room, below in remaining.items() if room not in free}


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("kmeans.update", "from flwr_dpkmeans.privacy import accounting"),
        ("kmeans.update", "import flwr_dpkmeans.secagg.ring"),
        ("privacy.report", "from flwr_dpkmeans.rounds.private_sum import PrivateSum"),
        ("privacy.report", "from ..kmeans import update"),
        ("secagg.client", "def f():\n    from flwr_dpkmeans.privacy import samplers"),
        ("rounds.private_sum", "from flwr_dpkmeans import kmeans"),
        ("trust.central", "from flwr_dpkmeans.kmeans.update import fold"),
        ("algorithms.fastlloyd", "from flwr_dpkmeans.trust import trust_model"),
        ("planning", "from flwr_dpkmeans.flower.records import dump_plan"),
        ("planning", "from flwr_dpkmeans.planner.forecast import make_forecast"),
        ("planner.cli", "from flwr_dpkmeans.estimator import FederatedKMeans"),
        ("planner.table", "import matplotlib"),
        ("plan", "if name == '__main__':\n    from flwr_dpkmeans.planner.cli import main"),
        ("planning", "import flwr"),
        ("reporting", "from flwr.app import Context"),
        ("flower.node", "import ray"),
        ("flower.client", "def f():\n    import matplotlib.pyplot as plt"),
        ("estimator", "from hydra import main"),
        ("data.tables", "import importlib\nimportlib.import_module('flwr')"),
    ],
)
def test_the_rules_fire(name: str, source: str) -> None:
    dotted = f"{PACKAGE}.{name}"
    assert violations(dotted, list(imports_of(source, dotted, is_package=False)))


def test_importing_the_package_imports_no_heavy_library() -> None:
    heavy = ["flwr", "scipy", "sklearn", "ray", "matplotlib", "opendp", "dp_accounting", "pandas", "pyarrow", "hydra"]
    code = f"import sys, {PACKAGE}; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


def test_public_names_are_there() -> None:
    code = f"import {PACKAGE} as p; print([n for n in p.__all__ if getattr(p, n, None) is None])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"
