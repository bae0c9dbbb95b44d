"""Rows beyond memory, which a node keeps from message to message of a run."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

from flwr.app import ConfigRecord, Context

from flwr_dpkmeans.data.files.reader import is_clustered, source_files
from flwr_dpkmeans.data.rows import Store
from flwr_dpkmeans.data.tables import Layout
from flwr_dpkmeans.flower.client.result_folders import HOME_FOLDER
from flwr_dpkmeans.log import placed_logger

logger = placed_logger("flwr_dpkmeans.client")

TABLE = "dpkmeans-table"

CHANGED = (
    "the table's files were written as the run went on: if rows changed, its result is"
    " of no table; run again."
)


def cache_of(context: Context, layout: Layout) -> Store:
    """Where a node keeps a table beyond memory from message to message of a run, each
    of which is a new process.

    The node's ``cache`` is a folder, or ``"no"``: then all rows are in memory. Whatever
    changes the rows changes the file's name, and each run has its own.
    """
    config, store = context.node_config, stored_rows_of(context)
    given = str(config["data-path"])
    source = Path(
        given.partition("://")[2] if is_clustered(given) else given
    ).expanduser()
    files = [source, Path(str(config.get("schema") or source)), *source_files(source)]
    states = [
        (str(file.absolute()), (now := file.stat()).st_size, now.st_mtime_ns)
        for file in files
        if file.exists()
    ]
    said = [str(source), repr(layout), *map(repr, states)]
    return replace(
        store,
        name=store.name + hashlib.sha256(json.dumps(said).encode()).hexdigest()[:32],
    )


def say_if_changed(context: Context, store: Store) -> None:
    """Warn, in the own log, where a table is another one than at the run's last
    message: the result is of none.
    """
    known = context.state.config_records.get(TABLE) or ConfigRecord()
    own = str(known.get("name")).startswith(stored_rows_of(context).name)
    if changed := own and known["name"] != store.name:
        logger.warning(CHANGED)
    changed = changed or (own and bool(known.get("changed")))
    context.state[TABLE] = ConfigRecord({"name": store.name, "changed": changed})


def stored_rows_of(context: Context) -> Store:
    """All that a run keeps of a node's rows beyond memory."""
    folder = str(context.node_config.get("cache", ""))
    root = Path(folder).expanduser() if folder else Path.home() / HOME_FOLDER
    return Store(
        root / "rows", f"{context.run_id}_{context.node_id}_", keeps=folder != "no"
    )
