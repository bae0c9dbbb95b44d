"""One run as the server conducts it, without I/O.

It says whom to ask what, and takes in what came.

==========  ==================================  ========================================
asked for   what follows                        when it fails
==========  ==================================  ========================================
keys        who agreed is the cohort; its       a refusal, another version, table or
            width and columns may complete the  plan stops the run
            plan
key shares  (recovered sums only)               who is silent is left out
vectors     repeated sums: the sum, or vectors  too few, or retries used up:
            again without the silent;           `CohortError`; clients' states differ:
            recovered sums: who survived is     `DisagreementError`
            asked for shares
shares      the sum, without anybody's masks    vectors again, without the silent
the end     the result is confirmed             nobody has it: `CohortError`
==========  ==================================  ========================================

After each sum the trust model says who adds noise and who may read it; what was
released travels with the next request. `Server.requests` says what is due and
`Server.take` takes answers in, in turn, until nothing is due:

    while due := list(server.requests()):
        server.take(exchange(due))

**The rules.** The server holds masked vectors and, where the trust model lets it,
released sums; under ``oblivious`` it holds nothing that it could read. Answers may be
missing, late, repeated, malformed or from whoever was not asked: none of that changes
anything but who takes part.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from flwr_dpkmeans.errors import CohortError, ProtocolError, RefusalError, VersionError
from flwr_dpkmeans.log import event, placed_logger, set_log_place
from flwr_dpkmeans.privacy.provenance import Provenance
from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.privacy.sentences import report_sentence
from flwr_dpkmeans.secagg.credentials import Credential
from flwr_dpkmeans.secagg.messages import FinishReply, Release, Stage
from flwr_dpkmeans.secagg.pins import fingerprints, require_known_peers
from flwr_dpkmeans.secagg.ring import AggregateVector, Ring
from flwr_dpkmeans.secagg.roster import Roster
from flwr_dpkmeans.secagg.session import PartOfSum, Silence, require_equal_tags
from flwr_dpkmeans.sums.aggregation import session_of
from flwr_dpkmeans.sums.build import (
    discoveries_after,
    initial_state,
    state_after,
    task_round,
)
from flwr_dpkmeans.sums.checks.plausible import require_plausible
from flwr_dpkmeans.sums.draft import redraft_plan
from flwr_dpkmeans.sums.outcome import Discoveries
from flwr_dpkmeans.sums.plan import (
    LAST_PRELIMINARY_ROUND,
    Plan,
    PlannedRound,
    make_noise_source,
)
from flwr_dpkmeans.sums.round import Array, State
from flwr_dpkmeans.sums.statement import Step, build_report, describe_step
from flwr_dpkmeans.sums.trust import Broadcast
from flwr_dpkmeans.sums.wire import (
    Answer,
    Failure,
    KeysReply,
    Reply,
    Request,
    dump_plan,
    installed_versions,
    load_plan,
    plan_digest,
)

if TYPE_CHECKING:
    from flwr_dpkmeans.sums.aggregation.repeated_sums import Session

logger = placed_logger("flwr_dpkmeans.server")

_NODES_SHOWN = 20


class Server:
    """State machine of one run on the server.

    `server_points`, (n_server, n_features), are the server's own, if clients do not see
    them; `started` and `app_hash` (of the FAB that is running, where Flower knows it)
    are for the report's provenance.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        node_ids: Sequence[int],
        server_points: Array | None = None,
        started: str = "",
        app_hash: str = "",
    ) -> None:
        self.joined = tuple(node_ids)
        """Who is asked for keys."""
        self._server_points = server_points
        self._started = started
        self._app_hash = app_hash
        self._cohort: tuple[str, ...] = ()
        self._plan_blob = dump_plan(plan)
        # What clients parse is what the server works with.
        self.plan = load_plan(self._plan_blob)
        self._noise = make_noise_source(self.plan, "server")
        self._noise.require_available(self.plan.config.task.noise.value)
        self._session: Session | None = None
        self.due: Stage | None = Stage.KEYS
        """What is asked for now; None once the run is over."""
        self.clusters: State | None = None
        """The state, where the trust model lets the server know it."""
        self.confirmed: tuple[int, ...] = ()
        self.digest = plan_digest(self._plan_blob)
        """Of the plan that clients agree to before anything is released."""
        self._plan_in_force = self.digest
        self._new_plan: bytes | None = None
        self._release: Release | None = None
        self.attempts: tuple[tuple[int, int], ...] = ()
        """Every aggregation that was asked for."""
        self._discoveries = Discoveries()
        self._credentials: dict[int, Credential] = {}
        self._is_repeated = False
        self._to_open: int | None = None
        self._next_plan(self.plan, announce=False)

    @property
    def session(self) -> Session:
        """The aggregation session, once keys are agreed on."""
        if self._session is None:
            raise ProtocolError(
                "no keys have been agreed on yet: run the key phase first."
            )
        return self._session

    @property
    def has_ended(self) -> bool:
        """Whether the last release went out, so that the state is the result's."""
        return self.due in (Stage.FINISH, None)

    @property
    def report(self) -> PrivacyReport:
        """What the run guarantees, so far."""
        report = build_report(
            self.plan,
            self.attempts,
            self._identities(),
            state=self.clusters if self.has_ended else None,
            unclear=self._discoveries.unclear,
        )
        # Its end is the moment at which the last release went out.
        provenance = Provenance.of(
            self.plan.run_id,
            "server",
            self.digest,
            columns_digest=self.plan.columns_digest,
            started=self._started,
            app_hash=self._app_hash,
            cohort=self._cohort,
        )
        return replace(report, provenance=provenance)

    def _identities(self) -> str:
        """What the report says of the clients' identities."""
        if not self._credentials:
            return report_sentence("unsigned", so=report_sentence("not_pinned"))
        return report_sentence(
            "signed", n=len(self._credentials), n_clients=len(self.joined)
        )

    @property
    def nodes(self) -> tuple[int, ...]:
        """Whom something is asked of now."""
        if self._session is None:
            return self.joined
        if self.due is Stage.FINISH:
            return self._session.roster.node_ids
        return self._session.recipients

    def requests(self) -> Iterator[tuple[int, Request]]:
        """Whom to ask what; nothing once the run is over."""
        if self._to_open is not None:
            length = self.plan.round_at(self._to_open).length
            self.session.open_round(self._to_open, length)
            self._to_open = None
        if self.due is Stage.SUM:
            self._begin_attempt()
        # A generator's effects would wait until somebody looks: these have taken place.
        return self._requests()

    def _requests(self) -> Iterator[tuple[int, Request]]:
        """One request for each node, by what is due."""
        if self.due is Stage.KEYS:
            return self._keys_requests()
        if self.due is Stage.FINISH:
            return self._finish_requests()
        if self.due is None:
            return iter(())
        return self._aggregation_requests(self.due)

    def _keys_requests(self) -> Iterator[tuple[int, Request]]:
        """Send the plan to everybody."""
        request = Request(
            Stage.KEYS, plan=self._plan_blob, versions=installed_versions()
        )
        for node in self.joined:
            yield node, request

    def _finish_requests(self) -> Iterator[tuple[int, Request]]:
        """Send the last release, after which clients have the result."""
        session = self.session
        release = self._release
        assert release is not None
        state = self._state_for(None)
        for node in self.nodes:
            message = session.finish_request(node, release, state)
            yield node, Request(Stage.FINISH, message, run_id=self.plan.run_id)

    def _aggregation_requests(self, stage: Stage) -> Iterator[tuple[int, Request]]:
        """Ask for key shares, vectors or shares.

        What was released, and what follows from it, travels with the next round's first
        request.
        """
        session = self.session
        run_id = None
        plan = None
        release = None
        state = b""
        if stage is Stage.SUM:
            run_id = self.plan.run_id
            if not self._is_repeated:
                plan = self._new_plan
                release = self._release
                state = self._state_for(session.round_index)
        for node in self.nodes:
            message = session.request(node, release, state)
            yield node, Request(stage, message, plan=plan, run_id=run_id)

    def _begin_attempt(self) -> None:
        """Note that one more aggregation is asked for, and whether it is repeated."""
        session = self.session
        self._is_repeated = False
        if self.attempts:
            last_round, _ = self.attempts[-1]
            self._is_repeated = last_round == session.round_index
        self.attempts = (*self.attempts, session.attempt_id)
        set_log_place(session.round_index, session.attempt)
        if self._new_plan is not None and not self._is_repeated:
            self._plan_in_force = plan_digest(self._new_plan)

    def take(self, answers: Iterable[tuple[int, Answer]]) -> Step | None:
        """Take in what came of what was asked; a `Step` where it completed a sum."""
        if self.due is Stage.KEYS:
            self._take_keys(answers)
        elif self.due is Stage.FINISH:
            self._take_finish(answers)
        else:
            return self._take_part(answers)
        return None

    @property
    def least_answers(self) -> int:
        """Fewest nodes that must answer for a sum."""
        return max(2, self.plan.min_cohort)

    def require_answers(
        self,
        nodes: Sequence[int],
        answering: Collection[int],
        timeout: float,
        option: str,
    ) -> None:
        """Stop by a `CohortError` if too many nodes sent nothing in time for a sum.

        `answering` are those from whom anything came at all within `timeout` seconds,
        which `option` bounds.
        """
        silent = [node for node in nodes if node not in answering]
        n_answered = len(nodes) - len(silent)
        least = self.least_answers
        if not silent or n_answered >= least:
            return
        charged = "nobody has charged anything"
        if self.attempts:
            charged = "what those that answered charged stays charged"
        raise CohortError(
            f"{n_answered} of {len(nodes)} nodes answered within {timeout:.0f} s"
            f" (silent: nodes {silent[:_NODES_SHOWN]}), but at least {least} are"
            f" needed, and {charged}: see whether the silent ones are off, overloaded"
            f" or busy with another run, then start a new run, or raise {option}."
        )

    def _replies(
        self,
        answers: Iterable[tuple[int, Answer]],
        stage: Stage,
    ) -> Iterator[tuple[int, Reply | Failure | VersionError]]:
        """Read what nodes replied that were asked.

        Or the `Failure` or `VersionError` that came instead; others are logged.
        """
        nodes = frozenset(self.nodes)
        for node, answer in answers:
            if node not in nodes:
                logger.warning("node %d was not asked: its message is ignored", node)
                continue
            reply: Reply | Failure | VersionError
            try:
                reply = answer(stage, node)
            except VersionError as error:
                reply = error
            except ProtocolError as error:
                logger.warning("node %d: %s", node, error)
                continue
            yield node, reply

    def _take_keys(self, answers: Iterable[tuple[int, Answer]]) -> None:
        """Collect public keys.

        A refusal, another version or a table of another width stops the run with a
        sentence.
        """
        agreed = self._agreed(answers)
        self._require_cohort(agreed)
        agreed_plan = self.plan
        self._take_schema(agreed)
        self._take_credentials(agreed)
        public_keys = {node: reply.public_key for node, reply in agreed.items()}
        roster = Roster.of(0, public_keys)
        self._cohort = fingerprints(roster, self._credentials)
        self._session = session_of(agreed_plan, self.plan, roster, self._credentials)
        self.due = self._session.due
        if self.due is Stage.SUM:
            # No keys are shared before the first round.
            self._to_open = self.plan.first_round

    def _require_cohort(self, agreed: Mapping[int, KeysReply]) -> None:
        """Refuse to go on with too few clients, or another plan than the one sent."""
        missing = sorted(set(self.joined) - agreed.keys())
        if missing:
            logger.warning(
                "nodes %s did not answer the plan and are left out",
                missing,
                extra=event("left out", missing=[str(node) for node in missing]),
            )
        if len(agreed) < self.plan.min_cohort:
            raise CohortError(
                f"{len(agreed)} of {len(self.joined)} clients answered the plan, but at"
                f" least {self.plan.min_cohort} are needed: look at the logs of nodes"
                f" {missing}."
            )
        for node, reply in agreed.items():
            if reply.plan_digest != self._plan_in_force:
                raise ProtocolError(
                    f"node {node} agreed to another plan than the one sent: stop and"
                    " check it."
                )

    def _take_credentials(self, agreed: Mapping[int, KeysReply]) -> None:
        """Relay what clients signed, unless one of them would refuse another."""
        credentials = {node: reply.credential for node, reply in agreed.items()}
        marks = {node: reply.marks for node, reply in agreed.items() if reply.marks}
        require_known_peers(credentials, marks, self.plan.run_id)
        for node, credential in credentials.items():
            if credential is not None:
                self._credentials[node] = credential

    def _agreed(self, answers: Iterable[tuple[int, Answer]]) -> dict[int, KeysReply]:
        """Collect who agreed to the plan.

        A node that refuses it, or speaks another version, stops the run.
        """
        agreed: dict[int, KeysReply] = {}
        stopping: dict[int, Exception] = {}
        foreign: dict[int, VersionError] = {}
        for node, reply in self._replies(answers, Stage.KEYS):
            if isinstance(reply, VersionError):
                _log_refusal(node, reply, type(reply).__name__)
                foreign.setdefault(node, reply)
            elif isinstance(reply, Failure):
                error = reply.stop(node, always=True)
                _log_refusal(node, error, reply.code)
                stopping.setdefault(node, error)
            elif isinstance(reply, KeysReply):
                agreed.setdefault(node, reply)
        # What comes from a node that agreed besides, such as a refusal of the plan's
        # copy, changes nothing.
        for node, refusal in (stopping | foreign).items():
            if node not in agreed:
                raise refusal
        return agreed

    def _take_part(self, answers: Iterable[tuple[int, Answer]]) -> Step | None:
        """Take in vectors, or what comes before and after them.

        None while the sum is not complete.
        """
        session = self.session
        stage = session.due
        for node, reply in self._replies(answers, stage):
            self._take_reply(node, reply)
        if stage is Stage.SHARE:
            # Keys are shared before any round.
            model = self.plan.trust_model
        else:
            model = self.plan.round_at(session.round_index).trust_model
        aggregate, silence = session.close(
            self._plan_in_force, blinded=model.hides_sums()
        )
        if silence is not None:
            self._log_silence(silence)
        self.due = session.due
        if stage is Stage.SHARE:
            self._to_open = self.plan.first_round
        if aggregate is None:
            return None
        return self._finish_round(aggregate, session.n_summed)

    def _take_reply(
        self,
        node: int,
        reply: Reply | Failure | VersionError,
    ) -> None:
        """Hand one node's part to the session, or log why it is refused.

        A refusal that leaving the node out does not mend stops the run.
        """
        try:
            if isinstance(reply, Failure):
                raise reply.stop(node, always=False)
            if isinstance(reply, PartOfSum):
                self.session.take(node, reply)
        except ProtocolError as error:
            kind = type(error).__name__
            if isinstance(reply, Failure):
                kind = reply.code
            _log_refusal(node, error, kind)

    def _log_silence(self, silence: Silence) -> None:
        """Log who fell silent, and whether the sum goes on or is repeated."""
        if silence.why:
            logger.warning("%s", silence.why)
        session = self.session
        nodes = silence.nodes
        names = [str(node) for node in nodes]
        if silence.left_out is None:
            n_left = len(session.roster.members)
            next_attempt = session.attempt
            logger.warning(
                "nodes %s did not answer: attempt %d without them, with the %d that"
                " did",
                list(nodes),
                next_attempt,
                n_left,
                extra=event(
                    "retry",
                    missing=names,
                    next_attempt=next_attempt,
                    n_left=n_left,
                ),
            )
        elif nodes:
            shown = ", ".join(names[:_NODES_SHOWN])
            if len(nodes) > _NODES_SHOWN:
                shown += ", ..."
            logger.warning(
                "%d node(s) %s and are left out: %s",
                len(nodes),
                silence.left_out,
                shown,
                extra=event("left out", missing=names),
            )

    def _finish_round(
        self,
        aggregate: AggregateVector,
        n_clients: int,
    ) -> Step:
        """Add noise if the server is to, and retain what may be known."""
        session = self.session
        plan = self.plan
        index = session.round_index
        broadcast = self._broadcast(aggregate, plan.round_at(index))
        if broadcast.released is not None:
            n_sharers = None
            if session.sharers is not None:
                n_sharers = len(session.sharers.members)
            require_plausible(plan, index, broadcast.released, n_clients, n_sharers)
        values = broadcast.values
        if plan.server_advances and not plan.is_preliminary(index):
            # Where the server goes on by itself, clients are sent its state and need no
            # release.
            values = values[:0]
        self._release = Release(index, session.attempt, values)
        self._new_plan = None
        if broadcast.released is not None:
            self._learn(index, broadcast.values)
        return self._after_sum(index, n_clients)

    def _after_sum(self, index: int, n_clients: int) -> Step:
        """Say what a sum came to, and which round is opened next."""
        movement = None
        if self.clusters is not None and self.clusters.movements:
            movement = self.clusters.movements[-1]
        step = describe_step(self.plan, self.attempts, n_clients, movement)
        following = self.plan.round_after(index, self.clusters)
        if self.plan.is_final and following > self.plan.last_round:
            self.due = Stage.FINISH
        else:
            self.due = Stage.SUM
            self._to_open = following
        return step

    def _broadcast(
        self,
        aggregate: AggregateVector,
        planned: PlannedRound,
    ) -> Broadcast:
        """What the trust model has the server send on, and lets it read."""
        return planned.trust_model.broadcast(
            aggregate, planned.blocks, self.plan.fraction_bits, self._noise
        )

    def _take_finish(self, answers: Iterable[tuple[int, Answer]]) -> None:
        """Check that all clients ended with one state, and note who confirmed it."""
        tags: dict[int, bytes] = {}
        failures: dict[int, Failure] = {}
        for node, reply in self._replies(answers, Stage.FINISH):
            if isinstance(reply, Failure):
                failures[node] = reply
            elif isinstance(reply, FinishReply):
                tags.setdefault(node, reply.tag)
        for node, failure in failures.items():
            # One that was asked twice refuses the second time.
            if node not in tags:
                logger.warning(
                    "node %d could not take its result (%s): %s",
                    node,
                    failure.code,
                    failure.sentence,
                )
        require_equal_tags(tags, self.plan.last_round + 1)
        missing = [node for node in self.nodes if node not in tags]
        if missing:
            logger.warning(
                "nodes %s did not confirm that they have the result", missing
            )
        if not tags and self.clusters is None:
            raise CohortError(
                f"none of the {len(missing)} clients confirmed that it has the result,"
                " and the server has none: look at the clients' logs and output"
                " folders, and start a new run if they are empty."
            )
        self.confirmed = tuple(sorted(tags))
        self.due = None

    def _learn(self, index: int, values: Ring) -> None:
        """Use a released sum.

        The last preliminary one makes the plan final, the others move the centroids.
        """
        plan = self.plan
        if plan.is_preliminary(index):
            self._discover(index, values)
        elif self.clusters is not None:
            self.clusters = state_after(plan, index, self.clusters, values.tobytes())

    def _discover(self, index: int, values: Ring) -> None:
        """Add what a preliminary sum tells, of which the last makes the plan final."""
        plan = self.plan
        discoveries = discoveries_after(plan, index, self._discoveries, values)
        if discoveries.n_examples != self._discoveries.n_examples:
            logger.info("private count: about %d rows", discoveries.n_examples)
        self._discoveries = discoveries
        if index == LAST_PRELIMINARY_ROUND:
            final = redraft_plan(
                plan,
                n_features=plan.n_features,
                n_examples=discoveries.n_examples,
                box=discoveries.box,
            )
            self._next_plan(final)

    def _take_schema(self, agreed: Mapping[int, KeysReply]) -> None:
        """Learn the tables' width and columns, if they were not declared.

        They must be equal.
        """
        widths = {node: reply.n_features for node, reply in agreed.items()}
        columns = {node: reply.columns for node, reply in agreed.items()}
        width = _common_width(widths)
        digest = _common_columns(
            columns, allow_unnamed=self.plan.settings.allow_unnamed
        )
        if not digest:
            logger.info(
                "the clients' tables have no column names: columns are matched by"
                " position"
            )
        are_columns_new = digest != "" and self.plan.columns_digest == ""
        if self.plan.n_features is not None and not are_columns_new:
            return
        plan = redraft_plan(self.plan, n_features=width, columns=digest)
        if plan.is_final or plan.settings.private_bounds or are_columns_new:
            # Histograms are as wide as the tables, so clients need the width before the
            # first of them; and each compares the columns before it is charged.
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
        if (
            plan.is_final
            and plan.trust_model.server_has_result()
            and self.clusters is None
        ):
            self.clusters = initial_state(plan, self._server_points)

    def _state_for(self, index: int | None) -> bytes:
        """Pack what clients need of the state for a round, or (None) of the result.

        Where the server alone can compute it.
        """
        plan = self.plan
        if not plan.server_advances or self.clusters is None:
            return b""
        if index is None:
            reads = plan.task.result_arrays(plan.config)
        else:
            reads = task_round(plan, index).reads
        return self.clusters.view(reads).packed


def _log_refusal(
    node: int,
    error: Exception,
    kind: str,
) -> None:
    """Log what a node refused, or what was refused of it."""
    logger.warning("%s", error, extra=event("refused", by=str(node), kind=kind))


def _common_width(widths: Mapping[int, int]) -> int:
    """The number of features that all clients' tables have."""
    distinct = set(widths.values())
    if len(distinct) > 1:
        listed = ", ".join(f"node {node}: {widths[node]}" for node in sorted(widths))
        raise RefusalError(
            f"the clients' tables have different numbers of features ({listed}):"
            " use the same."
        )
    return distinct.pop()


def _common_columns(columns: Mapping[int, str], *, allow_unnamed: bool) -> str:
    """The digest of column names that all clients sent; empty without names.

    The sentence about others names nodes and no columns.
    """
    unnamed = sorted(node for node, digest in columns.items() if not digest)
    digests = sorted(set(columns.values()) - {""})
    if unnamed and digests and not allow_unnamed:
        raise RefusalError(
            f"the tables of nodes {unnamed[:_NODES_SHOWN]} have no column names, but"
            " others have: name their columns, or let them be matched by position with"
            " allow_unnamed."
        )
    if not digests:
        return ""
    if len(digests) > 1:
        by_digest: dict[str, list[int]] = {digest: [] for digest in digests}
        for node, digest in sorted(columns.items()):
            if digest:
                by_digest[digest].append(node)
        smallest = sorted(by_digest.values(), key=len)[:_NODES_SHOWN]
        listed = "; ".join(f"nodes {group[:_NODES_SHOWN]}" for group in smallest)
        raise RefusalError(
            "the clients' tables have columns of different names, or an order that"
            f" cannot be made the same ({listed}): use the same names everywhere, and a"
            " bounds file with names where bounds differ."
        )
    return digests[0]
