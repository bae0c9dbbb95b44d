"""What a run guarantees, and under which assumptions."""

from __future__ import annotations

from functools import lru_cache

from flwr_dpkmeans.privacy.noise import NoiseKind
from flwr_dpkmeans.privacy.release import NoiseShape, PrivacyUnit
from flwr_dpkmeans.privacy.report import (
    CLOSING_ROUNDS,
    told,
)
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.price import resolve_delta
from flwr_dpkmeans.sums.settings import EvaluationKind, Settings
from flwr_dpkmeans.sums.statement.cautions import (
    _told_if,
)


@lru_cache(maxsize=16)
def _guarantee(plan: Plan) -> str:
    """Who is held off: the trust model's sentence, the private count's own, or that
    nobody is.
    """
    if not plan.is_private:
        return told("nobody")
    sentence = plan.model.guarantee(plan.shares)
    if plan.preliminary and plan.preliminary[0].trust != plan.settings.trust:
        bounds = plan.settings.private_bounds
        private = (
            "spreads of the columns"
            if plan.settings.standard_columns
            else "histograms of each column's range"
        )
        shown = [
            *([] if plan.count is None else ["number of rows"]),
            *([private] if bounds else []),
        ]
        sentence = told(
            "found",
            sentence=sentence,
            what=f"{' and '.join(shown)} {'are' if bounds else 'is'}",
            hold="these releases hold" if len(shown) > 1 else "that release holds",
            colluding=max(1, plan.max_silent),
            n_clients=plan.n_clients,
        )
    return told("proofs", sentence=sentence, proofs=plan.model.proofs)


@lru_cache(maxsize=16)
def _assumptions(plan: Plan, identities: str) -> tuple[str, ...]:
    settings, counted, by_client = (
        plan.settings,
        plan.count is not None,
        plan.settings.unit is PrivacyUnit.CLIENT,
    )
    sentences = [_bounds_sentence(settings), told("as_they_are")]
    if not plan.model.alone:
        matched = (
            "unnamed"
            if not plan.columns_digest
            else "by_position"
            if plan.by_position
            else "by_name"
        )
        sentences.append(
            told(matched, unnamed=told("and_unnamed") if settings.allow_unnamed else "")
        )
        sentences += [*map(told, ("computational", "links", "silencing")), identities]
    if plan.server is not None:
        sentences += _server_sentences(plan, plan.server.n_points)
    if settings.client_sampling_rate < 1.0:
        coin = told(
            "seeded_coin" if settings.noise is NoiseKind.SEEDED else "secure_coin"
        )
        sentences.append(told("sampled", rate=settings.client_sampling_rate, coin=coin))
    if by_client:
        sentences.append(told("rows_of_clients", n=settings.examples_per_client))
    if settings.n_examples is not None:
        sentences.append(told("public_rows", n=settings.n_examples))
    elif counted and by_client:
        sentences.append(told("capped_count", n=settings.examples_per_client))
    elif counted and plan.delta < (start := resolve_delta(plan.config, plan.n_clients)):
        sentences.append(
            told("lowered_delta", start=start, delta=plan.delta, n=plan.n_examples)
        )
    elif not by_client and plan.n_examples is None and plan.is_private:
        sentences.append(told("unknown_rows", most=1.0 / plan.delta))
    if plan.delta == 0.0:
        sentences.append(told("pure"))
    if n_classes := plan.task.n_classes(settings):
        sentences.append(told("classes", n=n_classes))
    sentences += plan.aggregator.assumptions(plan)
    may_retry = settings.max_retries > 0 and not plan.model.alone
    sentences += _told_if({"retries": may_retry}, n=settings.max_retries)
    return tuple(sentences)


def _bounds_sentence(settings: Settings) -> str:
    """Where the box comes from that data are scaled by."""
    lower, upper = settings.bounds
    box = (
        f"{lower[0]:g} to {upper[0]:g}"
        if len(lower) == 1
        else f"given for each of {len(lower)} features"
    )
    if settings.standard_columns:
        return told("standard_bounds", box=box)
    return told(
        "private_bounds" if settings.private_bounds else "public_bounds", box=box
    )


def _server_sentences(plan: Plan, n_points: int) -> tuple[str, ...]:
    """What the run assumes of the server's own points, and who sees them."""
    seen = (
        plan.task.server_points_words(plan)
        if plan.public_points is None
        else told("seen_by_all")
    )
    return _told_if(
        {"server_points": n_points > 0, "server_bounds": True}, n=n_points, seen=seen
    )


@lru_cache(maxsize=16)
def why_not_private(plan: Plan) -> tuple[str, ...]:
    """Why a run protects nobody, if it does not."""
    own = [
        block.noise
        for planned in plan.rounds
        if planned.name not in CLOSING_ROUNDS
        for block in planned.blocks
    ]
    seeded = plan.settings.noise is NoiseKind.SEEDED
    reasons = {
        "seeded_noise": seeded,
        "seeded_coins": seeded and plan.settings.client_sampling_rate < 1.0,
        "bare": plan.is_bare,
        "exact_evaluation": plan.settings.evaluation is EvaluationKind.EXACT,
        "no_noise": NoiseShape.NONE in own,
    }
    return _told_if(reasons, algorithm=plan.task.label)
