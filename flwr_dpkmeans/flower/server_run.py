"""One run as the server conducts it: plan, keys, aggregations with retries, and the last release.

The server holds masked vectors and, where the trust model lets it, released sums. Under ``oblivious`` it holds nothing
that it could read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace

from flwr.app import Message, RecordDict

from flwr_dpkmeans.algorithms.evaluation import result_extras
from flwr_dpkmeans.config import KMeansConfig
from flwr_dpkmeans.errors import CohortError, ProtocolError, RefusalError
from flwr_dpkmeans.flower.held import HeldPoints
from flwr_dpkmeans.flower.records import (
    KeysReply,
    Stage,
    Status,
    dump_plan,
    load_plan,
    parse_failure,
    parse_finish_reply,
    parse_keys_reply,
    parse_sum_reply,
    plan_digest,
    request_content,
)
from flwr_dpkmeans.plan import Plan, make_noise_source
from flwr_dpkmeans.planning import build_algorithm, draft_plan, initial_state, redraft_plan
from flwr_dpkmeans.preliminary import COUNT, Found, take_preliminary
from flwr_dpkmeans.privacy.mechanisms import ReleasedSum, vector_length
from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.reporting import Step, build_report, describe_step
from flwr_dpkmeans.rounds.state import ClusterState, pack_state
from flwr_dpkmeans.secagg.messages import FinishRequest, Release, SumRequest
from flwr_dpkmeans.secagg.roster import Roster
from flwr_dpkmeans.secagg.server import ServerSession, require_equal_tags
from flwr_dpkmeans.trust import trust_model

logger = logging.getLogger("flwr_dpkmeans.server")

_STOPPING_CODES = frozenset({"BudgetError", "RefusalError", "ConfigurationError", "DataError", "LocalMisuseError"})


class ServerRun:
    """State machine of one run on the server.

    Parameters
    ----------
    config : KMeansConfig
        Validated configuration.
    run_id, seed : int
        Of this run.
    node_ids : sequence of int
        The cohort that was waited for.
    held : HeldPoints or None
        The server's own points, if it has any.

    Raises
    ------
    ConfigurationError, PlanError, BudgetError
        Before anything is sent.
    """

    def __init__(
        self,
        config: KMeansConfig,
        *,
        run_id: int,
        seed: int,
        node_ids: Sequence[int],
        held: HeldPoints | None = None,
    ) -> None:
        self._n_nodes = len(node_ids)
        self._waiting = tuple(node_ids)
        self._kept_points = None if held is None else held.kept
        self.plan = draft_plan(
            config,
            run_id=run_id,
            n_clients=len(node_ids),
            seed=seed,
            n_features=None if held is None else held.scaled.shape[1],
            server=None if held is None else held.facts,
            public_points=None if held is None else held.public,
        )
        self._plan_blob = dump_plan(self.plan)
        # What clients parse is what the server works with.
        self.plan = load_plan(self._plan_blob)
        self._noise = make_noise_source(self.plan, "server")
        self._session: ServerSession | None = None
        self._new_plan: bytes | None = None
        self._release: Release | None = None
        self._attempts: list[tuple[int, int]] = []
        self._clusters: ClusterState | None = None
        self._found = Found()
        self._next_plan(self.plan, announce=False)

    @property
    def clusters(self) -> ClusterState | None:
        """The clustering state, where the trust model lets the server know it."""
        return self._clusters

    @property
    def attempts(self) -> tuple[tuple[int, int], ...]:
        """Every aggregation that was asked for."""
        return tuple(self._attempts)

    @property
    def session(self) -> ServerSession:
        """The aggregation session, once keys are agreed on."""
        if self._session is None:
            raise ProtocolError("no keys have been agreed on yet: run the key phase first.")
        return self._session

    @property
    def report(self) -> PrivacyReport:
        """What the run guarantees, so far."""
        return build_report(self.plan, self._attempts)

    def keys_messages(self) -> list[Message]:
        """The plan, for every node of the cohort."""
        return [Message(request_content(Stage.KEYS, plan=self._plan_blob), node, "train") for node in self._waiting]

    def take_keys(self, replies: Iterable[Message]) -> None:
        """Collect public keys; a refusal or a table of another width stops the run with its sentence."""
        agreed: dict[int, KeysReply] = {}
        for node, content in self._contents(replies, self._waiting):
            try:
                self._require_no_refusal(node, content, every_failure_stops=True)
                agreed.setdefault(node, parse_keys_reply(content))
            except ProtocolError as error:
                logger.warning("node %d: %s", node, error)
        missing = sorted(set(self._waiting) - set(agreed))
        if missing:
            logger.warning("nodes %s did not answer the plan and are left out", missing)
        if len(agreed) < self.plan.min_cohort:
            raise CohortError(
                f"{len(agreed)} of {self._n_nodes} clients answered the plan, but at least {self.plan.min_cohort} are "
                f"needed: look at the logs of nodes {missing}."
            )
        expected = plan_digest(self._plan_blob)
        for node, reply in agreed.items():
            if reply.plan_digest != expected:
                raise ProtocolError(
                    f"node {node} agreed to another plan than the one that was sent: stop and check it."
                )
        self._take_widths({node: reply.n_features for node, reply in agreed.items()})
        self._session = ServerSession(
            Roster.of(0, {node: reply.public_key for node, reply in agreed.items()}),
            min_cohort=self.plan.min_cohort,
            max_retries=self.plan.config.max_retries,
            max_silent=self.plan.max_silent,
            authored=trust_model(self.plan.config.trust).blinded,
        )

    def open_round(self, index: int) -> None:
        """Start waiting for one round's vectors."""
        self.session.open_round(index, vector_length(self.plan.round_at(index).blocks))

    def sum_messages(self) -> list[Message]:
        """Requests of the open round's current attempt, one per client."""
        session = self.session
        first = session.expects_roster()
        repeated = bool(self._attempts) and self._attempts[-1][0] == session.round_index
        self._attempts.append((session.round_index, session.attempt))
        state = self._state_for(session.round_index)
        messages = []
        for node in session.roster.node_ids:
            request = SumRequest(
                session.round_index,
                session.attempt,
                roster=session.roster if first else None,
                release=None if repeated else self._release,
                boxes=session.take_boxes(node),
                state=b"" if repeated else state,
            )
            plan = None if repeated else self._new_plan
            messages.append(Message(request_content(Stage.SUM, plan=plan, request=request), node, "train"))
        return messages

    def take_sums(self, replies: Iterable[Message]) -> Step | None:
        """Take the open round's replies in.

        Returns
        -------
        Step or None
            None if clients were missing and a new attempt was opened with the others.
        """
        session = self.session
        for node, content in self._contents(replies, session.roster.node_ids):
            try:
                self._require_no_refusal(node, content, every_failure_stops=False)
                session.receive(node, parse_sum_reply(content))
            except ProtocolError as error:
                logger.warning("%s", error)
        missing = session.missing()
        if missing:
            session.retry()
            logger.warning("nodes %s did not answer: attempt %d without them", list(missing), session.attempt)
            return None
        return self._finish_round()

    def finish_messages(self) -> list[Message]:
        """The last release, for every client of the roster."""
        session = self.session
        if self._release is None:
            raise ProtocolError("no round has been completed, so there is nothing to finish.")
        return [
            Message(
                request_content(
                    Stage.FINISH,
                    request=FinishRequest(self._release, session.take_boxes(node), self._state_for(None)),
                ),
                node,
                "evaluate",
            )
            for node in session.roster.node_ids
        ]

    def take_finish(self, replies: Iterable[Message]) -> tuple[int, ...]:
        """Check that all clients ended with the same state.

        Returns
        -------
        tuple of int
            Nodes whose result is confirmed.

        Raises
        ------
        DisagreementError
            If the states differ.
        CohortError
            If nobody is known to have the result.
        """
        tags: dict[int, bytes] = {}
        for node, content in self._contents(replies, self.session.roster.node_ids):
            try:
                status, code, sentence = parse_failure(content)
                if status is Status.OK:
                    tags.setdefault(node, parse_finish_reply(content).tag)
                else:
                    logger.warning("node %d could not take its result (%s): %s", node, code, sentence)
            except ProtocolError as error:
                logger.warning("node %d: %s", node, error)
        require_equal_tags(tags, self.plan.last_round + 1)
        missing = [node for node in self.session.roster.node_ids if node not in tags]
        if missing:
            logger.warning("nodes %s did not confirm that they have the result", missing)
        if not tags and self._clusters is None:
            raise CohortError(
                f"none of the {len(missing)} clients confirmed that it has the result, and the server has none: look "
                "at the clients' logs and output folders, and start a new run if they are empty."
            )
        return tuple(sorted(tags))

    def _finish_round(self) -> Step:
        """Aggregate, add noise if this trust model has the server do it, and keep what may be known."""
        session, index = self.session, self.session.round_index
        planned = self.plan.round_at(index)
        trust = trust_model(planned.trust)
        aggregate = session.aggregate(blinded=trust.blinded)
        broadcast = trust.broadcast(aggregate, planned.blocks, self.plan.fraction_bits, self._noise)
        # Where the server goes on by itself, clients are sent its state and need no release.
        sent = broadcast.values[:0] if self.plan.server_advances and index > 0 else broadcast.values
        self._release = Release(index, session.attempt, sent)
        self._new_plan = None
        if broadcast.released is not None:
            self._learn(index, broadcast.released)
        movement = self._clusters.movements[-1] if self._clusters is not None and self._clusters.movements else None
        return describe_step(self.plan, self._attempts, len(session.roster.members), movement)

    def _learn(self, index: int, released: ReleasedSum) -> None:
        """Use a released sum: the last preliminary one makes the plan final, the others move the centroids."""
        if index <= 0:
            self._found = take_preliminary(self.plan, index, released, self._found)
            log_found(self.plan, index, self._found)
            if index == 0:
                found, width = self._found, self.plan.n_features
                self._next_plan(redraft_plan(self.plan, n_features=width, n_examples=found.n_examples, box=found.box))
        elif self._clusters is not None:
            self._clusters = build_algorithm(self.plan).rounds[index - 1].advance(self._clusters, released)

    def _take_widths(self, widths: dict[int, int]) -> None:
        """Learn the tables' width if it was not declared; all must be equal."""
        if len(set(widths.values())) > 1:
            listed = ", ".join(f"node {node}: {width}" for node, width in sorted(widths.items()))
            raise RefusalError(
                f"the clients' tables have different numbers of features ({listed}): use the same columns."
            )
        if self.plan.n_features is None:
            plan = redraft_plan(self.plan, n_features=next(iter(widths.values())))
            if plan.is_final or plan.config.private_bounds:
                # Histograms are as wide as the tables, so clients need the width before the first of them.
                self._next_plan(plan)
            else:
                # The width joins the plan together with the count.
                self.plan = replace(self.plan, n_features=plan.n_features)

    def _next_plan(self, plan: Plan, *, announce: bool = True) -> None:
        """Put a plan in force; a later one is announced with the next request."""
        if announce:
            self._new_plan = dump_plan(plan)
            plan = load_plan(self._new_plan)
        self.plan = plan
        if plan.is_final and trust_model(plan.config.trust).server_reads:
            self._clusters = initial_state(plan, self._kept_points)

    def _state_for(self, index: int | None) -> bytes:
        """What clients need to know for a round, or (None) of the result, where the server alone can compute it."""
        if not self.plan.server_advances or self._clusters is None:
            return b""
        reads = result_extras(self.plan.config) if index is None else build_algorithm(self.plan).rounds[index - 1].reads
        return pack_state(self._clusters.view(reads))

    def _contents(self, replies: Iterable[Message], expected: Sequence[int]) -> list[tuple[int, RecordDict]]:
        """Replies with content from nodes that were asked; the others are logged."""
        contents = []
        for reply in replies:
            node = reply.metadata.src_node_id
            if reply.has_error():
                logger.warning("node %d: Flower reports error code %d", node, reply.error.code)
            elif node not in expected:
                logger.warning("node %d was not asked: its message is ignored", node)
            else:
                contents.append((node, reply.content))
        return contents

    @staticmethod
    def _require_no_refusal(node: int, content: RecordDict, *, every_failure_stops: bool) -> None:
        """Turn a refusal into an error: one that stops the run, or one that only leaves the node out."""
        status, code, sentence = parse_failure(content)
        if status is Status.OK:
            return
        if every_failure_stops or code in _STOPPING_CODES:
            raise RefusalError(f"node {node} refused ({code}): {sentence}")
        raise ProtocolError(f"node {node} did not answer ({code}): {sentence}")


def log_found(plan: Plan, index: int, found: Found) -> None:
    """Say what one preliminary release told, and in which columns its noise hides everything."""
    if found.n_examples is not None and any(block.name == COUNT for block in plan.round_at(index).blocks):
        logger.info("private count: about %d rows", found.n_examples)
    if found.unclear:
        columns = ", ".join(str(column) for column in found.unclear[:10])
        more = ", ..." if len(found.unclear) > 10 else ""
        logger.warning(
            "private bounds (%s): no value of column(s) %s stands out of the noise, so their range is a guess: declare "
            "bounds, or raise epsilon or bounds_share",
            plan.round_at(index).name,
            columns + more,
        )
