"""What the pages show works: their Python runs as it stands, their options and commands
exist.
"""

from __future__ import annotations

import importlib.util
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from support.pages import PAGES, README, ROOT, name_of

pytestmark = pytest.mark.ray

# These need what the page has just made: a ledger, or a package, which
# `tests/nightly/simulations/test_a_method.py` makes.
NOT_ALONE = {
    "flwr_dpkmeans/docs/reference/policy.md",
    "flwr_dpkmeans/docs/how-to/add_a_method.md",
}


def blocks(pattern: str) -> Iterator[tuple[str, str]]:
    """Page and text of everything on a page that fits a pattern."""
    for page in PAGES:
        for text in re.findall(pattern, page.read_text(), re.DOTALL):
            yield name_of(page), text


SNIPPETS = [
    (name, code)
    for name, code in blocks(r"```python\n(.*?)```")
    if name not in NOT_ALONE
]
RUN_CONFIGS = [
    (name, text)
    for name, text in blocks(r'--run-config "([^"]*)"')
    if name not in NOT_ALONE
]


def test_the_pages_have_what_is_tested_here() -> None:
    readme = README.relative_to(ROOT).as_posix()
    assert [name for name, _ in SNIPPETS].count(readme) >= 2
    assert len(SNIPPETS) >= 7
    assert len(RUN_CONFIGS) >= 3


def snippet(page: str, code: str) -> ParameterSet:
    """A case of its page; those that are not the README's are nightly."""
    marks = [] if page == name_of(README) else [pytest.mark.nightly]
    return pytest.param(code, marks=marks, id=page)


@pytest.mark.parametrize("code", [snippet(*named) for named in SNIPPETS])
def test_python_runs_as_it_stands(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "page", "exec"), {"__name__": "page"})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text", [text for _, text in RUN_CONFIGS], ids=[name for name, _ in RUN_CONFIGS]
)
def test_options_of_flwr_run_are_declared(text: str) -> None:
    with open(ROOT / "pyproject.toml", "rb") as file:
        declared = tomllib.load(file)["tool"]["flwr"]["app"]["config"]
    keys = [key for key in re.findall(r"([\w.-]+)=", text) if key != "KEY"]
    assert keys or "KEY=" in text
    for key in keys:
        table = declared
        for part in key.split("."):
            assert part in table, key
            table = table[part]


def test_modules_to_run_exist() -> None:
    names = {name for _, name in blocks(r"python3?\s+-m\s+([\w.]*\w)")} - {
        "venv",
        "build",
    }
    assert {"pytest", "simulations.run", "flwr_dpkmeans"} <= names
    assert [
        name for name in sorted(names) if importlib.util.find_spec(name) is None
    ] == []


def test_commands_of_the_package_exist() -> None:
    from flwr_dpkmeans.cli.app import COMMANDS

    named = {command for _, command in blocks(r"python -m flwr_dpkmeans ([a-z]+)")}
    assert named == set(COMMANDS)
