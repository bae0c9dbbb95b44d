"""Strategies of Flower's that see one noisy mean in the place of all answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import cast

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from flwr_dpkmeans.algorithms.statistics.array_sum import ArraySumTask
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.flower.strategies.secure_sum import SecureSum
from flwr_dpkmeans.flower.strategies.strategy_result import KMeansResult
from flwr_dpkmeans.flower.strategy import EvaluateFn, PrivateKMeans
from flwr_dpkmeans.secagg.messages import SumRequest

_NEED_EACH_ANSWER = {
    "FedMedian": "takes medians",
    "FedTrimmedAvg": "leaves the smallest and largest values out",
    "MultiKrum": "compares clients' answers",
    "Bulyan": "compares clients' answers",
    "QFedAvg": "weighs each client by its own loss",
    "FedXgbBagging": "joins clients' trees",
    "FedXgbCyclic": "asks one client after another",
    "DifferentialPrivacyAdaptiveBase": "adapts its clip to each client's norm",
    "DifferentialPrivacyFixedClippingBase": "clips each client's answer",
}
"""Strategies of Flower's, by class, that no mean of answers suffices, and why."""
_MOST_LOOKS = 3
"""Looks at who is there; who looks more often waits for others, who will not come."""


class SecureMean:
    """Train by a strategy of Flower's, to which no client's own answer is shown.

    In each round all clients train, as with `FedAvg`. What each adds to the arrays is
    clipped, noised and masked, by `secure_sum_mod` or by the gate of its node; the
    strategy gets the mean as if it were the one answer.

    Parameters
    ----------
    strategy : Strategy
        `FedAvg`, `FedAdam`, `FedProx` or any other that needs the mean of answers only.
    epsilon : float, optional
        Of all rounds together, for a client's whole part; None: no noise, so that the
        result is not private, and no gate takes part.
    clip, largest : float, optional
        As in `SecureSum`.
    most_examples : int
        Means are weighted by ``num-examples`` up to this number; 0: all weigh the same.
    metrics : mapping of str to pair of float, optional
        Metrics of the clients' answers whose noisy means the strategy gets, too, with
        the least and the most that each can be; with `epsilon` only.
    **options
        As in `SecureSum`.

    Raises
    ------
    ConfigurationError
        At once, if the strategy needs each client's answer.

    Examples
    --------
    >>> from flwr.serverapp.strategy import FedAvg, Krum
    >>> strategy = SecureMean(FedAvg(fraction_evaluate=0.0), epsilon=8.0, clip=2.0)
    >>> SecureMean(Krum(), epsilon=8.0)
    Traceback (most recent call last):
    ...
    flwr_dpkmeans.errors.ConfigurationError: Krum compares clients' answers, but a \
secure mean shows none of them: use FedAvg, FedAdam or FedProx.
    """

    def __init__(
        self,
        strategy: Strategy,
        *,
        epsilon: float | None = None,
        clip: float | None = None,
        largest: float | None = None,
        most_examples: int = 0,
        metrics: Mapping[str, tuple[float, float]] | None = None,
        **options: object,
    ) -> None:
        for parent in type(strategy).__mro__:
            if parent.__name__ in _NEED_EACH_ANSWER or parent is PrivateKMeans:
                why = _NEED_EACH_ANSWER.get(
                    parent.__name__, "has a protocol of its own"
                )
                raise ConfigurationError(
                    f"{type(strategy).__name__} {why}, but a secure mean shows none of"
                    " them: use FedAvg, FedAdam or FedProx."
                )
        self._strategy = strategy
        self._epsilon = epsilon
        self._clip = clip
        self._largest = largest
        self._most_examples = most_examples
        self._metrics = metrics or {}
        self._options = options

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float | None = None,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: EvaluateFn | None = None,
    ) -> KMeansResult:
        """Train for some rounds, as `flwr.serverapp.strategy.Strategy.start` does.

        Clients evaluate nothing: what they would answer is no mean that was paid for.

        Parameters
        ----------
        grid : Grid
            Flower's grid.
        initial_arrays : ArrayRecord
            What clients begin with; public.
        num_rounds : int
            Rounds, in each of which every client trains.
        timeout : float, optional
            Seconds to wait for the replies of one aggregation.
        train_config : ConfigRecord, optional
            What clients get beside the arrays.
        evaluate_config : optional
            Not sent.
        evaluate_fn : callable, optional
            ``evaluate_fn(round, arrays)``, also of the initial arrays, as round 0.

        Returns
        -------
        KMeansResult
            Flower's `Result`, with the last arrays and the privacy report.
        """
        self._strategy.summary()
        rounds = _MeanRounds(
            initial_arrays,
            epsilon=self._epsilon,
            clip=self._clip,
            largest=self._largest,
            most_examples=self._most_examples,
            max_iter=num_rounds,
            **self._options,
        )
        rounds.begin(
            self._strategy,
            initial_arrays,
            train_config,
            self._metrics,
        )
        begun = evaluate_fn and evaluate_fn(0, initial_arrays)
        result = rounds.start(grid, timeout=timeout, evaluate_fn=evaluate_fn)
        if begun:
            metrics = result.evaluate_metrics_serverapp
            result.evaluate_metrics_serverapp = {0: begun} | metrics
        return result


class _MeanRounds(SecureSum, algorithm="array_sum"):
    """Rounds of sums of what clients add to the strategy's arrays of the round.

    `arrays` begin with zeros in the plan, which the sums are added to.
    """

    def begin(
        self,
        strategy: Strategy,
        arrays: ArrayRecord,
        train_config: ConfigRecord | None,
        metrics: Mapping[str, tuple[float, float]],
    ) -> None:
        """Take the strategy, and what it begins with.

        And metrics, with their bounds.
        """
        bounded = tuple((name, *map(float, pair)) for name, pair in metrics.items())
        # The arrays are sent with each round, and no part of the plan.
        self.config = self.config.changed(start="", metrics=bounded)
        self._strategy = strategy
        self._train_config = train_config or ConfigRecord()
        self._now = arrays
        """The strategy's arrays of the round."""
        self._sum = np.zeros(())
        """What was added in all rounds before."""
        self._round = 0
        self._messages: dict[int, Message] = {}
        """The strategy's own messages of that round, by node."""

    def configure_train(
        self,
        server_round: int,
        arrays: ArrayRecord,
        config: ConfigRecord,
        grid: Grid,
    ) -> list[Message]:
        """Requests for masked vectors, each with what the strategy sends the client."""
        messages = super().configure_train(server_round, arrays, config, grid)
        due = [request.body for _, request in self.run.requests()]
        if not due or not isinstance(due[0], SumRequest):
            return messages
        if due[0].round_index != self._round:
            # Asked once: who is asked again in a round gets the same.
            self._round = due[0].round_index
            self._messages = self._of_strategy(grid)
        for message in messages:
            node = message.metadata.dst_node_id
            added = self._messages[node].content
            message.content.update(added.items())
        return messages

    def _of_strategy(self, grid: Grid) -> dict[int, Message]:
        nodes = self.run.nodes
        messages = self._strategy.configure_train(
            self._round,
            self._now,
            self._train_config,
            _grid_of(grid, nodes),
        )
        by_node = {message.metadata.dst_node_id: message for message in messages}
        if not by_node.keys() >= set(nodes):
            raise ConfigurationError(
                f"{type(self._strategy).__name__} asks {len(by_node)} of"
                f" {len(nodes)} clients, but in a secure mean all take part: give it"
                " fraction_train=1.0."
            )
        return by_node

    def aggregate_train(
        self,
        server_round: int,
        replies: Iterable[Message],
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Take the answers in, and give the strategy their mean as the one answer."""
        _, metrics = super().aggregate_train(server_round, replies)
        if metrics is None:
            return None, None
        n_clients = cast("int", metrics["n-clients"])
        mean = self._mean(n_clients)
        weight = getattr(self._strategy, "weighted_by_key", "num-examples")
        means = MetricRecord({weight: 1, **self._means_of_metrics(n_clients)})
        content = RecordDict({"arrays": mean, "metrics": means})
        request = next(iter(self._messages.values()))
        reply = Message(content, reply_to=request)
        arrays, averaged = self._strategy.aggregate_train(self._round, [reply])
        metrics.update(averaged or {})
        if arrays is not None:
            self._now = _typed_like(self._now, arrays)
        return self._now, metrics

    def _means_of_metrics(self, n_clients: int) -> dict[str, float]:
        """What the round released of metrics."""
        server = self.run
        task = server.plan.task
        state = server.clusters
        assert isinstance(task, ArraySumTask)
        assert state is not None
        if not task.metrics:
            return {}
        n_weights = 1 if task.most_examples else n_clients
        return task.means_of_metrics(state, n_weights)

    def _mean(self, n_clients: int) -> ArrayRecord:
        """The round's arrays, and the mean of what clients added to them."""
        server = self.run
        task = server.plan.task
        state = server.clusters
        assert isinstance(task, ArraySumTask)
        assert state is not None
        moved = state["moved"]
        scale = task.scale(server.plan.n_clients)
        added = (moved - self._sum) * (scale.unit / scale.reach)
        self._sum = moved
        if not task.most_examples:
            added = added / n_clients
        parts = np.split(added, np.cumsum(task.sizes)[:-1])
        mean = {}
        for (name, array), part in zip(self._now.items(), parts, strict=True):
            value = array.numpy().astype(np.float64)
            mean[name] = FlowerArray(value + part.reshape(value.shape))
        return _typed_like(self._now, ArrayRecord(mean))


def _typed_like(pattern: ArrayRecord, arrays: ArrayRecord) -> ArrayRecord:
    """Arrays of the types that clients begin with, also where a strategy widens them.

    A gate lets no others through.
    """
    typed = {}
    for name, array in pattern.items():
        dtype, value = array.numpy().dtype, arrays[name].numpy()
        rounded = value if dtype.kind == "f" else np.rint(value)
        typed[name] = FlowerArray(rounded.astype(dtype))
    return ArrayRecord(typed)


def _grid_of(grid: Grid, nodes: Sequence[int]) -> Grid:
    """A grid on which no other nodes are, for a strategy that chooses some."""
    looks = 0

    def get_node_ids() -> list[int]:
        nonlocal looks
        looks += 1
        if looks > _MOST_LOOKS:
            raise ConfigurationError(
                f"the strategy waits for more than the {len(nodes)} clients that take"
                " part: lower its min_train_nodes and min_available_nodes."
            )
        return list(nodes)

    return cast("Grid", SimpleNamespace(get_node_ids=get_node_ids, run=grid.run))
