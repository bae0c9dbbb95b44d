"""What plans a gate lets through: the site's table [gate] beside its policy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields

from flwr_dpkmeans.algorithms.statistics.array_sum import ArraySumTask
from flwr_dpkmeans.deploy.gate.gate_options import GateOptions
from flwr_dpkmeans.errors import RefusalError, distinct_texts
from flwr_dpkmeans.node.policy import ClientPolicy
from flwr_dpkmeans.node.proposal import Proposal
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.price import price_or_infinity
from flwr_dpkmeans.sums.trust import Distributed

_SLACK = 1e-9
"""A plan at exactly its limit must not fail by a rounding error."""


@dataclass(frozen=True)
class GatePolicy(ClientPolicy):
    """A node's policy, and what its gate lets through.

    A plan is held against both at each decision, also when a release is charged.
    """

    gate: GateOptions | None = field(default=None, compare=False)

    @classmethod
    def around(cls, policy: ClientPolicy, gate: GateOptions) -> GatePolicy:
        """The policy with the gate's limits, of which the lower total holds."""
        limits = {}
        for item in fields(policy):
            limits[item.name] = getattr(policy, item.name)
        total = policy.total
        limits["max_epsilon_total"] = min(total.epsilon, gate.epsilon_total)
        limits["max_delta_total"] = min(total.delta, gate.delta_total)
        return cls(**limits, gate=gate)

    def check(self, proposal: Proposal) -> None:
        """Refuse what the policy forbids, and what is not as the gate states.

        Refusals hold values of the plan and the gate only, so they may travel.
        """
        super().check(proposal)
        if self.gate is None:
            raise RefusalError("this node's gate is not set: have its owner set it.")
        for sentence in _refusals(self.gate, proposal.plan):
            raise RefusalError(sentence)


def _refusals(gate: GateOptions, plan: Plan) -> Iterator[str]:
    """What is wrong with a plan, in sentences; nothing for one that may pass."""
    task = plan.task
    if type(task) is not ArraySumTask:
        # Statistics of other tasks are computed from rows, which this node's app has.
        yield (
            f"the plan computes {plan.config.algorithm!r}, but this node's gate lets"
            " noisy sums of arrays through only: use SecureMean or SecureSum, with"
            " epsilon."
        )
        return
    if plan.settings.trust != Distributed.name:
        yield (
            f"the plan's trust model is {plan.settings.trust!r}, but behind this node's"
            " gate clients add the noise: plan with 'distributed'."
        )
    yield from _of_arrays(gate, task)
    yield from _of_noise(gate, plan)


def _of_arrays(gate: GateOptions, task: ArraySumTask) -> Iterator[str]:
    """Refuse other arrays, larger norms, more rounds and heavier weights."""
    if dict(task.arrays) != gate.shapes:
        yield (
            f"the plan's arrays are {dict(task.arrays)!r}, but this node's gate lets"
            f" {gate.shapes!r} through: begin with such arrays."
        )
    for name, low, high in task.metrics:
        if gate.metrics.get(name) != (low, high):
            yield (
                f"the plan's metric {name!r} has the bounds {low:g} and {high:g}, but"
                f" this node's gate lets {dict(gate.metrics)!r} through: use those."
            )
    planned_and_most = {
        "clip": (task.norm_bound or 0.0, gate.clip),
        "rounds": (task.max_rounds, gate.rounds),
        "most_examples": (task.most_examples, gate.most_examples),
    }
    for name, (planned, most) in planned_and_most.items():
        if planned > most * (1.0 + _SLACK):
            texts = distinct_texts(planned, most)
            yield (
                f"the plan's {name} is {texts[0]}, but this node's gate allows at most"
                f" {texts[1]}: lower it."
            )


def _of_noise(gate: GateOptions, plan: Plan) -> Iterator[str]:
    """Refuse too little noise of this node's own, and rounds that cost too much."""
    factor = plan.trust_model.drawn_factor(plan.shares)
    least = gate.noise_share * (1.0 - _SLACK)
    most = gate.epsilon_per_round * (1.0 + _SLACK)
    for index in range(plan.first_round, plan.last_round + 1):
        planned = plan.round_at(index)
        multipliers = [block.noise_multiplier for block in planned.blocks]
        share = min(multipliers) * factor
        if not share >= least:
            texts = distinct_texts(share, gate.noise_share)
            yield (
                f"a node's own noise in the plan's round {planned.name!r} is {texts[0]}"
                f" of its bound, but this node's gate requires {texts[1]}: lower"
                " epsilon, or plan with fewer clients."
            )
        events = plan.events([index])
        epsilon = price_or_infinity(events, gate.delta_per_round)
        if not epsilon <= most:
            texts = distinct_texts(epsilon, gate.epsilon_per_round)
            yield (
                f"the plan's round {planned.name!r} costs epsilon {texts[0]} at delta"
                f" {gate.delta_per_round:g}, but this node's gate allows {texts[1]}:"
                " lower epsilon, or plan more rounds."
            )
