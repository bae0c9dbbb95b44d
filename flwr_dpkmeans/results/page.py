"""What is told of a run: a summary for consoles and notebooks, a page for each party,
and a record for the registry.

Here are the numbers; the words are in ``templates.toml``, each once, for all forms,
which have the same macros. Whatever a name or a cell holds stays text.
"""

from __future__ import annotations

import base64
import math
import re
import tomllib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from flwr_dpkmeans.algorithms.cluster_profile import MISSING, SHARE
from flwr_dpkmeans.log import printable
from flwr_dpkmeans.privacy.report import (
    PrivacyReport,
    counted,
    counts_deviation,
    faint_clusters,
    utc_now,
)
from flwr_dpkmeans.privacy.shown import NOT_TOLD, share_text, size_text
from flwr_dpkmeans.results.headline import headline
from flwr_dpkmeans.results.sureness import (
    APART,
    Radius,
    column_shades,
    unsure_columns,
    with_errors,
)
from flwr_dpkmeans.sums.trust import TRUST_MODELS

if TYPE_CHECKING:
    from flwr_dpkmeans.algorithms.cluster_profile import Figure
    from flwr_dpkmeans.results.model import Model
    from flwr_dpkmeans.results.writer import RunResult

HTML, MARKDOWN, CONSOLE = "html", "markdown", "console"
"""Forms; a console gets Markdown in which nothing is escaped."""
_IN_CONSOLE, _ON_PAGE = 10, 200  # columns and clusters that a table has at most
_SIDE_BY_SIDE = 10  # columns of numbers that a printed page has room for
_LONGEST = 10_000
_GREYED = 4  # how cells of a column are shaded that tells no clusters apart
_LARGEST_EXPONENT = 700.0
_FIRST = re.compile(
    r".*?\(\d+\.\d%\)(?=; |$)", re.DOTALL
)  # of the commonest texts, which may hold any character

Table = tuple[str, Sequence[Sequence[str]], Sequence[str], Sequence[Sequence[int]]]
"""Caption; rows, whose first cells are their heads; heads of columns; of numbers how the other cells are shaded, from
-3 to 3, which repeats what they say.
"""


@lru_cache(maxsize=3)
def _environment(form: str) -> Any:
    from jinja2 import DictLoader, Environment, StrictUndefined

    def finished(value: object) -> object:
        """A value without control characters, and without what the form would take for
        more than text.
        """
        text = value if isinstance(value, Markup) else printable(value, _LONGEST)
        if form == HTML or isinstance(value, Markup):
            return text
        return Markup(
            re.sub(r"([\\`*_{}\[\]<>#|~&!])", r"\\\1", text)
            if form == MARKDOWN
            else text
        )

    templates = tomllib.loads(
        Path(__file__).with_name("templates.toml").read_text(encoding="utf-8")
    )
    found = Environment(
        loader=DictLoader(templates),
        autoescape=True,
        finalize=finished,
        undefined=StrictUndefined,
    )
    found.trim_blocks = found.lstrip_blocks = True
    found.globals["turned"] = lambda rows: list(map(list, zip(*rows, strict=True)))
    # Widths of columns whose cells stand below each other.
    found.globals["columns"] = lambda rows: [
        max(map(len, cells)) for cells in zip(*rows, strict=True)
    ]
    return found


def rendered(template: str, form: str, **values: Any) -> str:
    """A template in one of the forms; lines that its tags leave empty are not in it."""
    found = _environment(form)
    macros = found.get_template("html.j2" if form == HTML else "markdown.j2")
    text = found.get_template(template).render(values | {"format": macros})
    return re.sub(r"\n{3,}", "\n\n", str(text)).strip("\n") + "\n"


def number_text(value: float, digits: int = 3) -> str:
    """So many digits, or all before the point."""
    return (
        f"{value:,.{max(0, digits - len(f'{abs(value):.0f}'))}f}"
        if abs(value) >= 999.5
        else f"{value:.{digits}g}"
    )


def _noise_text(value: float) -> str:
    """The noise in a value, which is no number where the value is missing."""
    return "missing" if math.isnan(value) else number_text(value)


def number_texts(values: Sequence[float]) -> list[str]:
    """The same of several, with up to six digits where fewer show different ones as
    equal.
    """
    told = [[number_text(value, digits) for value in values] for digits in range(3, 7)]
    return max(told, key=lambda texts: len(set(texts)))  # the first of those


def summary(
    model: Model, report: PrivacyReport, form: str, evaluation: object = None
) -> str:
    """The clusters as a table, what an evaluation found, one line of privacy, and
    warnings.
    """
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
    origin = (
        {}
        if report.provenance is None
        else report.provenance.to_dict() | {"digest": report.provenance.digest}
    )
    values = {
        "headline": headline(report, result),
        "factor": math.exp(min(report.epsilon, _LARGEST_EXPONENT)),
        "known": [
            (name, ", ".join(it) if isinstance(it, list) else it)
            for name, it in origin.items()
            if it
        ],
        "picture": Markup(base64.b64encode(picture).decode()),
        "centres": (
            [] if result is None else _centres(result.model, _ON_PAGE, result.radius)
        ),
        "profile": [] if result is None else _profile(result.model.federated_profile),
        "own_profile": (
            []
            if result is None or result.profile is None
            else _own_profile(result.profile)
        ),
        "describes_clustered_only": (
            result is not None
            and result.profile is not None
            and set(result.profile["column"]) <= _clustered_columns(result.model)
        ),
        "sureness": [] if result is None else _sureness(result),
        "evaluation": result and result.evaluation,
        "spent": result and result.spent,
    }
    return rendered("page.j2", form, **values, **_told(report, result)).encode()


def registry_record(report: PrivacyReport, result: RunResult | None = None) -> bytes:
    """A draft, as JSON, for the public registry of deployments of differential privacy."""
    date = ((report.provenance and report.provenance.finished) or utc_now())[:10]
    return rendered("record.j2", HTML, date=date, **_told(report, result)).encode()


def _told(report: PrivacyReport, result: RunResult | None) -> dict[str, Any]:
    kinds = [line.noise for line in report.releases]
    noise = ", ".join(
        f"{kinds.count(k)} {'exact' if k == 'none' else f'with {k} noise'}"
        for k in dict.fromkeys(kinds)
    )
    own = {
        "secure": "exact discrete samplers, Laplace by OpenDP",
        "opendp": "OpenDP's discrete samplers",
    }
    source = own.get(report.noise, f"a {report.noise} generator")
    mechanism = f"{len(kinds)} arrays of sums: {noise}" + (
        f"; noise from {source}." if {*kinds} - {"none"} else "."
    )
    model, trust = result and result.model, TRUST_MODELS.get(report.trust)
    return {
        "report": report,
        "origin": report.provenance,
        "model": model,
        "trust": trust,
        "mechanism": mechanism,
    }


def _centres(model: Model, most: int, radius: Radius = None) -> list[Table]:
    """Columns x clusters in units, with sizes, of at most so many.

    Shaded as the picture is: by the difference from the centres' mean of that column.
    """
    (k, d), deviation = model.scaled.shape, counts_deviation(model.privacy)
    places, own, cells = model.leading(most), range(min(k, most)), with_errors(model)
    unsure = unsure_columns(model, radius)
    faint, noisy = (
        faint_clusters(model.counts, model.privacy),
        not model.privacy.is_exact,
    )
    error = f" ± {number_text(round(deviation, 1))}" if deviation else ""
    shades_of_cells = column_shades(model, radius)[places, : len(own)]
    steps = np.rint(3.0 * shades_of_cells).astype(int)
    steps[np.isin(places, unsure)] = _GREYED
    cut = [f"{most} of {d} columns, which differ most"] * (d > most) + [
        f"{most} of {k} clusters"
    ] * (k > most)
    about = "Centres of the clusters in the units of the data" + "; ".join(
        [", with noise" * noisy, *cut]
    )
    if np.isfinite(model.cluster_centers_error).any():
        about += (
            "; ± is half of a 95% interval"
            + ", of sizes the deviation of their noise" * noisy
        )
    elif noisy:
        about += "; how far a centre may be off is not known"
    rows = [
        (
            f"size in {counted(model.privacy)}",
            *(f"{size_text(model.counts[j])}{error}" for j in own),
        ),
        *[("told from noise", *("mostly noise" if j in faint else "yes" for j in own))]
        * noisy,
        *(
            (_named(model, place, unsure), *(cells[place][j] for j in own))
            for place in places
        ),
    ]
    shades = [[0] * k] * (1 + noisy) + steps.tolist()
    gaps = _gaps(model, most)
    rows += gaps
    shades += [[0] * k] * len(gaps)
    return _side_by_side(
        about, ["column", *(f"cluster {j}" for j in own)], rows, shades
    )


def _gaps(model: Model, most: int) -> list[tuple[str, ...]]:
    """For at most so many clustered columns, which share of each cluster's cells is
    missing, where it is counted.
    """
    shares: dict[str, list[str]] = {}
    by_cluster = [
        figure for figure in model.federated_profile if figure.cluster != "all"
    ]
    for figure in by_cluster:
        if figure.figure == MISSING and figure.column in model.gaps.columns:
            text = share_text(
                float(figure.estimate), figure.deviation, is_noise=figure.noise
            )
            shares.setdefault(figure.column, []).append(text)
    return [
        (f"{column}: missing", *texts[:most])
        for column, texts in list(shares.items())[:most]
    ]


def _named(model: Model, column: int, unsure: Sequence[int]) -> str:
    """Name a column, with a word where it tells no clusters apart."""
    return model.shown_names[column] + (" (not told apart)" if column in unsure else "")


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
    clusters = dict.fromkeys(
        one.cluster if one.cluster == "all" else f"cluster {one.cluster}"
        for one in figures
    )
    for one in figures:
        lines.setdefault((one.column, f"{one.figure} {one.value}".strip()), []).append(
            _figure_text(one)
        )
    rows = [
        (f"{column}: {figure}", *cells) for (column, figure), cells in lines.items()
    ]
    about = "All parties' rows by cluster: figure ± standard deviation of its noise"
    return _side_by_side(about, ["column", *clusters], rows[:_ON_PAGE])


def _figure_text(figure: Figure) -> str:
    """One figure with its noise; one that cannot be told from it is no number."""
    if figure.figure in (SHARE, MISSING) and not isinstance(figure.estimate, str):
        return share_text(figure.estimate, figure.deviation, is_noise=figure.noise)
    if figure.noise:
        return NOT_TOLD
    estimate = (
        figure.estimate
        if isinstance(figure.estimate, str)
        else number_text(figure.estimate)
    )
    return f"{estimate} ± {number_text(figure.deviation)}"


def _own_profile(profile: Any) -> list[Table]:
    """The local profile: mean and spread of a cluster's cells, or their commonest
    value.
    """
    cells: dict[str, list[str]] = {}
    for one in profile.itertuples():
        cells.setdefault(f"{one.cluster}: {one.rows:,} rows", []).append(_own_text(one))
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


def _own_text(line: Any) -> str:
    """One column's cells in one cluster: their mean and spread, else the commonest
    value, or what is said of all.
    """
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
    noise, faint = (
        model.centre_noise(result.radius),
        set(faint_clusters(model.counts, model.privacy)),
    )
    if noise is None or model.privacy.is_exact:
        return []
    apart, rows = np.linalg.norm(model.scaled[:, None] - model.scaled, axis=2), []
    np.fill_diagonal(apart, np.inf)
    for j, other in enumerate(apart.argmin(axis=1)[:_ON_PAGE].tolist()):
        clear = apart[j, other] >= APART * math.hypot(noise[j], noise[other])
        verdict = (
            "mostly noise"
            if {j, other} & faint
            else "told apart"
            if clear
            else "too close for the noise"
        )
        rows.append(
            (
                f"cluster {j}",
                f"{noise[j]:.2g}",
                f"{apart[j, other]:.2g}",
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
    places, halves = (
        model.leading(_ON_PAGE),
        (np.array(model.bounds.upper) - np.array(model.bounds.lower)) / 2.0,
    )
    each = model.gaps.noise(
        model.centroids, np.outer(noise / math.sqrt(len(halves)), halves)
    )[: len(rows)]
    cells = [
        (model.names[place], *map(_noise_text, each[:, place].tolist()))
        for place in places
    ]
    about = (
        "How far noise moves a centre's value, in the column's units (dates: days;"
        " shares: 0.01 is 1%)"
    )
    by_column = _side_by_side(about, ["column", *(row[0] for row in rows)], cells)
    if len(rows) == 1:
        # There is no other centre that it could be told from.
        return by_column
    return [
        (
            "In the fitted space, where each column's bounds are -1 and 1",
            rows,
            head,
            (),
        ),
        *by_column,
    ]
