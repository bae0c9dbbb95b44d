"""Names that other libraries' options have, and what stands in their place here."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from string import Formatter

PYTHON = {
    "n_clusters": "n_clusters=10",
    "epsilon": "epsilon=1.0",
    "n_init": "algorithm=ProxyLloydOptions(n_init=5)",
    "tolerance": "algorithm=FastLloydOptions(tolerance=0.01)",
    "random_state": "random_state=7",
    "max_iter": "max_iter=5",
    "server_data": "server_data",
}
"""How an option is written as an argument."""
FLAT = PYTHON | {
    "n_init": "n_init=5",
    "tolerance": "tolerance=0.01",
}
"""How it is written where each option of an algorithm has a name of its own."""
KEYS: Mapping[str, str] = {
    "n_clusters": "n-clusters=10",
    "epsilon": "epsilon=1.0",
    "n_init": "proxy_lloyd.n-init=5",
    "tolerance": "fastlloyd.tolerance=0.01",
    "random_state": "random-state=7",
    "max_iter": "max-iter=5",
    "server_data": "server-data",
}
"""How it is written as a key of a run's configuration."""

_ALTERNATIVE = ", or give {"
_SEEDS = "the seed of what is public is random_state: give {random_state}"
_ALL_ROWS = (
    "every round looks at all rows (a sample of them would need more noise): leave"
    " it out"
)
_ONE_ALGORITHM = (
    "there is no such choice here, and the method is the algorithm: leave it out"
)
_START = "methods start by themselves, or from public {server_data}: leave it out"
_THREADS = (
    "all processors are used, and results are the same bits with any number of them:"
    " leave it out"
)
_ANSWERS: Mapping[str, str] = {
    "k": "the number of clusters is n_clusters: give {n_clusters}",
    "eps": "the budget is epsilon: give {epsilon}",
    "n_init": (
        "only k-means of released or public points is begun several times (on rows each"
        " new start would cost budget): leave it out, or give {n_init}"
    ),
    "tol": (
        "exact rows must not decide when rounds end, and released movements do so where"
        " they may be seen: leave it out, or give {tolerance}"
    ),
    "n_iter": "the number of rounds is max_iter: give {max_iter}",
    "max_iterations": "the number of rounds is max_iter: give {max_iter}",
    "verbose": (
        "progress is shown by Python's logging: call logging.basicConfig(level='INFO')"
        " and leave it out"
    ),
    "n_jobs": _THREADS,
    "n_threads": _THREADS,
    "copy_x": "tables are never changed: leave it out",
    "copy": "tables are never changed: leave it out",
    "compute_labels": (
        "there are no labels_ to compute, which would tell of private rows: leave"
        " it out"
    ),
    "batch_size": _ALL_ROWS,
    "reassignment_ratio": _ALL_ROWS,
    "max_no_improvement": _ALL_ROWS,
    "init_size": _ALL_ROWS,
    "precompute_distances": _ONE_ALGORITHM,
    "bisecting_strategy": _ONE_ALGORITHM,
    "init": _START,
    "X_init": _START,
    "seed": _SEEDS,
    "random_seed": _SEEDS,
}


def answer(
    name: str,
    spelt: Mapping[str, str] = PYTHON,
    *,
    taken: Collection[str] | None = None,
) -> str:
    """Say what stands here in the place of another library's option, without its name.

    "" where there is nothing to say, or where that names what is not taken there.

    Parameters
    ----------
    name : str
        As an argument; hyphens are taken for underscores.
    spelt : mapping
        How options are written there: `PYTHON`, `FLAT` or `KEYS`.
    taken : collection of str, optional
        Arguments that may be given there; None: all.

    Examples
    --------
    >>> answer("k")
    'the number of clusters is n_clusters: give n_clusters=10'
    >>> answer("n-jobs", KEYS)[:27]
    'all processors are used, an'
    >>> answer("k", taken=["n_classes"]), answer("tol", taken=["bounds"])[-12:]
    ('', 'leave it out')
    """
    template = _ANSWERS.get(name.replace("-", "_"), "")
    if not _is_taken(template, spelt, taken):
        template = template.partition(_ALTERNATIVE)[0]
    if not _is_taken(template, spelt, taken):
        return ""
    return template.format(**spelt)


def _is_taken(
    template: str,
    spelt: Mapping[str, str],
    taken: Collection[str] | None,
) -> bool:
    """Tell whether an answer names only arguments that may be given."""
    if taken is None:
        return True
    arguments = set()
    for _, option, _, _ in Formatter().parse(template):
        if option:
            argument, _, _ = spelt[option].partition("=")
            arguments.add(argument)
    return arguments <= set(taken)
