"""Flower strategies: one for every algorithm.

All with the same loop over private-sum rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid, PrivacySpent
from flwr.serverapp.strategy import Strategy

from flwr_dpkmeans.algorithms.first_plan import first_plan
from flwr_dpkmeans.algorithms.kmeans_task import centre_half_widths
from flwr_dpkmeans.algorithms.measure.evaluation_result import (
    read_evaluation,
)
from flwr_dpkmeans.algorithms.one_place.not_federated import algorithm_entry
from flwr_dpkmeans.algorithms.server.box_units import in_callers_units
from flwr_dpkmeans.algorithms.server.resolved_bounds import resolve_bounds
from flwr_dpkmeans.errors import (
    CohortError,
    ConfigurationError,
    DPKMeansError,
    listed,
)
from flwr_dpkmeans.flower.messages.exchange import Again, exchange
from flwr_dpkmeans.flower.messages.joining import turn, wait_for_nodes
from flwr_dpkmeans.flower.messages.message_sizes import log_size
from flwr_dpkmeans.flower.messages.parties import ANYBODY, Parties
from flwr_dpkmeans.flower.messages.replies import answers_of, message_of
from flwr_dpkmeans.flower.messages.server_kind import is_deployed
from flwr_dpkmeans.flower.progress import Progress
from flwr_dpkmeans.flower.strategies.run_log import (
    announce,
    log_progress,
    log_step,
    say,
)
from flwr_dpkmeans.flower.strategies.strategy_result import KMeansResult, step_metrics
from flwr_dpkmeans.flower.strategies.timeouts import AGAIN, LONGEST_AGAIN, Timeouts
from flwr_dpkmeans.log import Place, event, named, placed, placed_logger, show_by
from flwr_dpkmeans.options import Auto, PrivateCount, build_config, flat_options
from flwr_dpkmeans.privacy.provenance import utc_now
from flwr_dpkmeans.secagg.messages import Stage, StopRequest
from flwr_dpkmeans.sums.checks import columns as tables
from flwr_dpkmeans.sums.checks.supported import require_server_data, require_supported
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.draft import redraft_plan, worst_case
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import Array
from flwr_dpkmeans.sums.server import Server
from flwr_dpkmeans.sums.settings import Dropout
from flwr_dpkmeans.sums.statement import Step, why_not_private
from flwr_dpkmeans.sums.trust import trust_model
from flwr_dpkmeans.sums.wire import LONGEST_SENTENCE, Request

logger = placed_logger("flwr_dpkmeans.server")

FLOWER_LOGGER = "flwr"
"""What Flower logs by, on a console of its own and into what `flwr log` shows."""
"""For nodes to hear that a run is over, also behind another run's message.

Who is silent hears nothing.
"""

OnStep = Callable[[Step], None]

EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]


class PrivateKMeans(Strategy):
    """Differentially private federated k-means by masked sums.

    See `FastLloyd` for an example.

    Arguments mean what they mean in `FederatedKMeans`, but that the data are elsewhere.

    Parameters
    ----------
    n_clusters : int, "auto" or Auto
        k; "auto" chooses it.
    bounds : pair, "private" or PrivateBounds, optional
        None: a cube around the server's points; without server data bounds must be
        given.
    epsilon, delta : float
        Of a run without dropouts; `delta` None means 1/(N ln N), or without
        `n_examples` 1e-6, or less where the private count asks for it.
    n_examples : int, optional
        Number of rows in all, if public; otherwise a private count takes 2% of the
        budget.
    server_data : array-like or path, optional
        The server's own points, for algorithms that start from them. Clients see them
        only under ``oblivious``.
    timeouts : Timeouts, optional
        Bounds on waiting.
    on_step : callable, optional
        Told a `Step` after each aggregation; by default it is logged as one line.
    **options
        Every other option of a run: ``n_clients``, the cohort to wait for, by default
        whoever is there; ``parties``, the names of the nodes that take part (or
        `Parties`), as ``["ward-7", "ward-9"]``; ``n_features``, by default asked from
        the clients; ``trust``, ``noise``, ``max_iter``, the algorithm's own, such as
        ``alpha`` of `FastLloyd`, and objects such as ``unit=ClientLevel(20)``.

    Raises
    ------
    ConfigurationError
        At once, if a value is out of range or unknown, or an option is another
        algorithm's.
    """

    algorithm: ClassVar[str] = ""
    stop_seconds: ClassVar[float] = 15.0
    """How long nodes are waited for that are told of a run's end."""

    def __init_subclass__(cls, algorithm: str = "", **others: object) -> None:
        super().__init_subclass__(**others)
        cls.algorithm = algorithm or cls.algorithm

    def __init__(
        self,
        n_clusters: int | str | Auto | None = None,
        *,
        bounds: object = None,
        epsilon: float = 1.0,
        delta: float | None = None,
        n_examples: int | str | PrivateCount | None = None,
        server_data: object = None,
        timeouts: Timeouts | None = None,
        on_step: OnStep | None = None,
        **options: object,
    ) -> None:
        parties = Parties.stated(options.pop("parties", None))
        options.setdefault("algorithm", self.algorithm)
        options |= {
            "n_clusters": n_clusters,
            "bounds": bounds,
            "n_examples": n_examples,
            "epsilon": epsilon,
            "delta": delta,
        }
        stated = flat_options(options)
        if isinstance(stated["algorithm"], str):
            algorithm_entry(stated["algorithm"])
        # A missing server data set is said in `start`, since `from_config` brings it
        # later.
        if server_data is not None:
            require_server_data(
                algorithm_entry(stated["algorithm"]), has_server_data=True
            )
        box, names, points = resolve_bounds(
            stated["bounds"],
            server_data,
            stated.get("bounds_domain"),
            names=stated.get("feature_names", ()),
            allow_unnamed=bool(stated.get("allow_unnamed", False)),
        )
        config = build_config(
            stated | {"feature_names": names}, box, has_server_data=points is not None
        )
        self._set_up(
            config,
            points,
            timeouts,
            on_step,
        )
        self.parties = parties

    @classmethod
    def from_config(
        cls,
        config: RunConfig,
        *,
        server_points: Array | None = None,
        timeouts: Timeouts | None = None,
        on_step: OnStep | None = None,
        on_warning: Callable[[str], None] = logger.warning,
    ) -> PrivateKMeans:
        """Build the strategy from a validated configuration.

        And the server's points in the caller's units.

        ``timeouts`` and ``on_step`` may be given as ever, and ``on_warning``, which is
        told each sentence of the log.
        """
        strategy = cls.__new__(cls)
        strategy._set_up(
            config,
            server_points,
            timeouts,
            on_step,
            on_warning,
        )
        return strategy

    def _set_up(
        self,
        config: RunConfig,
        points: Array | None,
        timeouts: Timeouts | None = None,
        on_step: OnStep | None = None,
        on_warning: Callable[[str], None] = logger.warning,
    ) -> None:
        """Take a configuration that a Flower run can have."""
        algorithm_entry(config.algorithm)
        trust_model(config.trust)
        if not config.masking:
            raise ConfigurationError(
                "masking is False, but clients of a Flower run always mask: leave it"
                " out, or use FederatedKMeans with engine='direct'."
            )
        self.config, self._server_points = config, points
        self.timeouts = timeouts or Timeouts()
        self.parties = ANYBODY
        """Nodes that take part, by name."""
        self._on_step = on_step or log_step
        self._on_warning = on_warning
        self._warned: list[str] = []
        self._run: Server | None = None
        self._steps: list[Step] = []
        self._wait: float | None = None
        self._asked: Mapping[int, Request] = {}
        """What is due, by node."""
        self.progress = Progress()
        """What is known of the run.

        `flwr_dpkmeans.flower.progress.kept` makes one that is kept in a file.
        """

    @property
    def run(self) -> Server:
        """The run in progress, or the last one."""
        if self._run is None:
            raise ConfigurationError(
                "no run has been started: call start(grid=grid) first."
            )
        return self._run

    def privacy_spent(self) -> PrivacySpent | None:
        """What the run costs, as Flower's own strategies say it.

        None before it has begun.

        It is the report's price, the whole plan's from the first aggregation on:
        whoever ends a run early may do so for what it told. What was spent by each
        round is in the result's metrics.
        """
        if self._run is None:
            return None
        report = self.run.report
        return PrivacySpent(
            report.epsilon,
            report.delta,
            report.n_attempts,
            "flwr_dpkmeans.privacy.accounting",
        )

    def summary(self) -> None:
        """Log what is about to be run, before anything is sent."""
        say("log_plan.j2", plan=self.run.plan, worst=worst_case(self.run.plan))
        self._warn()

    def _warn(self) -> None:
        """Log what the report says against the run and was not logged before."""
        reasons = why_not_private(self.run.plan)
        for sentence in self.run.report.warnings:
            if sentence not in self._warned:
                self._warned.append(sentence)
                self._on_warning(
                    f"NOT PRIVATE: {sentence}"
                    if sentence in reasons
                    else f"WARNING: {sentence}"
                )

    def configure_train(
        self,
        server_round: int,
        arrays: ArrayRecord,
        config: ConfigRecord,
        grid: Grid,
    ) -> list[Message]:
        """What is due in a round.

        Requests for masked vectors, or for what comes before or after them.
        """
        self._asked = dict(self.run.requests())
        return [
            message_of(node, replace(request, wait=self._wait))
            for node, request in self._asked.items()
        ]

    def aggregate_train(
        self,
        server_round: int,
        replies: Iterable[Message],
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Take the answers in.

        ``(None, None)`` means that the sum is not complete yet.
        """
        server = self.run
        step = server.take(answers_of(replies))
        if step is None:
            return None, None
        self._steps.append(step)
        self._on_step(step)
        if step.round_index == 0 or server.due is Stage.FINISH:
            self._warn()
        log_progress(
            self.progress,
            server,
            step.round_index,
            step.epsilon,
        )
        return self._arrays(), step_metrics(step)

    configure_evaluate = configure_train

    def aggregate_evaluate(
        self,
        server_round: int,
        replies: Iterable[Message],
    ) -> MetricRecord | None:
        """Take who confirmed the result, and count them."""
        self.run.take(answers_of(replies))
        return MetricRecord({"clients-confirmed": len(self.run.confirmed)})

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int | None = None,
        timeout: float | None = None,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: EvaluateFn | None = None,
    ) -> KMeansResult:
        """Run the whole protocol.

        Keys, private count and bounds if not declared, T rounds, last release.

        Parameters
        ----------
        grid : Grid
            Flower's grid.
        initial_arrays, train_config, evaluate_config : optional
            Must be left out, since every algorithm makes its own start; not sent, since
            clients act on the plan only.
        num_rounds : int, optional
            Overrides the algorithm's own number of iterations (``max_iter``).
        timeout : float, optional
            Seconds to wait for the replies of one aggregation.
        evaluate_fn : callable, optional
            ``evaluate_fn(round, arrays)``, where the trust model lets the server know
            the centroids.

        Returns
        -------
        KMeansResult
            Flower's `Result`; without arrays under ``oblivious``, where the server
            never sees a centroid.

        Raises
        ------
        DPKMeansError
            One sentence; before the key phase nothing has been sent.
        """
        if initial_arrays is not None and len(initial_arrays):
            raise ConfigurationError(
                "initial_arrays are given, but every algorithm has its own start: leave"
                " them out."
            )
        if (
            evaluate_fn is not None
            and not trust_model(self.config.trust).server_has_result()
        ):
            raise ConfigurationError(
                f"evaluate_fn was given, but under trust {self.config.trust!r} the"
                " server has no centroids to evaluate: leave it out, or use trust"
                " 'central'."
            )
        if num_rounds is not None:
            self.config = self.config.changed(max_iter=num_rounds)
        if timeout is not None:
            self.timeouts = replace(self.timeouts, round=timeout)
        if not getattr(grid, "is_complete", False):
            # In somebody's own ServerApp, which would be mute for minutes. A notebook
            # shows its progress itself.
            show_by(FLOWER_LOGGER)
        with (
            placed(Place(run=grid.run.run_id)),
            turn(grid, concurrent=self.timeouts.concurrent),
        ):
            try:
                return self._conduct(grid, evaluate_fn)
            except Exception as error:
                self._stop(grid, error)
                raise

    def _conduct(
        self,
        grid: Grid,
        evaluate_fn: EvaluateFn | None,
    ) -> KMeansResult:
        deadline = time.monotonic() + self.timeouts.run
        self._steps, self._warned = [], []
        server = self._open(grid)
        self.progress.begin()
        result = KMeansResult()
        while (due := server.due) is not Stage.FINISH:
            arrays, metrics = self.aggregate_train(
                0, self._exchange(grid, self.configure_train, deadline)
            )
            if due in (Stage.KEYS, Stage.SHARE) and server.due is Stage.SUM:
                log_progress(
                    self.progress,
                    server,
                    None,
                    0.0,
                )
            if metrics is None:
                continue
            index = self._steps[-1].round_index
            result.train_metrics_clientapp[index] = metrics
            if arrays is not None:
                result.arrays = arrays
                evaluated = (
                    evaluate_fn(index, arrays) if evaluate_fn is not None else None
                )
                if evaluated is not None:
                    result.evaluate_metrics_serverapp[index] = evaluated
        # Then the last release is sent out.
        index = self._steps[-1].round_index
        confirmed = self.aggregate_evaluate(
            index, self._exchange(grid, self.configure_evaluate, deadline)
        )
        if confirmed is not None:
            result.evaluate_metrics_clientapp[index] = confirmed
        left_out = set(server.joined) - set(server.session.roster.node_ids)
        self._dismiss(
            grid,
            sorted(left_out),
            "this node was left out, and the others have a result.",
        )
        return self._reported(result)

    def _stop(
        self,
        grid: Grid,
        error: Exception,
    ) -> None:
        """Tell all nodes that the run is over, and why."""
        run, kind = self._run, type(error).__name__
        sentence = (  # what an operator's own function raises may quote anything
            f"its program failed ({kind})."
        )
        if isinstance(error, DPKMeansError):
            sentence = f"{kind}: {error.for_others or error}"
        if (
            run is not None
            and run.plan.run_id == grid.run.run_id
            and run.due is not None
        ):
            self._dismiss(grid, run.joined, sentence)

    def _dismiss(
        self,
        grid: Grid,
        nodes: Collection[int],
        sentence: str,
    ) -> None:
        """Tell nodes that nothing more will come.

        They forget the run's keys, and their owners need not wait.
        """
        if not nodes or not is_deployed(grid):
            return
        request = Request(
            Stage.STOP,
            StopRequest(named(sentence)[:LONGEST_SENTENCE]),
            run_id=self.run.plan.run_id,
        )
        try:
            messages = [message_of(node, request) for node in nodes]
            exchange(grid, messages, self.stop_seconds)
        except Exception as other:  # what is wrong has been told, or nothing is
            logger.debug("nodes could not be told of the end: %s", type(other).__name__)

    def rehearse(
        self,
        n_clients: int,
        n_features: int,
        names: tuple[str, ...],
        *,
        has_labels: bool,
        has_persons: bool = False,
        has_weights: bool = False,
    ) -> None:
        """Refuse what simulated clients would refuse once they are asked.

        So many of them with such tables; nothing is sent.
        """
        self._undisturbed()
        # Fewer than its smallest cohort would be waited for.
        self.config.changed(n_clients=n_clients)
        plan = self.draft(n_clients)
        tables.require_width(plan, n_features)
        tables.require_labels(plan, has_labels=has_labels)
        tables.require_persons(plan, has_persons=has_persons)
        tables.require_weights(plan, has_weights=has_weights)
        tables.require_columns(plan, names)
        if plan.n_features is None:
            redraft_plan(plan, n_features=n_features)

    def draft(self, n_clients: int) -> Plan:
        """The plan that a run among so many clients would begin with.

        What it would end with is raised.
        """
        return first_plan(
            self.config,
            self._server_points,
            run_id=1,
            n_clients=n_clients,
        )[0]

    def _undisturbed(self) -> None:
        """Virtual clients do not fall silent.

        So that a second round trip for each sum would be for nothing.
        """
        if self.config.dropout is None:
            self.config = self.config.changed(dropout=Dropout.undisturbed())

    def _open(self, grid: Grid) -> Server:
        """Wait for the cohort and make the plan.

        Nothing has been sent when this fails.
        """
        if not is_deployed(grid):
            self._undisturbed()
        config = self.config
        # What cannot work is said before anybody is waited for.
        require_supported(config, has_server_data=self._server_points is not None)
        joined, waiting = self.progress.joined, self.timeouts.joining
        joined(
            nodes := wait_for_nodes(
                grid,
                config.n_clients,
                config.min_clients,
                waiting,
                joined,
                self.parties,
            )
        )
        plan, server_points = first_plan(
            config,
            self._server_points,
            run_id=grid.run.run_id,
            n_clients=len(nodes),
        )
        app_hash = grid.run.fab_hash or ""
        self._run = server = Server(
            plan,
            node_ids=nodes,
            server_points=server_points,
            started=utc_now(),
            app_hash=app_hash,
        )
        names = list(map(str, nodes))
        started = (
            f"run {plan.run_id} starts with {len(names)} clients: nodes {listed(names)}"
        )
        logger.info(started, extra=event("start", nodes=names))
        self.summary()
        self.progress.planned(server, 0.0, None)
        if is_deployed(grid):
            announce(plan)
        return server

    def _reported(self, result: KMeansResult) -> KMeansResult:
        server = self.run
        result.privacy, result.confirmed, result.steps = (
            server.report,
            server.confirmed,
            tuple(self._steps),
        )
        result.node_ids = server.session.roster.node_ids
        n_confirmed, n_asked = len(result.confirmed), len(result.node_ids)
        if server.clusters is not None:
            result.evaluation = read_evaluation(server.plan, server.clusters, n_asked)
        details = event(
            "finished",
            n_attempts=len(server.attempts),
            n_confirmed=n_confirmed,
            n_asked=n_asked,
        )
        variables = {
            "report": result.privacy,
            "n_confirmed": n_confirmed,
            "n_asked": n_asked,
            "plan": server.plan,
        }
        say(
            "log_end.j2",
            details,
            seconds=self.progress.seconds,
            **variables,
        )
        return result

    def _exchange(
        self,
        grid: Grid,
        configure: Callable[[int, ArrayRecord, ConfigRecord, Grid], list[Message]],
        deadline: float,
    ) -> list[Message]:
        """Send what is due and wait, within the round's and the run's bounds."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise CohortError(
                f"the run took longer than {self.timeouts.run:g} s, and what its"
                " clients charged stays charged: start a new one with a longer"
                " run-timeout, or with fewer rounds."
            )
        # A node that finds the request later than that is not to pay for an answer that
        # nobody waits for.
        timeout = self._wait = min(self.timeouts.round, left)
        messages = configure(
            0,
            ArrayRecord(),
            ConfigRecord(),
            grid,
        )
        log_size(logger, "sending", messages)
        server, start = self.run, time.monotonic()
        with self.progress.trip(server, messages) as come:
            replies = exchange(
                grid,
                messages,
                timeout,
                come,
                partial(self._second_time, deadline),
            )
            come(replies)
        log_size(
            logger,
            f"after {time.monotonic() - start:.2f} of {timeout:.0f} s came",
            replies,
        )
        if server.due is not Stage.FINISH:  # Who misses the result stops nobody else.
            answered = {reply.metadata.src_node_id for reply in replies}
            option = (
                "round-timeout" if timeout == self.timeouts.round else "run-timeout"
            )
            # The SuperLink answers in the place of nodes that it has given up, so that
            # none is waited for any longer.
            waited = time.monotonic() - start
            if len(replies) < len(messages):
                waited = max(timeout, waited)
            server.require_answers(
                server.nodes,
                answered,
                waited,
                option,
            )
        return replies

    def _second_time(self, deadline: float, replies: Sequence[Message]) -> Again:
        """Ask silent nodes again where a run that is paid for would end without them.

        The same once more, so that a node which has charged it already refuses, and one
        that came too late for the first time charges it once.
        """
        server = self.run
        is_last = server.due is Stage.FINISH
        # An app that was killed while it took its result may take it now.
        answered = {
            reply.metadata.src_node_id
            for reply in replies
            if not (is_last and reply.has_error())
        }
        silent = [node for node in server.nodes if node not in answered]
        least = 1 if is_last else server.least_answers
        left = deadline - time.monotonic()
        if not (silent and server.attempts) or len(answered) >= least or left <= 0:
            return Again()
        seconds = min(AGAIN * self.timeouts.round, LONGEST_AGAIN, left)
        logger.warning(
            "nodes %s have not answered, and the run is paid for: they are asked once"
            " more, for %.0f s",
            silent,
            seconds,
            extra=event("asked again", missing=[str(node) for node in silent]),
        )
        again = []
        for node in silent:
            request = replace(self._asked[node], wait=seconds)
            again.append(message_of(node, request))
        return Again(again, seconds)

    def _arrays(self) -> ArrayRecord | None:
        """Centroids, or a task's own arrays, in the caller's units.

        Where the server may know them.
        """
        server = self.run
        clusters, plan = server.clusters, server.plan
        if clusters is None:
            return None
        if "centroids" in clusters.arrays:
            arrays = {
                "centroids": in_callers_units(plan, clusters.centroids),
                "counts": clusters.counts * plan.settings.weight_unit,
            }
            if server.has_ended:
                arrays["cluster_centers_error"] = centre_half_widths(plan, clusters)
        else:
            # The result is what the last state says; before, that state is.
            arrays = dict(
                plan.task.result(plan, clusters).arrays
                if server.has_ended
                else clusters.arrays
            )
        return recorded(arrays)


def recorded(arrays: Mapping[str, Array]) -> ArrayRecord:
    """Arrays as Flower carries them, each of the shape that it has."""
    return ArrayRecord(
        {
            name: FlowerArray(np.asarray(array, order="C"))
            for name, array in arrays.items()
        }
    )
