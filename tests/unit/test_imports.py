"""Imports point downhill, and heavy libraries stay where they belong."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import house
import pytest

from flwr_dpkmeans.cli.app import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "flwr_dpkmeans"
MODULES = sorted((ROOT / PACKAGE).rglob("*.py"))


def imports_of(tree: ast.Module, name: str, *, is_package: bool) -> Iterator[str]:
    """Names of imported modules, also inside functions; none of a program."""
    package = name if is_package else name.rpartition(".")[0]
    body: list[ast.stmt] = [node for node in tree.body if not is_program(node)]
    for node in ast.walk(ast.Module(body, [])):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = (
                package.split(".")[: len(package.split(".")) - node.level + 1]
                if node.level
                else []
            )
            module = ".".join([*base, *([node.module] if node.module else [])])
            # ``from package import room`` imports the room.
            yield from (f"{module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and house.dotted(node.func).split(".")[-1] in (
            "import_module",
            "__import__",
        ):
            argument = node.args[0] if node.args else None
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                yield argument.value


def is_program(node: ast.stmt) -> bool:
    """Whether a statement is what a module does when it is run."""
    return (
        isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"
    )


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    """The second part of a dotted name of the package; empty for the package itself."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[0] == PACKAGE else ""


def imports_in(path: Path) -> list[str]:
    return list(
        imports_of(
            house.syntax_tree(path),
            module_name(path),
            is_package=path.name == "__init__.py",
        )
    )


WHEN_ASKED = tuple(
    ("flower.row_cluster", engine) for engine in ("ray", "dask", "distributed")
)
"""Looked up only when a node says that a cluster has its rows."""
DRAWS = (
    f"{PACKAGE}.results.picture",
    f"{PACKAGE}.results.pictures.figures",
    f"{PACKAGE}.results.pictures.rounds_picture",
    f"{PACKAGE}.results.pictures.cost_curve",
    f"{PACKAGE}.results.pictures.hierarchy_picture",
    f"{PACKAGE}.results.pictures.components_picture",
    f"{PACKAGE}.planner.present",
)
"""Modules that draw."""
WITH_FLOWER = ("flower", "deploy", "cli")
"""Rooms that may import Flower."""


def foreign(name: str, imported: list[str]) -> list[str]:
    """Other people's packages that do not belong in a module, as sentences."""
    found = []
    for module in imported:
        top = module.split(".")[0]
        asked = any(
            name == f"{PACKAGE}.{one}" and module.startswith(other)
            for one, other in WHEN_ASKED
        )
        if (
            top
            in (
                "simulations",
                "tests",
                "support",
                "hydra",
                "omegaconf",
                "ray",
                "dask",
                "distributed",
            )
            and not asked
        ):
            found.append(f"{name} imports {module}")
        if top == "matplotlib" and name not in DRAWS:
            found.append(f"{name} imports {module}")
        if top == "flwr" and room_of(name) not in WITH_FLOWER:
            found.append(f"{name} imports {module}")
    return found


def test_imports_point_down_or_stay_in_their_room() -> None:
    assert len(MODULES) > 50
    assert house.unlawful() == []


def test_others_packages_stay_where_they_belong() -> None:
    assert [
        sentence
        for path in MODULES
        for sentence in foreign(module_name(path), imports_in(path))
    ] == []


def test_nothing_names_a_module_of_the_experiments_to_load_it() -> None:
    """As an entry point, or a command's function, would: they are in no wheel."""
    named = [
        (module_name(path), node.value)
        for path in MODULES
        for node in house.pieces_of(path)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"simulations[.:][\w.:]+", node.value)
    ]
    assert named == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    points = [project["scripts"], *project.get("entry-points", {}).values()]
    targets = [target for group in points for target in group.values()]
    assert [target for target in targets if target.startswith("simulations")] == []


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("kernels.grid", "privacy.accounting"),
        ("secagg.party", "privacy.noise"),
        ("privacy.report", "sums.round"),
        ("sums.plan", "kmeans.lloyd"),
        ("sums.trust", "algorithms.lloyd_family"),
        ("node.policy", "algorithms"),
        ("algorithms", "node.guard"),
        ("sums.draft", "results.model"),
        ("results.page", "flower.strategy"),
        ("log", "sums.plan"),
        ("planner.forecast", "flower.engines"),
        ("deploy.findings", "cli.app_commands"),
    ],
)
def test_the_law_fires(name: str, target: str) -> None:
    assert house.points_up(name, target)
    assert not house.points_up(name, "errors")


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("results.model", "import matplotlib"),
        ("sums.draft", "import flwr"),
        ("sums.statement", "from flwr.app import Context"),
        ("flower.settings", "import ray"),
        ("flower.kmeans_client", "def f():\n    import matplotlib.pyplot as plt"),
        ("estimators.clustering", "from hydra import main"),
        ("data.tables", "import importlib\nimportlib.import_module('flwr')"),
    ],
)
def test_the_rules_on_others_packages_fire(name: str, source: str) -> None:
    dotted = f"{PACKAGE}.{name}"
    assert foreign(
        dotted, list(imports_of(ast.parse(source), dotted, is_package=False))
    )


def test_no_modules_import_each_other() -> None:
    assert house.largest_circle() == 1


def test_importing_the_package_imports_no_heavy_library() -> None:
    heavy = [
        "flwr", "scipy", "sklearn", "ray", "matplotlib", "opendp", "dp_accounting",
        "pandas", "pyarrow", "hydra",
    ]  # fmt: skip
    code = (
        f"import sys, {PACKAGE}; print([name for name in {heavy!r} if name in"
        " sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        cwd=ROOT,
    )  # fmt: skip
    assert done.stdout.strip() == "[]"


ONE_TABLE = """
import sys
sys.modules["pandas"] = sys.modules["pyarrow"] = None
import numpy as np
from flwr_dpkmeans import DPKMeans

rows = np.random.default_rng(0).uniform(-1.0, 1.0, (500, 2))
model = DPKMeans(2, bounds=(-1.0, 1.0), random_state=0).fit(rows)
print(model.predict(rows).shape, model.transform(rows).shape)
print(*(name for name, module in sys.modules.items() if module is not None))
"""
"""A fit of an array where pandas and pyarrow cannot be imported.

scikit-learn imports both by itself where they are installed, and does without.
"""


def test_a_fit_of_one_array_imports_neither_flower_nor_frames_nor_pages() -> None:
    absent = ["flwr", "ray", "pandas", "pyarrow", "matplotlib", "jinja2", "markupsafe"]
    absent += ["prometheus_client", "grpc", "typer"]
    printed = subprocess.run(
        [sys.executable, "-c", ONE_TABLE], capture_output=True, text=True, check=True,
        cwd=ROOT,
    ).stdout  # fmt: skip
    shapes, loaded = printed.splitlines()
    assert shapes == "(500,) (500, 2)"
    packages = {name.partition(".")[0] for name in loaded.split()}
    assert {"numpy", "scipy", "sklearn"} <= packages
    assert sorted(packages.intersection(absent)) == []


@pytest.mark.parametrize("command", list(COMMANDS))
def test_the_help_of_a_command_imports_nothing_that_its_work_takes(
    command: str,
) -> None:
    heavy = [
        "flwr", "scipy", "sklearn", "ray", "matplotlib", "opendp", "dp_accounting",
        "pandas", "pyarrow", "numpy", "pydantic", "jinja2",
    ]  # fmt: skip
    code = (
        f"import sys\nfrom {PACKAGE}.__main__ import main\ntry:\n    main([{command!r},"
        f" '--help'])\nfinally:\n    print('LOADED', [name for name in {heavy!r} if"
        " name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        cwd=ROOT,
    )  # fmt: skip
    assert done.stdout.split()[0] == "Usage:"
    assert done.stdout.splitlines()[-1] == "LOADED []"


def test_public_names_are_there() -> None:
    package = importlib.import_module(PACKAGE)
    assert [
        name for name in package.__all__ if getattr(package, name, None) is None
    ] == []


def test_a_price_of_gaussian_noise_waits_for_no_library() -> None:
    """Importing SciPy's root finders takes as long as a thousand prices."""
    code = (
        "import sys; from flwr_dpkmeans.privacy.accounting import compose_epsilon as"
        " price\nfrom flwr_dpkmeans.privacy.release import GaussianRelease as"
        " release\nbefore = set(sys.modules); price([release('sums', 2.0)], 1e-6);"
        " print(sorted(set(sys.modules) - before))"
    )
    completed = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert completed.stdout == "[]\n"
