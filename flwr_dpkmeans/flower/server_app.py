"""The ServerApp that `flwr run` starts: configuration in, running view and files out.

Every key of Flower's run configuration is generated from the options. Such a
configuration holds scalars: ``"auto"`` stands for what the run finds out or decides
itself. An algorithm's own options and the cohort's are tables of their own
(``fastlloyd.alpha``), which Flower joins to such names.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from enum import Enum
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from flwr_dpkmeans import foreign_names
from flwr_dpkmeans.algorithms.lookup import algorithm_entry
from flwr_dpkmeans.data.bundled import BUNDLED, load_server_table, require_source
from flwr_dpkmeans.data.partition import (
    COLUMN_KINDS,
    MIXTURE,
    MIXTURE_BOUNDS,
    Partition,
    parse_sizes,
)
from flwr_dpkmeans.data.schema import schema_of
from flwr_dpkmeans.data.tables import Layout, Table
from flwr_dpkmeans.errors import (
    ConfigurationError,
    DPKMeansError,
    member,
    nearest,
    require_positive,
)
from flwr_dpkmeans.flower._private import ended_run_error
from flwr_dpkmeans.flower.client.ray_nodes import OutputFiles
from flwr_dpkmeans.flower.client.result_folders import run_folder
from flwr_dpkmeans.flower.client.simulated_tables import mixture_of, simulated_part
from flwr_dpkmeans.flower.client.written_result import run_result, write_result
from flwr_dpkmeans.flower.messages.server_kind import is_simulated_server
from flwr_dpkmeans.flower.progress import kept
from flwr_dpkmeans.flower.strategy import KMeansResult, PrivateKMeans, Timeouts, say
from flwr_dpkmeans.log import (
    LogOptions,
    Place,
    named,
    placed,
    placed_logger,
    show_logs,
    where_raised,
)
from flwr_dpkmeans.options import (
    AUTO,
    DEFAULT_ALGORITHM,
    Cohort,
    foreign_table,
    task_kind,
)
from flwr_dpkmeans.results.headline import headline
from flwr_dpkmeans.results.writer import PAGE_FILE, write_report
from flwr_dpkmeans.sums.option_rules import rule_of
from flwr_dpkmeans.sums.public_facts import ServerData
from flwr_dpkmeans.sums.round import Array
from flwr_dpkmeans.sums.settings import EvaluationKind, Settings
from flwr_dpkmeans.sums.task import TASKS, Task

logger = placed_logger("flwr_dpkmeans.server")

app = ServerApp()


EndedError = ended_run_error()
"""A run that ended with a sentence, which Flower shows with the run and its log."""


def ended_by(error: Exception) -> Exception:
    """What to raise where a run ends by an error: its sentence, if it is of this
    package.
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
            with kept(context.run_id, folder) as progress:
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
    run_config: Mapping[str, Any],
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
        names = plan.config.feature_names
        paths = write_result(
            server,
            plan,
            clusters,
            report,
            names,
            schema,
            show=_logged,
            evaluation=result.evaluation,
        )
        if "centroids" in clusters.arrays:
            clustering = run_result(
                plan,
                clusters,
                report,
                names,
                schema,
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


# -- the run configuration -------------------------------------------------------------

_SIMULATED = "(simulated)"
"""Beside the keys: whether the run is a simulation."""


@dataclass(frozen=True)
class RunKey:
    """One key of the run configuration."""

    name: str
    """As it is spelt, with the table that it is in: ``fastlloyd.alpha``."""
    default: str | int | float | bool
    """``"auto"`` for an option that may be left to the run."""
    about: str
    """One line for people."""
    option: str = ""
    """The option that it stands for, by its flat name; empty: the app reads it itself.
    """


_KEYS = tomllib.loads(
    Path(__file__).with_name("run_keys.toml").read_text(encoding="utf-8")
)
_DATA, _RUN, _APP = (
    [RunKey(name, **key) for name, key in _KEYS[table].items()]
    for table in ("data", "run", "app")
)
_DEFAULTS = {
    key.name: key.default for key in (*_DATA, *_RUN, *_APP) if key.name != "n-clusters"
} | {"data": ""}
"""What the app itself reads, where a configuration does not say it."""
_OF_SCHEMA = frozenset(
    (
        "schema_digest",
        "standard_columns",
        "profile_widths",
        "profile_share",
        "gap_columns",
    )
)
_ELSEWHERE = _OF_SCHEMA | {
    "bounds",
    "private_bounds",
    "feature_names",
    "n_clients",
    "masking",
}
"""Settings that follow from other keys, or that no deployment may change."""
_STATED = {"epsilon": 2.0}
"""Defaults of the app that are not the library's."""


def table_of(algorithm: str) -> str:
    """Name of an algorithm's table, as server_kmeans_plus_plus.

    TOML's bare keys have no plus sign.
    """
    return algorithm.replace("+", "_plus")


def _own_keys() -> tuple[RunKey, ...]:
    """Keys outside of algorithms' tables."""
    of_cohort = {one.name for one in fields(Cohort)}
    settings = [
        one for one in fields(Settings) if one.name not in _ELSEWHERE | of_cohort
    ]
    return (
        *_DATA,
        *_RUN,
        *(_key(one, default=_STATED.get(one.name)) for one in settings),
        *_APP,
        *(
            _key(one, table="cohort")
            for one in fields(Cohort)
            if one.name not in _ELSEWHERE
        ),
    )


def run_keys() -> tuple[RunKey, ...]:
    """Every key that a run configuration may have, those of other packages' algorithms
    included.
    """
    return (*_own_keys(), *(key for kind in TASKS.values() for key in _keys_of(kind)))


def _keys_of(kind: type[Task]) -> Iterator[RunKey]:
    """An algorithm's own options; the number of its iterations is a key that all have."""
    for one in fields(kind.option_class()):
        if one.name != "max_iter":
            yield _key(one, table=table_of(kind.name))


def _key(
    one: Field[Any],
    *,
    table: str = "",
    default: Any = None,
) -> RunKey:
    rule = rule_of(one)
    if default is None:
        default = (
            AUTO
            if one.default in (None, MISSING) or one.name == "trust"
            else one.default
        )
    value = default.value if isinstance(default, Enum) else default
    about = "" if rule is None else rule.about
    if one.name == "trust":
        about += "; auto: the algorithm's own"
    name = one.name.replace("_", "-")
    return RunKey(
        f"{table}.{name}" if table else name,
        value,
        about.replace("automatic:", "auto:"),
        one.name,
    )


def checked_strategy(
    run_config: Mapping[str, Any],
    n_nodes: int,
    *,
    simulated: bool | None = None,
) -> PrivateKMeans:
    """Build the strategy, and refuse at once what simulated nodes, so many (0: not
    known), would refuse after a minute.

    Their table (file, columns, cells, split) and the plan for it are looked at as they
    look at them. `simulated` is whether this will be a simulation, if not this process
    is one.
    """
    simulated = is_simulated_server() if simulated is None else simulated
    strategy = strategy_from_run_config(run_config, simulated=simulated)
    source = str({**_DEFAULTS, **run_config}["data"])
    if simulated and source != MIXTURE:
        node = {"partition-id": 0, "num-partitions": n_nodes} if n_nodes else {}
        table = simulated_part(source, run_config, node)
        n_clients = strategy.config.n_clients or n_nodes
        if n_clients:
            width = len(table.names) or table.points.shape[1]
            strategy.rehearse(
                n_clients,
                width,
                table.names,
                has_labels=table.labels is not None,
            )
    return strategy


def strategy_from_run_config(
    run_config: Mapping[str, Any],
    *,
    server_points: Array | None = None,
    simulated: bool | None = None,
) -> PrivateKMeans:
    """Build the strategy from Flower's run configuration.

    a file of server data is read here.

    Keys are those of `run_keys`; ``"auto"`` leaves an option to the run.
    `server_points` (n_server, d) are the server's own where they are in memory already.
    Raises a ConfigurationError with the nearest valid key, with one sentence on the
    value, or for an option of an algorithm that was not chosen, and a DataError if the
    server's data are unusable.
    """
    require_known(run_config)
    makes_clusters = (
        "n_clusters"
        in task_kind(run_config.get("algorithm", DEFAULT_ALGORITHM)).parameter_names()
    )
    if makes_clusters and "n-clusters" not in run_config:
        raise ConfigurationError(
            "the run configuration has no n-clusters: give it, such as n-clusters=10."
        )
    given = {
        **_DEFAULTS,
        **run_config,
        _SIMULATED: is_simulated_server() if simulated is None else simulated,
    }
    for key in ("data", "server-data"):
        if given[key]:
            require_source(key, str(given[key]), MIXTURE)
    _require_partition(given)
    member("output-files", given["output-files"], OutputFiles)
    LogOptions.of(given)
    if given.get("evaluation") == EvaluationKind.EXACT.value and not given[_SIMULATED]:
        raise ConfigurationError(
            "evaluation is 'exact', which releases sums without noise and exists in"
            " simulation only: choose evaluation='private'."
        )
    server_data = _server_data(given) if server_points is None else server_points
    options, n_clients = (
        _known_schema(given) | _given_options(given),
        _unless_auto(given, "num-clients"),
    )
    if n_clients is None and not given[_SIMULATED]:
        raise ConfigurationError(
            "num-clients is 'auto', but outside a simulation nobody knows how many"
            " clients are still to join: give the number that must take part, such as"
            " num-clients=3."
        )
    if makes_clusters:
        # Flower may bring an override that stands beside "auto" as text.
        stated = given["n-clusters"]
        n_clusters = (
            int(stated) if isinstance(stated, str) and stated.isdecimal() else stated
        )
        options |= {"n_clusters": n_clusters, "max_clusters": given["max-clusters"]}
    return PrivateKMeans(
        bounds=_bounds(given, has_server_points=server_data is not None),
        bounds_domain=_unless_auto(given, "bounds-domain"),
        server_data=server_data,
        timeouts=Timeouts(
            given["join-timeout"],
            given["round-timeout"],
            given["run-timeout"],
            given["concurrent"],
        ),
        n_clients=n_clients,
        **options,
    )


def require_known(run_config: Mapping[str, Any]) -> None:
    """Refuse a key that does not exist, with the nearest that does."""
    known = {key.name for key in run_keys()}
    for key in run_config:
        if key not in known:
            answer = foreign_names.answer(key, foreign_names.KEYS)
            if answer:
                raise ConfigurationError(
                    f"there is no run-config key {key!r}, as {answer}."
                )
            # One that all share stands in no table, as max-iter does.
            own = key.rpartition(".")[2]
            in_tables = (
                [repr(own)]
                if own in known
                else sorted(repr(one) for one in known if one.endswith(f".{key}"))
            )
            mend = (
                f"did you mean {' or '.join(in_tables)}?"
                if in_tables
                else nearest(key, known)
            )
            raise ConfigurationError(f"there is no run-config key {key!r}: {mend}")


def _given_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are given and not automatic, by their flat names."""
    kind = algorithm_entry(given["algorithm"])
    for other in TASKS.values():
        for key in _keys_of(other) if other is not kind else ():
            value = _unless_auto(given, key.name)
            if value is not None:
                foreign_table(
                    key.name,
                    key.option,
                    value,
                    other,
                    kind.name,
                )
    values = {
        key.option: _unless_auto(given, key.name)
        for key in (*_own_keys(), *_keys_of(kind))
        if key.option
    }
    return {option: value for option, value in values.items() if value is not None}


def _unless_auto(given: Mapping[str, Any], key: str) -> Any:
    """What a key was given; None where it is left to the run."""
    value = given.get(key, AUTO)
    return None if isinstance(value, str) and value == AUTO else value


def _simulated_source(given: Mapping[str, Any]) -> str:
    """What `data` names in a simulation.

    Deployed nodes bring their own files, so nothing is known of them.
    """
    return str(given["data"]) if given[_SIMULATED] else ""


def _known_schema(given: Mapping[str, Any]) -> dict[str, Any]:
    """What is public of the tables: names as given.

    a bundled data set's size and names are in its documentation.
    """
    source, known = _simulated_source(given), dict[str, Any]()
    if source == MIXTURE:
        known["n_features"] = mixture_of(given).n_features
    elif source in BUNDLED:
        known = {
            name: getattr(BUNDLED[source], name)
            for name in ("n_examples", "n_features", "feature_names")
        }
    if schema_of(given.get("bounds")) is not None:
        return {key: value for key, value in known.items() if key == "n_examples"}
    names = Layout.of(_unless_auto(given, "columns") or "").columns
    return known | ({"feature_names": names} if names else {})


def _server_data(given: Mapping[str, Any]) -> Table | Array | None:
    """The server's own points: a file, a bundled data set, or those of the generated
    mixture.
    """
    source = str(given["server-data"])
    if not source and _simulated_source(given) == MIXTURE:
        source = (
            MIXTURE
            if algorithm_entry(given["algorithm"]).server_data is ServerData.NEEDED
            else ""
        )
    if not source:
        return None
    if source == MIXTURE:
        return mixture_of(given).server_points()
    schema, left_out = (
        schema_of(given.get("bounds")),
        {str(given[key]) for key in ("label-column", "partition-column")},
    )
    return load_server_table(source, ignored=left_out - {""}, schema=schema)


def _bounds(given: Mapping[str, Any], *, has_server_points: bool) -> Any:
    """Bounds as given, or the documented ones of the data.

    None where neither are, or they follow from server data.
    """
    stated, source = _unless_auto(given, "bounds"), _simulated_source(given)
    if stated is not None or has_server_points:
        return stated
    if source == MIXTURE:
        return MIXTURE_BOUNDS
    return BUNDLED[source].bounds if source in BUNDLED else None


def _require_partition(given: Mapping[str, Any]) -> None:
    kind = str(given["partition"])
    member("partition", kind, Partition)
    if given["data"] == MIXTURE and kind != Partition.IID.value:
        raise ConfigurationError(
            f"partition is {kind!r}, but the rows of the mixture are drawn for each"
            " client: leave partition='iid'."
        )
    if kind in COLUMN_KINDS and not given["partition-column"]:
        raise ConfigurationError(
            f"partition is {kind!r}, but partition-column does not say by which column:"
            " name one of the file's columns, or 'target' for bundled data."
        )
    require_positive("partition-alpha", given["partition-alpha"])
    if kind == Partition.FIXED_SIZES.value:
        parse_sizes(given["partition-sizes"])
