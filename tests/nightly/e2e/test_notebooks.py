"""The notebooks run from their first cell to their last, and are committed with what
they printed and drew.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).resolve().parents[3]
NOTEBOOKS = sorted((PROJECT / "simulations" / "notebooks").glob("*.ipynb"))
RUNNER = """
import ast, json, sys
names = {"__name__": "__main__"}
for cell in json.load(open(sys.argv[1]))["cells"]:
    if cell["cell_type"] == "code":
        *body, last = ast.parse("".join(cell["source"])).body
        shown = isinstance(last, ast.Expr)
        ran = ast.Module(body if shown else [*body, last], [])
        exec(compile(ran, sys.argv[1], "exec"), names)
        if shown:  # as a notebook does
            code = compile(ast.Expression(last.value), sys.argv[1], "eval")
            value = eval(code, names)
            getattr(value, "_repr_html_", lambda: repr(value))()
"""
"""Cells alone: a kernel and its packages are no dependency of this project."""


def cells_of(notebook: Path, kind: str) -> list[dict[str, Any]]:
    return [
        cell
        for cell in json.loads(notebook.read_text())["cells"]
        if cell["cell_type"] == kind
    ]


def test_there_are_three() -> None:
    assert [notebook.stem for notebook in NOTEBOOKS] == [
        "federation",
        "own_method",
        "table_to_model",
    ]
    index = (PROJECT / "flwr_dpkmeans" / "docs" / "index.md").read_text()
    assert all(
        f"../../simulations/notebooks/{notebook.name}" in index
        for notebook in NOTEBOOKS
    )


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook: Path, tmp_path: Path) -> None:
    environment = dict(os.environ) | {
        "PYTHONPATH": str(PROJECT),
        "MPLBACKEND": "Agg",
        "OPENBLAS_NUM_THREADS": "1",
    }
    command = [sys.executable, "-c", RUNNER, str(notebook)]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_what_it_did_and_nothing_of_the_machine(
    notebook: Path,
) -> None:
    text = notebook.read_text()
    assert len(text) < 150_000
    code = cells_of(notebook, "code")
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not [
        output
        for output in outputs
        if output["output_type"] == "error" or output.get("name") == "stderr"
    ]
    assert not re.search(r"/(home|root|tmp|work|Users)/", text)


def test_the_files_that_it_printed_are_those_of_the_page() -> None:
    page = (PROJECT / "flwr_dpkmeans" / "docs" / "reference" / "files.md").read_text()
    files = {*re.findall(r"^\| `(\w+\.\w+)` \|", page, re.MULTILINE)} - {
        "federated_profile.csv"
    }  # of a schema
    text = (PROJECT / "simulations" / "notebooks" / "federation.ipynb").read_text()
    assert files
    assert not {name for name in files if f"'{name}'" not in text}


def test_the_method_is_that_of_its_page() -> None:
    page = (
        PROJECT / "flwr_dpkmeans" / "docs" / "how-to" / "add_a_method.md"
    ).read_text()
    (module,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    first, *_ = cells_of(
        PROJECT / "simulations" / "notebooks" / "own_method.ipynb", "code"
    )
    assert "".join(first["source"]) == module.strip()
