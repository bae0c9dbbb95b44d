"""The ServerApp that `flwr run` starts: configuration in, running view and files out."""

from __future__ import annotations

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.supercore.exit import ExitCode, flwr_exit

from flwr_dpkmeans.errors import DPKMeansError
from flwr_dpkmeans.flower.client_app import OutputFiles, run_folder
from flwr_dpkmeans.flower.exchange import is_deployed
from flwr_dpkmeans.flower.kmeans_client import write_result
from flwr_dpkmeans.flower.run_config import server_log_options, strategy_from_run_config
from flwr_dpkmeans.flower.strategy import KMeansResult, PrivateKMeans
from flwr_dpkmeans.log import Place, event, placed, placed_logger, show_logs
from flwr_dpkmeans.results.writer import (
    REPORT_FILE,
    write_report,
)

__all__ = ["app", "main", "report_result", "strategy_from_run_config"]

logger = placed_logger("flwr_dpkmeans.server")

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the configured algorithm and say where everything is."""
    with placed(Place(run=context.run_id)):
        show_logs()
        try:
            show_logs(server_log_options(context.run_config))
            strategy = strategy_from_run_config(context.run_config)
            result = strategy.start(grid=grid)
            folder = run_folder(str(context.run_config.get("output", "")), context.run_id)
            first_only = context.run_config.get("output-files") == OutputFiles.FIRST
            report_result(strategy, result, folder, first_only=first_only)
        except DPKMeansError as error:
            logger.error("%s: %s", type(error).__name__, error, extra=event("stopped", kind=type(error).__name__))
            if is_deployed(grid):
                # A plain exit would skip the upload of this line, and the run would count as running for a minute.
                flwr_exit(ExitCode.SERVERAPP_EXCEPTION, "The run ended with the sentence above.")
            raise SystemExit(1) from error


def report_result(strategy: PrivateKMeans, result: KMeansResult, folder: Path, *, first_only: bool = False) -> None:
    """Write what the server may know and print the absolute paths of all files."""
    report = result.privacy or strategy.run.report
    _log_lines(report)
    if result.evaluation is not None:
        _log_lines(result.evaluation)
    server, plan, clusters = folder / "server", strategy.run.plan, strategy.run.clusters
    if clusters is None:
        paths = write_report(server, report)
    else:
        if getattr(plan.task, "choose_n_clusters", False):
            logger.info("k = %d was chosen, of at most %d", len(clusters.centroids), strategy.config.n_clusters)
        paths = write_result(server, plan, clusters, report, plan.config.feature_names, result.evaluation)
    logger.info("files of the server:")
    for path in paths:
        logger.info("  %s", path)
    for node in result.node_ids:
        if not first_only or (folder / f"client-{node}" / REPORT_FILE).is_file():
            _log_client_files(folder, node, confirmed=node in result.confirmed)


def _log_lines(text: object) -> None:
    """Log text of several lines, one by one."""
    for line in str(text).splitlines():
        logger.info("%s", line)


def _log_client_files(folder: Path, node: int, *, confirmed: bool) -> None:
    """Say where one client's files are: below the run's folder if it shares this disk, else in its own place."""
    client = folder / f"client-{node}"
    if not confirmed:
        logger.info("client %d did not confirm its result: look at its log", node)
    elif (client / REPORT_FILE).is_file():
        logger.info("files of client %d:", node)
        for path in sorted(client.iterdir()):
            logger.info("  %s", path.absolute())
    else:
        logger.info("client %d has its files in its own output folder (its log says where)", node)
