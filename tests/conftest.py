"""Fixtures of all tests, and which of them share a process where several run at once
(``pytest -n 2``).
"""

from __future__ import annotations

import argparse
import functools
import gc
import logging
import os
import random
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

# Before NumPy is imported: threads of small matrices wait for each other, and two
# processes share two cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
from hypothesis import HealthCheck, settings
from support import nightly
from support.watching import stop_watching

from flwr_dpkmeans.log import Place, placed
from flwr_dpkmeans.resources import limits, resource_limits

if TYPE_CHECKING:
    from flwr_dpkmeans.results.run_result import RunResult

# The same examples each time, however long a busy machine takes for them; new ones:
# ``--hypothesis-profile explore``.
SLOW = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}
settings.register_profile("repeated", derandomize=True, **SLOW)
settings.register_profile("explore", derandomize=False, **SLOW)
settings.load_profile("repeated")


@pytest.fixture(autouse=True)
def _nowhere() -> Iterator[None]:
    """Each test's log lines begin without the run and round of the test before."""
    with placed(Place()):
        yield


@pytest.fixture(autouse=True)
def _logging() -> Iterator[None]:
    """What a test shows of the log stays in it.

    a program that shows lines keeps them from pytest's own handler.
    """
    logger = logging.getLogger("flwr_dpkmeans")
    before = (logger.propagate, logger.level, list(logger.handlers))
    yield
    logger.propagate, logger.level, logger.handlers[:] = before


@pytest.fixture(autouse=True)
def _watching() -> Iterator[None]:
    """No test watches calls of another's."""
    yield
    stop_watching()


@pytest.fixture
def set_limits() -> Iterator[Callable[..., None]]:
    """Let tables be worked on in smaller pieces until the test ends."""
    with ExitStack() as stack:

        def set_to(**values: int) -> None:
            stack.enter_context(resource_limits(replace(limits(), **values)))

        yield set_to


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nothing that is collected becomes garbage, and looking for some takes two fifths
    of the time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """What imports and thousands of collected tests made stays until the end.

    Garbage is not looked for in it.
    """
    gc.collect()
    gc.freeze()
    # And seldom in what single tests make: it takes a twentieth of their time.
    gc.set_threshold(100_000, 50, 100)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Nightly tests run where they are named, and end where their time does."""
    options = config.option
    if options.markexpr == nightly.DESELECTED and nightly.is_named(config.args):
        options.markexpr = ""
    if options.seconds is not None:
        options.deadline = time.time() + options.seconds
        options.seconds = None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Modules of which no test would run are not even imported."""
    deselected = config.option.markexpr == nightly.DESELECTED
    return True if deselected and collection_path == nightly.FOLDER else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Whatever lies in the folder of nightly tests is one."""
    if nightly.FOLDER in item.path.parents:
        item.add_marker(pytest.mark.nightly)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin a test only while there is time."""
    nightly.skip_after(item.config.option.deadline)
    _remember_losses()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which files no time was left for: a skipped test has not passed."""
    skipped = terminalreporter.stats.get("skipped", [])
    late = [report for report in skipped if nightly.OUT_OF_TIME in str(report.longrepr)]
    files = sorted({report.nodeid.partition("::")[0] for report in late})
    if files:
        terminalreporter.section(f"not run, for lack of time: {len(late)} tests")
        terminalreporter.write_line("\n".join(files))


def _remember_losses() -> None:
    """Compute another project's losses of one release once.

    Tests ask for them again and again, and nothing changes them.
    """
    numerical = sys.modules.get("dp_accounting.pld.privacy_loss_distribution")
    if numerical is None:
        return
    computed = numerical.from_gaussian_mechanism
    if not hasattr(computed, "cache_info"):
        remembered = functools.lru_cache(maxsize=1024)(computed)
        numerical.from_gaussian_mechanism = remembered  # type: ignore[attr-defined]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Tests must pass in any order: ``--shuffle 7`` is one of them."""
    parser.addoption(
        "--shuffle",
        type=int,
        default=None,
        metavar="SEED",
        help="run the tests in an order of this seed",
    )
    parser.addoption(
        "--seconds",
        type=float,
        default=None,
        help="begin no test after so many seconds, and say which did not begin",
    )
    parser.addoption("--deadline", type=float, default=None, help=argparse.SUPPRESS)


def federations_first(items: list[pytest.Item]) -> list[pytest.Item]:
    """Order files of tests so that nothing waits for whole federations at the end.

    These wait most of their time. Of two processes, each of which takes the next file,
    one waits for all of them, and the other one computes meanwhile.
    """
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    federations, others = [], []
    for tests in files.values():
        waits = tests[0].get_closest_marker("ray") is not None
        (federations if waits else others).append(tests)
    ordered = federations[:1] + others[:1] + federations[1:] + others[1:]
    return [item for tests in ordered for item in tests]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Mark what is nightly, shuffle if that is wanted, and order the files."""
    nightly.mark_all_but_samples(items)
    seed = config.getoption("--shuffle")
    if seed is not None:
        random.Random(seed).shuffle(items)
    # Where time is short, files keep the order in which they were named.
    if config.option.deadline is None:
        items[:] = federations_first(items)


@pytest.fixture(autouse=True)
def _undrawn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most tests of whole runs look at no picture.

    Each is another text instead, which takes no 0.3 s to draw.
    """
    if request.node.get_closest_marker("drawn") is not None:
        return

    def told(result: RunResult) -> bytes:
        return (
            b"\x89PNG "
            + result.model.centroids.tobytes()
            + repr(result.report.provenance).encode()
        )

    monkeypatch.setattr("flwr_dpkmeans.results.picture.draw_summary", told)
