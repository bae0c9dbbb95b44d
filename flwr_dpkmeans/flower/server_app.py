"""The ServerApp that `flwr run` starts: configuration in, running view and files out.

Every key of Flower's run configuration is generated from the options. Such a
configuration holds scalars: ``"auto"`` stands for what the run finds out or decides
itself. An algorithm's own options and the cohort's are tables of their own
(``fastlloyd.alpha``), which Flower joins to such names.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from flwr_dpkmeans.data.schema_source import schema_of
from flwr_dpkmeans.errors import (
    DPKMeansError,
)
from flwr_dpkmeans.flower._private import ended_run_error
from flwr_dpkmeans.flower.client.ray_nodes import OutputFiles
from flwr_dpkmeans.flower.client.result_folders import run_folder
from flwr_dpkmeans.flower.client.written_result import Columns, run_result, write_result
from flwr_dpkmeans.flower.progress import recorded_progress
from flwr_dpkmeans.flower.run_config import checked_strategy
from flwr_dpkmeans.flower.strategies.run_log import say
from flwr_dpkmeans.flower.strategies.strategy_result import KMeansResult
from flwr_dpkmeans.flower.strategy import PrivateKMeans
from flwr_dpkmeans.log import (
    LogOptions,
    Place,
    named,
    placed,
    placed_logger,
    show_logs,
    where_raised,
)
from flwr_dpkmeans.results.headline import headline
from flwr_dpkmeans.results.writer import PAGE_FILE, write_report

logger = placed_logger("flwr_dpkmeans.server")

app = ServerApp()

EndedError = ended_run_error()
"""A run that ended with a sentence, which Flower shows with the run and its log."""


def ended_by(error: Exception) -> Exception:
    """What to raise where a run ends by an error.

    Its sentence, if it is of this package.
    """
    if isinstance(error, DPKMeansError):
        return EndedError(f"{type(error).__name__}: {named(str(error))}")
    return EndedError(where_raised(error))


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the configured algorithm and say where everything is."""
    with placed(Place(run=context.run_id)):
        show_logs()
        folder = run_folder(str(context.run_config.get("output", "")), context.run_id)
        try:
            with recorded_progress(context.run_id, folder) as progress:
                show_logs(LogOptions.of(context.run_config))
                strategy = checked_strategy(
                    context.run_config, len(list(grid.get_node_ids()))
                )
                strategy.progress = progress
                result = strategy.start(grid=grid)
                report_result(
                    strategy,
                    result,
                    folder,
                    context.run_config,
                )
        except Exception as error:
            ended = ended_by(error)
            if not isinstance(error, DPKMeansError):
                # Its text may hold what was released.
                logger.error("the run has ended: %s", ended)
            raise ended from None


def report_result(
    strategy: PrivateKMeans,
    result: KMeansResult,
    folder: Path,
    run_config: Mapping[str, object],
) -> None:
    """Write what the server may know and print the absolute paths of all files."""
    first_only, schema = (
        run_config.get("output-files") == OutputFiles.FIRST,
        schema_of(run_config.get("bounds")),
    )
    report = result.privacy or strategy.run.report
    server, plan, clusters = folder / "server", strategy.run.plan, strategy.run.clusters
    clustering = None
    if clusters is None:
        _logged(report)
        paths = write_report(server, report)
    else:
        if getattr(plan.task, "choose_n_clusters", False):
            logger.info(
                "k = %d was chosen, of at most %d",
                len(clusters.centroids),
                strategy.config.n_clusters,
            )
        columns = Columns(plan.config.feature_names, schema)
        paths = write_result(
            server,
            plan,
            clusters,
            report,
            columns,
            show=_logged,
            evaluation=result.evaluation,
        )
        if "centroids" in clusters.arrays:
            clustering = run_result(
                plan,
                clusters,
                report,
                columns,
            )
            report = clustering.report
    pages = {node: folder / f"client-{node}" / PAGE_FILE for node in result.node_ids}
    shown = {node: page.is_file() and page.absolute() for node, page in pages.items()}
    shown = {node: page for node, page in shown.items() if page or not first_only}
    say(
        "log_files.j2",
        paths=paths,
        pages=shown,
        confirmed=result.confirmed,
    )
    if clustering is not None:
        _logged("\n".join(headline(report, clustering)))
    elif clusters is None:
        first = next((page for page in shown.values() if page), None)
        say("log_unseen.j2", page=first)


def _logged(text: object) -> None:
    for line in str(text).splitlines():
        logger.info("%s", line)
