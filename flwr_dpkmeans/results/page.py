"""What is told of a run: a summary for consoles and notebooks, a page for each party, and a record for the registry.

Each sentence is made once here; `flwr_dpkmeans.results.blocks` shows it as HTML, Markdown or text.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.privacy.report import PrivacyReport, counts_deviation, faint_clusters, utc_now
from flwr_dpkmeans.results.blocks import Block, Caution, Page, Picture, Table, number_text
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.trust import TRUST_MODELS

if TYPE_CHECKING:
    from flwr_dpkmeans.results.model import Model
    from flwr_dpkmeans.results.writer import RunResult

PICTURE_FILE = "summary.png"
_IN_CONSOLE, _ON_PAGE = 12, 200
"""Columns and clusters that a table has at most."""
_CLEAR = 3.0
"""Centres that are so many times their noise apart are told apart."""
_SUMS = ("residual_sums", "relative_sums", "clipped_sums", "sums", "means")
_LARGEST_EXPONENT = 700.0
_NO_LEDGER = (
    "What is left each party's own ledger says, which is not at hand here: python -m flwr_dpkmeans ledger show."
)
_SIDE_CHANNELS = (
    "Noise is drawn as integers, so no digit of a floating-point number tells of the data. Not covered: how long a "
    "draw or an answer takes, memory, the size and time of messages, and that a party takes part or fails."
)


def summary(model: Model, report: PrivacyReport, evaluation: object = None) -> list[Block]:
    """The clusters as a table, what an evaluation found, one line of privacy, and warnings."""
    measured = [] if evaluation is None else [str(evaluation)]
    return [cluster_table(model, _IN_CONSOLE), *measured, report.line, *map(Caution, report.warnings)]


def page_of(report: PrivacyReport, result: RunResult | None = None, picture: bytes = b"") -> Page:
    """All that one party may read of a run; `result` where it may know the clusters, with their `picture`."""
    origin = report.provenance
    found: list[tuple[str, list[Block]]] = [
        ("The clusters", ["This party does not see the clusters, or the run looked for something else."])
    ]
    if result is not None:
        found = [("The clusters", _clusters(result, picture)), ("How sure they are", _sureness(result))]
    return Page(
        f"Private {report.algorithm} run" + (f" {origin.run_id}, as {origin.party} may see it" if origin else ""),
        [
            ("What was asked", [report.line, Table("The run", _asked(report, result))]),
            *found,
            ("Who could learn what", [_meaning(report), _learners(report, result), report.guarantee]),
            ("Privacy card", [Table("In the order of NIST SP 800-226", _card(report))]),
            ("What was spent, and what is left", [_spent(report), (result and result.spent) or _NO_LEDGER]),
            ("Warnings", list(map(Caution, report.warnings)) or ["None."]),
            ("Where this comes from", [Table("Identification", _origin(report))]),
        ],
    )


def _asked(report: PrivacyReport, result: RunResult | None) -> list[tuple[str, str]]:
    facts = [("algorithm", report.algorithm)]
    if result is not None:
        k, d = result.model.scaled.shape
        chosen = "" if result.scaled_costs is None else ", which the run chose"
        facts += [("clusters", f"{k}{chosen}"), ("columns", f"{d}, {_scale(result.model)}")]
    known = "unknown" if report.n_examples is None else f"{report.n_examples:,}"
    return [
        *facts,
        ("epsilon", f"{report.epsilon_requested:.4g} for the whole run, at delta {report.delta:.3g}"),
        ("unit", f"one {report.unit}"),
        ("trust model", report.trust),
        ("parties", str(report.n_clients)),
        ("rows", f"{known} ({report.n_examples_source})"),
        ("sums over the parties", f"{report.n_attempts}, repeated ones included"),
    ]


def _scale(model: Model) -> str:
    """What the columns are measured in."""
    if model.schema is not None:
        return f"of a schema, scale {model.schema.scale.value!r}"
    lower, upper = model.bounds.lower, model.bounds.upper
    same = len(set(lower)) == len(set(upper)) == 1
    return f"each between {lower[0]:g} and {upper[0]:g}" if same else "each scaled by its own bounds"


# -- the clusters -----------------------------------------------------------------------------------------------------


def _clusters(result: RunResult, picture: bytes) -> list[Block]:
    """The centres, and what else is known of their rows."""
    blocks: list[Block] = [cluster_table(result.model, _ON_PAGE)]
    if picture:
        about = "The same centres as a picture, with their sizes, the cost of each release and the steps of each round."
        blocks.append(Picture(PICTURE_FILE, about, picture))
    if result.evaluation is not None:
        blocks.append(str(result.evaluation))
    # Here belongs a released profile of the clusters, which all parties may see.
    if result.profile is not None:
        blocks += ["For this party only: exact, so it must not be passed on.", _profile_table(result)]
    return blocks


def cluster_table(model: Model, most: int) -> Table:
    """Columns x clusters in units, with sizes, of at most so many; shaded by the difference from all centres' mean."""
    report, (k, d) = model.privacy, model.scaled.shape
    places, clusters = model.leading(most), range(min(k, most))
    deviation, faint = counts_deviation(report), faint_clusters(model.counts, report)
    error = f" ± {format(deviation, '.2g' if deviation < 10.0 else ',.0f')}" if deviation else ""
    cells = model.shown()
    rows = [
        (
            f"size ({'rows' if report.unit == 'record' else 'clients'})",
            *(f"{model.counts[j]:,.0f}{error}" for j in clusters),
        ),
        ("told from noise", *("mostly noise" if j in faint else "yes" for j in clusters)),
        *((model.names[place], *(cells[place][j] for j in clusters)) for place in places),
    ]
    shades = np.full((len(rows), len(clusters)), np.nan)
    differences = (model.scaled - model.scaled.mean(axis=0)).T[places][:, clusters]
    shades[2:] = differences / (np.abs(differences).max(initial=0.0) or 1.0)
    cut = [f"{most} of {d} columns, which differ most"] * (d > most) + [f"{most} of {k} clusters"] * (k > most)
    told = f" ({'; '.join(cut)})" if cut else ""
    caption = f"Centres of the clusters in the units of the data, with noise{told}"
    return Table(caption, rows, ("", *(f"cluster {j}" for j in clusters)), shades, splits=True)


def _profile_table(result: RunResult) -> Table:
    """The local profile: mean and spread of a cluster's cells, or their commonest value."""
    frame, rows = result.profile, dict[str, list[str]]()
    names = list(dict.fromkeys(frame["cluster"]))[: _ON_PAGE + 1]
    sizes = [f"{frame.loc[frame['cluster'] == name, 'rows'].iloc[0]:,}" for name in names]
    for one in frame[frame["cluster"].isin(names)].itertuples():
        told = one.commonest.partition("; ")[0] or (
            f"{number_text(one.mean)} ± {number_text(one.std)}" if one.count else ""
        )
        rows.setdefault(one.column, []).append(told)
    told_of = [(name, *cells) for name, cells in list(rows.items())[:_ON_PAGE]]
    heads = ("", *("all rows" if name == "all" else f"cluster {name}" for name in names))
    about = "This party's own rows by cluster: mean ± standard deviation, or the commonest text with its share"
    return Table(about, [("rows", *sizes), *told_of], heads, splits=True)


def _sureness(result: RunResult) -> list[Block]:
    """How far noise moves a centre, beside how far the next one is."""
    model, k = result.model, len(result.model.scaled)
    noise, faint = centre_noise(model, result.radius), faint_clusters(model.counts, model.privacy)
    if noise is None:
        return ["What was released does not tell how far noise moves a centre."]
    if k < 2:
        return [f"There is one cluster; noise moves its centre by about {noise[0]:.2g} in the fitted space."]
    apart = np.linalg.norm(model.scaled[:, None] - model.scaled, axis=2)
    np.fill_diagonal(apart, np.inf)
    rows = []
    for j, other in enumerate(apart.argmin(axis=1)[:_ON_PAGE].tolist()):
        clear = apart[j, other] >= _CLEAR * math.hypot(noise[j], noise[other])
        verdict = "mostly noise" if {j, other} & {*faint} else "told apart" if clear else "too close for the noise"
        rows.append((f"cluster {j}", f"{noise[j]:.2g}", f"{apart[j, other]:.2g}", f"cluster {other}", verdict))
    head = ("", "noise moves the centre by about", "distance to the next centre", "which is", "so they are")
    about = "Noise against distance, in the fitted space, where each column's bounds are -1 and 1"
    rule = f"To first order. Two centres are told apart where they are {_CLEAR:g} times their noise from each other."
    return [Table(about, rows, head), rule]


def centre_noise(model: Model, radius: float | None = None) -> NDArray[np.float64] | None:
    """Length of the noise in each centre, (k,), root mean square, in scaled units, of the last released sums.

    To first order in the noise over the count. `radius` is what residuals are divided by; None where it is unknown. A
    centre that is kept near its earlier place, as small ones are, has less.
    """
    report, d = model.privacy, model.scaled.shape[1]
    lines = [line for line in report.releases if line.array in _SUMS]
    counts = counts_deviation(report)
    if not lines or counts is None or (lines[-1].array == "residual_sums" and radius is None):
        return None
    unit = (radius or 0.0) if lines[-1].array == "residual_sums" else 1.0
    each = lines[-1].noise_scale * unit * (math.sqrt(2.0) if lines[-1].noise == "laplace" else 1.0)
    # A sum that is not relative to its centre moves with the noise of its count, too.
    beside = counts * np.linalg.norm(model.scaled, axis=1) if lines[-1].array == "sums" else 0.0
    # A centre cannot be farther off than the box is wide.
    length: NDArray[np.float64] = np.hypot(each * math.sqrt(d), beside) / np.maximum(model.counts, 1.0)
    return np.minimum(length, 2.0 * math.sqrt(d))


# -- privacy ----------------------------------------------------------------------------------------------------------


def _meaning(report: PrivacyReport) -> str:
    """Epsilon in plain words."""
    if not report.is_private:
        return "This run protects nobody; the warnings say why."
    factor = math.exp(min(report.epsilon, _LARGEST_EXPONENT))
    return (
        f"Whoever sees what was released can change their odds that any one {report.unit} was among the data by a "
        f"factor of at most {factor:.3g} (e to the epsilon), but for a probability of about {report.delta:.2g}."
    )


def _learners(report: PrivacyReport, result: RunResult | None) -> Table:
    """Who sees what, as the trust model says of itself."""
    model, given = TRUST_MODELS.get(report.trust), "centres and sizes with noise, and this run's public facts"
    own = [("this party's own machine", "all of its rows, and the exact profile above")]
    rows = own if result is not None and result.profile is not None else []
    if model is not None and model.alone:
        rows = [("whoever holds the rows", "all of them"), *rows]
    elif model is not None:
        server = "sums over all parties that it cannot read, and the noise that it adds; not the result"
        if model.server_reads:
            server = f"{'sums with noise' if model.shared_noise else 'exact sums'} over all parties, and the result"
        else:
            given += "; not to be shown to whoever runs the server, who knows the noise"
        server = f"the plan, who takes part and when; {server}; no party's own rows or sums"
        others = "sums with noise over all parties, and the result; no other party's own rows or sums"
        rows = [("the server", server), ("the other parties", others), *rows]
    return Table("Who sees what", [*rows, ("whoever is given the result", given)])


def _card(report: PrivacyReport) -> list[tuple[str, str]]:
    """Unit, epsilon, mechanism, trust model, assumptions, side channels."""
    return [
        ("unit of privacy", f"one {report.unit}: {report.neighbours}"),
        (
            "epsilon and delta",
            f"{report.epsilon:.4g} at {report.delta:.3g}; worst case {report.epsilon_worst_case:.4g}",
        ),
        ("mechanism", mechanism(report)),
        ("trust model", f"{report.trust}: {report.guarantee}"),
        *((f"assumption {place}", sentence) for place, sentence in enumerate(report.assumptions, start=1)),
        ("side channels", _SIDE_CHANNELS),
    ]


def mechanism(report: PrivacyReport) -> str:
    """Which noise is in how many releases."""
    kinds = [line.noise for line in report.releases]
    told = [f"{kinds.count(kind)} with {kind} noise" for kind in dict.fromkeys(kinds) if kind != "none"]
    told += [f"{kinds.count('none')} WITHOUT noise"] if "none" in kinds else []
    source = "OpenDP's discrete samplers" if report.noise == "secure" else f"a {report.noise} generator"
    return f"{len(kinds)} arrays of sums were released: {', '.join(told)}; noise from {source}."


def _spent(report: PrivacyReport) -> Table:
    """The cost after each round."""
    rounds = {(line.round_index, line.attempt): line for line in report.releases}
    rows = [
        (
            f"{index}{' (before the first)' if Plan.discovers(index) else ''}",
            line.round_name,
            f"{line.epsilon_so_far:.4g}",
        )
        for (index, _), line in rounds.items()
    ]
    return Table(
        "Epsilon of the run so far, after each round", rows or [("none", "", "0")], ("round", "what", "epsilon so far")
    )


def _origin(report: PrivacyReport) -> list[tuple[str, str]]:
    if report.provenance is None:
        return [("run", "not told")]
    plain = report.provenance.to_dict() | {"digest of all this": report.provenance.digest}
    told = {name: ", ".join(value) if isinstance(value, list) else value for name, value in plain.items()}
    return [(name.replace("_", " "), value) for name, value in told.items() if value]


def registry_record(report: PrivacyReport) -> bytes:
    """A draft for the public registry of deployments of differential privacy, with empty places for its author.

    Field names and values are those of ``schemas/deployments-schema.yaml`` in ``opendp/deployments-registry-data`` on
    GitHub, as it was in July 2026 (commit 3e9c812); JSON is YAML.
    """
    model, origin = TRUST_MODELS.get(report.trust), report.provenance
    run = origin.run_id if origin else "unknown"
    return (json.dumps(_record(report, run, alone=model is not None and model.alone), indent=1) + "\n").encode()


def _record(report: PrivacyReport, run: str, *, alone: bool) -> dict[str, Any]:
    finished = (report.provenance.finished if report.provenance else "") or utc_now()
    deployment = {
        "basic": {
            "name": "",
            "data_curators": [""],
            "intended_use": "",
            "data_product_type": "Machine learning model",
            "data_product_region": "",
            "description": f"Centres and sizes of clusters, by {report.algorithm} over {report.n_clients} parties.",
            "publication_date": finished[:10],
        },
        "dp_variant": {
            "variant_name": "Approximate DP" if report.delta > 0 else "Pure DP",
            "unprotected_quantities": f"The plan, {report.n_clients} parties; N: {report.n_examples_source}.",
        },
        "privacy_loss": {
            "privacy_unit": report.unit,
            "privacy_unit_details": report.neighbours,
            "privacy_parameters": {"epsilon": report.epsilon, "delta": report.delta},
            "privacy_parameters_details": f"With all retries epsilon is at most {report.epsilon_worst_case:.4g}.",
        },
        "deployment_model": {
            "model_name": "Central" if alone else "Federated",
            "model_name_details": f"{report.trust}: {report.guarantee}",
            "release_type": "One release",
            "data_source_type": "Static",
            "access_type": "Non-interactive",
        },
        "accounting": {"composition": "All releases of the run together, by dp-accounting."},
        "implementation": {"mechanisms": mechanism(report)},
        "administrative": {"notes": " ".join(report.assumptions), "registry_authors": [""]},
    }
    return {"url_slug": f"flwr-dpkmeans-{run}", "status": "Draft", "tier": 2, "deployment": deployment}
