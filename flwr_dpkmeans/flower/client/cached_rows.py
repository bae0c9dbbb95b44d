"""Rows beyond memory, which a node keeps from message to message of a run."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

from flwr.app import ConfigRecord, Context

from flwr_dpkmeans.data.files.sources import is_clustered, source_files
from flwr_dpkmeans.data.loading.layout import Layout
from flwr_dpkmeans.data.store import Store
from flwr_dpkmeans.flower.client.result_folders import HOME_FOLDER
from flwr_dpkmeans.log import placed_logger

logger = placed_logger("flwr_dpkmeans.client")

TABLE = "dpkmeans-table"

_DIGEST_CHARACTERS = 32
CHANGED = (
    "the table's files were written as the run went on: if rows changed, its result is"
    " of no table; run again."
)


def cache_of(context: Context, layout: Layout) -> Store:
    """Where a node keeps a table beyond memory from message to message of a run.

    Each of which is a new process.

    The node's ``cache`` is a folder, or ``"no"``: then all rows are in memory. Whatever
    changes the rows changes the file's name, and each run has its own.
    """
    config = context.node_config
    data_path = str(config["data-path"])
    if is_clustered(data_path):
        _, _, data_path = data_path.partition("://")
    source = Path(data_path).expanduser()
    schema_path = config.get("schema") or source
    schema = Path(str(schema_path))
    files = (source, schema, *source_files(source))
    contents = [str(source), repr(layout)]
    for file in files:
        if not file.exists():
            continue
        facts = file.stat()
        state = (
            str(file.absolute()),
            facts.st_size,
            facts.st_mtime_ns,
        )
        contents.append(repr(state))
    text = json.dumps(contents)
    digest = hashlib.sha256(text.encode())
    characters = digest.hexdigest()[:_DIGEST_CHARACTERS]
    store = stored_rows_of(context)
    name = store.name + characters
    return replace(store, name=name)


def say_if_changed(context: Context, store: Store) -> None:
    """Warn, in the own log, where a table is another one than at the last message.

    The result is then of none.
    """
    state = context.state
    before = state.config_records.get(TABLE)
    has_changed = False
    if before:
        name = str(before.get("name"))
        prefix = stored_rows_of(context).name
        # A record of another run says nothing of this one.
        if name.startswith(prefix):
            has_changed = bool(before.get("changed"))
            if name != store.name:
                logger.warning(CHANGED)
                has_changed = True
    state[TABLE] = ConfigRecord(
        {
            "name": store.name,
            "changed": has_changed,
        }
    )


def stored_rows_of(context: Context) -> Store:
    """All that a run keeps of a node's rows beyond memory."""
    config = context.node_config
    folder = str(config.get("cache", ""))
    root = Path.home() / HOME_FOLDER
    if folder:
        root = Path(folder).expanduser()
    prefix = f"{context.run_id}_{context.node_id}_"
    return Store(
        root / "rows",
        prefix,
        keeps=folder != "no",
    )
