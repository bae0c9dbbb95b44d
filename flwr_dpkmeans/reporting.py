"""From a plan and what happened to a privacy report; clients and server use the same words."""

from __future__ import annotations

from collections.abc import Sequence

from flwr_dpkmeans.algorithms import algorithm_entry
from flwr_dpkmeans.plan import Plan, price
from flwr_dpkmeans.privacy.accounting import ExactRelease, GaussianRelease
from flwr_dpkmeans.privacy.mechanisms import Block, NoiseShape
from flwr_dpkmeans.privacy.report import PrivacyReport, ReleaseLine
from flwr_dpkmeans.privacy.samplers import NoiseKind
from flwr_dpkmeans.trust import trust_model

NEIGHBOURS = {
    "record": "two data sets are neighbours if one row appears or disappears",
    "client": "two data sets are neighbours if one client's rows are replaced by none",
}
_THEOREMS = {
    ("relative_sums", NoiseShape.GAUSSIAN): (
        "one row lies in one cluster, within the radius of its centroid (FastLloyd, Theorem 5.1); "
        "Gaussian mechanism, (1/multiplier)-GDP (Dong, Roth, Su 2022, Theorem 1)"
    ),
    ("counts", NoiseShape.GAUSSIAN): (
        "one row lies in at most one cluster; Gaussian mechanism, (1/multiplier)-GDP (Dong, Roth, Su 2022, Theorem 1)"
    ),
    ("sums", NoiseShape.GAUSSIAN): (
        "one row of [-1, 1]^d has L2 norm at most sqrt(d); Gaussian mechanism, (1/multiplier)-GDP (Dong, Roth, Su "
        "2022, Theorem 1)"
    ),
    ("sums", NoiseShape.LAPLACE): (
        "one row of [-1, 1]^d has L1 norm at most d; Laplace mechanism, (1/multiplier)-DP (Dwork et al. 2006)"
    ),
    ("counts", NoiseShape.LAPLACE): (
        "one row lies in at most one cluster; Laplace mechanism, (1/multiplier)-DP (Dwork et al. 2006)"
    ),
    ("count", NoiseShape.GAUSSIAN): (
        "one row changes the number of rows by one; Gaussian mechanism, (1/multiplier)-GDP (Dong, Roth, Su 2022, "
        "Theorem 1)"
    ),
}


def theorem(block: Block) -> str:
    """Why a block's sensitivity holds and what prices its noise."""
    if block.noise is NoiseShape.NONE:
        return "no noise: the exact sum is released"
    return _THEOREMS.get((block.name, block.noise), f"{block.noise.value} mechanism at the stated sensitivity")


def epsilon_after(plan: Plan, attempts: Sequence[tuple[int, int]]) -> float:
    """Cost of the given (round, attempt) pairs together, at the plan's delta.

    Parameters
    ----------
    plan : Plan
        Final, or preliminary if only the private count took place.
    attempts : sequence of (round, attempt)
        Every aggregation that was asked for, repeated ones included.

    Returns
    -------
    float
        ``inf`` if any of them released an exact sum.
    """
    return price(plan.events([index for index, _ in attempts]), plan.delta)


def is_private_plan(plan: Plan) -> bool:
    """Whether every release has noise, and that noise has no seed; a preliminary plan is judged by its algorithm."""
    exact = algorithm_entry(plan.config.algorithm).noise is NoiseShape.NONE
    exact = exact or any(isinstance(event, ExactRelease) for event in plan.events())
    return plan.config.noise is NoiseKind.SECURE and not exact


def build_report(plan: Plan, attempts: Sequence[tuple[int, int]]) -> PrivacyReport:
    """Write the report of a run.

    Parameters
    ----------
    plan : Plan
        The final plan.
    attempts : sequence of (round, attempt)
        Every aggregation that was asked for, in order.

    Returns
    -------
    PrivacyReport
    """
    config = plan.config
    events = plan.events([index for index, _ in attempts])
    return PrivacyReport(
        is_private=is_private_plan(plan),
        epsilon=epsilon_after(plan, attempts),
        delta=plan.delta,
        epsilon_requested=config.epsilon,
        epsilon_worst_case=plan.epsilon_worst_case,
        unit=config.unit.value,
        neighbours=NEIGHBOURS[config.unit.value],
        trust=config.trust,
        guarantee=_guarantee(plan),
        algorithm=config.algorithm,
        noise=config.noise.value,
        n_clients=plan.n_clients,
        n_attempts=len(attempts),
        n_examples=plan.n_examples,
        n_examples_source=_n_source(plan),
        slack=sum(event.slack for event in events if isinstance(event, GaussianRelease)),
        assumptions=_assumptions(plan),
        warnings=_warnings(plan),
        releases=_lines(plan, attempts),
    )


def _guarantee(plan: Plan) -> str:
    """Who is held off: the trust model's sentence, the private count's own, or that nobody is."""
    if not is_private_plan(plan):
        return "None: this run is not private, see the warnings."
    sentence = trust_model(plan.config.trust).guarantee(plan.shares)
    if plan.count is not None and plan.count.trust != plan.config.trust:
        colluding = max(1, plan.max_silent)
        sentence += (
            " The noisy number of rows is released to everybody, with noise from the clients: that release holds "
            f"against a server, or against up to {colluding} of {plan.n_clients} clients."
        )
    return sentence


def _lines(plan: Plan, attempts: Sequence[tuple[int, int]]) -> tuple[ReleaseLine, ...]:
    """One line per released array."""
    lines = []
    for position, (index, attempt) in enumerate(attempts, start=1):
        planned = plan.round_at(index)
        so_far = epsilon_after(plan, attempts[:position])
        lines += [
            ReleaseLine(
                round_index=index,
                attempt=attempt,
                round_name=planned.name,
                array=block.name,
                norm=block.sensitivity.norm.value,
                sensitivity=block.sensitivity.bound,
                trust=planned.trust,
                noise=block.noise.value,
                noise_scale=block.noise_scale,
                noise_multiplier=block.noise_multiplier,
                theorem=theorem(block),
                epsilon_so_far=so_far,
                radius=planned.radius,
            )
            for block in planned.blocks
        ]
    return tuple(lines)


def _n_source(plan: Plan) -> str:
    """Where N comes from."""
    if plan.config.n_examples is not None:
        return "declared public"
    return "private count" if plan.count is not None else "not needed"


def _assumptions(plan: Plan) -> tuple[str, ...]:
    """What the guarantee rests on."""
    config = plan.config
    lower, upper = config.bounds
    box = f"{lower[0]:g} to {upper[0]:g}" if len(lower) == 1 else f"given for each of {len(lower)} features"
    sentences = [
        f"The bounds ({box}) are public knowledge and were not taken from the data; values outside are clipped.",
        "X25519, HKDF-SHA256, AES-256 and HMAC-SHA256 are secure: the guarantee under masks is computational.",
        "Links between server and clients are encrypted (Flower with TLS, not --insecure): whoever reads all of them "
        "can add the masked vectors up as the server does.",
        "Dropouts do not depend on data or on releases; otherwise the worst case with all retries holds, not the "
        "actual cost.",
        "Public keys reach the clients as they were sent: identities are not pinned, so a server that swaps keys or "
        "invents clients is not held off.",
    ]
    if config.n_examples is not None:
        sentences.append(f"The number of rows, {config.n_examples}, is public knowledge.")
    if config.max_retries:
        sentences.append(
            f"Up to {config.max_retries} aggregation(s) may be repeated after a dropout; each repetition is charged."
        )
    return tuple(sentences)


def _warnings(plan: Plan) -> tuple[str, ...]:
    """Why a run protects nobody, if it does not."""
    sentences = []
    if plan.config.noise is NoiseKind.SEEDED:
        sentences.append("The noise comes from a seeded generator: whoever knows the seed can subtract it.")
    if any(isinstance(event, ExactRelease) for event in plan.events()):
        sentences.append(f"The algorithm {plan.config.algorithm!r} adds no noise: exact sums are released.")
    return tuple(sentences)
