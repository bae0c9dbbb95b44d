"""What a plan, or released sums, say against a result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from flwr_dpkmeans.errors import column_names, listed
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.privacy.released_counts import faint_clusters
from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.privacy.sentences import report_sentence
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import Array

LOCAL = "Known here only and not private, so not to be published: "
"""How a sentence begins that follows from exact rows."""
_WEAK_EPSILON = 10.0
_FEW_CLIENTS = 10
_SPENT = 0.985
"""Part of the budget below which a run is said to leave some of it."""


def sentences_that_hold(
    holds: Mapping[str, bool],
    **values: object,
) -> tuple[str, ...]:
    """Those of some sentences that hold, filled in."""
    names = [name for name, is_so in holds.items() if is_so]
    return tuple(report_sentence(name, **values) for name in names)


def spending_cautions(requested: float, spent: float) -> tuple[str, ...]:
    """Say what is to be said of a private run's budget.

    Epsilon as the user set it, and as the plan comes to.

    Examples
    --------
    >>> spending_cautions(1.0, 0.999)
    ()
    >>> [sentence[:31] for sentence in spending_cautions(100.0, 87.0)]
    ['epsilon is 87, a weak guarantee', 'The plan spends epsilon 87 of t']
    """
    holds = {"weak": spent > _WEAK_EPSILON, "unspent": spent < _SPENT * requested}
    return sentences_that_hold(holds, spent=spent, asked=requested, usual=_WEAK_EPSILON)


@lru_cache(maxsize=16)
def plan_cautions(plan: Plan) -> tuple[str, ...]:
    """Say what a final plan with noise in its releases says against the result.

    Of a preliminary one only its size.
    """
    settings = plan.settings
    by_client = settings.unit is PrivacyUnit.CLIENT
    n_rows = plan.n_examples
    spent = plan.epsilon if plan.is_final else settings.epsilon
    may_publish_rows = n_rows is not None and plan.delta >= 1.0 / n_rows
    holds = {
        "few_clients": by_client and plan.n_clients < _FEW_CLIENTS,
        "delta_of_count": may_publish_rows and not by_client,
    }
    of_numbers = sentences_that_hold(
        holds,
        n_clients=plan.n_clients,
        least=_FEW_CLIENTS,
        delta=plan.delta,
        n_rows=n_rows,
        things=settings.unit.things,
    )
    of_spending = spending_cautions(settings.epsilon, spent)
    return (*of_spending, *of_numbers, *plan.task.cautions(plan))


def released_cautions(
    report: PrivacyReport,
    counts: Array,
    groups: str = "clusters",
) -> tuple[str, ...]:
    """Say what the last release's noisy counts, (n_groups,), hold against a result.

    By post-processing.
    """
    faint = faint_clusters(counts, report)
    if not faint:
        return ()
    sentence = report_sentence(
        "faint",
        n=len(faint),
        n_clusters=len(counts),
        groups=groups,
        listed=listed(str(index) for index in faint),
    )
    return (sentence,)


def unclear_cautions(
    columns: Sequence[int],
    names: Sequence[str],
    *,
    standard: bool,
) -> tuple[str, ...]:
    """Say in which columns private histograms did not find a range.

    Nothing, or zeros alone, stood out of the noise.
    """
    if not columns:
        return ()
    sentence = "no_spread" if standard else "no_range"
    return (report_sentence(sentence, columns=column_names(columns, names)),)
