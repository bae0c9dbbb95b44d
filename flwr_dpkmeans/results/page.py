"""Pages of a run: a summary, a page for each party, and a record for the registry.

Here are the numbers; the words are in ``templates.toml``, each once, for all forms,
which have the same macros. Whatever a name or a cell holds stays text.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from flwr_dpkmeans.algorithms.profile.profile_reading import MISSING, SHARE
from flwr_dpkmeans.privacy.gaussian import LARGEST_EXPONENT
from flwr_dpkmeans.privacy.provenance import utc_now
from flwr_dpkmeans.privacy.released_counts import (
    counted,
    counts_deviation,
    faint_clusters,
)
from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.privacy.shown import NOT_TOLD, share_text, size_text
from flwr_dpkmeans.results.cautions.centre_noise import centre_noise
from flwr_dpkmeans.results.cautions.clear_centres import (
    Array,
    Radius,
    distances_to_others,
)
from flwr_dpkmeans.results.cautions.shades import column_shades
from flwr_dpkmeans.results.cautions.sureness import (
    APART,
    noise_in_units,
    unsure_columns,
)
from flwr_dpkmeans.results.headline import headline
from flwr_dpkmeans.results.number_texts import number_text
from flwr_dpkmeans.results.rendering import HTML, rendered
from flwr_dpkmeans.results.value_texts import with_errors
from flwr_dpkmeans.sums.trust import TRUST_MODELS

if TYPE_CHECKING:
    import pandas as pd

    from flwr_dpkmeans.algorithms.profile.profile_reading import Figure
    from flwr_dpkmeans.results.model import Model
    from flwr_dpkmeans.results.run_result import RunResult


_IN_CONSOLE, _ON_PAGE = 10, 200  # columns and clusters that a table has at most


_SIDE_BY_SIDE = 10  # columns of numbers that a printed page has room for


_GREYED = 4  # how cells of a column are shaded that tells no clusters apart


_SOURCES = {
    "secure": "exact discrete samplers, Laplace by OpenDP",
    "opendp": "OpenDP's discrete samplers",
}
"""Where noise comes from, by the run's option."""


# The first of the commonest texts, which may hold any character.
_FIRST = re.compile(r".*?\(\d+\.\d%\)(?=; |$)", re.DOTALL)


Table = tuple[str, Sequence[Sequence[str]], Sequence[str], Sequence[Sequence[int]]]
"""Caption; rows, whose first cells are their heads; heads of columns; shades.

The shades, from -3 to 3, are of the cells that are numbers, and repeat what these say.
"""


def _noise_text(value: float) -> str:
    """The noise in a value, which is no number where the value is missing."""
    return "missing" if math.isnan(value) else number_text(value)


def summary(
    model: Model,
    report: PrivacyReport,
    form: str,
    evaluation: object = None,
) -> str:
    """Summarise clusters, an evaluation, the cost in privacy, and warnings."""
    return rendered(
        "summary.j2",
        form,
        centres=_centres(model, _IN_CONSOLE),
        report=report,
        evaluation=evaluation,
    )


def page(
    form: str,
    report: PrivacyReport,
    result: RunResult | None = None,
    picture: bytes = b"",
) -> bytes:
    """All that one party may read of a run.

    `result` where it may know the clusters, with their `picture`.
    """
    from markupsafe import Markup

    values = {
        "headline": headline(report, result),
        "factor": math.exp(min(report.epsilon, LARGEST_EXPONENT)),
        "known": _origin(report),
        "picture": Markup(base64.b64encode(picture).decode()),
        "centres": [],
        "profile": [],
        "own_profile": [],
        "describes_clustered_only": False,
        "sureness": [],
        "evaluation": None,
        "spent": None,
    }
    if result is not None:
        values |= _of_result(result)
    facts = _facts(report, result)
    return rendered(
        "page.j2",
        form,
        **values,
        **facts,
    ).encode()


def _origin(report: PrivacyReport) -> list[tuple[str, str]]:
    """Where a report comes from, by name."""
    if report.provenance is None:
        return []
    entries = report.provenance.to_dict() | {"digest": report.provenance.digest}
    origin = []
    for name, value in entries.items():
        text = ", ".join(value) if isinstance(value, list) else value
        if value:
            origin.append((name, text))
    return origin


def _of_result(result: RunResult) -> dict[str, object]:
    """What a page says to whoever may know the clusters."""
    model = result.model
    values: dict[str, object] = {
        "centres": _centres(model, _ON_PAGE, result.radius),
        "profile": _profile(model.federated_profile),
        "sureness": _sureness(result),
        "evaluation": result.evaluation,
        "spent": result.spent,
    }
    if result.profile is not None:
        described = set(result.profile["column"])
        values["own_profile"] = _own_profile(result.profile)
        values["describes_clustered_only"] = described <= _clustered_columns(model)
    return values


def registry_record(report: PrivacyReport, result: RunResult | None = None) -> bytes:
    """Draft an entry, as JSON, of the registry of private deployments."""
    finished = "" if report.provenance is None else report.provenance.finished
    date = (finished or utc_now())[:10]
    facts = _facts(report, result)
    return rendered(
        "record.j2",
        HTML,
        date=date,
        **facts,
    ).encode()


def _facts(report: PrivacyReport, result: RunResult | None) -> dict[str, object]:
    """Facts of a run that the page and the record both state."""
    return {
        "report": report,
        "origin": report.provenance,
        "model": None if result is None else result.model,
        "trust": TRUST_MODELS.get(report.trust),
        "mechanism": _mechanism(report),
    }


def _mechanism(report: PrivacyReport) -> str:
    """What was released, with which noise, and where that came from."""
    kinds = [line.noise for line in report.releases]
    counts = list[str]()
    for kind in dict.fromkeys(kinds):
        words = "exact" if kind == "none" else f"with {kind} noise"
        counts.append(f"{kinds.count(kind)} {words}")
    released = f"{len(kinds)} arrays of sums: {', '.join(counts)}"
    if set(kinds) <= {"none"}:
        return f"{released}."
    source = _SOURCES.get(report.noise, f"a {report.noise} generator")
    return f"{released}; noise from {source}."


def _centres(
    model: Model,
    most: int,
    radius: Radius = None,
) -> list[Table]:
    """Columns x clusters in units, with sizes, of at most so many.

    Shaded as the picture is: by the difference from the centres' mean of that column.
    """
    n_clusters, n_features = model.scaled.shape
    is_noisy = not model.privacy.is_exact
    columns = model.leading(most)
    clusters = range(min(n_clusters, most))
    cells = with_errors(model)
    unsure = unsure_columns(model, radius)
    rows = [_size_row(model, clusters)]
    if is_noisy:
        rows.append(_faint_row(model, clusters))
    unshaded = [[0] * n_clusters for _ in rows]
    for column in columns:
        values = [cells[column][cluster] for cluster in clusters]
        rows.append((_named(model, column, unsure), *values))
    gaps = _gaps(model, most)
    unshaded_gaps = [[0] * n_clusters for _ in gaps]
    shades = column_shades(model, radius)[columns, : len(clusters)]
    steps = np.rint(3.0 * shades).astype(int)
    steps[np.isin(columns, unsure)] = _GREYED
    cut = []
    if n_features > most:
        cut.append(f"{most} of {n_features} columns, which differ most")
    if n_clusters > most:
        cut.append(f"{most} of {n_clusters} clusters")
    return _side_by_side(
        _about_centres(model, cut),
        ["column", *(f"cluster {cluster}" for cluster in clusters)],
        rows + gaps,
        unshaded + steps.tolist() + unshaded_gaps,
    )


def _about_centres(model: Model, cut: Sequence[str]) -> str:
    """Caption of a table of centres, with what is `cut` from it."""
    is_noisy = not model.privacy.is_exact
    noise = ", with noise" if is_noisy else ""
    about = "; ".join(
        [f"Centres of the clusters in the units of the data{noise}", *cut]
    )
    if np.isfinite(model.cluster_centers_error).any():
        of_sizes = ", of sizes the deviation of their noise" if is_noisy else ""
        return f"{about}; ± is half of a 95% interval{of_sizes}"
    if is_noisy:
        return f"{about}; how far a centre may be off is not known"
    return about


def _size_row(model: Model, clusters: Iterable[int]) -> tuple[str, ...]:
    """Sizes of clusters, with the deviation of their noise."""
    deviation = counts_deviation(model.privacy)
    error = ""
    if deviation:
        of_sizes = deviation * model.privacy.weight_unit
        error = f" ± {number_text(round(of_sizes, 1))}"
    sizes = [f"{size_text(model.sizes[cluster])}{error}" for cluster in clusters]
    return (f"size in {counted(model.privacy)}", *sizes)


def _faint_row(model: Model, clusters: Iterable[int]) -> tuple[str, ...]:
    """Which clusters are mostly noise."""
    faint = faint_clusters(model.counts, model.privacy)
    verdicts = ["mostly noise" if cluster in faint else "yes" for cluster in clusters]
    return ("told from noise", *verdicts)


def _gaps(model: Model, most: int) -> list[tuple[str, ...]]:
    """Shares of each cluster's cells that are missing, where these are counted.

    Of at most so many columns and clusters.
    """
    texts: dict[str, list[str]] = {}
    counted_columns = model.gaps.columns
    for figure in model.federated_profile:
        if figure.figure != MISSING or figure.cluster == "all":
            continue
        if figure.column not in counted_columns:
            continue
        share = float(figure.estimate)
        text = share_text(share, figure.deviation, is_noise=figure.noise)
        texts.setdefault(figure.column, []).append(text)
    rows = [(f"{column}: missing", *cells[:most]) for column, cells in texts.items()]
    return rows[:most]


def _named(
    model: Model,
    column: int,
    unsure: Sequence[int],
) -> str:
    """Name a column, with a word where it tells no clusters apart."""
    name = model.shown_names[column]
    if column in unsure:
        return f"{name} (not told apart)"
    return name


def _side_by_side(
    about: str,
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    shades: Sequence[Sequence[int]] = (),
) -> list[Table]:
    """A table as several that a printed page has room for."""
    return [
        (
            about,
            [(row[0], *row[first : first + _SIDE_BY_SIDE]) for row in rows],
            (head[0], *head[first : first + _SIDE_BY_SIDE]),
            [row[first - 1 : first - 1 + _SIDE_BY_SIDE] for row in shades],
        )
        for first in range(1, len(head), _SIDE_BY_SIDE)
    ]


def _profile(figures: Sequence[Figure]) -> list[Table]:
    """What the run released of all parties' rows by cluster.

    Figures with the deviation of their noise.
    """
    lines: dict[tuple[str, str], list[str]] = {}
    clusters: dict[str, None] = {}
    for figure in figures:
        is_of_all = figure.cluster == "all"
        cluster = figure.cluster if is_of_all else f"cluster {figure.cluster}"
        clusters[cluster] = None
        name = f"{figure.figure} {figure.value}".strip()
        cells = lines.setdefault((figure.column, name), [])
        cells.append(_figure_text(figure))
    rows = [(f"{column}: {name}", *cells) for (column, name), cells in lines.items()]
    about = "All parties' rows by cluster: figure ± standard deviation of its noise"
    return _side_by_side(about, ["column", *clusters], rows[:_ON_PAGE])


def _figure_text(figure: Figure) -> str:
    """One figure with its noise; one that cannot be told from it is no number."""
    if figure.figure in (SHARE, MISSING) and not isinstance(figure.estimate, str):
        return share_text(figure.estimate, figure.deviation, is_noise=figure.noise)
    if figure.noise:
        return NOT_TOLD
    estimate = figure.estimate
    if not isinstance(estimate, str):
        estimate = number_text(estimate)
    return f"{estimate} ± {number_text(figure.deviation)}"


class _ProfileLine(Protocol):
    """A line of a local profile."""

    commonest: str
    mean: float
    std: float


def _own_profile(profile: pd.DataFrame) -> list[Table]:
    """The local profile: mean and spread of cells, or their commonest value."""
    cells: dict[str, list[str]] = {}
    for line in profile.itertuples():
        head = f"{line.cluster}: {line.rows:,} rows"
        cells.setdefault(head, []).append(_own_text(line))
    about = (
        "This party's own rows by cluster: mean ± standard deviation, or the commonest"
        " text with its share"
    )
    rows = list(zip(profile["column"], *cells.values(), strict=False))
    return _side_by_side(about, ["column", *cells], rows[:_ON_PAGE])


def _clustered_columns(model: Model) -> set[str]:
    """Names of the columns of a table that were clustered."""
    if model.schema is None:
        return set(model.feature_names)
    return {column.name for column in model.schema.clustered.columns}


def _own_text(line: _ProfileLine) -> str:
    """Mean and spread of a column's cells in one cluster, or their commonest value."""
    commonest = _FIRST.match(line.commonest)
    if commonest is not None:
        return commonest[0]
    if math.isnan(line.mean):
        return str(line.commonest)
    return f"{number_text(line.mean)} ± {number_text(line.std)}"


def _sureness(result: RunResult) -> list[Table]:
    """How far noise moves a centre, beside how far the next one is, and by column.

    Nothing if that is not known.
    """
    model = result.model
    noise = centre_noise(model, result.radius)
    if noise is None or model.privacy.is_exact:
        return []
    n_rows = min(len(noise), _ON_PAGE)
    in_units = noise_in_units(model, noise)[:n_rows]
    cells = [
        (model.names[column], *map(_noise_text, in_units[:, column].tolist()))
        for column in model.leading(_ON_PAGE)
    ]
    about = (
        "How far noise moves a centre's value, in the column's units (dates: days;"
        " shares: 0.01 is 1%)"
    )
    clusters = [f"cluster {cluster}" for cluster in range(n_rows)]
    by_column = _side_by_side(about, ["column", *clusters], cells)
    if n_rows == 1:
        # There is no other centre that it could be told from.
        return by_column
    return [_distances(model, noise), *by_column]


def _distances(model: Model, noise: Array) -> Table:
    """How far each centre is from the next one, and whether they are told apart."""
    faint = set(faint_clusters(model.counts, model.privacy))
    distances = distances_to_others(model.scaled)
    nearest = distances.argmin(axis=1).tolist()
    rows = []
    for cluster, other in enumerate(nearest[:_ON_PAGE]):
        distance = distances[cluster, other]
        least = APART * math.hypot(noise[cluster], noise[other])
        if cluster in faint or other in faint:
            verdict = "mostly noise"
        elif distance >= least:
            verdict = "told apart"
        else:
            verdict = "too close for the noise"
        rows.append(
            (
                f"cluster {cluster}",
                f"{noise[cluster]:.2g}",
                f"{distance:.2g}",
                f"cluster {other}",
                verdict,
            )
        )
    head = (
        "cluster",
        "noise moves the centre by about",
        "distance to the next centre",
        "which is",
        "so they are",
    )
    about = "In the fitted space, where each column's bounds are -1 and 1"
    return (about, rows, head, ())
