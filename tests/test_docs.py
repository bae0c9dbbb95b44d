"""Every example in the documentation runs, everything public says what it is, and what
pages point to is there.
"""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import inspect
import logging
import pkgutil
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import commands_page
import options_page
import pytest
import rooms_drawing
from support.pages import (
    INDEX,
    NAMES,
    PAGES,
    README,
    ROOT,
    anchors_of,
    name_of,
    without_code,
)

import flwr_dpkmeans
import simulations.sources

MODULES = sorted(
    found
    for package in (flwr_dpkmeans, simulations.sources)
    for found in [
        package.__name__,
        *(
            module.name
            for module in pkgutil.walk_packages(
                package.__path__, package.__name__ + "."
            )
        ),
    ]
)


def public_members(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Public functions and classes that the module defines, with the public methods of
    the classes.
    """
    for name, member in vars(module).items():
        if (
            name.startswith("_")
            or getattr(member, "__module__", None) != module.__name__
        ):
            continue
        if not (inspect.isfunction(member) or inspect.isclass(member)):
            continue
        yield name, member
        # A list, since validators built at the first look are set on the class.
        attributes = list(vars(member).items()) if inspect.isclass(member) else []
        for attribute, method in attributes:
            function = getattr(method, "__func__", getattr(method, "fget", method))
            named = inspect.isfunction(function) and function.__name__ != "<lambda>"
            if not attribute.startswith("_") and named:
                yield f"{name}.{attribute}", function


def test_all_packages_are_walked() -> None:
    rooms = {
        path.parent.name for path in (ROOT / "flwr_dpkmeans").glob("*/__init__.py")
    }
    assert len(rooms) >= 9
    assert {f"flwr_dpkmeans.{room}" for room in rooms} | {
        "flwr_dpkmeans.estimators.federated_kmeans"
    } <= set(MODULES)


WITH_EXAMPLES = [
    name
    for name in MODULES
    if ">>> " in inspect.getsource(importlib.import_module(name))
]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_run(name: str) -> None:
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner(
        optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE, verbose=False
    )
    logging.getLogger("flwr_dpkmeans").setLevel(logging.WARNING)
    report: list[str] = []
    for example in doctest.DocTestFinder(exclude_empty=True).find(module):
        runner.run(example, out=report.append)
    assert not runner.failures, "".join(report)


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    counts = {
        name: sum(len(t.examples) for t in finder.find(importlib.import_module(name)))
        for name in MODULES
    }
    assert sum(counts.values()) > 80
    assert counts["flwr_dpkmeans.estimators.federated_kmeans"] >= 3
    assert counts["flwr_dpkmeans.sums.draft"] >= 3


def test_modules_functions_and_classes_have_docstrings() -> None:
    modules = [importlib.import_module(name) for name in MODULES]
    assert [
        module.__name__ for module in modules if not (module.__doc__ or "").strip()
    ] == []
    undocumented = [
        f"{module.__name__}.{label}"
        for module in modules
        for label, member in public_members(module)
        if not (inspect.getdoc(member) or "").strip()
        or (member.__doc__ or "").startswith(f"{label}(")
    ]
    assert undocumented == []


def test_public_names_are_importable_and_documented() -> None:
    for name in flwr_dpkmeans.__all__:
        member = getattr(flwr_dpkmeans, name)
        assert name == "__version__" or member.__doc__
    assert set(dir(flwr_dpkmeans)) >= set(flwr_dpkmeans.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'FastLoyd'"):
        flwr_dpkmeans.FastLoyd  # noqa: B018


# -- pages -----------------------------------------------------------------------------


def links_of(page: Path) -> list[str]:
    """What a page links to or shows, other pages of the web left out."""
    targets = re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text()))
    return [
        target for target in targets if not target.startswith(("http://", "https://"))
    ]


def resolves(name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        module = ".".join(parts[:length])
        try:
            spec = importlib.util.find_spec(module)
        except ModuleNotFoundError:
            continue
        if spec is not None:
            member: Any = importlib.import_module(module) if parts[length:] else spec
            for part in parts[length:]:
                member = getattr(member, part, None)
            return member is not None
    return False


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for target in links_of(page):
        path, _, anchor = target.partition("#")
        other = (page.parent / path).resolve() if path else page
        if not other.is_file() or (anchor and anchor not in anchors_of(other)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_module_and_file_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    dotted = set(
        re.findall(r"\b((?:flwr_dpkmeans|simulations)(?:\.[A-Za-z_]\w*)+)", text)
    )
    dotted -= {
        "flwr_dpkmeans.tasks",
        "flwr_dpkmeans.trust_models",
    }  # groups of entry points
    assert [
        name
        for name in sorted(dotted)
        if not name.endswith(".md") and not resolves(name)
    ] == []
    paths = set(
        re.findall(
            r"(?<![\w./~-])((?:flwr_dpkmeans|simulations|tests|conf|\.ci|\.github)/[\w./-]*\w)",
            text,
        )
    )
    assert [
        path
        for path in sorted(paths)
        if "NAME" not in path and not (ROOT / path).exists()
    ] == []
    files = set(re.findall(r"`(?:[\w.]+/)*(\w+\.py)`", text))
    # A page that builds a package names its file there.
    files -= set(re.findall(r'^include = \["(\w+\.py)"\]', text, re.MULTILINE))
    there = {
        path.name
        for name in ("flwr_dpkmeans", "simulations", "tests")
        for path in (ROOT / name).rglob("*.py")
    }
    assert sorted(files - there) == []


def test_the_version_is_the_same_everywhere() -> None:
    told = {
        re.findall(pattern, (ROOT / name).read_text(), re.MULTILINE)[0]
        for name, pattern in (
            ("pyproject.toml", r'^version = "(.*)"$'),
            ("CITATION.cff", r"^version: (.*)$"),
        )
    }
    assert told == {flwr_dpkmeans.__version__}


def test_the_readme_is_short() -> None:
    text = README.read_text()
    assert len(text.split()) <= 700
    assert re.findall(r"^<!-- command: (\w+) -->\n```bash\n", text, re.MULTILINE) == [
        "run",
        "test",
    ]


def test_the_index_has_every_page() -> None:
    named = {
        (INDEX.parent / target.partition("#")[0]).resolve()
        for target in links_of(INDEX)
    }
    assert [
        name_of(page)
        for page in PAGES
        if page.resolve() not in named | {INDEX.resolve()}
    ] == []


def test_the_drawing_of_the_rooms_is_the_law_of_imports() -> None:
    """``python tests/rooms_drawing.py`` renews it."""
    assert rooms_drawing.DRAWING.read_text() == rooms_drawing.drawing()


def test_the_page_of_rooms_describes_every_room() -> None:
    page = (ROOT / ".github" / "CONTRIBUTING.md").read_text()
    rooms = page.partition("\n## The rooms\n")[2].partition("\n## ")[0]
    described = re.findall(r"^\| `(\w+)` \|", rooms, re.MULTILINE)
    assert sorted(described) == sorted(
        path.parent.name for path in (ROOT / "flwr_dpkmeans").glob("*/__init__.py")
    )


def test_the_page_of_options_is_that_of_the_run_configuration() -> None:
    """``python tests/options_page.py`` renews it."""
    assert options_page.PAGE.read_text() == options_page.page()


def test_the_page_of_commands_is_that_of_the_commands() -> None:
    """``python tests/commands_page.py`` renews it."""
    assert commands_page.PAGE.read_text() == commands_page.page()


# -- features --------------------------------------------------------------------------


FEATURES = tomllib.loads((ROOT / "tests" / "features.toml").read_text())


def file_of_each(kind: str) -> dict[str, str]:
    """Names of a kind of features, with the test file of each.

    Every row says who asked for its features.
    """
    pairs = [
        (name, row["tested_in"]) for row in FEATURES[kind] for name in row["names"]
    ]
    assert len({name for name, _ in pairs}) == len(pairs)
    assert all(row["asked_by"].strip() for row in FEATURES[kind])
    return dict(pairs)


def option_names() -> set[str]:
    """Options by key, those of single algorithms by name."""
    options = options_page.declared()
    return {
        option.key if option.table in options_page.OF_EVERY_RUN else option.name
        for option in options
    }


def test_every_option_has_a_row_that_says_who_asked_for_it() -> None:
    assert set(file_of_each("options")) == option_names()


def test_every_command_has_a_row_that_says_who_asked_for_it() -> None:
    names = {name for name, _ in commands_page.commands()}
    assert set(file_of_each("commands")) == names


FEATURE_TESTS = file_of_each("options") | file_of_each("commands")


@pytest.mark.parametrize("name", FEATURE_TESTS)
def test_the_test_of_a_feature_speaks_of_it(name: str) -> None:
    text = (ROOT / "tests" / FEATURE_TESTS[name]).read_text()
    for word in name.rpartition(".")[2].split():
        assert word in text or word.replace("-", "_") in text
