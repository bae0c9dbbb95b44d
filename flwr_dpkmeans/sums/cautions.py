"""What a result says against itself: one list of sentences for reports, logs, pictures and Python's warnings.

Three kinds, by who may know them. `plan_cautions` follow from the public plan. `released_cautions` follow from released
sums, so they are told where the trust model lets these be seen (under ``oblivious`` on clients only). `local_cautions`
follow from exact rows: they stay with whoever holds these.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.errors import column_names, listed
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.privacy.report import PrivacyReport, faint_clusters
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.settings import Box
from flwr_dpkmeans.sums.task import Run

Array = NDArray[np.float64]

LOCAL = "Known here only and not private, so not to be published: "
"""How a sentence begins that follows from exact rows."""
WEAK_EPSILON = 10.0
"""Above this a guarantee is called weak."""
FEW_CLIENTS = 10
"""Below so many clients a client-level run is said to have few."""
_SPENT = 0.985
"""Part of the budget below which a run is said to leave some of it."""
_CLIPPED = 0.05
"""Part of the rows of a column above which more than a little is clipped."""


def spending_cautions(asked: float, spent: float) -> tuple[str, ...]:
    """What is to be said of a private run's budget: epsilon as it was asked for, and as the plan comes to.

    Examples
    --------
    >>> spending_cautions(1.0, 0.999), [sentence[:31] for sentence in spending_cautions(100.0, 87.0)]
    ((), ['epsilon is 87, a weak guarantee', 'The plan spends epsilon 87 of t'])
    """
    sentences = []
    if spent > WEAK_EPSILON:
        sentences.append(
            f"epsilon is {spent:.4g}, a weak guarantee: one unit may change the odds of a result by a factor of up to "
            f"exp({spent:.4g}); {WEAK_EPSILON:g} and less is usual."
        )
    if spent < _SPENT * asked:
        sentences.append(
            f"The plan spends epsilon {spent:.4g} of the {asked:.4g} that was asked for: the rest buys no accuracy."
        )
    return tuple(sentences)


def plan_cautions(plan: Plan) -> tuple[str, ...]:
    """What a final plan with noise in its releases says against the result; of a preliminary one only its size."""
    settings, by_client = plan.settings, plan.settings.unit is PrivacyUnit.CLIENT
    sentences = list(spending_cautions(settings.epsilon, plan.epsilon if plan.is_final else settings.epsilon))
    if by_client and plan.n_clients < FEW_CLIENTS:
        sentences.append(
            f"The unit is the client, and there are {plan.n_clients}: noise that hides one of so few hides what they "
            f"have in common too; have at least {FEW_CLIENTS} clients, or choose unit='record'."
        )
    n = None if by_client else plan.n_examples
    if n is not None and plan.delta >= 1.0 / n:
        sentences.append(
            f"delta is {plan.delta:.3g}, which is not below 1/N for the {n} rows that were counted: declare "
            "n_examples, give a smaller delta, or lower count_share and bounds_share."
        )
    return (*sentences, *plan.task.cautions(plan))


def released_cautions(report: PrivacyReport, counts: Array) -> tuple[str, ...]:
    """What the last release's noisy counts, (n_clusters,), say against the result: post-processing of it."""
    faint = faint_clusters(counts, report)
    if not faint:
        return ()
    return (
        f"{len(faint)} of {len(counts)} clusters are mostly noise (number {listed(map(str, faint))}): their noisy "
        "counts are less than three noise scales above zero; choose fewer clusters, raise epsilon or add data.",
    )


def unclear_cautions(columns: Sequence[int], names: Sequence[str] = ()) -> tuple[str, ...]:
    """What private histograms did not find: the columns in which neither stood out of its noise."""
    if not columns:
        return ()
    return (
        f"Private bounds found no values of {column_names(columns, names)} beyond the noise, so their bounds are a "
        "wide range or that of other columns: give bounds or a narrower bounds_domain, or raise epsilon or "
        "bounds_share.",
    )


def local_cautions(
    config: Run, delta: float, box: Box, parts: Sequence[Array], names: Sequence[str] = ()
) -> tuple[str, ...]:
    """What exact rows say against a result, without a number that was taken from them: for those who hold them.

    `box` is what `parts`, (n_i, n_features), were clipped to, both in the units of the data; `names` those of the
    columns where they are known, else the configuration's.
    """
    sentences, n_rows = [], sum(len(part) for part in parts)
    by_record, declared = config.settings.unit is PrivacyUnit.RECORD, config.settings.n_examples
    if by_record and declared is not None and n_rows > declared:
        sentences.append(
            f"n_examples is declared as {declared}, but there are more rows: declare their number, from which delta "
            "and noise follow."
        )
    if by_record and delta * n_rows >= 1.0:
        sentences.append(
            f"delta is {delta:.3g}, which is not below 1/N for the rows that are here, so a run may publish whole "
            "rows: give a smaller delta, or declare n_examples."
        )
    lower, upper = np.array(box[0]), np.array(box[1])
    outside = sum(((part < lower) | (part > upper)).sum(axis=0) for part in parts)
    clipped = np.flatnonzero(outside > _CLIPPED * n_rows).tolist()
    if clipped:
        where = column_names(clipped, names or config.settings.feature_names)
        sentences.append(
            f"More than {_CLIPPED:.0%} of the rows lie outside the bounds of {where} and were clipped, so that "
            "clusters may be missed: give wider bounds."
        )
    return tuple(LOCAL + sentence for sentence in sentences)
