"""What is told of a run: a summary for consoles and notebooks, a page for each party, and a record for the registry.

The words are in ``page.toml``; `flwr_dpkmeans.results.blocks` shows them.
"""

from __future__ import annotations

import json
import math
import tomllib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.privacy.report import PrivacyReport, counts_deviation, faint_clusters, utc_now
from flwr_dpkmeans.results.blocks import CAUTION, Block, Picture, Section, Table, number_text
from flwr_dpkmeans.sums.trust import TRUST_MODELS

if TYPE_CHECKING:
    from flwr_dpkmeans.results.model import Model
    from flwr_dpkmeans.results.writer import RunResult

PICTURE_FILE = "summary.png"
_IN_CONSOLE, _ON_PAGE = 8, 200
"""Columns and clusters that a table has at most."""
_SIDE_BY_SIDE = 10
"""Clusters that a printed page has room for."""
_CLEAR = 3.0
"""Centres that are so many times their noise apart are told apart."""
_SUMS = ("residual_sums", "relative_sums", "clipped_sums", "sums", "means")
_LARGEST_EXPONENT = 700.0


def summary(model: Model, report: PrivacyReport, evaluation: object = None) -> list[Block]:
    """The clusters as a table, what an evaluation found, one line of privacy, and warnings."""
    measured = [] if evaluation is None else [str(evaluation)]
    cautions = [CAUTION + sentence for sentence in report.warnings]
    return [*_centres(model, _IN_CONSOLE), *measured, report.line, *cautions]


def title_of(report: PrivacyReport) -> str:
    """Of a party's page."""
    origin = report.provenance
    return f"Private run of {report.algorithm}" + (f": run {origin.run_id}, for {origin.party}" if origin else "")


def page_of(report: PrivacyReport, result: RunResult | None = None, picture: bytes = b"") -> list[Section]:
    """All that one party may read of a run; `result` where it may know the clusters, with their `picture`."""
    words, values = _words(), _values(report, result)
    said = {name: text.format(**values) for name, text in words.items() if isinstance(text, str)}
    clusters: list[Section] = [("The clusters", [said["clusters"]])]
    if result is not None:
        shown = Picture(PICTURE_FILE, said["picture"], picture)
        clusters = [
            # A released profile of the clusters, which all parties may see, belongs before the party's own.
            (
                "The clusters",
                [*_centres(result.model, _ON_PAGE), shown, *_measured(result), *_own_profile(result, said)],
            ),
            ("How sure they are", _sureness(result, said)),
        ]
    sees = _facts("Who sees what", _shape_of_trust(report), values) if _shape_of_trust(report) else said["own"]
    origin = {} if report.provenance is None else report.provenance.to_dict() | {"digest": report.provenance.digest}
    known = [(name, ", ".join(it) if isinstance(it, list) else it) for name, it in origin.items() if it]
    return [
        ("What was asked", [report.line, _facts("The run", words["asked"], values)]),
        *clusters,
        ("Who could learn what", [said["meaning" if report.is_private else "nobody"], sees, report.guarantee]),
        ("Privacy card", [_facts("In the order of NIST SP 800-226", words["card"], values)]),
        ("What was spent, and what is left", [said["spent"], (result and result.spent) or said["no-ledger"]]),
        ("Warnings", [CAUTION + sentence for sentence in report.warnings] or ["None."]),
        ("Where this comes from", [Table("Identification", known or [("run", "unknown")])]),
    ]


def registry_record(report: PrivacyReport, result: RunResult | None = None) -> bytes:
    """A draft, as JSON, for the public registry of deployments of differential privacy."""
    record = _filled(_words()["record"], _values(report, result))
    loss = {"epsilon": report.epsilon, "delta": report.delta}
    record["deployment"]["privacy_loss"]["privacy_parameters"] = loss
    return (json.dumps(record | {"tier": 2}, indent=1) + "\n").encode()


@lru_cache(maxsize=1)
def _words() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("page.toml").read_text(encoding="utf-8"))


def _filled(words: Any, values: dict[str, Any]) -> Any:
    """Words with their values, in whatever they are nested."""
    if isinstance(words, dict):
        return {name: _filled(one, values) for name, one in words.items()}
    return [_filled(one, values) for one in words] if isinstance(words, list) else words.format(**values)


def _facts(caption: str, words: dict[str, str], values: dict[str, Any]) -> Table:
    return Table(caption, [(name, text) for name, text in _filled(words, values).items() if text])


def _values(report: PrivacyReport, result: RunResult | None) -> dict[str, Any]:
    """What braces in the words may name."""
    origin, known = report.provenance, "unknown" if report.n_examples is None else f"{report.n_examples:,}"
    kinds = [line.noise for line in report.releases]
    noises = ", ".join(f"{kinds.count(kind)} with {kind} noise" for kind in dict.fromkeys(kinds))
    source = "OpenDP's discrete samplers" if report.noise == "secure" else f"a {report.noise} generator"
    alone = _shape_of_trust(report) is _words()["sees"]["alone"]
    return {
        "report": report,
        "sees": _words()["sees"],
        "factor": math.exp(min(report.epsilon, _LARGEST_EXPONENT)),
        "n": f"{known} ({report.n_examples_source})",
        "k": "" if result is None else str(len(result.model.scaled)),
        "columns": "" if result is None else _scale(result.model),
        "mechanism": f"{len(kinds)} arrays of sums: {noises}; noise from {source}.",
        "assumptions": " ".join(report.assumptions),
        "run": origin.run_id if origin else "unknown",
        "date": ((origin and origin.finished) or utc_now())[:10],
        "product": "Summary statistics" if result is None else "Machine learning model",
        "model_name": "Central" if alone else "Federated",
    }


def _scale(model: Model) -> str:
    """How many columns there are, and what they are measured in."""
    d, (lower, upper) = model.scaled.shape[1], (model.bounds.lower, model.bounds.upper)
    if model.schema is not None:
        return f"{d}, of a schema, scale {model.schema.scale.value!r}"
    same = len(set(lower)) == len(set(upper)) == 1
    return f"{d}, each between {lower[0]:g} and {upper[0]:g}" if same else f"{d}, each with its own bounds"


def _shape_of_trust(report: PrivacyReport) -> dict[str, str]:
    """Who sees what, as the trust model says of itself; empty where it is not known here."""
    model = TRUST_MODELS.get(report.trust)
    if model is None:
        return {}
    shape = "shared" if model.shared_noise else "exact" if model.server_reads else "blinded"
    return _words()["sees"]["alone" if model.alone else shape]  # type: ignore[no-any-return]


def _centres(model: Model, most: int) -> list[Block]:
    """Columns x clusters in units, with sizes, of at most so many; shaded by the difference from all centres' mean."""
    report, (k, d) = model.privacy, model.scaled.shape
    places, cells, deviation = model.leading(most), model.shown(), counts_deviation(report)
    error = f" ± {number_text(round(deviation, 1))}" if deviation else ""
    faint = faint_clusters(model.counts, report)
    differences = (model.scaled - model.scaled.mean(axis=0)).T[places]
    differences /= np.abs(differences).max(initial=0.0) or 1.0
    cut = [f"{most} of {d} columns, which differ most"] * (d > most) + [f"{most} of {k} clusters"] * (k > most)
    about = "; ".join(["Centres of the clusters in the units of the data, with noise", *cut])
    tables: list[Block] = []
    for first in range(0, min(k, most), _SIDE_BY_SIDE):
        own = range(first, min(k, most, first + _SIDE_BY_SIDE))
        size = "rows" if report.unit == "record" else "clients"
        rows = [
            (f"size ({size})", *(f"{model.counts[j]:,.0f}{error}" for j in own)),
            ("told from noise", *("mostly noise" if j in faint else "yes" for j in own)),
            *((model.names[place], *(cells[place][j] for j in own)) for place in places),
        ]
        shades = np.vstack([np.full((2, len(own)), np.nan), differences[:, own]])
        tables.append(Table(about, rows, ("column", *(f"cluster {j}" for j in own)), shades))
    return tables


def _measured(result: RunResult) -> list[Block]:
    return [] if result.evaluation is None else [str(result.evaluation)]


def _own_profile(result: RunResult, said: dict[str, str]) -> list[Block]:
    """The local profile: mean and spread of a cluster's cells, or their commonest value."""
    if result.profile is None:
        return []
    rows: dict[str, list[str]] = {}
    for one in result.profile.itertuples():
        told = f"{number_text(one.mean)} ± {number_text(one.std)}" if one.count else ""
        rows.setdefault(f"{one.cluster}: {one.rows:,} rows", []).append(one.commonest.partition("; ")[0] or told)
    names = dict.fromkeys(result.profile["column"])
    cells = zip(names, *list(rows.values())[: _ON_PAGE + 1], strict=False)
    about = "This party's own rows by cluster: mean ± standard deviation, or the commonest text with its share"
    return [said["own"], Table(about, list(cells), ("column", *list(rows)[: _ON_PAGE + 1]))]


def _sureness(result: RunResult, said: dict[str, str]) -> list[Block]:
    """How far noise moves a centre, beside how far the next one is."""
    model = result.model
    noise, faint = centre_noise(model, result.radius), set(faint_clusters(model.counts, model.privacy))
    if noise is None:
        return [said["unsure"]]
    apart = np.linalg.norm(model.scaled[:, None] - model.scaled, axis=2)
    np.fill_diagonal(apart, np.inf)
    rows = []
    for j, other in enumerate(apart.argmin(axis=1)[:_ON_PAGE].tolist()):
        clear = apart[j, other] >= _CLEAR * math.hypot(noise[j], noise[other])
        verdict = "mostly noise" if {j, other} & faint else "told apart" if clear else "too close for the noise"
        rows.append((f"cluster {j}", f"{noise[j]:.2g}", f"{apart[j, other]:.2g}", f"cluster {other}", verdict))
    head = ("cluster", "noise moves the centre by about", "distance to the next centre", "which is", "so they are")
    return [Table("In the fitted space, where each column's bounds are -1 and 1", rows, head), said["sure"]]


def centre_noise(model: Model, radius: float | None = None) -> NDArray[np.float64] | None:
    """Length of the noise in each centre, (k,), root mean square, in scaled units, of the last released sums.

    To first order in the noise over the count; `radius` is what residuals were divided by. None where it is not known.
    """
    report, d = model.privacy, model.scaled.shape[1]
    lines, counts = [line for line in report.releases if line.array in _SUMS], counts_deviation(report)
    if not lines or counts is None or (lines[-1].array == "residual_sums" and radius is None):
        return None
    each = lines[-1].noise_scale * (math.sqrt(2.0) if lines[-1].noise == "laplace" else 1.0)
    each *= radius if radius is not None and lines[-1].array == "residual_sums" else 1.0
    # A sum that is not relative to its centre moves with the noise of its count, too.
    beside = counts * np.linalg.norm(model.scaled, axis=1) if lines[-1].array == "sums" else 0.0
    length: NDArray[np.float64] = np.hypot(each * math.sqrt(d), beside) / np.maximum(model.counts, 1.0)
    # No centre is farther off than the box is wide.
    return np.minimum(length, 2.0 * math.sqrt(d))
