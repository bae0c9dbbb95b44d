"""One run of a sweep on Ray: data as files that virtual clients load, and the result as
a row wants it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.bundled import BUNDLED
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.data.simulated.partition import MIXTURE
from simulations.experiments.datasets import DataSet
from simulations.experiments.outcome import Outcome, evaluation_columns
from simulations.flower.ray_engine import run_on_ray
from simulations.flower.ray_settings import RayBackend, Scalar

Array = NDArray[np.float64]

_COLUMN, _LABELS = "column", "labels"
"""Arrays of the data file that rows are spread by, and that an evaluation compares
with.
"""


def run_ray_job(
    settings: Mapping[str, Any],
    data: DataSet,
    run_config: Mapping[str, Any],
    *,
    bounds: Bounds | str | None,
    server_points: Array | None,
    labels: NDArray[np.int64] | None,
) -> Outcome:
    """Run one configuration through `flwr run`.

    Parameters
    ----------
    settings : mapping
        Resolved configuration with the group ``engine``.
    data : DataSet
        What is clustered.
    run_config : mapping
        Keys of `flwr run`, without data, bounds and server data.
    bounds : Bounds, "private" or None
        None: they follow from the server's points.
    server_points : ndarray, (m, d), or None
        The server's own.
    labels : ndarray, (n,), or None
        Classes counted from 0, for an evaluation.

    Returns
    -------
    Outcome
        ``seconds`` has the start of Ray in it; the column ``peak_bytes`` is the memory
        of all processes.

    Raises
    ------
    DPKMeansError
        With the run's own sentence.
    """
    with tempfile.TemporaryDirectory(prefix="flwr-dpkmeans-ray-") as name:
        folder = Path(name)
        values = {**run_config, **_data_keys(settings, data, labels, folder)}
        if values["data"] == MIXTURE and settings["data"]["server"] is None:
            server_points = (
                None  # The app draws the mixture's own for algorithms that need them.
            )
        values |= _bounds_keys(bounds, folder)
        if server_points is not None:
            np.save(folder / "server.npy", server_points)
            # An array has no names, and bundled data have some; here both are known to
            # have the same order.
            values |= {"server-data": str(folder / "server.npy"), "allow-unnamed": True}
        result = run_on_ray(
            values,
            n_nodes=settings["n_clients"],
            folder=folder / "run",
            backend=_backend(settings),
        )
        costs = result.metrics.get("costs")
        return Outcome(
            result.centroids,
            result.privacy,
            int(result.metrics.get("n_iterations", 0)),
            result.seconds,
            None if costs is None else np.asarray(costs, dtype=np.float64),
            {
                "peak_bytes": result.peak_bytes,
                **evaluation_columns(result.metrics.get("evaluation", {})),
            },
        )


def _data_keys(
    settings: Mapping[str, Any],
    data: DataSet,
    labels: NDArray[np.int64] | None,
    folder: Path,
) -> dict[str, Scalar]:
    """Name bundled and generated data; write other rows as a file."""
    group = settings["data"]
    if group["source"] == MIXTURE and group["server"] is None:
        return {
            "data": MIXTURE,
            "mixture-rows-per-client": int(group["rows_per_client"]),
            "partition-seed": int(group["seed"]),
        }
    if (
        group["source"] in BUNDLED
        and group["bounds"] is None
        and group["server"] != "held_out"
    ):
        return {"data": str(group["source"])}
    arrays: dict[str, NDArray[Any]] = {"X": data.points}
    keys: dict[str, Scalar] = {"data": str(folder / "data.npz")}
    if data.sizes is not None:
        arrays[_COLUMN] = np.repeat(np.arange(len(data.sizes)), data.sizes)
        keys |= {"partition": "one_client_per_value", "partition-column": _COLUMN}
    elif data.partition_values is not None:
        arrays[_COLUMN] = np.asarray(data.partition_values)
        keys["partition-column"] = _COLUMN
    if labels is not None:
        arrays[_LABELS] = labels
        keys["label-column"] = _LABELS
    np.savez(folder / "data.npz", **arrays)  # type: ignore[arg-type]
    return keys


def _bounds_keys(bounds: Bounds | str | None, folder: Path) -> dict[str, Scalar]:
    """Bounds as a run configuration has them: a word, two numbers, or a file."""
    if bounds is None:
        return {}
    if isinstance(bounds, str):
        return {"bounds": bounds}
    if len(set(bounds.lower)) == len(set(bounds.upper)) == 1:
        return {"bounds": f"{bounds.lower[0]!r},{bounds.upper[0]!r}"}
    lines = [
        "lower,upper",
        *(
            f"{low!r},{up!r}"
            for low, up in zip(bounds.lower, bounds.upper, strict=True)
        ),
    ]
    (folder / "bounds.csv").write_text("\n".join(lines) + "\n")
    return {"bounds": str(folder / "bounds.csv")}


def _backend(settings: Mapping[str, Any]) -> RayBackend:
    """What the run may use."""
    engine = settings["engine"]
    return RayBackend(
        client_resources_num_cpus=engine["client_cpus"],
        client_resources_num_gpus=engine["client_gpus"],
        init_args_num_cpus=engine["cpus"],
        object_store_bytes=engine["object_store_bytes"],
        max_bytes=engine["max_bytes"],
        address=engine["address"],
        timeout=engine["timeout"],
    )
