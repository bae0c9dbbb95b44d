"""One place holds BLAS to one thread, in every engine, and puts its limit back."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event
from types import CodeType, SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from flwr.supercore.task_identity import TaskIdentity
from support.watching import watch
from threadpoolctl import ThreadpoolController, threadpool_info, threadpool_limits

from flwr_dpkmeans import FederatedKMeans
from flwr_dpkmeans.algorithms.lloyd_family import fastlloyd
from flwr_dpkmeans.algorithms.lloyd_family import packed as packed_module
from flwr_dpkmeans.flower.in_process_grid import InProcessGrid
from flwr_dpkmeans.kernels import assignment
from flwr_dpkmeans.kernels.implementation import Implementation, using
from flwr_dpkmeans.threads import one_thread, set_threads

POINTS = np.random.default_rng(0).uniform(-1.0, 1.0, (60, 2))


def blas_threads() -> set[int]:
    return {
        pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"
    }


@pytest.fixture(autouse=True)
def several_threads() -> Iterator[None]:
    with threadpool_limits(3):
        yield
        assert blas_threads() == {3}


def limits_in(function: Callable[..., Any]) -> list[set[int]]:
    """The limits in force whenever a function is called."""
    seen: list[set[int]] = []
    watch(function, begin=lambda _: seen.append(blas_threads()))
    return seen


@pytest.mark.parametrize("engine", ["inprocess", "direct"])
@pytest.mark.parametrize("trust", ["oblivious", "central", "distributed"])
def test_statistics_and_advances_run_on_one_thread(engine: str, trust: str) -> None:
    statistics = limits_in(fastlloyd.relative_statistics)
    advances = limits_in(fastlloyd.relative_update)
    km = FederatedKMeans(
        2,
        algorithm="fastlloyd",
        bounds=(-1.0, 1.0),
        engine=engine,
        trust=trust,
        max_iter=2,
    )
    km.fit([POINTS[:30], POINTS[30:]])
    assert statistics == [{1}] * 4
    assert advances
    assert all(seen == {1} for seen in advances)


def test_a_start_that_clusters_runs_on_one_thread() -> None:
    packed = limits_in(packed_module.sphere_packing)
    km = FederatedKMeans(
        2,
        algorithm="fastlloyd",
        bounds=(-1.0, 1.0),
        engine="direct",
        max_iter=2,
        random_state=815,
    )
    km.fit([POINTS[:30], POINTS[30:]])
    assert packed
    assert all(seen == {1} for seen in packed)


@pytest.mark.parametrize(
    ("module", "name", "algorithm"),
    [
        ("central", "k_fed", "k_fed"),
        ("max_cover", "average_twice", "max_cover"),
        ("balcan", "average_twice", "balcan"),
    ],
)
def test_baselines_run_on_one_thread(module: str, name: str, algorithm: str) -> None:
    baseline = importlib.import_module(f"flwr_dpkmeans.baselines.{module}")
    seen = limits_in(getattr(baseline, name))
    km = FederatedKMeans(
        2, algorithm=algorithm, bounds=(-1.0, 1.0), trust="central", random_state=1
    )
    km.fit([POINTS[:30], POINTS[30:]])
    assert seen == [{1}]


def test_predictions_and_metrics_run_on_one_thread() -> None:
    seen = limits_in(assignment.squared_lengths)
    with using(Implementation.NUMPY):
        assignment.nearest_centroids(POINTS, POINTS[:2])
    assert seen
    assert all(threads == {1} for threads in seen)


def test_limits_nest_and_end_with_an_error() -> None:
    def failing() -> None:
        with one_thread():
            with one_thread():
                assert blas_threads() == {1}
            assert blas_threads() == {1}
            raise ValueError

    with pytest.raises(ValueError):
        failing()
    assert blas_threads() == {3}


def test_what_is_put_back_is_the_limit_that_was_met() -> None:
    """And not one that somebody met before."""
    for own in (3, 2, 3):
        with threadpool_limits(own):
            with one_thread():
                assert blas_threads() == {1}
            assert blas_threads() == {own}


def test_the_last_thread_to_leave_puts_the_limit_back() -> None:
    both, left = Barrier(2), Barrier(2)

    def first() -> None:
        with one_thread():
            both.wait(300)
        left.wait(300)

    def second() -> set[int]:
        with one_thread():
            both.wait(300)
            left.wait(300)
            return blas_threads()

    with ThreadPoolExecutor(2) as pool:
        ended, seen = pool.submit(first), pool.submit(second)
        assert (ended.result(), seen.result()) == (None, {1})


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_run_of_another_thread_waits_for_its_turn() -> None:
    first, second = InProcessGrid([], run_id=7), InProcessGrid([], run_id=8)
    entered = Event()

    def other() -> int:
        with second.running():
            entered.set()
            return TaskIdentity.run_id

    def child() -> int:  # does not wait for a thread that it has not
        if number := os.fork():
            return os.waitpid(number, 0)[1]
        signal.alarm(30)
        os._exit(0 if other() == 8 else 1)

    with ThreadPoolExecutor(2) as pool:
        with (
            first.running(),
            InProcessGrid([], run_id=9).running(),
        ):  # one within another does not wait
            ended = pool.submit(other)
            assert not entered.wait(0.1)
            assert TaskIdentity.run_id == 9
            assert pool.submit(child).result(300) == 0
        assert ended.result(300) == 8


LATE = """
import numpy
from threadpoolctl import threadpool_info
from flwr_dpkmeans.threads import one_thread
from simulations.experiments.workers import one_thread_from_now_on
def threads():
    return {pool["num_threads"] for pool in threadpool_info()}
with one_thread():
    pass
before = len(threadpool_info())
import sklearn.cluster
assert len(threadpool_info()) > before
usual = threads()
assert 1 not in usual
with one_thread():
    assert threads() == {1}
assert threads() == usual, threads()
one_thread_from_now_on()
assert threads() == {1}
with one_thread():
    pass
assert threads() == {1}
"""


@pytest.mark.nightly
def test_libraries_that_are_loaded_later_are_held_too_and_for_good_in_a_worker() -> (
    None
):
    limits = dict.fromkeys(
        ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "3"
    )
    subprocess.run(
        [sys.executable, "-c", LATE],
        check=True,
        env=limits | {"PYTHONPATH": ":".join(sys.path)},
    )


def openmp_threads() -> set[int]:
    """The limits of this thread, which OpenMP has for each thread by itself."""
    return {
        pool["num_threads"]
        for pool in threadpool_info()
        if pool["user_api"] == "openmp"
    }


def test_each_thread_puts_openmp_s_limit_back_and_the_last_one_that_of_blas() -> None:
    """Here leaves while the other thread is still inside."""
    pytest.importorskip("sklearn.utils._openmp_helpers")  # loads OpenMP
    with ThreadPoolExecutor(1) as other:
        other.submit(threadpool_limits, 3).result()
        with one_thread(), one_thread():
            other.submit(one_thread().__enter__).result()
            assert (openmp_threads(), blas_threads()) == ({1}, {1})
            assert other.submit(openmp_threads).result() == {1}
        assert (openmp_threads(), blas_threads()) == ({3}, {1})
        assert other.submit(openmp_threads).result() == {1}
        other.submit(one_thread().__exit__).result()
        assert blas_threads() == {3}
        assert other.submit(openmp_threads).result() == {3}


def test_a_limit_is_cheap() -> None:
    """A look for libraries costs milliseconds, which a fit of 11 ms does not have."""
    look = ThreadpoolController.__init__.__code__
    calls = Counter[CodeType]()
    with one_thread():
        pass
    sys.setprofile(lambda frame, event, _: calls.update([frame.f_code]))
    try:
        for _ in range(100):
            with one_thread():
                pass
    finally:
        sys.setprofile(None)
    assert calls[look] == 0
    assert calls.total() > 200


@pytest.mark.parametrize(
    ("obeys", "name", "told"),
    [
        *(
            (1, "", []),
            (3, "", []),
            (1, "goto_set_num_threads", []),
            (3, "goto_set_num_threads", [1]),
        ),
        *(
            (3, "scipy_goto_set_num_threads", [1]),
            (3, "scipy_goto_set_num_threads64_", [1]),
        ),
    ],
)
def test_a_library_that_does_not_obey_is_told_in_its_own_way_if_it_has_one(
    obeys: int, name: str, told: list[int]
) -> None:
    seen: list[int] = []
    own = {name: seen.append} if name else {}
    library = SimpleNamespace(
        dynlib=SimpleNamespace(**own),
        set_num_threads=lambda number: None,
        get_num_threads=lambda: obeys,
    )
    set_threads(cast(Any, library), 1)
    assert seen == told
