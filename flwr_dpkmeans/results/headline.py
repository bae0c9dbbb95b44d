"""What came out of a run, and how sure it is, in two sentences.

Above all else on a page, and last on a console.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flwr_dpkmeans.errors import listed
from flwr_dpkmeans.privacy.released_counts import counted, faint_clusters
from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.privacy.shown import size_text
from flwr_dpkmeans.results.cautions.centre_noise import centre_noise
from flwr_dpkmeans.results.cautions.close_clusters import close_clusters
from flwr_dpkmeans.sums.trust import TRUST_MODELS

if TYPE_CHECKING:
    from flwr_dpkmeans.results.run_result import RunResult

_MOST_SIZES = 6
_UNSEEN = (
    "The server does not see what came out: open report.html in a client's own output"
    " folder, which its log names."
)

_NO_CLUSTERS = (
    "The run did not look for clusters: what came out is in result.npz, beside this"
    " page."
)


def headline(report: PrivacyReport, result: RunResult | None = None) -> tuple[str, ...]:
    """Say what came out and how sure it is; without a `result`, where to look."""
    if result is None:
        return (_UNSEEN if _may_not_see(report) else _NO_CLUSTERS,)
    return _what_came_out(result), _how_sure(report, result)


def _may_not_see(report: PrivacyReport) -> bool:
    """Whether the report is that of a server from which the result is kept."""
    trust = TRUST_MODELS.get(report.trust)
    is_server = report.provenance is not None and report.provenance.party == "server"
    return is_server and trust is not None and not trust.server_has_result()


def _what_came_out(result: RunResult) -> str:
    model = result.model
    n_clusters = len(model.counts)
    sizes = [size_text(size) for size in model.sizes]
    of = "of about " if not model.privacy.is_exact else "of "
    if n_clusters > _MOST_SIZES:
        smallest, largest = model.sizes.min(), model.sizes.max()
        sizes = [f"{size_text(smallest)} to {size_text(largest)}"]
    clusters = "1 cluster" if n_clusters == 1 else f"{n_clusters} clusters"
    return f"{clusters} came out, {of}{_in_words(sizes)} {counted(model.privacy)}."


def _in_words(sizes: list[str]) -> str:
    *first, last = sizes
    return f"{', '.join(first)} and {last}" if first else last


def _how_sure(report: PrivacyReport, result: RunResult) -> str:
    n_warnings = len(report.warnings)
    sureness = _sure_by_noise(report, result)
    if n_warnings == 0:
        return sureness
    if n_warnings == 1:
        return f"{sureness} 1 warning says what is against it."
    return f"{sureness} {n_warnings} warnings say what is against it."


def _sure_by_noise(report: PrivacyReport, result: RunResult) -> str:
    model = result.model
    if report.is_exact:
        return "Its sums have no noise, so they are exact, and nobody is protected."
    faint = faint_clusters(model.counts, model.privacy)
    if len(faint) == len(model.counts):
        return "All of it is mostly noise: do not use it."
    close = close_clusters(model, result.radius)
    doubts = []
    if faint:
        doubts.append(f"{_clusters(faint)} mostly noise")
    if close:
        doubts.append(f"{_clusters(close)} too close to another one for the noise")
    if doubts:
        rest = len(model.counts) - len(faint) - len(close)
        others = "; the others are clear" if rest else ""
        return f"{' and '.join(doubts)}{others}.".capitalize()
    if len(model.counts) == 1:
        return "It is clearly told from noise."
    if centre_noise(model, result.radius) is None:
        return "All are told from noise; how far it moves their centres is not known."
    return "All are clearly told from noise and from each other."


def _clusters(numbers: tuple[int, ...] | list[int]) -> str:
    texts = listed(map(str, numbers))
    return f"cluster {texts} is" if len(numbers) == 1 else f"clusters {texts} are"
