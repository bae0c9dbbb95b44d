"""The ServerApp that `flwr run` starts: configuration in, running view and files out."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from flwr_dpkmeans.data.bounds import Bounds
from flwr_dpkmeans.data.bundled import BUNDLED
from flwr_dpkmeans.data.partition import Partition
from flwr_dpkmeans.errors import ConfigurationError, DPKMeansError, nearest
from flwr_dpkmeans.flower.logs import show_logs
from flwr_dpkmeans.flower.node import is_simulated_server, run_folder
from flwr_dpkmeans.flower.strategy import KMeansResult, PrivateKMeans, Timeouts
from flwr_dpkmeans.flower.units import in_callers_units
from flwr_dpkmeans.results.writer import (
    CENTROIDS_FILE,
    METRICS_FILE,
    PICTURE_FILE,
    REPORT_FILE,
    RunResult,
    metrics_of,
    write_report,
    write_results,
)

logger = logging.getLogger("flwr_dpkmeans.server")

_STRATEGY_KEYS = (
    "algorithm",
    "epsilon",
    "unit",
    "trust",
    "noise",
    "alpha",
    "schedule",
    "packing",
    "min-clients",
    "max-retries",
    "count-share",
)
_ZERO_MEANS_AUTOMATIC = ("delta", "n-examples", "n-features", "max-iter", "n-clients", "max-epsilon")
_EMPTY_MEANS_AUTOMATIC = ("post-processing",)
_NEGATIVE_MEANS_AUTOMATIC = ("random-state", "max-silent")
_APP_KEYS = (
    "data",
    "label-column",
    "partition",
    "partition-seed",
    "bounds",
    "n-clusters",
    "num-clients",
    "radius-clipping",
    "output",
    "join-timeout",
    "round-timeout",
    "run-timeout",
)
_PARTITIONS = (Partition.IID.value, Partition.SHARDS.value)
RUN_CONFIG_KEYS = frozenset(
    (*_STRATEGY_KEYS, *_ZERO_MEANS_AUTOMATIC, *_EMPTY_MEANS_AUTOMATIC, *_NEGATIVE_MEANS_AUTOMATIC, *_APP_KEYS)
) - {"n-clients"}

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the configured algorithm and say where everything is."""
    show_logs()
    try:
        strategy = strategy_from_run_config(context.run_config)
        result = strategy.start(grid=grid)
        folder = run_folder(str(context.run_config.get("output", "")), context.run_id)
        report_result(strategy, result, folder)
    except DPKMeansError as error:
        logger.error("%s: %s", type(error).__name__, error)
        raise SystemExit(1) from error


def strategy_from_run_config(run_config: Mapping[str, Any]) -> PrivateKMeans:
    """Build the strategy from Flower's run configuration.

    Parameters
    ----------
    run_config : mapping
        Hyphenated names of `flwr_dpkmeans.config.KMeansConfig`; 0, "" or -1 stand for "automatic" as `pyproject.toml`
        says, since Flower's configuration holds scalars only.

    Returns
    -------
    PrivateKMeans

    Raises
    ------
    ConfigurationError
        With the nearest valid key, or one sentence on the value.
    """
    for key in run_config:
        if key not in RUN_CONFIG_KEYS:
            raise ConfigurationError(f"there is no run-config key {key!r}: {nearest(key, RUN_CONFIG_KEYS)}")
    values: dict[str, Any] = {key: run_config[key] for key in _STRATEGY_KEYS if key in run_config}
    values |= {key: run_config[key] for key in _ZERO_MEANS_AUTOMATIC if run_config.get(key, 0) != 0}
    values |= {key: run_config[key] for key in _EMPTY_MEANS_AUTOMATIC if run_config.get(key, "") != ""}
    values |= {key: run_config[key] for key in _NEGATIVE_MEANS_AUTOMATIC if run_config.get(key, -1) != -1}
    if run_config.get("num-clients", 0) != 0:
        values["n-clients"] = run_config["num-clients"]
    elif not is_simulated_server():
        raise ConfigurationError(
            "num-clients is 0, but outside a simulation nobody knows how many clients are still to join: give the "
            "number that must take part, such as num-clients=3."
        )
    values["radius-clipping"] = run_config.get("radius-clipping", True)
    _require_source(str(run_config.get("data", "")))
    _require_partition(str(run_config.get("partition", _PARTITIONS[0])))
    # Deployed nodes bring their own files, so nothing is known of them whatever `data` says.
    described = BUNDLED.get(str(run_config.get("data", ""))) if is_simulated_server() else None
    if described is not None:
        # A bundled data set's size is public: it is printed in scikit-learn's documentation.
        values.setdefault("n-examples", described.n_examples)
        values.setdefault("n-features", described.n_features)
    options = {key.replace("-", "_"): value for key, value in values.items()}
    if "n-clusters" not in run_config:
        raise ConfigurationError("the run configuration has no n-clusters: give it, such as n-clusters=10.")
    timeouts = Timeouts(
        joining=run_config.get("join-timeout", 120.0),
        round=run_config.get("round-timeout", 600.0),
        run=run_config.get("run-timeout", 86_400.0),
    )
    bounds = _bounds(run_config, described.bounds if described is not None else None)
    return PrivateKMeans(run_config["n-clusters"], bounds=bounds, timeouts=timeouts, **options)


def report_result(strategy: PrivateKMeans, result: KMeansResult, folder: Path) -> None:
    """Write what the server may know and print the absolute paths of all files."""
    report = strategy.run.report
    logger.info("%s", report)
    server = folder / "server"
    clusters = strategy.run.clusters
    if clusters is None:
        paths = write_report(server, report, metrics_of(report, None, None))
    else:
        centroids = in_callers_units(strategy.run.plan, clusters.centroids)
        paths = write_results(
            server, RunResult(centroids, clusters.counts, clusters.movements, report, scaled=clusters.centroids)
        )
    logger.info("files of the server:")
    for path in paths:
        logger.info("  %s", path)
    for node in result.node_ids:
        _log_client_files(folder, node, confirmed=node in result.confirmed)


def _log_client_files(folder: Path, node: int, *, confirmed: bool) -> None:
    """Say where one client's files are: below the run's folder if it shares this disk, else in its own place."""
    client = folder / f"client-{node}"
    names = (CENTROIDS_FILE, REPORT_FILE, METRICS_FILE, PICTURE_FILE)
    if not confirmed:
        logger.info("client %d did not confirm its result: look at its log", node)
    elif (client / CENTROIDS_FILE).is_file():
        logger.info("files of client %d:", node)
        for name in names:
            logger.info("  %s", (client / name).absolute())
    else:
        logger.info("client %d has its files in its own output folder (its log says where)", node)


def _require_source(source: str) -> None:
    """Refuse a name that is neither bundled nor a path; whether the path exists is known on the nodes only."""
    if source and source not in BUNDLED and not Path(source).suffix and not {"/", "\\"} & set(source):
        raise ConfigurationError(
            f"data is {source!r}, but it must be a bundled data set or the path of a .csv, .npy, .npz or .parquet "
            f"file: {nearest(source, BUNDLED)}"
        )


def _require_partition(kind: str) -> None:
    """Refuse splits that need a column, which a run configuration has no key for."""
    if kind not in _PARTITIONS:
        raise ConfigurationError(f"partition is {kind!r}, which is not known here: {nearest(kind, _PARTITIONS)}")


def _bounds(run_config: Mapping[str, Any], documented: Bounds | None) -> Any:
    """Bounds as given, else the documented ones of a bundled data set."""
    given = run_config.get("bounds", "")
    if given != "":
        return given
    if documented is not None:
        return documented
    raise ConfigurationError(
        "no bounds were given, and they may not be taken from private data: give public ones, such as bounds='0,100' "
        "or the path of a file with columns feature,lower,upper."
    )
