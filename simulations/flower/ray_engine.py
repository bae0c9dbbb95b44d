"""One experiment through Flower's Ray-backed simulation, as `flwr run` does it, from
Python.

Virtual clients load their own rows in Ray's workers, from the run configuration alone;
no rows travel in messages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.errors import ConfigurationError, DPKMeansError
from flwr_dpkmeans.flower.run_config import require_known
from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.results.writer import CENTROIDS_FILE, METRICS_FILE, REPORT_FILE
from simulations.flower.ray_settings import (
    CROSS_DEVICE,
    CROSS_SILO,
    RayBackend,
    Scalar,
    app_file,
)
from simulations.flower.ray_superlink import EngineError, Finished, RaySuperLink

__all__ = [
    "CROSS_DEVICE",
    "CROSS_SILO",
    "EngineError",
    "RayBackend",
    "RayResult",
    "RaySuperLink",
    "run_on_ray",
]

Array = NDArray[np.float64]

APP_FOLDER = "app"
LOG_FILE = "flwr.log"
RESULTS_FOLDER = "ray-results"
_SUCH_AS = MappingProxyType(
    {"data": "digits", "algorithm": "proxy_lloyd", "n-clusters": 10}
)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_RUN = re.compile(r"run (?P<id>\d+) starts with \d+ clients")
_PLACE = r"(?:(?:run|node|round|attempt) -?\d+ ?)+: "
_SENTENCE = re.compile(
    rf"^(?:\([^)]*pid=\d+[^)]*\) )?(?:{_PLACE})?(?P<name>\w+): (?P<sentence>.+)$",
    re.MULTILINE,
)
_OF_A_CLIENT = re.compile(r"cannot answer: (?P<sentence>.+)$", re.MULTILINE)
_OF_PYTHON = re.compile(
    r"^(?:[\w.]+\.)?(?P<name>\w+(?:Error|Exception)): (?P<sentence>.+)$", re.MULTILINE
)


@dataclass(frozen=True)
class RayResult:
    """What a run on Ray found.

    Parameters
    ----------
    centroids : ndarray, (n_clusters, n_features)
        In the data's units.
    scaled : ndarray, (n_clusters, n_features)
        In the box [-1, 1]^d.
    counts : ndarray, (n_clusters,)
        Noisy counts of the last release.
    privacy : PrivacyReport
        What the run guaranteed.
    metrics : mapping
        ``metrics.json`` of the run: ``n_iterations``, ``costs`` where the run chose k,
        evaluations.
    seconds : float
        Of ``flwr run``, the start of Ray (and, for the first run, of the SuperLink)
        included.
    peak_bytes : int
        Largest memory of all its processes together, looked at every 2 s.
    folder : Path
        Of all files.
    """

    centroids: Array
    scaled: Array
    counts: Array
    privacy: PrivacyReport
    metrics: Mapping[str, Any] = field(repr=False)
    seconds: float
    peak_bytes: int
    folder: Path


def run_on_ray(
    run_config: Mapping[str, Scalar],
    *,
    n_nodes: int,
    folder: Path,
    backend: RayBackend = CROSS_SILO,
    superlink: RaySuperLink | None = None,
) -> RayResult:
    """Run one experiment through Flower's Ray simulation.

    Parameters
    ----------
    run_config : mapping
        Hyphenated keys of ``[tool.flwr.app.config]``, ``data``, ``algorithm`` and
        ``n-clusters`` at least; what is left out is automatic. Relative paths are those
        of this process. Not ``output``, which is below `folder`.
    n_nodes : int
        Virtual nodes.
    folder : Path
        For the log, the app and the results, which have a folder of their own for each
        run.
    backend : RayBackend
        Resources; ignored where a SuperLink is given, which has its own.
    superlink : RaySuperLink, optional
        Used and left running, so that a sweep starts one only once; None: one for this
        run.

    Returns
    -------
    RayResult

    Raises
    ------
    DPKMeansError
        Of the class and with the sentence of the run itself; an `EngineError` if Flower
        or Ray failed, the time or the memory was up.

    Notes
    -----
    Seeded runs are equal to those of the other engines with the same parts of the data:
    a virtual client's streams of seeded noise and coins are numbered by its partition.

    A running Ray cluster is used with ``RayBackend(address="host:6379")``: start it by
    ``ray start --head`` with this environment, call this on one of its machines, and
    have package, data and `folder` at the same path on all of them (a shared disk). Its
    workers stay.

    Examples
    --------
    >>> run_on_ray({"n-clusters": 3, "epsilom": 1.0}, n_nodes=2, folder=Path("nowhere"))
    Traceback (most recent call last):
    flwr_dpkmeans.errors.ConfigurationError: there is no run-config key 'epsilom': ...
    """
    folder = folder.absolute()
    text = app_file(_completed(run_config, folder))
    (folder / APP_FOLDER).mkdir(parents=True, exist_ok=True)
    (folder / APP_FOLDER / "pyproject.toml").write_text(text, encoding="utf-8")
    if superlink is not None:
        finished = superlink.run_app(
            folder / APP_FOLDER, n_nodes=n_nodes, log=folder / LOG_FILE
        )
    else:
        with RaySuperLink(backend) as started:
            finished = started.run_app(
                folder / APP_FOLDER, n_nodes=n_nodes, log=folder / LOG_FILE
            )
    # `flwr run` ends with 0 also where the app failed; the server's report is written
    # after the last round.
    run = _RUN.search(_COLOURS.sub("", finished.output))
    results = folder / RESULTS_FOLDER / f"run-{run['id'] if run else ''}"
    if finished.code != 0 or not (results / "server" / REPORT_FILE).is_file():
        raise failure_of(finished.output, folder / LOG_FILE)
    return _read_result(results, finished, folder)


def _completed(run_config: Mapping[str, Scalar], folder: Path) -> dict[str, Scalar]:
    """The run configuration with the engine's own keys.

    a wrong key is refused before anything starts.
    """
    require_known(run_config)
    for key in ("data", "algorithm", "n-clusters"):
        if key not in run_config:
            raise ConfigurationError(
                f"the run configuration has no {key}: give it, such as"
                f" {key}={_SUCH_AS[key]}."
            )
    if run_config.get("output", ""):
        raise ConfigurationError(
            f"output is {run_config['output']!r}, but the Ray engine writes below"
            f" folder={str(folder)!r}: leave it out."
        )
    completed = dict(run_config) | {"output": str(folder / RESULTS_FOLDER)}
    completed.setdefault("output-files", "first")
    # The app runs in another folder.
    for key in ("data", "server-data", "bounds"):
        result = completed.get(key)
        if (
            isinstance(result, str)
            and Path(result).suffix
            and Path(result).expanduser().is_file()
        ):
            completed[key] = str(Path(result).expanduser().absolute())
    return completed


def failure_of(output: str, log: Path) -> DPKMeansError:
    r"""Make an error of a failed run's output.

    Parameters
    ----------
    output : str
        Of ``flwr run --stream``.
    log : Path
        Where the rest can be read.

    Returns
    -------
    DPKMeansError
        Of the package's own class where the app said one of its sentences, with a
        client's reason where the server knows only that there is one; else an
        `EngineError` with the last error of Flower, Ray or Python.

    Examples
    --------
    >>> output = "INFO: start\nPlanError: epsilon is too small: raise it.\n"
    >>> failure_of(output, Path("flwr.log"))
    PlanError('epsilon is too small: raise it.')
    """
    plain = _COLOURS.sub("", output)
    classes = {kind.__name__: kind for kind in _kinds(DPKMeansError)}
    sentences = [
        match for match in _SENTENCE.finditer(plain) if match["name"] in classes
    ]
    reasons = [match["sentence"] for match in _OF_A_CLIENT.finditer(plain)]
    if sentences:
        kind, sentence = classes[sentences[-1]["name"]], sentences[-1]["sentence"]
        return kind(
            f"{sentence} The first client's reason: {reasons[0]}"
            if reasons
            else sentence
        )
    errors = [
        f"{match['name']}: {match['sentence']}" for match in _OF_PYTHON.finditer(plain)
    ]
    errors += [
        line.strip() for line in plain.splitlines() if line.startswith("Error: ")
    ]
    last = errors[-1] if errors else "it left no error"
    return EngineError(
        f"the simulation ended without a result ({last}): look at {log}."
    )


def _kinds(kind: type[DPKMeansError]) -> Iterator[type[DPKMeansError]]:
    """A class of errors and all below it."""
    yield kind
    for below in kind.__subclasses__():
        yield from _kinds(below)


def _read_result(results: Path, finished: Finished, folder: Path) -> RayResult:
    """Read what one party that may know the result wrote."""
    places = [results / "server", *sorted(results.glob("client-*"))]
    for place in places:
        if (place / CENTROIDS_FILE).is_file():
            break
    else:
        raise EngineError(
            f"the run wrote no centroids below {results}: look at {folder / LOG_FILE}."
        )
    with np.load(place / CENTROIDS_FILE) as arrays:
        centroids, scaled, counts = (
            np.array(arrays[name]) for name in ("centroids", "scaled", "counts")
        )
    return RayResult(
        centroids,
        scaled,
        counts,
        PrivacyReport.from_dict(json.loads((place / REPORT_FILE).read_text())),
        json.loads((place / METRICS_FILE).read_text()),
        finished.seconds,
        finished.peak_bytes,
        folder,
    )
