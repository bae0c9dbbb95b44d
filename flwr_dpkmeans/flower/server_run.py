"""One run as the server conducts it: plan, keys, aggregations with retries, and the last release.

The server holds masked vectors and, where the trust model lets it, released sums. Under ``oblivious`` it holds nothing
that it could read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from flwr.app import Message, RecordDict

from flwr_dpkmeans.algorithms.discovery import take_preliminary
from flwr_dpkmeans.algorithms.measure import result_extras
from flwr_dpkmeans.algorithms.server_points import HeldPoints
from flwr_dpkmeans.errors import CohortError, ProtocolError, RefusalError, VersionError
from flwr_dpkmeans.flower import server_log
from flwr_dpkmeans.flower.flower_errors import error_text
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
    require_node_versions,
)
from flwr_dpkmeans.flower.recovery_run import RecoveryRun
from flwr_dpkmeans.log import now_at, placed_logger
from flwr_dpkmeans.privacy.provenance import Provenance, utc_now
from flwr_dpkmeans.privacy.release import ReleasedSum, vector_length
from flwr_dpkmeans.privacy.report import PrivacyReport, signed_identities
from flwr_dpkmeans.secagg.credentials import Credential, fingerprints, require_known_peers
from flwr_dpkmeans.secagg.messages import FinishRequest, Release, SumRequest
from flwr_dpkmeans.secagg.recovery.server import RecoverySession
from flwr_dpkmeans.secagg.ring import AggregateVector
from flwr_dpkmeans.secagg.roster import Roster
from flwr_dpkmeans.secagg.server import ServerSession, require_equal_tags
from flwr_dpkmeans.sums.draft import build_algorithm, draft_plan, initial_state, redraft_plan
from flwr_dpkmeans.sums.plan import COUNT, Plan, make_noise_source
from flwr_dpkmeans.sums.settings import Dropout
from flwr_dpkmeans.sums.state import State, pack_state
from flwr_dpkmeans.sums.statement import Step, build_report, describe_step
from flwr_dpkmeans.sums.task import Found, Run
from flwr_dpkmeans.sums.trust import trust_model
from flwr_dpkmeans.sums.verify import require_plausible

logger = placed_logger("flwr_dpkmeans.server")

_STOPPING_CODES = frozenset(
    {"BudgetError", "RefusalError", "ConfigurationError", "DataError", "LocalMisuseError", "IdentityError"}
)
_NODES_SHOWN = 20


class ServerRun:
    """State machine of one run on the server.

    Parameters
    ----------
    config : Run
        Validated configuration.
    run_id, seed : int
        Of this run.
    node_ids : sequence of int
        The cohort that was waited for.
    held : HeldPoints or None
        The server's own points, if it has any.
    app_hash : str
        Of the FAB that is running, where Flower knows it.

    Raises
    ------
    ConfigurationError, PlanError, BudgetError
        Before anything is sent.
    """

    def __init__(
        self,
        config: Run,
        *,
        run_id: int,
        seed: int,
        node_ids: Sequence[int],
        held: HeldPoints | None = None,
        app_hash: str = "",
    ) -> None:
        self._n_nodes = len(node_ids)
        self._started, self._app_hash = utc_now(), app_hash
        self._cohort: tuple[str, ...] = ()
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
        self._recovery: RecoveryRun | None = None
        self._plan_in_force = plan_digest(self._plan_blob)
        self._new_plan: bytes | None = None
        self._release: Release | None = None
        self._attempts: list[tuple[int, int]] = []
        self._clusters: State | None = None
        self._found = Found()
        self._credentials: dict[int, Credential] = {}
        self._next_plan(self.plan, announce=False)

    @property
    def clusters(self) -> State | None:
        """The clustering state, where the trust model lets the server know it."""
        return self._clusters

    @property
    def attempts(self) -> tuple[tuple[int, int], ...]:
        """Every aggregation that was asked for."""
        return tuple(self._attempts)

    @property
    def session(self) -> ServerSession | RecoverySession:
        """The aggregation session, once keys are agreed on."""
        if self._recovery is not None:
            return self._recovery.session
        if self._session is None:
            raise ProtocolError("no keys have been agreed on yet: run the key phase first.")
        return self._session

    @property
    def report(self) -> PrivacyReport:
        """What the run guarantees, so far."""
        signed = signed_identities(len(self._credentials), self._n_nodes)
        ended = self.plan.is_final and self._release is not None and self._release.round_index == self.plan.last_round
        counts = self._clusters.counts if ended and self._clusters is not None else None
        told = build_report(self.plan, self._attempts, signed, counts=counts, unclear=self._found.unclear)
        return replace(told, provenance=self._provenance)

    @property
    def _provenance(self) -> Provenance:
        """Where the report comes from; its end is the moment at which the last release went out."""
        return Provenance.of(
            self.plan.run_id,
            "server",
            plan_digest(self._plan_blob),
            columns_digest=self.plan.columns_digest,
            started=self._started,
            app_hash=self._app_hash,
            cohort=self._cohort,
        )

    def keys_messages(self) -> list[Message]:
        """The plan, for every node of the cohort."""
        return [Message(request_content(Stage.KEYS, plan=self._plan_blob), node, "train") for node in self._waiting]

    def take_keys(self, replies: Iterable[Message]) -> None:
        """Collect public keys; a refusal, another version or a table of another width stops the run with a sentence."""
        agreed = self._agreed(self._contents(replies, self._waiting))
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
        self._take_schema(
            {node: reply.n_features for node, reply in agreed.items()},
            {node: reply.columns for node, reply in agreed.items()},
        )
        signed = {node: reply.credential for node, reply in agreed.items()}
        marks = {node: reply.marks for node, reply in agreed.items() if reply.marks}
        require_known_peers(signed, marks, self.plan.run_id)
        self._credentials = {node: credential for node, credential in signed.items() if credential is not None}
        roster = Roster.of(0, {node: reply.public_key for node, reply in agreed.items()})
        self._cohort = fingerprints(roster, self._credentials)
        limits: dict[str, Any] = {
            "min_cohort": self.plan.min_cohort,
            "max_retries": self.plan.config.max_retries,
            "max_silent": self.plan.max_silent,
            "authored": trust_model(self.plan.config.trust).blinded,
        }
        if self.plan.dropout is Dropout.RECOVER:
            # Clients count the aggregations by the plan that they agreed to, which may have changed since.
            slots = load_plan(self._plan_blob).slots
            session = RecoverySession(self.plan.run_id, roster, slots, **limits)
            self._recovery = RecoveryRun(session, self._credentials)
        else:
            self._session = ServerSession(roster, **limits)

    def require_answers(self, asked: Sequence[int], heard: Collection[int], timeout: float, option: str) -> None:
        """Stop if so many nodes sent nothing in time that no sum can follow, and say what is known of it.

        Parameters
        ----------
        asked, heard : node ids
            Who was asked, and from whom anything came at all.
        timeout : float
            For how long it was waited.
        option : str
            What bounds this wait.

        Raises
        ------
        CohortError
        """
        silent = [node for node in asked if node not in heard]
        n_answered, least = len(asked) - len(silent), max(2, self.plan.min_cohort)
        if not silent or n_answered >= least:
            return
        charged = "what those that answered charged stays charged" if self._attempts else "nobody has charged anything"
        raise CohortError(
            f"{n_answered} of {len(asked)} nodes answered within {timeout:.0f} s (silent: nodes {silent[:20]}), but at "
            f"least {least} are needed, and {charged}: see whether the silent ones are off, overloaded or busy with "
            f"another run, then start a new run, or raise {option}."
        )

    def _agreed(self, contents: Sequence[tuple[int, RecordDict]]) -> dict[int, KeysReply]:
        """Who agreed to the plan; a node that refuses it, or speaks another version, stops the run."""
        agreed: dict[int, KeysReply] = {}
        refused: list[tuple[int, RecordDict]] = []
        foreign: dict[int, VersionError] = {}
        server_log.refusals(contents)
        for node, content in contents:
            try:
                if parse_failure(content)[0] is Status.OK:
                    require_node_versions(content, node)
                    agreed.setdefault(node, parse_keys_reply(content))
                else:
                    refused.append((node, content))
            except VersionError as error:
                logger.warning("%s", error)
                foreign.setdefault(node, error)
            except ProtocolError as error:
                logger.warning("node %d: %s", node, error)
        # What comes from a node that agreed besides, such as a refusal of the plan's copy, changes nothing.
        for node, content in refused:
            if node not in agreed:
                self._require_no_refusal(node, content, every_failure_stops=True)
        for node, difference in foreign.items():
            if node not in agreed:
                raise difference
        return agreed

    def share_messages(self) -> list[Message]:
        """Requests for key shares; none where sums are not recovered."""
        return [] if self._recovery is None else self._recovery.share_messages()

    def take_shares(self, replies: Iterable[Message]) -> None:
        """Collect key shares; too few of them are a `CohortError`."""
        if self._recovery is not None:
            contents = self._contents(replies, self.session.roster.node_ids)
            self._recovery.take_shares(contents, self._require_answer)

    def open_round(self, index: int) -> None:
        """Start waiting for one round's vectors."""
        self.session.open_round(index, vector_length(self.plan.round_at(index).blocks))

    def train_messages(self) -> list[Message]:
        """Whatever is due in the open round: requests for vectors, or for the shares that take their masks away."""
        if self._recovery is not None and self._recovery.session.is_unmasking:
            return self._recovery.unmask_messages()
        return self.sum_messages()

    def take_train(self, replies: Iterable[Message]) -> Step | None:
        """Take in what `train_messages` asked for; None if the round is not done yet."""
        if self._recovery is not None and self._recovery.session.is_unmasking:
            return self._take_unmasked(self._recovery, replies)
        return self.take_sums(replies)

    def sum_messages(self) -> list[Message]:
        """Requests of the open round's current attempt, one per client."""
        session = self.session
        repeated = bool(self._attempts) and self._attempts[-1][0] == session.round_index
        self._attempts.append((session.round_index, session.attempt))
        now_at(session.round_index, session.attempt)
        state = b"" if repeated else self._state_for(session.round_index)
        release = None if repeated else self._release
        plan = None if repeated else self._new_plan
        if plan is not None:
            self._plan_in_force = plan_digest(plan)
        requests = {node: self._sum_request(node, release, state) for node in session.roster.node_ids}
        return [
            Message(request_content(Stage.SUM, plan=plan, request=request, run_id=self.plan.run_id), node, "train")
            for node, request in requests.items()
        ]

    def _sum_request(self, node: int, release: Release | None, state: bytes) -> SumRequest:
        """The open round's request to one client."""
        session = self.session
        if isinstance(session, RecoverySession):
            return self._recovering.sum_request(node, release, state)
        first = session.expects_roster()
        return SumRequest(
            session.round_index,
            session.attempt,
            roster=session.roster if first else None,
            release=release,
            boxes=session.take_boxes(node),
            state=state,
            # Clients know the keys of later rosters, which can only be smaller.
            credentials=self._credentials if first and session.attempt == 0 else {},
        )

    def take_sums(self, replies: Iterable[Message]) -> Step | None:
        """Take the open round's replies in.

        Returns
        -------
        Step or None
            None if clients were missing and a new attempt was opened with the others, or the sum is still to be
            unmasked.
        """
        session = self.session
        for node, content in self._contents(replies, session.roster.node_ids):
            try:
                self._require_answer(node, content)
                session.receive(node, parse_sum_reply(content))
            except ProtocolError as error:
                logger.warning("%s", error)
        missing = session.missing()
        if isinstance(session, RecoverySession):
            session.close_vectors()
            if missing:
                server_log.left_out(missing, "sent no vector")
            return None
        if missing:
            session.retry()
            server_log.missing(missing, session.attempt, len(session.roster.members))
            return None
        blinded = trust_model(self.plan.round_at(session.round_index).trust).blinded
        return self._finish_round(session.aggregate(blinded=blinded), len(session.roster.members))

    def _take_unmasked(self, recovery: RecoveryRun, replies: Iterable[Message]) -> Step | None:
        """Take the survivors' shares in; None if a new attempt was opened instead."""
        session = recovery.session
        contents = self._contents(replies, session.survivors)
        blinded = trust_model(self.plan.round_at(session.round_index).trust).blinded
        aggregate = recovery.take_unmasked(contents, self._require_answer, self._plan_in_force, blinded=blinded)
        return None if aggregate is None else self._finish_round(aggregate, len(session.survivors))

    def finish_messages(self) -> list[Message]:
        """The last release, for every client of the roster."""
        session = self.session
        if self._release is None:
            raise ProtocolError("no round has been completed, so there is nothing to finish.")
        return [
            Message(
                request_content(
                    Stage.FINISH,
                    request=self._finish_request(node, self._release),
                    run_id=self.plan.run_id,
                ),
                node,
                "evaluate",
            )
            for node in session.roster.node_ids
        ]

    def _finish_request(self, node: int, release: Release) -> FinishRequest:
        """The last message to one client."""
        state, session = self._state_for(None), self.session
        if isinstance(session, RecoverySession):
            return FinishRequest(release, {}, state, self._recovering.confirmations(node))
        return FinishRequest(release, session.take_boxes(node), state)

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

    def _finish_round(self, aggregate: AggregateVector, n_clients: int) -> Step:
        """Add noise if this trust model has the server do it, and keep what may be known."""
        session, index = self.session, self.session.round_index
        planned = self.plan.round_at(index)
        trust = trust_model(planned.trust)
        broadcast = trust.broadcast(aggregate, planned.blocks, self.plan.fraction_bits, self._noise)
        if broadcast.released is not None:
            n_sharers = len(session.sharers.members) if isinstance(session, RecoverySession) else None
            require_plausible(self.plan, index, broadcast.released, n_clients, n_sharers)
        # Where the server goes on by itself, clients are sent its state and need no release.
        sent = broadcast.values[:0] if self.plan.server_advances and index > 0 else broadcast.values
        self._release = Release(index, session.attempt, sent)
        self._new_plan = None
        if broadcast.released is not None:
            self._learn(index, broadcast.released)
        movement = self._clusters.movements[-1] if self._clusters is not None and self._clusters.movements else None
        return describe_step(self.plan, self._attempts, n_clients, movement)

    def _learn(self, index: int, released: ReleasedSum) -> None:
        """Use a released sum: the last preliminary one makes the plan final, the others move the centroids."""
        if index <= 0:
            self._found = take_preliminary(self.plan, index, released, self._found)
            if COUNT in released.arrays:
                logger.info("private count: about %d rows", self._found.n_examples)
            if index == 0:
                found, width = self._found, self.plan.n_features
                self._next_plan(redraft_plan(self.plan, n_features=width, n_examples=found.n_examples, box=found.box))
        elif self._clusters is not None:
            self._clusters = build_algorithm(self.plan).rounds[index - 1].advance(self._clusters, released)

    def _take_schema(self, widths: dict[int, int], columns: dict[int, str]) -> None:
        """Learn the tables' width and columns if they were not declared; all must be equal."""
        if len(set(widths.values())) > 1:
            listed = ", ".join(f"node {node}: {width}" for node, width in sorted(widths.items()))
            raise RefusalError(
                f"the clients' tables have different numbers of features ({listed}): use the same columns."
            )
        agreed = _common_columns(columns, allow_unnamed=self.plan.config.allow_unnamed)
        if not agreed:
            logger.info("the clients' tables have no column names: columns are matched by position")
        unknown = agreed and not self.plan.columns_digest
        if self.plan.n_features is None or unknown:
            plan = redraft_plan(self.plan, n_features=next(iter(widths.values())), columns=agreed)
            if plan.is_final or plan.config.private_bounds or unknown:
                # Histograms are as wide as the tables, so clients need the width before the first of them; and each
                # compares the columns before it is charged.
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
        if plan.is_final and trust_model(plan.config.trust).server_reads and self._clusters is None:
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
                logger.warning("%s", error_text(reply))
            elif node not in expected:
                logger.warning("node %d was not asked: its message is ignored", node)
            else:
                contents.append((node, reply.content))
        return contents

    @property
    def _recovering(self) -> RecoveryRun:
        """The steps that only recovered sums have."""
        if self._recovery is None:
            raise ProtocolError("this run repeats lost sums: no keys are shared in it.")
        return self._recovery

    def _require_answer(self, node: int, content: RecordDict) -> None:
        """Raise if a reply after the key phase is a refusal."""
        self._require_no_refusal(node, content, every_failure_stops=False)

    @staticmethod
    def _require_no_refusal(node: int, content: RecordDict, *, every_failure_stops: bool) -> None:
        """Turn a refusal into an error: one that stops the run, or one that only leaves the node out."""
        status, code, sentence = parse_failure(content)
        if status is Status.OK:
            return
        if every_failure_stops or code in _STOPPING_CODES:
            raise RefusalError(f"node {node} refused ({code}): {sentence}")
        raise ProtocolError(f"node {node} did not answer ({code}): {sentence}")


def _common_columns(columns: dict[int, str], *, allow_unnamed: bool) -> str:
    """The digest of column names that all clients sent; the sentence about others names nodes and no columns."""
    unnamed = sorted(node for node, digest in columns.items() if not digest)
    named = sorted(set(columns.values()) - {""})
    if unnamed and named and not allow_unnamed:
        raise RefusalError(
            f"the tables of nodes {unnamed[:_NODES_SHOWN]} have no column names, but others have: name their columns, "
            "or let them be matched by position with allow_unnamed."
        )
    if len(named) > 1:
        groups = [sorted(node for node, digest in columns.items() if digest == one) for one in named]
        listed = "; ".join(f"nodes {group[:_NODES_SHOWN]}" for group in sorted(groups, key=len)[:_NODES_SHOWN])
        raise RefusalError(
            f"the clients' tables have columns of different names, or an order that cannot be made the same "
            f"({listed}): use the same names everywhere, and a bounds file with names where bounds differ."
        )
    return named[0] if named else ""
