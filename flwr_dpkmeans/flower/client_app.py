"""A client in Flower: what a node says for itself, the secure-aggregation mod, and
ready-made ClientApps.

Settings, folders, the log, and whether it is simulated a node reads from its own part
of Flower's context.

The mod stands between Flower and the NumPyClient, so that no exact statistic leaves the
node: a message that is not of the protocol never reaches the wrapped client, which
would answer it without masks.

`client_app(load_data)` is for any app, and `app` is what `flwr run` starts.
"""

from __future__ import annotations

import hashlib
import json
import logging
import numbers
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from numpy.typing import ArrayLike, NDArray

from flwr_dpkmeans import errors
from flwr_dpkmeans.algorithms import algorithm_entry
from flwr_dpkmeans.algorithms.statistics.array_sum import ArraySumTask
from flwr_dpkmeans.data.arrays_of import as_array
from flwr_dpkmeans.data.bundled import BUNDLED
from flwr_dpkmeans.data.files.dialect import Dialect
from flwr_dpkmeans.data.files.reader import open_table
from flwr_dpkmeans.data.files.sources import is_clustered, source_files
from flwr_dpkmeans.data.files.whole_tables import whole_frame
from flwr_dpkmeans.data.frame_names import frame_columns
from flwr_dpkmeans.data.loading.class_labels import as_classes
from flwr_dpkmeans.data.loading.declared_tables import load_stated
from flwr_dpkmeans.data.loading.layout import Layout
from flwr_dpkmeans.data.loading.source import load_source_once
from flwr_dpkmeans.data.loading.table import Table
from flwr_dpkmeans.data.mixture import MixtureClients
from flwr_dpkmeans.data.partition import (
    MIXTURE,
    Partition,
    parse_sizes,
    partition_indices,
)
from flwr_dpkmeans.data.rows import Rows
from flwr_dpkmeans.data.schema import Encoded, Schema
from flwr_dpkmeans.data.schema_source import schema_of
from flwr_dpkmeans.data.store import Store
from flwr_dpkmeans.errors import (
    ConfigurationError,
    DataError,
    DPKMeansError,
    LocalMisuseError,
    ProtocolError,
)
from flwr_dpkmeans.flower.exchange import (
    RECORD,
    content_of,
    log_size,
    packet_of,
    recall,
    remember,
)
from flwr_dpkmeans.flower.kmeans_client import (
    DESCRIBE,
    STATISTIC,
    KMeansClient,
    held_by,
)
from flwr_dpkmeans.flower.row_cluster import ClusterClient, summed_elsewhere
from flwr_dpkmeans.log import (
    LogOptions,
    Place,
    event,
    placed,
    placed_logger,
    printable,
    show_logs,
    where_raised,
)
from flwr_dpkmeans.node.guard import NodeGuard
from flwr_dpkmeans.node.identity import Identity
from flwr_dpkmeans.node.ledger_file import FileLedger
from flwr_dpkmeans.node.node_log import log_failure
from flwr_dpkmeans.node.node_log import logger as node_logger
from flwr_dpkmeans.node.policy import DEPLOYED, ClientPolicy
from flwr_dpkmeans.node.settings import NodeSettings
from flwr_dpkmeans.options import AUTO, DEFAULT_ALGORITHM
from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.secagg.messages import Stage
from flwr_dpkmeans.sums.build import build_algorithm
from flwr_dpkmeans.sums.client import Client, Memory
from flwr_dpkmeans.sums.plan import FIRST_NODE_ID
from flwr_dpkmeans.sums.round import Array, State
from flwr_dpkmeans.sums.statement import LOCAL
from flwr_dpkmeans.sums.task import Task
from flwr_dpkmeans.sums.wire import (
    Failure,
    Packet,
    Status,
    decode_request,
    encode_failure,
    encode_reply,
)

logger = placed_logger("flwr_dpkmeans.client")

HOME_FOLDER = "flwr-dpkmeans"
INTERNAL_SENTENCE = (
    "this client could not answer (the reason is in its own log): look there, then"
    " start a new run."
)
_TABLE = "dpkmeans-table"
_CHANGED = (
    "the table's files were written as the run went on: if rows changed, its result is"
    " of no table; run again."
)
TABLE_SENTENCE = (
    "this client's table cannot be read as its configuration says (its own log says"
    " why): correct it there, then start a new run."
)
NextCall = Callable[[Message, Context], Message]
Answered = tuple[Sequence[Any], Any]
"""Arrays and metrics."""
_EMPTY_TENSOR = "_empty"
_OK = 0


class OutputFiles(StrEnum):
    """Which virtual clients write their result into files."""

    ALL = "all"
    FIRST = "first"


def is_simulation(context: Context) -> bool:
    """Whether this node is a virtual one of Flower's Ray simulation, by signs that no
    message can forge.

    A deployed client may use Ray for itself, so the partition that Flower gives its
    virtual nodes must be there too.
    """
    return "partition-id" in context.node_config and runs_on_ray()


def runs_on_ray() -> bool:
    """Whether this process has joined a Ray cluster."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def output_folder(context: Context) -> Path:
    """Folder of one client's results of this run alone, where the node's own
    configuration (``output``) says.

    The run's ``output`` counts in a simulation only: elsewhere, a path from the server
    would be an arbitrary write.
    """
    root = str(context.node_config.get("output") or "")
    if not root and is_simulation(context):
        root = str(context.run_config.get("output", ""))
    return run_folder(root, context.run_id) / f"client-{context.node_id}"


def result_folder(context: Context) -> Path | None:
    """Folder for one client's result.

    None for a virtual client that is not to write one.

    All virtual clients of a run end with the same result, and a picture takes half a
    second. A deployed node always writes: the server may not decide that.
    """
    first_only = (
        str(context.run_config.get("output-files", OutputFiles.ALL))
        == OutputFiles.FIRST
    )
    if (
        is_simulation(context)
        and first_only
        and context.node_config["partition-id"] != 0
    ):
        return None
    return output_folder(context)


def stream_number(context: Context) -> int:
    """Number of this node's streams of seeded noise and coins, which protect nobody.

    Secure noise has none.

    A virtual client is counted by its partition, as Flower draws new node ids for every
    simulation.
    """
    partition = context.node_config.get("partition-id")
    if isinstance(partition, int) and is_simulation(context):
        return FIRST_NODE_ID + partition
    return context.node_id


def run_folder(output: str, run_id: int) -> Path:
    """Folder of a run, ``run-<run id>``, below `output` or ``~/flwr-dpkmeans``."""
    root = Path(output).expanduser().absolute() if output else Path.home() / HOME_FOLDER
    return root / f"run-{run_id}"


def node_settings(context: Context) -> NodeSettings:
    """Read a node's settings from its node configuration.

    Keys: ``policy`` (path of a TOML file), ``ledger`` (path), ``identity`` (path of a
    key file), ``data-path``, ``data-id``, ``output``; the data loader of this package's
    own app reads ``schema``, ``query``, ``columns``, ``header``, ``label-column`` and
    ``profile-columns`` as well, and the log ``log-format``, ``verbose`` and
    ``log-file``. A deployed node whose policy is missing or incomplete refuses every
    run; a policy or identity file that is missing or malformed, and pinned peers
    without an identity, are a ConfigurationError.
    """
    config: Mapping[str, Any] = context.node_config
    # A deployed node gives nothing to runs that protect nobody, unless its own policy
    # says so in so many words.
    simulated = is_simulation(context)
    policy = ClientPolicy() if simulated else DEPLOYED
    if config.get("policy"):
        path = Path(str(config["policy"])).expanduser()
        if not path.is_file():
            raise ConfigurationError(
                f"the policy file {path.absolute()} does not exist: correct the node's"
                " 'policy'."
            )
        policy = ClientPolicy.from_toml(path, base=policy)
    if is_clustered(config.get("data-path", "")):
        policy = summed_elsewhere(policy)
        if not config.get("data-id"):
            # Against a new budget for rows that had one as a file, or by another
            # scheme.
            raise ConfigurationError(
                "rows on a cluster need data-id, their name in the ledger: keep the one"
                " they had."
            )
    data_id = str(config.get("data-id") or config.get("data-path") or "default")
    ledger = Path(
        str(config.get("ledger") or default_ledger(context, data_id))
    ).expanduser()
    identity = (
        Identity.load(Path(str(config["identity"])).expanduser())
        if config.get("identity")
        else None
    )
    return NodeSettings(
        policy,
        FileLedger(ledger),
        data_id,
        simulated,
        identity,
    )


def default_ledger(context: Context, data_id: str) -> Path:
    """A simulated client's ledger lies beside its results.

    a deployed node's in the home folder, one per data set.
    """
    path = (
        Path.home()
        / HOME_FOLDER
        / f"ledger-{hashlib.sha256(data_id.encode()).hexdigest()[:16]}.jsonl"
    )
    if is_simulation(context):
        path = (
            output_folder(context).parent
            / "ledgers"
            / f"client-{context.node_id}.jsonl"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def show_node_logs(context: Context) -> None:
    """Show the lines as the node's own configuration says; a server has no part in it.

    Virtual clients show theirs only where the program that runs them has set up
    logging.
    """
    if not is_simulation(context):
        show_logs(LogOptions.of(context.node_config, may_write=True))


def look_for_guard() -> None:
    """Warn where Flower's own program runs this app.

    The guard runs it under another name.
    """
    if Path(sys.argv[0]).name == "flwr-clientapp":
        node_logger.warning(
            "this node has no guard and runs whatever app the SuperLink sends: start it"
            " by 'python -m flwr_dpkmeans node start NODE.toml'",
            extra=event("unguarded"),
        )


class SecureAggregation:
    """A Flower mod; `secure_aggregation_mod` is the instance with the default settings.

    Parameters
    ----------
    settings : callable, optional
        ``settings(context) -> NodeSettings``; by default read from the node's
        configuration.
    show_logs : callable, optional
        ``show_logs(context)`` is called first, to show this node's log; left out, the
        program's own logging does.
    wrapped : class
        What is behind it: `Wrapped`, a `KMeansClient`, or `WrappedApp`, an app of
        anybody's.

    Notes
    -----
    Exceptions never reach Flower, which would send their text to the server: the reply
    carries a fixed code and a sentence of public values, and the detail stays in the
    client's log.
    """

    def __init__(
        self,
        settings: Callable[[Context], NodeSettings] = node_settings,
        *,
        show_logs: Callable[[Context], None] | None = None,
        wrapped: type[Wrapped] | None = None,
    ) -> None:
        self._wrapped, self._settings, self._show_logs = (
            wrapped or Wrapped,
            settings,
            show_logs,
        )

    def __call__(
        self,
        message: Message,
        context: Context,
        call_next: NextCall,
    ) -> Message:
        """Answer a message of the protocol; anything else is refused."""
        return self.answer(
            message,
            context,
            partial(
                self._wrapped,
                message,
                context,
                call_next,
            ),
        )

    def answer(
        self,
        message: Message,
        context: Context,
        wrapped: Callable[[NodeGuard], Wrapped],
    ) -> Message:
        """Answer a message, with what computes statistics, which it may log with the
        node's guard.
        """
        with placed(Place(run=context.run_id, node=context.node_id)):
            return Message(
                content_of(self._guarded(message, context, wrapped)), reply_to=message
            )

    def _guarded(
        self,
        message: Message,
        context: Context,
        wrapped: Callable[[NodeGuard], Wrapped],
    ) -> Packet:
        """Answer, and turn what goes wrong into a fixed code."""
        try:
            if self._show_logs is not None:
                self._show_logs(context)
            return self._answer(message, context, wrapped)
        except errors.PeerError as error:
            node_logger.warning(
                "refused: %s",
                printable(error),
                extra=event("refused", kind=type(error).__name__),
            )
            return encode_failure(
                Failure(Status.REFUSED, type(error).__name__, str(error))
            )
        except DPKMeansError as error:
            # The sentence may describe local data, so only its kind travels.
            log_failure(error)
            sentence = (
                TABLE_SENTENCE if isinstance(error, DataError) else INTERNAL_SENTENCE
            )
            sentence = (
                error.public if isinstance(error, errors.ColumnError) else sentence
            )
            return encode_failure(
                Failure(Status.FAILED, type(error).__name__, sentence)
            )
        except Exception as error:
            # Its text may hold rows, so only its kind and place are told.
            place = where_raised(error, verbose=node_logger.isEnabledFor(logging.DEBUG))
            node_logger.error(
                "cannot answer: %s",
                place,
                extra=event("crashed", kind=type(error).__name__),
            )
            return encode_failure(
                Failure(Status.FAILED, "InternalError", INTERNAL_SENTENCE)
            )

    def _answer(
        self,
        message: Message,
        context: Context,
        wrapped: Callable[[NodeGuard], Wrapped],
    ) -> Packet:
        """The memory changes only when the whole transition has succeeded."""
        if not message.has_content() or RECORD not in message.content:
            raise ProtocolError(
                "a message that is not of the private k-means protocol came, and the"
                " client behind the secure-aggregation mod answers no other: send it to"
                " a function without this mod."
            )
        log_size(node_logger, "received", [message])
        request = decode_request(packet_of(message.content))
        if request.stage is Stage.KEYS:
            look_for_guard()
        settings = self._settings(context)
        stream, sent = stream_number(context), message.metadata.created_at
        guard = NodeGuard(
            settings,
            context.run_id,
            context.node_id,
            stream,
            sent,
        )
        memory = recall(context)
        guard.name_peers(memory, request)
        memory, reply = Client(guard, wrapped(guard), memory).handle(request)
        packet = encode_reply(request.stage, reply)
        if memory is not None:
            remember(context, memory)
        if request.stage is Stage.STOP:
            _kept_by(context).forget()  # no message comes that would
        return packet


# -- calls to the wrapped client, in the record layout of Flower's own NumPyClient wrapper ---


class Wrapped:
    """The wrapped client as what computes the statistic of one message.

    See `flwr_dpkmeans.sums.client.Statistic`.
    """

    def __init__(
        self,
        message: Message,
        context: Context,
        call_next: NextCall,
        guard: NodeGuard,
    ) -> None:
        self._message, self._context, self._call_next, self._guard = (
            message,
            context,
            call_next,
            guard,
        )

    def describe(self) -> tuple[int, tuple[str, ...], bool, str]:
        """See `flwr_dpkmeans.sums.client.Statistic`."""
        _, metrics = self._call("fit", [], {"task": DESCRIBE})
        width = metrics.get("n_features")
        if not isinstance(width, int):
            raise LocalMisuseError(
                "the wrapped client does not tell its number of features: wrap a"
                " KMeansClient."
            )
        names = tuple(
            str(name) for name in json.loads(str(metrics.get("feature_names", "[]")))
        )
        if "used" in metrics:
            # Columns that are only profiled have no names among those of the points.
            self._guard.settings.policy.check_columns(json.loads(str(metrics["used"])))
        return (
            width,
            names,
            bool(metrics.get("has_labels", False)),
            str(metrics.get("schema", "")),
        )

    def compute(
        self,
        memory: Memory,
        index: int,
    ) -> list[Array]:
        """The exact statistic of one round."""
        config: dict[str, Any] = {
            "task": STATISTIC,
            "plan": memory.plan_blob,
            "round": index,
        }
        start = time.perf_counter()
        if memory.plan.discovers(index):
            arrays, _ = self._call(
                "fit", [np.array(side) for side in memory.discoveries.box or ()], config
            )
        else:
            arrays, _ = self._call_with_state("fit", memory, config)
        node_logger.debug("the statistic took %.3f s", time.perf_counter() - start)
        return [np.asarray(array, dtype=np.float64) for array in arrays]

    def deliver(
        self,
        memory: Memory,
        report: Callable[[], PrivacyReport],
    ) -> bool:
        """Hand the result on: whatever goes wrong now is for this log and ledger only,
        and the server gets its tag.

        What a client writes holds facts of its own rows. Were an error of that an
        answer, a server could choose names or bounds with which it fails for some rows
        only, and would learn of them at no cost.
        """
        try:
            self._hand_on(memory, report())
            return True
        except Exception as error:
            why = where_raised(error, verbose=node_logger.isEnabledFor(logging.DEBUG))
            why = printable(error) if isinstance(error, DPKMeansError) else why
            node_logger.error(
                "the result is not written: %s",
                why,
                extra=event("unwritten", kind=type(error).__name__),
            )
            return False

    def _hand_on(
        self,
        memory: Memory,
        report: PrivacyReport,
    ) -> None:
        """Hand the final centroids and the report to the wrapped client."""
        table = self._context.state.config_records.get(_TABLE)
        if table is not None and table.get("changed"):
            report = replace(report, warnings=(*report.warnings, LOCAL + _CHANGED))
        config = {
            "report": json.dumps(report.to_dict()),
            "n_clients": len(memory.protocol.cohort.members),
        }
        config |= {"spent": self._guard.spent(memory.plan), "plan": memory.plan_blob}
        self._call_with_state("evaluate", memory, config)

    def _call_with_state(
        self,
        kind: str,
        memory: Memory,
        config: dict[str, Any],
    ) -> Answered:
        """Call with the state so far: its arrays, whose names are in the configuration,
        and then the movements.
        """
        state = memory.clusters
        if state is None:
            raise LocalMisuseError(
                "a statistic was asked for before the plan was final."
            )
        movements = np.asarray(state.movements, dtype=np.float64)
        config["arrays"] = json.dumps(list(state.arrays))
        return self._call(kind, [*state.arrays.values(), movements], config)

    def _call(
        self,
        kind: str,
        arrays: Sequence[Array],
        config: dict[str, Any],
    ) -> Answered:
        """Call the wrapped NumPyClient, with arrays under consecutive keys, as Flower
        stores them.
        """
        parameters = ArrayRecord.from_numpy_ndarrays(
            list(map(np.ascontiguousarray, arrays))
        )
        content = self.answered(
            {
                f"{kind}ins.parameters": parameters,
                f"{kind}ins.config": ConfigRecord(config),
            }
        )
        status: Any = content.get(f"{kind}res.status")
        if status is not None and status.get("code", _OK) != _OK:
            # Its message may quote rows, so only the code is repeated.
            raise LocalMisuseError(
                f"the wrapped client failed with status code {status.get('code')}."
            )
        answered: Any = content.get("fitres.parameters") or {}
        metrics: Any = content.get("fitres.metrics") or {}
        return [
            array.numpy() for name, array in answered.items() if name != _EMPTY_TENSOR
        ], metrics

    def answered(self, content: dict[str, Any]) -> RecordDict:
        """Call the wrapped app with content of our own and return its reply's content."""
        message = self._message
        # The inner call borrows the message, whose metadata only Flower can make, and
        # puts its content back.
        original, message.content = message.content, RecordDict(content)
        try:
            reply = self._call_next(message, self._context)
        finally:
            message.content = original
        if reply.has_error() or not reply.has_content():
            raise LocalMisuseError("the wrapped client answered with an error.")
        return reply.content


class Held(Wrapped):
    """A client of this process: it is called as it is, where records would take more
    time than the statistic.
    """

    def _call(
        self,
        kind: str,
        arrays: Sequence[Array],
        config: dict[str, Any],
    ) -> Answered:
        client: Any = self._call_next(self._message, self._context)
        arrays, _, metrics = getattr(client, kind)(list(arrays), config)
        return arrays, metrics


class WrappedApp(Wrapped):
    """Any app of Flower's Message API as what answers `ArraySumTask`.

    It gets and gives what Flower's `FedAvg` asks for.
    """

    def describe(self) -> tuple[int, tuple[str, ...], bool, str]:
        """There is no table."""
        return 1, (), False, ""

    def compute(
        self,
        memory: Memory,
        index: int,
    ) -> list[Array]:
        """What the app makes of the arrays so far, clipped.

        What its ``evaluate`` answers is never sent.
        """
        if self._message.metadata.message_type != "train":
            raise ProtocolError(
                "a sum was asked of another function than the app's 'train': stop the"
                " run."
            )
        task, state = self._known(memory)
        n_clients = memory.plan.n_clients
        before = task.named(state, n_clients)
        reply = self._asked(before, {"server-round": index})
        (answer,) = reply.array_records.values()
        metrics: dict[str, Any] = dict(*reply.metric_records.values())
        answered = {name: array.numpy() for name, array in answer.items()}
        added = task.contribution(before, answered, metrics.get("num-examples"))
        for sentence in task.remarks(added, n_clients):
            node_logger.warning(
                "round %d: %s",
                index,
                sentence,
                extra=event("changed_part"),
            )
        return list(
            build_algorithm(memory.plan).rounds[index - 1].statistic(added, state)
        )

    def _hand_on(
        self,
        memory: Memory,
        report: PrivacyReport,
    ) -> None:
        """Hand the last arrays to the app's ``evaluate``, with the report.

        Nothing that it answers is sent.
        """
        task, state = self._known(memory)
        arrays = task.named(state, memory.plan.n_clients)
        self._asked(arrays, {"report": json.dumps(report.to_dict())})

    def _known(self, memory: Memory) -> tuple[ArraySumTask, State]:
        task, state = memory.plan.task, memory.clusters
        if not isinstance(task, ArraySumTask) or state is None:
            raise ProtocolError(
                f"the plan computes {task.name!r}, but this node's app answers sums of"
                " arrays only."
            )
        return task, state

    def _asked(
        self,
        arrays: Mapping[str, Any],
        config: dict[str, Any],
    ) -> RecordDict:
        record = ArrayRecord(
            {name: FlowerArray(array) for name, array in arrays.items()}
        )
        return self.answered({"arrays": record, "config": ConfigRecord(config)})


secure_aggregation_mod = SecureAggregation(show_logs=show_node_logs)
"""The mod with settings, and a log, as the node's configuration says."""
secure_sum_mod = SecureAggregation(show_logs=show_node_logs, wrapped=WrappedApp)
"""The same around any app whose answers are to be summed.

See `flwr_dpkmeans.SecureSum`.
"""


def client_app(
    load_data: Callable[[Context], KMeansClient | ArrayLike | Encoded],
    *,
    mod: SecureAggregation = secure_aggregation_mod,
) -> ClientApp:
    """Make a ClientApp that takes part in private k-means, masks included.

    Parameters
    ----------
    load_data : callable
        ``load_data(context)`` returns this node's rows, (n_examples, n_features),
        ``schema.encode(table)``, or a `KMeansClient` that holds them. Rows with a cell
        that is no finite number are left out: were they an error, the server would see
        that one is there. Results are written in the node's output folder (see
        `output_folder`).
    mod : SecureAggregation
        The secure-aggregation mod; on by default.

    Returns
    -------
    ClientApp

    Examples
    --------
    >>> app = client_app(lambda context: [[0.0, 1.0], [2.0, 3.0]])
    """
    app = ClientApp(mods=[])

    def load(_: Message, context: Context) -> Any:
        data = load_data(context)
        return (
            data
            if isinstance(data, KMeansClient)
            else client_of(data, output_folder(context))
        )

    def serve(message: Message, context: Context) -> Message:
        return mod.answer(
            message,
            context,
            partial(
                Held,
                message,
                context,
                load,
            ),
        )

    app.train()(serve)
    app.evaluate()(serve)
    return app


def client_of(data: ArrayLike | Encoded, folder: Path) -> KMeansClient:
    """A client with the rows of a table that are finite numbers, or that a schema has
    encoded.
    """
    if isinstance(data, Encoded):
        return KMeansClient(data.points, output_dir=folder, schema=data.schema)
    if isinstance(data, Rows):
        return KMeansClient(data, output_dir=folder)
    array = _listed(data) if isinstance(data, list | tuple) else as_array(data)
    # Objects: columns differ in type, or have gaps.
    kind = array.dtype.kind if array.ndim == 2 else ""
    if kind == "c":  # one cell that is none made complex numbers of all
        array = np.where(array.imag == 0.0, array.real, np.nan)
    with np.errstate(over="ignore"):  # long ones
        array = array.astype(np.float64) if kind in ("c", "f") else array
    if kind == "O":
        array = np.frompyfunc(_real, 1, 1)(array)
    is_finite: Any = np.frompyfunc(_is_finite, 1, 1) if kind == "O" else np.isfinite
    if kind not in ("c", "f", "O") or (
        (kept := is_finite(array).astype(bool).all(axis=1)).all() and kind == "f"
    ):
        return KMeansClient(data, output_dir=folder)
    if not kept.all():
        logger.warning(
            "left out %s with a value that is no finite number",
            "rows" if kept.any() else "ALL rows, each",
        )
    return KMeansClient(
        array[kept], output_dir=folder, feature_names=frame_columns(data)
    )


def _listed(rows: Sequence[Any]) -> NDArray[Any]:
    """Lists as NumPy reads them or, where a cell is no number, or a row of another
    length, each row by itself.

    NumPy makes text of all cells for one, or refuses all rows; rows of another length
    than most are gaps.
    """
    with suppress(DataError):
        if (array := as_array(rows)).dtype.kind in "biuf":
            return array
    lists = [list(row) if _has_cells(row) else [] for row in rows]
    if not any(lists):
        return as_array(rows)
    width = statistics.mode([len(row) for row in lists if row])
    table = np.full((len(lists), width), None)
    for place, cells in enumerate(lists):
        for column, cell in enumerate(cells if len(cells) == width else ()):
            table[place, column] = (
                cell.item() if isinstance(cell, np.ndarray) and not cell.ndim else cell
            )
    return table


def _has_cells(row: Any) -> bool:
    return (
        bool(row.ndim)
        if isinstance(row, np.ndarray)
        else isinstance(row, Sequence) and not isinstance(row, str)
    )


def _real(cell: Any) -> Any:
    """A complex number that is none, which one cell has made of a whole column, as the
    real one.
    """
    return cell.real if isinstance(cell, numbers.Complex) and cell.imag == 0 else cell


def _is_finite(cell: Any) -> bool:
    if isinstance(cell, np.generic):
        # Of few bits, it would be held against infinity instead of the largest float.
        cell = cell.item() if cell.dtype.kind in "biuf" else None
    number: Any = cell if isinstance(cell, numbers.Real) else np.nan
    return bool(number == number and abs(number) <= sys.float_info.max)


def load_client(context: Context) -> KMeansClient:
    """Load the rows of one node.

    The node's configuration says ``data-path`` (a deployment's own file), ``schema`` or
    ``columns`` (what of it is clustered), ``header`` and ``label-column``, and a
    database's ``query``; in a simulation the run's says ``data`` and how its rows are
    split. Labels are looked at in an evaluation's round only, which is after the node's
    policy has approved the plan, and nothing in a label column is an error. In a
    deployment the node's own configuration says how the table is read, and nothing that
    the run says, nor a cell of the file, changes what the node answers
    (`flwr_dpkmeans.data.tables`).

    Raises a ConfigurationError in a deployment without ``data-path``, since the server
    may not choose which file a node reads, and a DataError if the data cannot be used.
    """
    simulated = is_simulation(context)
    run: dict[str, Any] = dict(context.run_config)
    node: dict[str, Any] = dict(context.node_config)
    source = str(run.get("data", ""))
    described, whole = None if node.get("data-path") else BUNDLED.get(source), None
    if node.get("data-path"):
        layout = layout_of(node)
        source, schema = str(node["data-path"]), node.get("schema")
        agreed = None if not schema else Schema.load(schema)
        store = cache_of(context, layout)
        _say_if_changed(context, store)
        if is_clustered(source):
            return ClusterClient(
                source,
                partial(load_stated, layout=layout, schema=agreed),
                result_folder(context),
            )
        table = load_stated(
            source,
            layout,
            agreed,
            store,
        )
        clustered = (
            tuple(column.name for column in agreed.columns) if agreed else table.names
        )
        profiled = _profile_columns(str(node.get("profile-columns", "")), clustered)
        whole = partial(
            _whole_table,
            source,
            layout,
            agreed,
            profiled,
        )
    elif simulated and source == MIXTURE:
        table = Table(mixture_of(run).client_points(int(node["partition-id"])))
    elif simulated or described is not None:
        table = simulated_part(source, run, node)
        if described is None:
            whole = partial(
                _simulated_frame,
                source,
                run,
                table,
            )
    else:
        raise ConfigurationError(
            "this node has no 'data-path' in its node configuration, and the server may"
            " not choose a file on it: start the SuperNode with --node-config"
            " \"data-path='/path/to/file.csv'\"."
        )
    image_shape = None if described is None else described.image_shape
    return KMeansClient(
        output_dir=result_folder(context),
        image_shape=image_shape,
        table=whole,
        **held_by(table),
    )


def layout_of(node: Mapping[str, Any]) -> Layout:
    """Return what a deployed node's own configuration says of its table."""
    stated = dict(json.loads(str(node.get("file") or "{}")))
    header = Dialect.of_scalars({"header": node.get("header", "")})
    dialect = header.over(Dialect(**stated))
    columns, label, query = (
        node.get(key, "") for key in ("columns", "label-column", "query")
    )
    return Layout.of(
        columns,
        label,
        dialect,
        query,
    )


def dialect_of(run: Mapping[str, Any]) -> Dialect:
    """Return what a simulation's configuration states of its file.

    ``header``, and the keys of ``file``.
    """
    stated = {
        key.removeprefix("file."): value
        for key, value in run.items()
        if key.startswith("file.")
    }
    return Dialect.of_scalars({"header": run.get("header", AUTO), **stated})


ALL_COLUMNS = "*"


def _profile_columns(stated: str, clustered: tuple[str, ...]) -> tuple[str, ...] | None:
    """Columns that a node's local profile describes; None for all of its file's.

    They are those that are clustered, and those that ``profile-columns`` names, such as
    ``ward,sex``, or ``*``. Text that nobody asked for may be a hundred times as large
    as they are.
    """
    if stated == ALL_COLUMNS or not clustered:
        return None
    return tuple(dict.fromkeys((*clustered, *Layout.of(stated).columns)))


def _whole_table(
    source: str,
    layout: Layout,
    schema: Schema | None,
    columns: tuple[str, ...] | None,
) -> Any:
    """All rows of a node's table, of these columns, for its own profile."""
    if schema is not None:
        layout = layout.over(schema.file)
    return whole_frame(layout.open(source), names=layout.columns, columns=columns)


def _simulated_frame(
    source: str,
    run: Mapping[str, Any],
    table: Table,
) -> Any:
    """All columns of a simulated client's rows."""
    dialect = dialect_of(run)
    if table.schema is not None:  # which tells columns by name, as on nodes
        opened = open_table(source, dialect.over(table.schema.file))
    else:
        opened = open_table(source, dialect, may_guess=True)
    return whole_frame(opened, rows=table.rows)


def cache_of(context: Context, layout: Layout) -> Store:
    """Where a node keeps a table beyond memory from message to message of a run, each
    of which is a new process.

    The node's ``cache`` is a folder, or ``"no"``: then all rows are in memory. Whatever
    changes the rows changes the file's name, and each run has its own.
    """
    config, store = context.node_config, _kept_by(context)
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


def _say_if_changed(context: Context, store: Store) -> None:
    """Warn, in the own log, where a table is another one than at the run's last
    message: the result is of none.
    """
    known = context.state.config_records.get(_TABLE) or ConfigRecord()
    own = str(known.get("name")).startswith(_kept_by(context).name)
    if changed := own and known["name"] != store.name:
        logger.warning(_CHANGED)
    changed = changed or (own and bool(known.get("changed")))
    context.state[_TABLE] = ConfigRecord({"name": store.name, "changed": changed})


def _kept_by(context: Context) -> Store:
    """All that a run keeps of a node's rows beyond memory."""
    folder = str(context.node_config.get("cache", ""))
    root = Path(folder).expanduser() if folder else Path.home() / HOME_FOLDER
    return Store(
        root / "rows", f"{context.run_id}_{context.node_id}_", keeps=folder != "no"
    )


def mixture_of(run_config: Mapping[str, Any]) -> MixtureClients:
    """Return the generated clients of ``data='mixture'``.

    Raises a ConfigurationError for a size or seed below 0.
    """
    return MixtureClients(
        run_config.get("partition-seed", 0),
        run_config.get("mixture-rows-per-client", 50),
    )


def simulated_part(
    source: str,
    run: Mapping[str, Any],
    node: Mapping[str, Any],
) -> Table:
    """The rows of one virtual node.

    All of them where nothing says that there are others.
    """
    label, dialect = str(run.get("label-column", "")), dialect_of(run)
    by = str(run.get("partition-column", ""))
    own = Layout.of(
        stated if (stated := run.get("columns", AUTO)) != AUTO else ""
    ).columns
    schema = schema_of(run.get("bounds"))
    table = load_source_once(
        source,
        label_column=label,
        partition_column=by,
        columns=own,
        dialect=dialect,
        schema=schema,
    )
    # Whoever simulates holds all rows: text for classes would be paid for, and tell
    # nothing.
    task = algorithm_entry(str(run.get("algorithm", DEFAULT_ALGORITHM)))
    looks = bool(run.get("n-classes")) or task.n_classes is not Task.n_classes
    given = (
        table.labels if isinstance(table.labels, np.ndarray) and looks else np.zeros(0)
    )
    if len(given) and (as_classes(given, len(given)) < 0).all():
        raise DataError(
            f"no cell of the label column {label!r} of {source!r} is a whole number"
            " from 0 on, but classes are such numbers: code them as 0, 1, 2 and so on."
        )
    if "partition-id" not in node:
        return table
    kind = str(run.get("partition", Partition.IID.value))
    rows = partition_indices(
        len(table.points),
        int(node["num-partitions"]),
        int(node["partition-id"]),
        seed=int(run.get("partition-seed", 0)),
        kind=kind,
        column_values=table.partition_values,
        alpha=float(run.get("partition-alpha", 0.5)),
        sizes=(
            parse_sizes(run.get("partition-sizes", ""))
            if kind == Partition.FIXED_SIZES.value
            else None
        ),
    )
    return table.part(rows)


app = client_app(load_client)
"""The ClientApp of this project's own Flower app."""
