"""A run in this process of which everything is seen that passes by, for audits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flwr_dpkmeans.secagg.messages import Release, Stage, SumReply
from flwr_dpkmeans.secagg.ring import AggregateVector, Ring
from flwr_dpkmeans.sums.build import build_algorithm
from flwr_dpkmeans.sums.client import Memory
from flwr_dpkmeans.sums.local import LocalRun
from flwr_dpkmeans.sums.outcome import Discoveries
from flwr_dpkmeans.sums.plan import Plan, PlannedRound
from flwr_dpkmeans.sums.round import Array, State
from flwr_dpkmeans.sums.statement import Step
from flwr_dpkmeans.sums.trust import Broadcast
from flwr_dpkmeans.sums.wire import Answer, Request


@dataclass(frozen=True)
class Seen:
    """Everything that passes by in one aggregation.

    What one party sees of a run is a part of it.
    """

    plan: Plan = field(repr=False)
    """In force."""
    round_index: int
    attempt: int
    """Which aggregation."""
    state: State | Discoveries = field(repr=False)
    """What clients' statistics were taken at; `Discoveries` in preliminary rounds."""
    sent: tuple[Ring, ...] = field(repr=False)
    """Each client's vector before it is masked, with its share of the noise.

    PublicFacts to that client alone.
    """
    received: tuple[Ring, ...] = field(repr=False)
    """What the server gets of each client."""
    aggregate: AggregateVector = field(repr=False)
    """What the server adds up."""
    broadcast: Ring = field(repr=False)
    """What the server sends on."""
    released: Ring = field(repr=False)
    """What a client reads."""


def run_watched(
    plan: Plan,
    parts: Sequence[Array],
    watch: Callable[[Seen], None],
    **options: Any,
) -> LocalRun:
    """Run as `flwr_dpkmeans.sums.local.run_direct` does.

    `watch` is told what all parties saw of each aggregation.
    """
    return _WatchedRun(plan, parts, watch, **options).play()


class _WatchedRun(LocalRun):
    """A run that tells of what passes by."""

    def __init__(
        self,
        plan: Plan,
        parts: Sequence[Array],
        watch: Callable[[Seen], None],
        **options: Any,
    ) -> None:
        super().__init__(plan, parts, **options)
        self._watch = watch
        self._sent: list[Ring] = []
        self.watch_vector = self._note_sent
        self._received: list[Ring] = []
        self._passed: dict[str, Any] = {}
        self._before: tuple[Memory, Step, Mapping[str, Any]] | None = None

    def take(self, answers: Iterable[tuple[int, Answer]]) -> Step | None:
        """Take answers in.

        What clients read of a sum they read when they are asked the next thing.
        """
        if self.due is Stage.SUM:
            self._sent, self._received = [], []
        step = super().take(answers)
        if self._before is not None:
            before, last, passed = self._before
            self._watch(_seen(before, self.first, last, passed))
        self._before = None if step is None else (self.first, step, self._passed)
        return step

    def _note_sent(self, vector: Ring) -> None:
        self._sent.append(vector)

    def ask(
        self,
        node: int,
        request: Request,
    ) -> Answer:
        """What one client answers; its masked vector is noted."""
        answer = super().ask(node, request)
        if request.stage is Stage.SUM:
            reply = answer(Stage.SUM, node)
            assert isinstance(reply, SumReply)
            self._received.append(reply.masked.values)
        return answer

    def _broadcast(
        self,
        aggregate: AggregateVector,
        planned: PlannedRound,
    ) -> Broadcast:
        result = super()._broadcast(aggregate, planned)
        shown = aggregate
        if not self.plan.settings.masking:
            # Without masks it sees what the trust model would have key authors hide.
            shown = AggregateVector(aggregate.values, blinded=False)
        self._passed = {
            "sent": tuple(self._sent),
            "received": tuple(self._received),
            "aggregate": shown,
            "broadcast": result.values,
        }
        return result


def _seen(
    before: Memory,
    after: Memory,
    step: Step,
    passed: Mapping[str, Any],
) -> Seen:
    """What passed by in one aggregation.

    With what a client that remembered `before` read of it.
    """
    plan = before.plan
    index = step.round_index
    state: State | Discoveries = before.discoveries
    if before.clusters is not None and not plan.is_preliminary(index):
        planned = build_algorithm(plan).rounds[index - 1]
        state = before.clusters.view(planned.reads)
    release = Release(index, step.attempt, passed["broadcast"])
    is_blinded = plan.round_at(index).trust_model.blinded
    released = after.party.unblind(release, blinded=is_blinded).values
    return Seen(
        plan,
        index,
        step.attempt,
        state,
        released=released,
        **passed,
    )
