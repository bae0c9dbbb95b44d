"""Thousands of runs, in this process or in several: features of each, as tables."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from simulations.audit.cases import Case, Neighbours
from simulations.audit.distinguishers import Features, Observer
from simulations.audit.information import Worst, priced_information
from simulations.audit.linear import Direction
from simulations.audit.runs import Engine, make_runner
from simulations.audit.views import Adversary, View
from simulations.experiments.workers import one_thread_from_now_on

Array = NDArray[np.float64]

_CHUNK = 250


@dataclass(frozen=True)
class Setup:
    """Everything that runs of one audit have in common.

    Parameters
    ----------
    case : Case
    neighbours : Neighbours
        The pair that shows most.
    adversary : Adversary
    engine : Engine
    until : int or None
        Last round that the adversary looks at.
    retries : int
        Sums that are asked for twice.
    worst : Worst
        Of all targets that the pilot tried.
    """

    case: Case = field(repr=False)
    neighbours: Neighbours
    adversary: Adversary
    engine: Engine = Engine.DIRECT
    until: int | None = None
    retries: int = 0
    worst: Worst = field(default_factory=Worst)


@dataclass(frozen=True)
class Winner:
    """The distinguisher that the training runs chose.

    Parameters
    ----------
    name : str
    direction : Direction or None
        Of a learnt one.
    """

    name: str
    direction: Direction | None = None


@dataclass(frozen=True)
class Batch:
    """Some runs of one kind.

    Parameters
    ----------
    setup : bytes
        A pickled `Setup`, so that a worker knows it again.
    present : bool
    n_runs : int
    winner : Winner or None
        None: everything is wanted, for training.
    """

    setup: bytes = field(repr=False)
    present: bool
    n_runs: int
    winner: Winner | None


@dataclass(frozen=True)
class Table:
    """What some runs of one kind gave.

    Parameters
    ----------
    scores : mapping of str to ndarray, (n_runs,)
        By distinguisher.
    vectors : mapping of str to ndarray, (n_runs, n_features)
        What learnt distinguishers look at; empty once there is a winner.
    information, bound_used : float
        The largest of any run: seen over claimed, and the share of a sensitivity that
        one array used.
    epsilon : float
        Largest epsilon that a run's report claims.
    """

    scores: Mapping[str, Array]
    vectors: Mapping[str, Array] = field(repr=False)
    information: float
    bound_used: float
    epsilon: float


class Measure(Protocol):
    """Runs batches, in order, wherever."""

    def __call__(self, batches: Sequence[Batch], /) -> Iterator[Table]:
        """Yield one table for each batch."""


@contextmanager
def measuring(workers: int) -> Iterator[Measure]:
    """Open processes for runs.

    With one worker or none everything stays in this process.

    Parameters
    ----------
    workers : int
        Processes. They are started afresh (spawned), so that none shares entropy or
        locks with another.
    """
    if workers <= 1:
        yield _here
        return
    context = multiprocessing.get_context("spawn")
    processes = ProcessPoolExecutor(
        workers,
        mp_context=context,
        initializer=one_thread_from_now_on,
    )
    with processes:
        yield lambda batches: processes.map(_in_worker, batches)


def batches_of(
    setup: Setup,
    n_runs: int,
    present: bool,
    winner: Winner | None = None,
) -> list[Batch]:
    """Cut a number of runs into batches."""
    blob = pickle.dumps(setup)
    sizes = [min(_CHUNK, n_runs - start) for start in range(0, n_runs, _CHUNK)]
    return [Batch(blob, present, size, winner) for size in sizes]


def collect(tables: Sequence[Table]) -> Table:
    """Put tables of one kind together.

    Rows of different lengths (a private count changes the plan, and so its rounds) are
    cut to the shortest.
    """
    scores = {}
    for name in tables[0].scores:
        scores[name] = np.concatenate([table.scores[name] for table in tables])
    vectors = {}
    for name in tables[0].vectors:
        every = [table.vectors[name] for table in tables]
        width = min(array.shape[1] for array in every)
        vectors[name] = np.concatenate([array[:, :width] for array in every])
    return Table(
        scores=scores,
        vectors=vectors,
        information=float(np.max([table.information for table in tables])),
        bound_used=float(np.max([table.bound_used for table in tables])),
        epsilon=max(table.epsilon for table in tables),
    )


def _here(batches: Sequence[Batch]) -> Iterator[Table]:
    """Run in this process.

    Nothing that was patched in it is lost, and nothing is remembered for another audit.
    """
    prepared: dict[bytes, Callable[[bool], tuple[View, Features]]] = {}
    for batch in batches:
        if batch.setup not in prepared:
            prepared[batch.setup] = _prepare(pickle.loads(batch.setup))
        yield _run(batch, prepared[batch.setup])


def _in_worker(batch: Batch) -> Table:
    """Run in a worker, which knows the setup of its last batches."""
    return _run(batch, _prepare_once(batch.setup))


@lru_cache(maxsize=2)
def _prepare_once(blob: bytes) -> Callable[[bool], tuple[View, Features]]:
    """See `_prepare`."""
    return _prepare(pickle.loads(blob))


def _prepare(setup: Setup) -> Callable[[bool], tuple[View, Features]]:
    """A function that runs once and looks."""
    run = make_runner(
        setup.case,
        setup.neighbours,
        setup.adversary,
        setup.engine,
        until=setup.until,
        retries=setup.retries,
    )
    observer = Observer(setup.case, setup.neighbours)

    def once(present: bool) -> tuple[View, Features]:
        view = run(present)
        return view, observer.features(view)

    return once


def _run(batch: Batch, once: Callable[[bool], tuple[View, Features]]) -> Table:
    """One batch."""
    every: list[Features] = []
    shares: list[float] = []
    claims: list[float] = []
    priced: dict[tuple[int, tuple[tuple[int, int], ...], float], float] = {}
    plans = []
    for _ in range(batch.n_runs):
        view, features = once(batch.present)
        every.append(features)
        claims.append(view.claimed)
        key = (id(view.plan), view.attempts, view.claimed)
        if key not in priced:
            plans.append(view.plan)  # So that no other plan gets its identity.
            priced[key] = priced_information(view.plan, view.attempts, view.claimed)
        shown = features.information
        shares += [shown.share, shown.gaussian / priced[key]]
    scores, vectors = _tabulated(every, batch.winner)
    bounds_used = [features.information.bound_used for features in every]
    return Table(
        scores=scores,
        vectors=vectors,
        information=float(np.max(shares)),
        bound_used=float(np.max(bounds_used)),
        epsilon=max(claims),
    )


def _tabulated(
    every: Sequence[Features], winner: Winner | None
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Scores and vectors of runs as tables.

    Once there is a winner, its score alone.
    """
    if winner is not None and winner.direction is None:
        of_winner = [features.scores[winner.name] for features in every]
        return {winner.name: np.array(of_winner)}, {}
    if winner is not None and winner.direction is not None:
        # Each by itself: a width shared with other runs would make counted scores
        # depend on each other.
        rows = [features.vectors[winner.name][None] for features in every]
        learnt = [winner.direction.scores(row) for row in rows]
        return {winner.name: np.concatenate(learnt)}, {}
    vectors = {}
    for name in every[0].vectors:
        unequal = [features.vectors[name] for features in every]
        width = min(map(len, unequal))
        vectors[name] = np.array([vector[:width] for vector in unequal])
    scores = {}
    for name in every[0].scores:
        scores[name] = np.array([features.scores[name] for features in every])
    return scores, vectors
