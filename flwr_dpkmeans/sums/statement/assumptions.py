"""What a run guarantees, and under which assumptions."""

from __future__ import annotations

from functools import lru_cache

from flwr_dpkmeans.privacy.noise import NoiseKind
from flwr_dpkmeans.privacy.release import NoiseShape, PrivacyUnit
from flwr_dpkmeans.privacy.report import CLOSING_ROUNDS
from flwr_dpkmeans.privacy.sentences import report_sentence
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.price import resolve_delta
from flwr_dpkmeans.sums.settings import EvaluationKind, Settings
from flwr_dpkmeans.sums.statement.cautions import sentences_that_hold


@lru_cache(maxsize=16)
def guarantee_of(plan: Plan) -> str:
    """Say who is held off.

    The trust model's sentence, the private count's own, or that nobody is.
    """
    if not plan.is_private:
        return report_sentence("nobody")
    sentence = plan.trust_model.guarantee(plan.shares)
    if plan.preliminary and plan.preliminary[0].trust != plan.settings.trust:
        sentence = _with_preliminary_releases(plan, sentence)
    return report_sentence("proofs", sentence=sentence, proofs=plan.trust_model.proofs)


def _with_preliminary_releases(plan: Plan, sentence: str) -> str:
    """A guarantee, and that of preliminary releases under another trust model."""
    settings = plan.settings
    released = []
    verb = "is"
    if plan.count is not None:
        released.append("number of rows")
    if settings.private_bounds:
        verb = "are"
        if settings.standard_columns:
            released.append("spreads of the columns")
        else:
            released.append("histograms of each column's range")
    return report_sentence(
        "found",
        sentence=sentence,
        what=f"{' and '.join(released)} {verb}",
        hold="these releases hold" if len(released) > 1 else "that release holds",
        colluding=max(1, plan.max_silent),
        n_clients=plan.n_clients,
    )


@lru_cache(maxsize=16)
def assumptions_of(plan: Plan, identities: str) -> tuple[str, ...]:
    """List what the guarantee rests on, one sentence each.

    `identities` says who the clients are.
    """
    settings = plan.settings
    sentences = [_bounds_sentence(settings), report_sentence("as_they_are")]
    if not plan.trust_model.alone:
        sentences += _sentences_on_parties(plan, identities)
    if plan.server is not None:
        sentences += _server_sentences(plan, plan.server.n_points)
    if settings.client_sampling_rate < 1.0:
        is_seeded = settings.noise is NoiseKind.SEEDED
        coin = report_sentence("seeded_coin" if is_seeded else "secure_coin")
        sentences.append(
            report_sentence("sampled", rate=settings.client_sampling_rate, coin=coin)
        )
    sentences += _sentences_on_rows(plan)
    if plan.delta == 0.0:
        sentences.append(report_sentence("pure"))
    n_classes = plan.task.n_classes(settings)
    if n_classes:
        sentences.append(report_sentence("classes", n=n_classes))
    sentences += plan.aggregator.assumptions(plan)
    if settings.max_retries > 0 and not plan.trust_model.alone:
        sentences.append(report_sentence("retries", n=settings.max_retries))
    return tuple(sentences)


def _sentences_on_parties(plan: Plan, identities: str) -> list[str]:
    """How columns are matched, what masks rest on, and who the clients are."""
    if not plan.columns_digest:
        matched = "unnamed"
    elif plan.by_position:
        matched = "by_position"
    else:
        matched = "by_name"
    unnamed = report_sentence("and_unnamed") if plan.settings.allow_unnamed else ""
    return [
        report_sentence(matched, unnamed=unnamed),
        report_sentence("computational"),
        report_sentence("links"),
        report_sentence("silencing"),
        identities,
    ]


def _sentences_on_rows(plan: Plan) -> list[str]:
    """What is declared of the rows, counted, or known by nobody."""
    settings = plan.settings
    by_client = settings.unit is PrivacyUnit.CLIENT
    is_counted = plan.count is not None
    first_delta = resolve_delta(plan.config, plan.n_clients)
    per_client = settings.examples_per_client
    sentences = []
    if by_client and plan.task.clips_clients:
        sentences.append(report_sentence("rows_of_clients", n=per_client))
    if settings.unit is PrivacyUnit.PERSON:
        from flwr_dpkmeans.sums.persons.person_sentences import persons_sentence

        sentences.append(persons_sentence(plan))
    if settings.max_weight is not None:
        sentences.append(report_sentence("weights", most=settings.max_weight))
    things = settings.unit.things
    if by_client:
        things = PrivacyUnit.RECORD.things
    if settings.n_examples is not None:
        n_examples = settings.n_examples
        sentences.append(report_sentence("public_rows", n=n_examples, things=things))
    elif is_counted and by_client:
        sentences.append(report_sentence("capped_count", n=per_client))
    elif is_counted and plan.delta < first_delta:
        sentences.append(
            report_sentence(
                "lowered_delta",
                start=first_delta,
                delta=plan.delta,
                n=plan.n_examples,
                things=things,
            )
        )
    elif not by_client and plan.n_examples is None and plan.is_private:
        sentences.append(
            report_sentence("unknown_rows", most=1.0 / plan.delta, things=things)
        )
    return sentences


def _bounds_sentence(settings: Settings) -> str:
    """Where the box comes from that data are scaled by."""
    lower, upper = settings.bounds
    box = f"given for each of {len(lower)} features"
    if len(lower) == 1:
        box = f"{lower[0]:g} to {upper[0]:g}"
    if settings.standard_columns:
        return report_sentence("standard_bounds", box=box)
    if settings.private_bounds:
        return report_sentence("private_bounds", box=box)
    return report_sentence("public_bounds", box=box)


def _server_sentences(plan: Plan, n_points: int) -> tuple[str, ...]:
    """What the run assumes of the server's own points, and who sees them."""
    if plan.public_points is None:
        seen = plan.task.server_points_words(plan)
    else:
        seen = report_sentence("seen_by_all")
    holds = {"server_points": n_points > 0, "server_bounds": True}
    return sentences_that_hold(holds, n=n_points, seen=seen)


@lru_cache(maxsize=16)
def why_not_private(plan: Plan) -> tuple[str, ...]:
    """Why a run protects nobody, if it does not."""
    settings = plan.settings
    shapes = set()
    for planned in plan.rounds:
        if planned.name not in CLOSING_ROUNDS:
            shapes |= {block.noise for block in planned.blocks}
    is_seeded = settings.noise is NoiseKind.SEEDED
    reasons = {
        "seeded_noise": is_seeded,
        "seeded_coins": is_seeded and settings.client_sampling_rate < 1.0,
        "bare": plan.is_bare,
        "exact_evaluation": settings.evaluation is EvaluationKind.EXACT,
        "no_noise": NoiseShape.NONE in shapes,
    }
    return sentences_that_hold(reasons, algorithm=plan.task.label)
