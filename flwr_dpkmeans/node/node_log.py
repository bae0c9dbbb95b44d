"""What a node's own log says of a run.

It stays on the node: the plan's public values, the node's own policy and its ledger's
sums; never a row, a statistic, a centroid, a key or a mask.
"""

from __future__ import annotations

import logging
import math

from flwr_dpkmeans.errors import DPKMeansError, listed
from flwr_dpkmeans.log import event, placed_logger, printable
from flwr_dpkmeans.node.ledger_entries import LedgerEntry
from flwr_dpkmeans.secagg.messages import SumRequest, UnmaskRequest
from flwr_dpkmeans.secagg.roster import Roster
from flwr_dpkmeans.sums.draft import worst_case
from flwr_dpkmeans.sums.plan import Plan, PlannedRound

_DIGEST_CHARACTERS = 16
_LONGEST_NAME = 60

logger = placed_logger("flwr_dpkmeans.mod")


def json_number(value: float) -> float | str:
    """Return a number as JSON has it."""
    return value if math.isfinite(value) else str(value)


def log_plan(plan: Plan, digest: bytes) -> None:
    """Say which plan this client is asked to agree to.

    Nothing is computed of it, as it is not checked yet: a hostile plan could make that
    fail, or take hours.
    """
    config = plan.config
    rounds = "rounds still to be planned"
    if plan.is_final:
        rounds = f"{plan.last_round} rounds"
    logger.info(
        f"asked for: {_shown(config.algorithm)} under trust"
        f" {_shown(config.trust)}, {rounds}, {plan.n_clients} clients, unit"
        f" {config.unit.value}, at delta {plan.delta:.3g}; plan"
        f" {digest.hex()[:_DIGEST_CHARACTERS]}",
        extra=event(
            "plan",
            digest=digest.hex(),
            final=plan.is_final,
            n_clients=plan.n_clients,
        ),
    )


def log_price(plan: Plan) -> None:
    """Say what a plan that was checked costs."""
    if plan.is_private:
        epsilon = plan.epsilon if plan.is_final else plan.settings.epsilon
        most = worst_case(plan)
        warning = ""
    else:
        epsilon = math.inf
        most = math.inf
        warning = " (NOT PRIVATE)"
    logger.info(
        f"the plan costs epsilon {epsilon:.4g} (at most {most:.4g} with all"
        f" {plan.settings.max_retries} retries) at delta {plan.delta:.3g}{warning}",
        extra=event("price", epsilon=json_number(epsilon), most=json_number(most)),
    )


def _shown(name: str) -> str:
    return printable(name, _LONGEST_NAME)


def log_request(
    plan: Plan,
    request: SumRequest,
    n_recognised: int,
) -> None:
    """Say which vector this client is asked for, of whom and with which noise."""
    if not logger.isEnabledFor(logging.INFO):
        return
    planned = plan.round_at(request.round_index)
    cohort = ""
    if request.roster is not None:
        cohort = _described_cohort(request.roster, n_recognised)
    logger.info(
        f"asked for: {_shown(planned.name)} (round {request.round_index} of"
        f" {plan.last_round}){cohort}; {_described_noise(planned)}",
        extra=event("asked", release=planned.name),
    )


def _described_cohort(roster: Roster, n_recognised: int) -> str:
    recognised = ""
    if n_recognised:
        recognised = f", {n_recognised} of them recognised by pinned identities"
    nodes = listed(map(str, roster.node_ids))
    return f"; a cohort of {len(roster.members)} clients{recognised}: {nodes}"


def _described_noise(planned: PlannedRound) -> str:
    noises = [
        f"{block.name} (sensitivity {block.sensitivity.bound:.3g}, {block.noise.value}"
        f" noise +-{block.noise_scale:.3g})"
        for block in planned.blocks
    ]
    return ", ".join(noises)


def log_release(
    planned: PlannedRound,
    n_clients: int,
    epsilon: float,
    spent: float,
    shown: str,
) -> None:
    """Say which vector was given, and what all runs have cost.

    Parameters
    ----------
    planned : PlannedRound
        The round that it belongs to.
    n_clients : int
        Clients in the sum.
    epsilon, spent : float
        What this run can cost, and all runs of this unit together.
    shown : str
        The latter in words.
    """
    logger.info(
        f"gave: {_shown(planned.name)}, masked, in a sum of {n_clients}"
        f" clients; ledger: epsilon {epsilon:.4g} for all of this run,"
        f" {shown} in all runs of this unit",
        extra=event(
            "gave",
            release=planned.name,
            epsilon=json_number(epsilon),
            spent=json_number(spent),
        ),
    )


def log_shares_given(request: UnmaskRequest, n_asked: int) -> None:
    """Say that shares were given which unmask a sum."""
    n_survivors = len(request.survivors)
    logger.info(
        f"gave shares that unmask the sum of {n_survivors} clients out of {n_asked}",
        extra=event("unmasked", n_survivors=n_survivors, n_asked=n_asked),
    )


def log_keys_shared(
    n_clients: int,
    n_recognised: int,
    n_neighbours: int,
    threshold: int,
) -> None:
    """Say that this client shared the keys of the run."""
    logger.info(
        f"shared the keys of this run: {n_clients} clients, {n_recognised}"
        f" of them recognised; {n_neighbours} neighbours hold shares, {threshold}"
        " give a key back",
        extra=event(
            "shared",
            n_clients=n_clients,
            n_neighbours=n_neighbours,
            threshold=threshold,
        ),
    )


def log_failure(error: DPKMeansError) -> None:
    """Say what is wrong on this machine.

    The server learns that something is, but not what.
    """
    logger.error(
        "cannot answer: %s",
        printable(error),
        extra=event("failed", kind=type(error).__name__),
    )


def unfinished_sentence(last: LedgerEntry) -> str:
    """Say which run on the same data has had no result."""
    return (
        f"run {_shown(last.run_id)} gave its last release"
        f" ({_shown(last.release)}, {last.time}) and has had no result: unless"
        " it is going on now, it has ended elsewhere, and its epsilon"
        f" {last.epsilon:.4g} stays charged"
    )
