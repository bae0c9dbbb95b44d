"""`UnmaskedClient`, `MaskedClient` and `Server`: see the folder's ``__init__``."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.algorithms.lloyd_family.fastlloyd import Schedule
from flwr_dpkmeans.algorithms.lloyd_family.fastlloyd_noise import cluster_radius
from flwr_dpkmeans.errors import ConfigurationError, DataError, ProtocolError, nearest
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.secagg.messages import (
    FinishRequest,
    MaskedVector,
    Stage,
    SumReply,
    SumRequest,
)
from flwr_dpkmeans.secagg.ring import FRACTION_BITS, encode
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.local import LocalRun
from flwr_dpkmeans.sums.plan import FIRST_NODE_ID
from flwr_dpkmeans.sums.round import Array
from flwr_dpkmeans.sums.task import TASKS
from flwr_dpkmeans.sums.wire import Request
from simulations.papers.fastlloyd_parties.configs import MECHANISMS, Params
from simulations.papers.fastlloyd_parties.laplace import LaplaceFastLloyd

Numbers = npt.NDArray[Any]
"""Ring elements (uint64) under masks, float64 without."""


class _Client:
    """One party: rows in [-1, 1]^d, and what `Server` gave it.

    Parameters
    ----------
    index : int
        From 0 to ``params.num_clients - 1``.
    values : array_like of shape (n_rows, dim)
        In [-1, 1], by public bounds. The plan takes the number of all rows as public,
        as the paper does.
    params : Params
        The run's; the client is listed in it.

    Raises
    ------
    DataError
        If the rows have another width or leave the box.
    ConfigurationError
        If there is a client of this index, or one that masks otherwise.
    """

    masked: ClassVar[bool]

    def __init__(self, index: int, values: npt.ArrayLike, params: Params) -> None:
        rows = np.asarray(values, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != params.dim:
            raise DataError(
                f"client {index} has values of shape {rows.shape}, but dim is"
                f" {params.dim}: give (n, dim)."
            )
        if not np.abs(rows).max(initial=0.0) <= 1.0:
            raise DataError(
                f"client {index} has values outside [-1, 1]: scale them by public"
                " bounds."
            )
        if index in params.clients or not 0 <= index < params.num_clients:
            raise ConfigurationError(
                f"index is {index}, but it must be one of 0 to {params.num_clients - 1}"
                " that no other client has: number the clients, and make new Params"
                " for a new run."
            )
        if any(client.masked is not self.masked for client in params.clients.values()):
            raise ConfigurationError(
                "masked and unmasked clients have no common sum: make all of one class."
            )
        self.values = round_to_grid(rows, FRACTION_BITS)
        self._index = index
        self._server: Server | None = None
        self._reply: SumReply | None = None
        params.clients[index] = self

    @property
    def centroids(self) -> Array:
        """(k, dim), after `update` or the first `step`."""
        server = self._joined
        memory = server.memories.get(server.node_ids[self._index])
        if memory is None or memory.clusters is None:
            raise ProtocolError("there are no centroids yet: call step first.")
        return memory.clusters.centroids

    @property
    def _joined(self) -> Server:
        if self._server is None:
            raise ProtocolError(
                f"client {self._index} is in no run yet: make Server(params) before the"
                " first step."
            )
        return self._server

    def step(self, params: Params) -> tuple[Numbers, Numbers, None]:
        """Sums (k, dim) and counts (k,) of the own rows by cluster, as they leave the
        party, and nothing else.
        """
        server = self._joined
        if self._reply is None:
            self._answer()
        assert self._reply is not None
        return (*server.parts_of(self._reply.masked.values, masked=self.masked), None)

    def update(self, total: Numbers, count: Numbers) -> None:
        """Take in what `Server.step` returned: under masks only clients can read it.

        Raises
        ------
        ProtocolError
            If it is not what the server released.
        """
        server = self._joined
        if not (
            np.array_equal(total, server.released[0])
            and np.array_equal(count, server.released[1])
        ):
            raise ProtocolError(
                "total and count are not what the server released: hand on what"
                " Server.step returned."
            )
        self._answer()

    def _answer(self) -> None:
        server = self._joined
        node = server.node_ids[self._index]
        request = server.pending.pop(node, None)
        if request is None:
            raise ProtocolError(
                f"client {self._index} is asked nothing now: each client steps and"
                " updates once a round."
            )
        reply = server.ask(node, request)(request.stage, node)
        if request.stage is Stage.FINISH:
            server.confirm(node, reply)
        else:
            assert isinstance(reply, SumReply)
            self._reply = reply


class UnmaskedClient(_Client):
    """A party whose sums the server reads: `_Client` has the parameters."""

    masked = False


class MaskedClient(_Client):
    """A party whose vectors are uniform to everybody but their sum.

    `_Client` has the parameters.
    """

    masked = True


class Server(LocalRun):
    """Adds up what clients send, and noise of its own (Gaussian or Laplace), to a sum
    that under masks it cannot read.

    Parameters
    ----------
    params : Params
        With all its clients; ``iters`` is filled in where it was left out.

    Raises
    ------
    ConfigurationError
        If clients are missing or an option has no such value.

    Examples
    --------
    >>> params = Params(k=2, dim=1, num_clients=2, epsilon=20.0, seed=1)
    >>> clients = [MaskedClient(i, [[-0.75], [0.75]] * 100, params) for i in range(2)]
    >>> server = Server(params)
    >>> for _ in range(params.iters):
    ...     steps = [client.step(params) for client in clients]
    ...     sums = [step[0] for step in steps]
    ...     counts = [step[1] for step in steps]
    ...     total, count = server.step(sums, counts, params)
    ...     for client in clients:
    ...         client.update(total, count)
    >>> [round(float(centre), 2) for centre in np.sort(clients[0].centroids.ravel())]
    [-0.75, 0.75]
    >>> 19.9 < server.report.epsilon <= 20.0
    True
    """

    def __init__(self, params: Params) -> None:
        if params.dp not in MECHANISMS:
            raise ConfigurationError(
                f"dp is {params.dp!r}: {nearest(params.dp, MECHANISMS)}"
            )
        if params.dp == "laplace":
            # Here, as it is no algorithm of the package.
            TASKS.add(LaplaceFastLloyd.name, LaplaceFastLloyd)
        missing = sorted(set(range(params.num_clients)) - set(params.clients))
        if missing:
            raise ConfigurationError(
                f"clients {missing} are missing: make all {params.num_clients} before"
                " the server."
            )
        clients = [params.clients[index] for index in range(params.num_clients)]
        masked = clients[0].masked
        options: dict[str, Any] = {}
        if params.max_dist is not None:
            if params.dp == "none":
                raise ConfigurationError(
                    "max_dist is given, but dp='none' is Lloyd's algorithm as it is:"
                    " leave it out."
                )
            alpha = params.max_dist / cluster_radius(1.0, params.k, params.dim)
            options = {"alpha": alpha, "schedule": Schedule.CONSTANT.value}
        config = parse_config(
            algorithm=MECHANISMS[params.dp],
            n_clusters=params.k,
            bounds=((-1.0,), (1.0,)),
            epsilon=params.epsilon,
            delta=params.delta,
            n_examples=sum(len(client.values) for client in clients),
            max_iter=params.iters,
            masking=masked,
            trust="oblivious" if masked else "central",
            dropout="retry",
            **options,
        )
        seed = secrets.randbits(31) if params.seed is None else params.seed
        shape: dict[str, Any] = {
            "n_clients": params.num_clients,
            "n_features": params.dim,
        }
        plan = draft_plan(config, run_id=secrets.randbits(62), seed=seed, **shape)
        super().__init__(plan, [client.values for client in clients])
        self.node_ids = range(FIRST_NODE_ID, FIRST_NODE_ID + len(clients))
        params.iters = plan.last_round
        self._masked = masked
        self.pending: dict[int, Request] = {}
        """What each client is asked and has not answered."""
        self.released: tuple[Numbers, Numbers] = (np.zeros(0), np.zeros(0))
        """What the last step returned."""
        self._confirmations: dict[int, Any] = {}
        self.take((node, self.ask(node, request)) for node, request in self.requests())
        for client in clients:
            client._server = self
        self.pending = dict(self.requests())

    def step(
        self, totals: Sequence[Numbers], counts: Sequence[Numbers], params: Params
    ) -> tuple[Numbers, Numbers]:
        """Add up all clients' sums and counts, (k, dim) and (k,) each, in their order,
        and add noise.

        Raises
        ------
        ProtocolError
            If a client's are missing, or it has not stepped.
        """
        if not len(totals) == len(counts) == len(self.node_ids):
            raise ProtocolError(
                f"{len(totals)} totals and {len(counts)} counts came from"
                f" {len(self.node_ids)} clients."
            )
        answers = []
        for index, pair in enumerate(zip(totals, counts, strict=True)):
            reply, params.clients[index]._reply = params.clients[index]._reply, None
            if reply is None:
                raise ProtocolError(
                    f"client {index} has not stepped: call its step first."
                )
            flat = np.concatenate([np.ravel(array) for array in pair])
            values = flat.astype(np.uint64) if self._masked else encode(flat).values
            sent = replace(reply, masked=MaskedVector(values))
            answers.append((self.node_ids[index], lambda *_, sent=sent: sent))
        step = self.take(answers)
        if step is not None:
            self.steps.append(step)
        self.pending = dict(self.requests())
        message = self.pending[self.node_ids[0]].body
        assert isinstance(message, SumRequest | FinishRequest)
        assert message.release is not None
        self.released = self.parts_of(message.release.values, masked=self._masked)
        return self.released

    def confirm(self, node: int, reply: Any) -> None:
        """Note that a client has its result; with the last one the run is over."""
        self._confirmations[node] = lambda *_: reply
        if len(self._confirmations) == len(self.node_ids):
            self.take(self._confirmations.items())

    def parts_of(self, values: Numbers, *, masked: bool) -> tuple[Numbers, Numbers]:
        """Sums (k, dim) and counts (k,) of one vector.

        Numbers where it can be read, else ring elements.
        """
        shown = values.copy() if masked else values.view(np.int64) / 2.0**FRACTION_BITS
        n_clusters = self.plan.round_at(1).blocks[1].shape[0]
        return shown[:-n_clusters].reshape(n_clusters, -1), shown[-n_clusters:]
