"""Rows on several machines of one party.

Its Ray or Dask cluster makes the statistic of each block where it is read.

The node stays one client: masks, noise, ledger and identity are its own. The cluster's
workers send it sums on the grid, which add up exactly, so that its vector has the same
bits as if it held all rows itself. That takes a statistic that is a sum over rows, as
at record level; at client level, what is clipped is the sum of all of them. What is
rounded at the end (outer products) the node rounds: a sensitivity has room for one
rounding, not for one of each block.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, TypeVar

import numpy as np

from flwr_dpkmeans import __version__
from flwr_dpkmeans.data.files.formats.parquet import parquet_schemas
from flwr_dpkmeans.data.files.guarded import in_one_sentence
from flwr_dpkmeans.data.loading.row_facts import RowFacts
from flwr_dpkmeans.data.loading.table import Table
from flwr_dpkmeans.errors import ConfigurationError, DataError, DPKMeansError
from flwr_dpkmeans.flower.kmeans_client import (
    STATISTIC,
    KMeansClient,
    Scalar,
    a_second,
    held_by,
    logger,
    plan_of,
)
from flwr_dpkmeans.log import where_raised
from flwr_dpkmeans.node.policy import ClientPolicy
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.sums.build import build_algorithm
from flwr_dpkmeans.sums.round import Array

if TYPE_CHECKING:
    import pyarrow as pa

    from flwr_dpkmeans.results.model import Model

_BLOCK_ROWS = 1 << 17
# of a block whose worker has died, with which Ray would go on for ever; Dask's
# scheduler has its own
_RETRIES = 5
_LOOK_AGAIN = (
    10.0  # seconds without an answer of Dask's, after which it may be that nobody works
)
T = TypeVar("T")
Load = Callable[["pa.Table"], Table]
"""Makes a table of an Arrow table, in whatever process a block is read."""


class _Group(TypedDict):
    """A group of rows of a Parquet file."""

    file: str
    group: int


class _BlockSum(TypedDict):
    """What a block's rows add up to, as bytes of float64, or why they do not."""

    total: bytes
    failed: str


OfBlock = Callable[["pa.Table"], _BlockSum]
Summed = Callable[[list[_Group], OfBlock], Iterable[_BlockSum]]


def summed_elsewhere(policy: ClientPolicy) -> ClientPolicy:
    """The policy of a node whose rows are summed block by block.

    a plan at client level is refused before it costs.
    """
    if policy.allowed_units and PrivacyUnit.RECORD.value not in policy.allowed_units:
        raise ConfigurationError(
            f"allowed-units is {policy.allowed_units}, but a cluster sums rows at"
            " record level only: allow 'record', or give the rows as one file."
        )
    return replace(policy, allowed_units=(PrivacyUnit.RECORD.value,))


def require_no_units(person_column: str, weight_column: str) -> None:
    """Refuse columns of persons, whose rows may lie in several blocks, and weights."""
    if weight_column:
        raise ConfigurationError(
            f"weight-column is {weight_column!r} for rows on a cluster, which counts"
            " each row once: leave it out, or give the rows as one file."
        )
    if person_column:
        raise ConfigurationError(
            f"person-column is {person_column!r} for rows on a cluster, whose blocks do"
            " not know of each other's persons: leave it out, or give the rows as one"
            " file."
        )


class ClusterClient(KMeansClient):
    """A client whose rows a Ray or Dask cluster reads.

    Parquet, a file or folder at one path on all of its machines.
    """

    def __init__(
        self,
        source: str,
        load: Load,
        output_dir: Path | None = None,
    ) -> None:
        kind, self._path = source.split("://", 1)
        engine = self._engine = ENGINES[kind]
        self._load = load
        if not Path(self._path).is_absolute():
            raise DataError(
                f"the table on a {engine.name} cluster has no absolute path: give"
                f" '{kind}:///shared/rows', and where the cluster is by"
                f" {engine.variable}, as it has no place in a node's configuration."
            )
        # What is said of the columns, and what they lack, is the same with any rows and
        # without. The files are here, too: a cluster that is gone by then keeps nobody
        # from a result.
        self._files, self._empty = in_one_sentence(Path(self._path), self._looked_at)
        self.table = load(self._empty)
        super().__init__(output_dir=output_dir, **held_by(self.table))

    def fit(
        self,
        parameters: list[Array],
        config: dict[str, Scalar],
    ) -> tuple[list[Array], int, dict[str, Scalar]]:
        """As `KMeansClient.fit`, with a statistic's arrays as one vector."""
        if config.get("task") != STATISTIC:
            # Before a run begins that it could not answer.
            self._on_cluster(lambda _: None)
            return super().fit(parameters, config)
        plan, index = plan_of(config), int(config["round"])
        step = (
            None
            if plan.is_preliminary(index)
            else build_algorithm(plan).rounds[index - 1]
        )
        if plan.settings.unit is not PrivacyUnit.RECORD or not (
            step is None or step.in_blocks
        ):
            raise ConfigurationError(
                f"round {index} of the plan is no sum over blocks of rows, which is all"
                " that a cluster sums: plan at record level with a statistic that"
                " takes blocks, or give the rows as one file."
            )
        total = self.summed(
            partial(
                _statistic, parameters=parameters, config=config | {"unrounded": True}
            )
        )
        return (
            [
                (
                    step.unrounded[1](total)
                    if step is not None and step.unrounded
                    else total
                )
            ],
            0,
            {},
        )

    def outside(self, config: dict[str, Scalar]) -> Array:
        """How many rows of all parts there are, and lie outside the plan's box."""
        try:
            return self.summed(partial(KMeansClient.outside, config=config))
        except DataError as error:
            # The result is paid for: what its own rows say against it is less than it.
            logger.warning("the own rows are not held against the result: %s", error)
            return np.zeros(1 + self.points.shape[1])

    def profile(self, model: Model) -> None:
        """Nothing, with a line in the log."""
        logger.info("no local profile is written of rows on a cluster")

    def row_facts(self) -> RowFacts | None:
        """Rows of a cluster are not read for it."""
        return None

    def count(self) -> int:
        """How many rows are clustered: for this client's own eyes."""
        return int(self.summed(lambda client: np.array([float(len(client.points))]))[0])

    def _looked_at(self) -> tuple[list[Path], pa.Table]:
        """The files, and a table without rows."""
        schemas = parquet_schemas(Path(self._path))
        return list(schemas), next(iter(schemas.values())).empty_table()

    def summed(self, work: Callable[[KMeansClient], Array]) -> Array:
        """What ``work(client)`` finds for a client of each block, added up.

        Exact on the grid.
        """
        of_block, started = (
            partial(
                _of_block,
                load=self._load,
                work=work,
                version=__version__,
            ),
            time.monotonic(),
        )

        def added(summed: Summed) -> Array:
            import pyarrow.parquet as pq

            numbers = {
                str(file): range(pq.read_metadata(file).num_row_groups)
                for file in self._files
            }
            groups: list[_Group] = [
                {"file": file, "group": group}
                for file, group_numbers in numbers.items()
                for group in group_numbers
            ]
            # Whole numbers, and what is behind the point, with its last digits.
            total: Array = np.zeros((2, 1))
            for answer in chain(
                [of_block(self._empty)], summed(groups, of_block) if groups else ()
            ):
                if answer["failed"]:
                    name = self._engine.name
                    raise DataError(
                        f"a block of the table on a {name} cluster cannot be summed:"
                        f" {answer['failed']}"
                    )
                total = total + np.divmod(np.frombuffer(answer["total"]), 1.0)
            return np.asarray(total.sum(axis=0))

        n_rows, *_ = total = self._on_cluster(added)
        logger.info(
            "%d rows on a %s cluster, %.3g a second",
            n_rows,
            self._engine.name,
            a_second(n_rows, started),
        )
        return np.asarray(total[1:])

    def _on_cluster(self, work: Callable[[Summed], T]) -> T:
        """What ``work`` returns.

        No sentence has an address, or what the engine says of a row.
        """
        engine = self._engine
        problem = f"{engine.name} is not there: pip install '{engine.package}'"
        try:
            with engine.joined() as summed:
                return work(summed)
        except DPKMeansError:
            raise
        except ImportError:
            pass
        except (ConnectionError, CancelledError):
            problem = (
                f"none answers: '{engine.start}', and set {engine.variable} to its"
                " address (not 'auto')"
            )
        except Exception as error:
            problem = (
                f"summing it fails ({where_raised(error)}): it must be Parquet, at the"
                " same path on all machines"
            )
            problem += f", whose workers have room for {_BLOCK_ROWS} rows"
        raise DataError(f"the table is on a {engine.name} cluster, but {problem}.")


@contextmanager
def _ray() -> Iterator[Summed]:
    import ray
    from ray import data

    if not ray.is_initialized():
        ray.init(_ray_address(), logging_level=logging.ERROR, log_to_driver=False)
    data.DataContext.get_current().enable_progress_bars = False
    yield (
        lambda groups, of_block: (
            data.from_items(groups)
            .flat_map(of_group, fn_args=[of_block], max_retries=_RETRIES)
            .iter_rows()
        )
    )


def _ray_address() -> str:
    """Return the address of the owner's cluster; a ConnectionError if none is stated.

    Without one, or with "auto", Ray looks through this machine's processes and joins a
    cluster that any local user may have started, who can then read rows and run code in
    the node.
    """
    address = os.environ.get("RAY_ADDRESS", "")
    if address.rpartition("://")[2] in ("", "auto"):
        raise ConnectionError
    return address


@contextmanager
def _dask() -> Iterator[Summed]:
    from dask import config
    from distributed import Client, wait

    def summed(groups: list[_Group], of_block: OfBlock) -> Iterator[_BlockSum]:
        # A worker that cannot import this module would drop out for ever, without a
        # word.
        versions = client.run(
            lambda: __import__("flwr_dpkmeans.flower.row_cluster").__version__,
            on_error="return",
        )
        if any(version != __version__ for version in versions.values()):
            raise DataError(
                f"a worker of the Dask cluster lacks flwr-dpkmeans {__version__}, the"
                " node's: install it."
            )
        due = client.map(lambda group: [*of_group(group, of_block)], groups, pure=False)
        while due:
            if not client.scheduler_info()["workers"]:
                raise DataError(
                    "the Dask cluster has no worker (left): start some by 'dask"
                    " worker', and run again."
                )
            try:
                done, due = wait(due, _LOOK_AGAIN, "FIRST_COMPLETED")
            except TimeoutError:
                continue
            for future in done:
                yield from future.result()

    # There is no address by default: whoever answers there can run code in this
    # process.
    if (
        not isinstance(address := config.get("scheduler-address", None), str)
        or not address
    ):
        raise ConnectionError
    try:
        client = Client(address, set_as_default=False)
    except Exception:
        raise ConnectionError from None
    with client, client.as_current():
        yield summed


@dataclass(frozen=True)
class _Engine:
    name: str
    package: str
    start: str
    variable: str
    joined: Callable[[], AbstractContextManager[Summed]]
    """What sums the blocks of groups of rows on the cluster that is this machine's, or
    that the variable names.
    """


ENGINES = {
    "ray": _Engine(
        "Ray",
        "flwr[simulation]",
        "ray start --head --port=6379",
        "RAY_ADDRESS",
        _ray,
    ),
    "dask": _Engine(
        "Dask",
        "flwr-dpkmeans[dask]",
        "dask scheduler",
        "DASK_SCHEDULER_ADDRESS",
        _dask,
    ),
}


def of_group(group: _Group, of_block: OfBlock) -> Iterator[_BlockSum]:
    """On a worker: read one group of rows.

    Ray's own blocks join files, by types into which a cell may not fit.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(group["file"]) as file:
        for batch in file.iter_batches(
            _BLOCK_ROWS, row_groups=[group["group"]], use_threads=False
        ):
            yield of_block(pa.Table.from_batches([batch]))


def _of_block(
    block: pa.Table,
    load: Load,
    work: Callable[[KMeansClient], Array],
    version: str,
) -> _BlockSum:
    """On a worker: the number of rows and what a client of them finds.

    Or why there is nothing, without a cell.
    """
    vector, failed = np.zeros(0), ""
    if version != __version__:
        failed = (
            f"a worker has version {__version__} of flwr-dpkmeans, but the node"
            f" {version}: install the same."
        )
    else:
        try:
            vector = np.concatenate(
                [[float(len(block))], work(KMeansClient(**held_by(load(block))))]
            )
        except DPKMeansError as error:
            failed = str(error)
        except Exception as error:  # its text may hold cells
            failed = f"{where_raised(error)}."
    return {"total": vector.tobytes(), "failed": failed}


def _statistic(
    client: KMeansClient,
    parameters: list[Array],
    config: dict[str, Scalar],
) -> Array:
    """All arrays of a statistic, as one vector."""
    return np.concatenate(
        [np.zeros(0), *map(np.ravel, client.fit(parameters, config)[0])]
    )
