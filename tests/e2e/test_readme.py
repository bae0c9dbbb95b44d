"""What the README shows works: its Python runs as it stands, its options and modules exist."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.ray

PROJECT = Path(__file__).parents[2]
README = (PROJECT / "README.md").read_text()
SNIPPETS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
RUN_CONFIGS = re.findall(r'--run-config "([^"]*)"', README)


def test_the_readme_has_what_is_tested_here() -> None:
    assert len(SNIPPETS) >= 4
    assert len(RUN_CONFIGS) >= 2


@pytest.mark.parametrize("code", SNIPPETS, ids=range(len(SNIPPETS)))
def test_python_runs_as_it_stands(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", RUN_CONFIGS)
def test_options_of_flwr_run_are_declared(text: str) -> None:
    with open(PROJECT / "pyproject.toml", "rb") as file:
        declared = tomllib.load(file)["tool"]["flwr"]["app"]["config"]
    keys = re.findall(r"([\w-]+)=", text)
    assert keys
    assert set(keys) <= set(declared)


def test_modules_to_run_exist() -> None:
    names = set(re.findall(r"python3?\s+-m\s+([\w.]+)", README)) - {"venv"}
    assert {"pytest", "simulations.run", "flwr_dpkmeans.node.ledger_command"} <= names
    assert [name for name in sorted(names) if importlib.util.find_spec(name) is None] == []
