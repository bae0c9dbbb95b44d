"""One experiment, or a sweep, from Hydra configuration: `python -m simulations.run data=iris privacy.epsilon=0.5`.

Each run prints one JSON line and writes it, with the privacy report, into Hydra's output folder.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

import hydra
import numpy as np
from hydra.core.hydra_config import HydraConfig
from numpy.typing import NDArray
from omegaconf import DictConfig, OmegaConf

from flwr_dpkmeans import FederatedKMeans
from flwr_dpkmeans.algorithms import ServerData, algorithm_entry
from flwr_dpkmeans.data.bounds import Bounds, parse_bounds
from flwr_dpkmeans.data.bundled import BUNDLED, load_source
from flwr_dpkmeans.data.mixtures import MIXTURE, MIXTURE_BOUNDS, MixtureClients
from flwr_dpkmeans.data.server_data import load_server_points
from flwr_dpkmeans.errors import ConfigurationError, DPKMeansError
from flwr_dpkmeans.flower.held import PRIVATE, is_private
from flwr_dpkmeans.kmeans.metrics import cost_per_point
from flwr_dpkmeans.results.writer import write_whole
from flwr_dpkmeans.server_facts import bounds_from_server

Pair = tuple[tuple[float, ...], tuple[float, ...]]
CONFIGURATION = str(Path(__file__).resolve().parents[1] / "conf")


def run_experiment(config: dict[str, Any]) -> tuple[FederatedKMeans, dict[str, Any]]:
    """Fit once.

    Parameters
    ----------
    config : dict
        The groups ``algorithm``, ``trust``, ``privacy``, ``data``; ``seed``, ``n_clients``, ``engine``, ``masking``.

    Returns
    -------
    FederatedKMeans
        Fitted.
    dict
        The row: configuration and figures. ``cost_per_point`` looks at the exact data and is not private; it is in the
        box that the bounds are scaled to, so compare runs of different bounds by ``cost_per_point_unscaled``.
    """
    data, algorithm = config["data"], dict(config["algorithm"])
    name = algorithm.pop("name")
    parts = _parts(data, n_clients=config["n_clients"], seed=config["seed"])
    server_points = _server_points(data, name, seed=config["seed"])
    bounds = _bounds(data, server_points)
    model = FederatedKMeans(
        n_clusters=data["n_clusters"],
        algorithm=name,
        trust=config["trust"]["name"],
        bounds=bounds,
        server_data=server_points,
        random_state=config["seed"],
        engine=config["engine"],
        masking=config["masking"],
        **config["privacy"],
        **algorithm,
    )
    start = time.perf_counter()
    model.fit(parts)
    seconds = time.perf_counter() - start
    points, centers = np.concatenate(parts), model.cluster_centers_
    box = bounds if model.bounds_ is None else model.bounds_
    scaler = Bounds(*box).for_features(points.shape[1])
    row = {
        "data": data["source"],
        "algorithm": model.algorithm,
        "trust": model.privacy_.trust,
        "unit": model.unit,
        "engine": model.engine,
        "epsilon": model.privacy_.to_dict()["epsilon"],
        "delta": model.privacy_.delta,
        "noise": model.noise,
        "seed": config["seed"],
        "n_clients": config["n_clients"],
        "n_clusters": len(centers),
        "n_iterations": model.n_iter_,
        "cost_per_point": cost_per_point(scaler.scale(points), scaler.scale(centers)),
        "cost_per_point_unscaled": cost_per_point(points, centers),
        "seconds": seconds,
    }
    return model, row


def _parts(data: dict[str, Any], *, n_clients: int, seed: int) -> list[NDArray[np.float64]]:
    """The clients' rows: drawn for each client, or one table split at random."""
    if data["source"] == MIXTURE:
        mixture = MixtureClients(seed, data["rows_per_client"])
        return [mixture.client_points(client) for client in range(n_clients)]
    points = load_source(data["source"]).points
    order = np.random.default_rng([seed, 1]).permutation(len(points))
    return np.array_split(points[order], n_clients)


def _server_points(data: dict[str, Any], algorithm: str, *, seed: int) -> NDArray[np.float64] | None:
    """The server's points as configured; the mixture has its own, for algorithms that cannot do without."""
    if data["server"] is not None:
        return load_server_points(data["server"])
    if data["source"] == MIXTURE and algorithm_entry(algorithm).server_data is ServerData.NEEDED:
        return MixtureClients(seed).server_points()
    return None


def _bounds(data: dict[str, Any], server_points: NDArray[np.float64] | None) -> Pair | str:
    """Bounds as configured, of the server's points, or the documented ones of the data."""
    if is_private(data["bounds"]):
        return PRIVATE
    documented = {name: described.bounds for name, described in BUNDLED.items()} | {MIXTURE: MIXTURE_BOUNDS}
    if data["bounds"] is not None:
        bounds = parse_bounds(data["bounds"])
    elif server_points is not None:
        return bounds_from_server(server_points)
    elif data["source"] in documented:
        bounds = documented[data["source"]]
    else:
        raise ConfigurationError(
            "no bounds were given for a file: give public ones, such as data.bounds='0,100', or server points."
        )
    return bounds.lower, bounds.upper


@hydra.main(version_base=None, config_path=CONFIGURATION, config_name="config")
def main(config: DictConfig) -> float:
    """Hydra's entry: run, print and write."""
    logging.getLogger("flwr_dpkmeans").setLevel(logging.ERROR)
    plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    try:
        model, row = run_experiment(plain)
    except DPKMeansError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        raise SystemExit(2) from error
    folder = Path(HydraConfig.get().runtime.output_dir)
    line = json.dumps(row)
    print(line)
    write_whole(folder / "row.json", line.encode() + b"\n")
    write_whole(folder / "privacy_report.json", model.privacy_.to_json().encode())
    return float(row["cost_per_point"])


if __name__ == "__main__":
    main()
