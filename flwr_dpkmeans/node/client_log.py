"""What a client's own log says: what it was asked for, what it decided, what it gave and what that has cost.

These lines stay on the node. They hold the plan's public values, the node's own policy and its ledger's sums; never a
row, a statistic, a centroid, a key or a mask.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence

from flwr_dpkmeans.errors import DPKMeansError, PeerError
from flwr_dpkmeans.log import event, placed_logger, printable, where_raised
from flwr_dpkmeans.node.ledger import LedgerEntry, Past
from flwr_dpkmeans.node.node_settings import NodeSettings
from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.secagg.messages import SumRequest
from flwr_dpkmeans.sums.draft import worst_case
from flwr_dpkmeans.sums.plan import Plan, PlannedRound

logger = placed_logger("flwr_dpkmeans.mod")

_DIGEST_CHARACTERS = 16


def plan_came(plan: Plan, digest: bytes) -> None:
    """Say which plan this client is asked to agree to."""
    config = plan.config
    try:
        worst = worst_case(plan) if plan.is_final else config.epsilon * (1 + config.max_retries)
        epsilon = plan.epsilon if plan.is_final else config.epsilon
        private = plan.is_private
    except (DPKMeansError, ArithmeticError):
        # The plan is not checked yet, so its noise may have no price; the check will say what is wrong with it.
        worst, epsilon, private = math.nan, math.nan, True
    rounds = f"{plan.last_round} rounds" if plan.is_final else "rounds still to be planned"
    logger.info(
        "asked for: %s under trust %s, %s, %d clients, unit %s, epsilon %.4g (at most %.4g with all %d retries) at "
        "delta %.3g%s; plan %s",
        printable(config.algorithm, 60),
        printable(config.trust, 60),
        rounds,
        plan.n_clients,
        config.unit.value,
        epsilon if private else math.inf,
        worst if private else math.inf,
        config.max_retries,
        plan.delta,
        "" if private else " (NOT PRIVATE)",
        digest.hex()[:_DIGEST_CHARACTERS],
        extra=event("plan", digest=digest.hex(), final=plan.is_final, n_clients=plan.n_clients),
    )


def unnamed() -> None:
    """Say that nothing tells this client whether the others' columns are its own."""
    logger.info("the own table has no column names: its columns are matched by position")


def plan_allowed(settings: NodeSettings, past: Past) -> None:
    """Say that the policy allows the plan, and how far the data set's budget is used up without this run."""
    spent, limit = past.epsilon, settings.policy.max_epsilon_total
    logger.info(
        "allowed by this node's policy: epsilon %.4g%s was spent on data set %r in other runs of this unit",
        spent,
        _of(limit),
        printable(settings.data_id, 200),
        extra=event("plan allowed", spent=_finite(spent), limit=_finite(limit)),
    )


def asked(plan: Plan, request: SumRequest, n_recognised: int) -> None:
    """Say which release is asked for, with what noise and among how many."""
    if not logger.isEnabledFor(logging.INFO):
        return
    planned = plan.round_at(request.round_index)
    roster = ""
    if request.roster is not None:
        pinned = f", {n_recognised} of them recognised by pinned identities" if n_recognised else ""
        roster = f"; a cohort of {len(request.roster.members)} clients{pinned}"
    noises = [
        f"{block.name} (sensitivity {block.sensitivity.bound:.3g}, {block.noise.value} noise +-{block.noise_scale:.3g})"
        for block in planned.blocks
    ]
    logger.info(
        "asked for: %s (round %d of %d)%s; %s",
        printable(planned.name, 60),
        request.round_index,
        plan.last_round,
        roster,
        ", ".join(noises),
        extra=event("asked", release=planned.name),
    )


def given(planned: PlannedRound, settings: NodeSettings, entry: LedgerEntry, n_clients: int) -> None:
    """Say what is answered, and what the ledger says of it."""
    if not logger.isEnabledFor(logging.INFO):
        return
    limit = settings.policy.max_epsilon_total
    spent = settings.ledger.past(settings.data_id, entry.unit).epsilon
    logger.info(
        "gave: %s, masked, in a sum of %d clients; ledger: epsilon %.4g for all of this run, %.4g%s on data set %r in "
        "all runs of this unit",
        printable(planned.name, 60),
        n_clients,
        entry.epsilon,
        spent,
        _of(limit),
        printable(settings.data_id, 200),
        extra=event("gave", release=planned.name, epsilon=_finite(entry.epsilon), spent=_finite(spent)),
    )


def finished(attempts: Sequence[tuple[int, int]], report: PrivacyReport) -> None:
    """Say that the result is here, and what it, the ledger's entries and this log have in common."""
    logger.info("the result is here, after %d releases; %s", len(attempts), report.provenance, extra=event("finished"))


def warned(sentences: Sequence[str]) -> None:
    """Say what the report says against the result."""
    for sentence in sentences:
        logger.warning("%s", printable(sentence), extra=event("warning"))


def refused(error: PeerError) -> None:
    """Say why nothing was given; the server is sent the same sentence."""
    logger.warning("refused: %s", printable(error), extra=event("refused", kind=type(error).__name__))


def failed(error: DPKMeansError) -> None:
    """Say what is wrong on this machine; the server is told that something is, but not what."""
    logger.error("cannot answer: %s", printable(error), extra=event("failed", kind=type(error).__name__))


def crashed(error: Exception) -> None:
    """Say what kind of exception stopped the answer, and where; its text may hold rows, so it is not repeated."""
    place = where_raised(error, verbose=logger.isEnabledFor(logging.DEBUG))
    logger.error("cannot answer: %s", place, extra=event("crashed", kind=type(error).__name__))


def took(what: str, start: float) -> None:
    """Log how long a step took that began at `start` (of `time.perf_counter`), for whoever asks for details."""
    logger.debug("%s took %.3f s", what, round(time.perf_counter() - start, 3))


def _of(limit: float) -> str:
    """The limit that a sum is held against, if there is one."""
    return "" if math.isinf(limit) else f" of {limit:.4g}"


def _finite(value: float) -> float | str:
    """A number as JSON has it."""
    return value if math.isfinite(value) else str(value)


def shared(n_clients: int, n_recognised: int, n_neighbours: int, threshold: int) -> None:
    """Say that keys were shared, and among how many."""
    logger.info(
        "shared the keys of this run: %d clients, %d of them recognised; %d neighbours hold shares, %d give a key back",
        n_clients,
        n_recognised,
        n_neighbours,
        threshold,
        extra=event("shared", n_clients=n_clients, n_neighbours=n_neighbours, threshold=threshold),
    )


def unmasked(n_survivors: int, n_asked: int) -> None:
    """Say whose masks this client helped to take away."""
    logger.info(
        "gave shares that unmask the sum of %d clients out of %d",
        n_survivors,
        n_asked,
        extra=event("unmasked", n_survivors=n_survivors, n_asked=n_asked),
    )
