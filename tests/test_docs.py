"""Every example in the documentation runs, and everything public says what it is."""

from __future__ import annotations

import doctest
import importlib
import inspect
import logging
import pkgutil
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import flwr_dpkmeans
import simulations.sources

MODULES = sorted(
    found
    for package in (flwr_dpkmeans, simulations.sources)
    for found in [
        package.__name__,
        *(module.name for module in pkgutil.walk_packages(package.__path__, package.__name__ + ".")),
    ]
)


def public_members(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Public functions and classes that the module defines, with the public methods of the classes."""
    for name, member in vars(module).items():
        if name.startswith("_") or getattr(member, "__module__", None) != module.__name__:
            continue
        if not (inspect.isfunction(member) or inspect.isclass(member)):
            continue
        yield name, member
        for attribute, method in vars(member).items() if inspect.isclass(member) else ():
            function = getattr(method, "__func__", getattr(method, "fget", method))
            named = inspect.isfunction(function) and function.__name__ != "<lambda>"
            if not attribute.startswith("_") and named:
                yield f"{name}.{attribute}", function


def test_all_packages_are_walked() -> None:
    expected = ("options", "estimator", "flower.strategy", "secagg.client", "node.ledger", "kmeans.update")
    assert {f"flwr_dpkmeans.{name}" for name in expected} <= set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str) -> None:
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE, verbose=False)
    logging.getLogger("flwr_dpkmeans").setLevel(logging.WARNING)
    report: list[str] = []
    for example in doctest.DocTestFinder(exclude_empty=True).find(module):
        runner.run(example, out=report.append)
    assert not runner.failures, "".join(report)


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    counts = {name: sum(len(t.examples) for t in finder.find(importlib.import_module(name))) for name in MODULES}
    assert sum(counts.values()) > 100
    assert counts["flwr_dpkmeans.estimator"] >= 3
    assert counts["flwr_dpkmeans.sums.draft"] >= 3


@pytest.mark.parametrize("name", MODULES)
def test_modules_functions_and_classes_have_docstrings(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__
    assert module.__doc__.strip()
    undocumented = [
        label
        for label, member in public_members(module)
        if not (inspect.getdoc(member) or "").strip() or (member.__doc__ or "").startswith(f"{label}(")
    ]
    assert undocumented == []


def test_public_names_are_importable_and_documented() -> None:
    for name in flwr_dpkmeans.__all__:
        member = getattr(flwr_dpkmeans, name)
        assert name == "__version__" or member.__doc__
    assert set(dir(flwr_dpkmeans)) >= set(flwr_dpkmeans.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'FastLoyd'"):
        flwr_dpkmeans.FastLoyd  # noqa: B018
