"""What the benchmarks of FedDP-KMeans share.

The paper's mixture, one fit on it, worker processes and result files.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import logging
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from flwr_dpkmeans import FederatedKMeans
from flwr_dpkmeans.algorithms import NOT_FEDERATED
from flwr_dpkmeans.data.partition import MIXTURE_BOUNDS
from flwr_dpkmeans.errors import ConfigurationError, DPKMeansError, PrivacyWarning
from flwr_dpkmeans.kmeans.cost import cost_per_point
from flwr_dpkmeans.options import Cohort
from flwr_dpkmeans.results.writer import write_whole
from flwr_dpkmeans.threads import one_thread
from simulations.experiments.configuration import algorithm_value
from simulations.experiments.workers import one_thread_from_now_on
from simulations.sources.mixture import GaussianMixture, draw_gaussian_mixture

JobT = TypeVar("JobT")
ResultT = TypeVar("ResultT")

N_CLUSTERS = 10
DELTA = 1e-6
WITH_SERVER_DATA = ("feddp_kmeans", "server_kmeans++", "server_lloyd", "sphere_packing")
"""Algorithms that get the server's points, ``sphere_packing`` only for its clip bounds.
"""


@dataclass(frozen=True)
class Setting:
    """One federation of the paper's section 5.

    Parameters
    ----------
    unit : str
        "record" or "client".
    n_clients, rows : int
        Number of clients, and of rows of each.
    missing : int
        Components of the mixture of which the server has no point.
    """

    unit: str
    n_clients: int
    rows: int
    missing: int = 0


PAPER: Mapping[str, Setting] = MappingProxyType(
    {"record": Setting("record", 100, 1000), "client": Setting("client", 2000, 50)}
)
"""Sections 5.1 and 5.2."""


@dataclass(frozen=True)
class Fit:
    """One fit on the mixture of a seed.

    Parameters
    ----------
    setting : Setting
        Whose data.
    seed : int
        Of mixture, start and noise.
    algorithm : str
        Of `FederatedKMeans`.
    epsilon : float
        Total asked for; without meaning for methods that are not private.
    options : tuple of (name, value)
        Further options of `FederatedKMeans`.
    """

    setting: Setting
    seed: int
    algorithm: str
    epsilon: float
    options: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Fitted:
    """What one fit gave: exact cost per point, and the epsilon that its privacy report
    states.
    """

    cost: float
    epsilon: float


@lru_cache(maxsize=1)
def drawn(setting: Setting, seed: int) -> GaussianMixture:
    """Draw clients and server of a seed, once in a row of jobs."""
    return draw_gaussian_mixture(
        np.random.default_rng(seed),
        n_clients=setting.n_clients,
        points_per_client=setting.rows,
        missing_components=setting.missing,
    )


@lru_cache(maxsize=1)
def all_rows(setting: Setting, seed: int) -> NDArray[np.float64]:
    """Put the rows of all clients of a seed together, once in a row of jobs."""
    return np.concatenate(drawn(setting, seed).clients)


def optimum(setting: Setting, seed: int, restarts: int) -> float:
    """Best non-private cost per point: Lloyd from the true means, and `restarts`
    k-means++ starts.
    """
    from sklearn.cluster import KMeans

    mixture, points = drawn(setting, seed), all_rows(setting, seed)
    # scikit-learn's default tolerance stops before convergence.
    models = [KMeans(N_CLUSTERS, init=mixture.means, n_init=1, max_iter=1000, tol=0.0)]
    if restarts:
        models.append(KMeans(N_CLUSTERS, n_init=restarts, random_state=seed))
    return min(
        cost_per_point(points, model.fit(points).cluster_centers_) for model in models
    )


def run_fit(fit: Fit) -> Fitted:
    """Fit once, without masks and with seeded noise, on one thread, and look at the
    exact data for the cost.
    """
    mixture = drawn(fit.setting, fit.seed)
    of_algorithm = dict(fit.options)
    options: dict[str, Any] = {"unit": fit.setting.unit}
    for name in ("max_iter", "trust"):
        if name in of_algorithm:
            options[name] = of_algorithm.pop(name)
    if fit.algorithm in WITH_SERVER_DATA:
        options["server_data"] = mixture.server_points
    else:
        options["bounds"] = (MIXTURE_BOUNDS.lower, MIXTURE_BOUNDS.upper)
    if fit.algorithm not in NOT_FEDERATED:
        options |= {"engine": "direct", "cohort": Cohort(masking=False)}
    if fit.algorithm in ("k_fed", "optimal"):
        # They protect no unit at all, and the estimator knows them under this one only.
        options["unit"] = "record"
    model = FederatedKMeans(
        N_CLUSTERS,
        algorithm=algorithm_value(fit.algorithm, of_algorithm),
        epsilon=fit.epsilon,
        delta=DELTA,
        noise="seeded",
        random_state=fit.seed,
        **options,
    ).fit(mixture.clients)
    return Fitted(
        cost_per_point(all_rows(fit.setting, fit.seed), model.cluster_centers_),
        model.privacy_.epsilon,
    )


_NUMBER = re.compile(r"\d[\d.,]*(?:e[+-]?\d+)?")


def run_jobs(
    function: Callable[[JobT], ResultT],
    jobs: Sequence[JobT],
    *,
    workers: int,
    chunk: int,
    description: str,
) -> list[ResultT]:
    """Run jobs in worker processes of one thread each, with a progress bar on stderr.

    Neighbouring jobs should share a seed: `chunk` of them go to one worker, which draws
    their data once. Without workers all run in this process, of one thread too.
    """
    console = Console(stderr=True)
    shown = partial(track, total=len(jobs), description=description, console=console)
    of_job = partial(_with_warnings, function)
    if workers == 0:
        with one_thread():
            return _results(shown(map(of_job, jobs)), console)
    with ProcessPoolExecutor(workers, initializer=_prepare_worker) as pool:
        return _results(shown(pool.map(of_job, jobs, chunksize=chunk)), console)


def _with_warnings(
    function: Callable[[JobT], ResultT], job: JobT
) -> tuple[ResultT, list[str]]:
    """A job's result, and the texts of what estimators warned of, which would break up
    the bar.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PrivacyWarning)
        result = function(job)
    sentences = []
    for warning in caught:
        if issubclass(warning.category, PrivacyWarning):
            sentences.append(str(warning.message))
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
    return result, sentences


def _results(
    finished: Iterable[tuple[ResultT, list[str]]], console: Console
) -> list[ResultT]:
    """The results; of hundreds of fits each warning is shown once, whatever its numbers
    are.
    """
    results, shown = [], set[str]()
    for result, sentences in finished:
        results.append(result)
        for sentence in sentences:
            text = _NUMBER.sub("", sentence)
            if text not in shown:
                shown.add(text)
                console.print(
                    f"PrivacyWarning: {sentence}", highlight=False, markup=False
                )
    return results


def _prepare_worker() -> None:
    """Limit BLAS and OpenMP to one thread for the life of a worker.

    The libraries must be loaded before.
    """
    import sklearn.cluster  # noqa: F401

    logging.disable(logging.CRITICAL)
    one_thread_from_now_on()


def encoded_tables(
    name: str, options: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> dict[str, bytes]:
    """Encode rows as NAME.csv, and rows with the options they were made with as
    NAME.json.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    plain = json.dumps(
        {"options": dict(options), "rows": list(rows)}, indent=1, allow_nan=False
    )
    return {
        f"{name}.csv": text.getvalue().encode(),
        f"{name}.json": plain.encode() + b"\n",
    }


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files that are all encoded already, each whole or not at all, and say where
    they are.
    """
    for path in [
        write_whole(folder / name, content) for name, content in files.items()
    ]:
        print(path, file=sys.stderr)


def wide_console() -> Console:
    """Print tables without folding them where the output is no terminal."""
    return Console(width=None if sys.stdout.isatty() else 160)


def add_sizes(parser: argparse.ArgumentParser) -> None:
    """Add the options that change the paper's federation."""
    parser.add_argument(
        "--clients", type=int, default=0, help="0: 100 (record) or 2000 (client)"
    )
    parser.add_argument(
        "--rows",
        type=int,
        default=0,
        help="of each client; 0: 1000 (record) or 50 (client)",
    )
    parser.add_argument(
        "--missing",
        type=int,
        default=0,
        help="components of which the server has no point",
    )


def setting_from(options: argparse.Namespace, unit: str) -> Setting:
    """Change the paper's federation as the command line says."""
    paper = PAPER[unit]
    return replace(
        paper,
        n_clients=options.clients or paper.n_clients,
        rows=options.rows or paper.rows,
        missing=options.missing,
    )


def require_seeds(seeds: int) -> None:
    """Refuse a benchmark over nothing."""
    if seeds < 1:
        raise ConfigurationError(
            f"seeds is {seeds}, but at least 1 is needed for a mean: give one such"
            " as 5."
        )


RESUMES = "stopped; the same command continues"


def exit_code(run: Callable[[], int | None], stopped: str = "") -> int:
    """Run a command; a mistake of the caller is one sentence on stderr and exit code 2.

    With a sentence for it, so is Ctrl-C, whose code is 130.
    """
    try:
        return run() or 0
    except DPKMeansError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        if not stopped:
            raise
        print(stopped, file=sys.stderr)
        return 130
