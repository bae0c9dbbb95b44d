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
from omegaconf import DictConfig, OmegaConf

from flwr_dpkmeans import FederatedKMeans
from flwr_dpkmeans.data.bounds import parse_bounds
from flwr_dpkmeans.data.bundled import BUNDLED, load_source
from flwr_dpkmeans.errors import ConfigurationError, DPKMeansError
from flwr_dpkmeans.kmeans.metrics import cost_per_point
from flwr_dpkmeans.results.writer import write_whole

CONFIGURATION = str(Path(__file__).resolve().parents[1] / "conf")


def run_experiment(config: dict[str, Any]) -> tuple[FederatedKMeans, dict[str, Any]]:
    """Fit once.

    Parameters
    ----------
    config : dict
        The groups ``algorithm``, ``trust``, ``privacy``, ``data``, and ``seed`` and ``n_clients``.

    Returns
    -------
    FederatedKMeans
        Fitted.
    dict
        The row: configuration and figures. ``cost_per_point`` looks at the exact data and is not private.
    """
    data, algorithm = config["data"], dict(config["algorithm"])
    points = load_source(data["source"]).points
    bounds = _bounds(data)
    order = np.random.default_rng([config["seed"], 1]).permutation(len(points))
    model = FederatedKMeans(
        n_clusters=data["n_clusters"],
        algorithm=algorithm.pop("name"),
        trust=config["trust"]["name"],
        bounds=bounds,
        random_state=config["seed"],
        **config["privacy"],
        **algorithm,
    )
    start = time.perf_counter()
    model.fit(np.array_split(points[order], config["n_clients"]))
    seconds = time.perf_counter() - start
    scaler = parse_bounds(bounds).for_features(points.shape[1])
    row = {
        "data": data["source"],
        "algorithm": model.algorithm,
        "trust": model.trust,
        "epsilon": model.privacy_.to_dict()["epsilon"],
        "delta": model.privacy_.delta,
        "noise": model.noise,
        "seed": config["seed"],
        "n_clients": config["n_clients"],
        "n_iterations": model.n_iter_,
        "cost_per_point": cost_per_point(scaler.scale(points), scaler.scale(model.cluster_centers_)),
        "seconds": seconds,
    }
    return model, row


def _bounds(data: dict[str, Any]) -> Any:
    """Bounds as configured, else the documented ones of a bundled data set."""
    if data["bounds"] is not None:
        return data["bounds"]
    if data["source"] not in BUNDLED:
        raise ConfigurationError("no bounds were given for a file: give public ones, such as data.bounds='0,100'.")
    documented = BUNDLED[data["source"]].bounds
    return (documented.lower, documented.upper)


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
