"""Pictures of ProxyLloyd's rounds for its page, on generated data.

`python -m simulations.papers.proxy pictures --help`.

Grey rows are the private data, which nobody sees in a run. The noise is seeded, so
these runs protect nobody.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.algorithms.proxy.entries import (
    AXES,
    CENTRE,
    PROXIES,
    PROXY_RADIUS,
    RADIUS,
    SPREAD,
)
from flwr_dpkmeans.algorithms.proxy.proxy_lloyd import build
from flwr_dpkmeans.algorithms.proxy.proxy_options import ProxyOptions
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.kernels.triangles import symmetric_from_triangle
from flwr_dpkmeans.kmeans.proxies.ellipsoid import Ellipsoid, ellipsoid_of
from flwr_dpkmeans.kmeans.proxies.weights import likely_weights
from simulations.commands import exit_code, write_files
from simulations.papers.proxy.ablation_runs import Played, play, public_of
from simulations.sources.mixture import draw_gaussian_mixture

Array = NDArray[np.float64]

DOCS = Path(__file__).resolve().parents[3] / "flwr_dpkmeans" / "docs"
FOLDER = DOCS / "explanation" / "figures"
START, PASSES = "proxy_start.png", "proxy_passes.png"
_ROW, _PROXY, _CENTROID, _BEST = "#A4ABB2", "#0072B2", "#D55E00", "#000000"
"""Blue and vermilion of Okabe and Ito's palette."""
_N_CLUSTERS = 15
_ROWS_SHOWN = 1200
_START_EPSILON, _PASSES_EPSILON = 0.2, 0.4
"""Small enough that the start is seen to be mended."""
_COLOURS = 96
_SEED = 4
_DPI = 100


@dataclass(frozen=True)
class Sizes:
    """How much is drawn from: rows of both tables, and clusters of the wide one."""

    rows: int = 5000
    wide_rows: int = 20_000
    wide_clusters: int = 10


_PAGES = Sizes()


def main(arguments: list[str] | None = None, sizes: Sizes = _PAGES) -> int:
    """Draw both pictures; 2 on a mistake of the caller."""
    parser = argparse.ArgumentParser(
        prog="python -m simulations.papers.proxy pictures", description=__doc__
    )
    parser.add_argument(
        "--start-epsilon", type=float, default=_START_EPSILON, help=f"of {START}"
    )
    parser.add_argument(
        "--passes-epsilon", type=float, default=_PASSES_EPSILON, help=f"of {PASSES}"
    )
    parser.add_argument("--seed", type=int, default=_SEED, help="of noise and start")
    parser.add_argument("--output", default=str(FOLDER), help="folder")
    options = parser.parse_args(arguments)

    def run() -> None:
        files = {
            START: draw_start(options.start_epsilon, options.seed, sizes),
            PASSES: draw_passes(options.passes_epsilon, options.seed, sizes),
        }
        write_files(Path(options.output), files)

    return exit_code(run)


def blobs(n_rows: int) -> Array:
    """Draw rows around 15 centres that keep their distance, in the square."""
    generator = np.random.default_rng(7)
    centres: list[Array] = []
    while len(centres) < _N_CLUSTERS:
        candidate = generator.uniform(-0.75, 0.75, 2)
        if all(np.linalg.norm(candidate - other) > 0.33 for other in centres):
            centres.append(candidate)
    labels = generator.integers(_N_CLUSTERS, size=n_rows)
    widths = generator.uniform(0.04, 0.075, (_N_CLUSTERS, 2))
    points = np.array(centres)[labels] + widths[labels] * generator.standard_normal(
        (n_rows, 2)
    )
    return round_to_grid(np.clip(points, -1.0, 1.0))


def wide_blobs(sizes: Sizes) -> tuple[Array, Array]:
    """Draw rows of Gaussians in 100 dimensions that can be told apart on two axes, and
    their means.
    """
    drawn = draw_gaussian_mixture(
        np.random.default_rng(214),
        n_clients=1,
        points_per_client=sizes.wide_rows,
        n_components=sizes.wide_clusters,
        variance=0.1,
    )
    bounds = Bounds((-1.0,), (2.0,))
    return round_to_grid(bounds.scale(drawn.clients[0])), bounds.scale(drawn.means)


def draw_start(epsilon: float, seed: int, sizes: Sizes = _PAGES) -> bytes:
    """Draw a run in two dimensions: ellipsoid and proxies, weights, clustered start,
    refinements.
    """
    points = blobs(sizes.rows)
    played = play(
        build(public_of(points, _N_CLUSTERS, "proxy_lloyd", epsilon)),
        points,
        seed,
    )
    place = [step.name for step in played].index("covariance")
    first = [step.name for step in played].index("refinement-1")
    covariance, proxies, refinements = played[place], played[first - 1], played[first:]
    panels: list[tuple[str, Callable[[Any], None]]] = [
        (
            "1  Box of the private covariance, and proxies",
            lambda axes: _ellipsoid_panel(axes, covariance, sizes.rows),
        ),
        (
            "2  Proxies weighed by likely counts",
            lambda axes: _weights_panel(axes, proxies, len(points)),
        ),
        (
            "3  Weighted k-means of the proxies, first radius",
            lambda axes: _start_panel(axes, refinements[0]),
        ),
        (
            "4  Refinements: steps and radii",
            lambda axes: _refinement_panel(axes, refinements, points),
        ),
    ]
    figure = _figure(8.0, 9.2)
    figure.subplots_adjust(
        left=0.05, right=0.98, top=0.93, bottom=0.08, wspace=0.08, hspace=0.26
    )
    shown = points[np.random.default_rng(0).permutation(len(points))[:_ROWS_SHOWN]]
    for shown_in, (title, draw) in zip(
        np.ravel(figure.subplots(2, 2, sharex=True, sharey=True)), panels, strict=True
    ):
        shown_in.plot(
            *shown.T, ".", color=_ROW, markersize=2.5, markeredgewidth=0.0, zorder=1
        )
        draw(shown_in)
        shown_in.set(
            xlim=(-1.03, 1.03),
            ylim=(-1.03, 1.03),
            aspect="equal",
            xticks=(-1, 0, 1),
            yticks=(-1, 0, 1),
        )
        shown_in.set_title(title, fontsize=10, loc="left")
        _legend(shown_in, -0.05)
    figure.suptitle(
        f"{len(points)} rows, k = {_N_CLUSTERS}, epsilon {epsilon:g} in all; grey:"
        " private rows",
        fontsize=10,
    )
    return _encoded(figure)


def draw_passes(epsilon: float, seed: int, sizes: Sizes = _PAGES) -> bytes:
    """Draw the three passes over proxies in the private eigenspace of a table of 100
    columns.
    """
    points, means = wide_blobs(sizes)
    public = public_of(points, sizes.wide_clusters, "proxy_lloyd", epsilon)
    played = play(build(public), points, seed)
    passes = [step for step in played if step.name.startswith("proxies")]
    extras = passes[0].before.extras
    shown, optimum, fitted = (
        (table - extras[CENTRE]) @ extras[AXES][:, :2]
        for table in (points[:_ROWS_SHOWN], means, played[-1].after.centroids)
    )
    reach = 1.05 * float(np.abs(shown).max())
    figure = _figure(10.4, 4.7)
    figure.subplots_adjust(left=0.07, right=0.98, top=0.86, bottom=0.22, wspace=0.06)
    for number, (axes, step) in enumerate(
        zip(figure.subplots(1, 3, sharey=True), passes, strict=True), start=1
    ):
        axes.plot(
            *shown.T, ".", color=_ROW, markersize=2.5, markeredgewidth=0.0, zorder=1
        )
        _weights_panel(axes, step, len(points))
        axes.plot(
            *optimum.T,
            "+",
            color=_BEST,
            markersize=9,
            markeredgewidth=1.4,
            label="cluster's mean",
            zorder=6,
        )
        if number == len(passes):
            axes.plot(
                *fitted.T,
                "x",
                color=_CENTROID,
                markersize=7,
                markeredgewidth=2.0,
                label="in the end",
                zorder=5,
            )
        radius = float(step.before.extras[PROXY_RADIUS].min())
        axes.set(
            xlim=(-reach, reach),
            ylim=(-reach, reach),
            aspect="equal",
            xlabel="first private axis",
        )
        axes.set_title(f"Pass {number}, radius {radius:.2f}", fontsize=10, loc="left")
        _legend(axes, -0.13)
        if number == 1:
            axes.set_ylabel("second private axis")
    n_components = extras[AXES].shape[1]
    figure.suptitle(
        f"{len(points)} rows of {points.shape[1]} columns, k = {sizes.wide_clusters},"
        f" epsilon {epsilon:g} in all; 2 of the {n_components} axes that proxies live"
        " on; grey: private rows",
        fontsize=10,
    )
    return _encoded(figure)


def _ellipsoid_panel(axes: Any, step: Played, n_rows: int) -> None:
    """Proxies of the first pass, and the parallelepiped that most of them were drawn
    in.
    """
    centre, ellipsoid = step.after.extras[CENTRE], _ellipsoid(step, n_rows)
    # A uniform variable on [-a, a] has the variance a^2 / 3.
    half = ellipsoid.axes * np.sqrt(3.0 * ellipsoid.variances)
    corners = centre + np.array([(-1, -1), (-1, 1), (1, 1), (1, -1), (-1, -1)]) @ half.T
    angles = np.linspace(0.0, 2.0 * np.pi, 200)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    ellipse = centre + circle @ (ellipsoid.axes * np.sqrt(ellipsoid.variances)).T
    axes.plot(
        *corners.T, "--", color=_BEST, linewidth=1.2, label="box it spans", zorder=2
    )
    axes.plot(
        *ellipse.T,
        "-",
        color=_BEST,
        linewidth=1.2,
        label="one standard deviation",
        zorder=2,
    )
    proxies = step.after.extras[PROXIES]
    axes.plot(
        *proxies.T,
        "o",
        color=_PROXY,
        markersize=4,
        label=f"{len(proxies)} proxies",
        zorder=3,
    )


def _ellipsoid(step: Played, n_rows: int) -> Ellipsoid:
    """The ellipsoid that followed from a released outer product."""
    before, (block,) = step.before.extras, step.blocks
    spread, d = float(before[SPREAD][0]), len(before[CENTRE])
    unit = (ProxyOptions().clip * spread) ** 2 / n_rows
    matrix = symmetric_from_triangle(step.released[block.name], d) * unit
    return ellipsoid_of(matrix, block.noise_scale * unit, spread**2 / d)


def _weights_panel(axes: Any, step: Played, n_rows: int) -> None:
    """Proxies of a pass by weight.

    Those that weigh less than the noise of a count are hollow.
    """
    noise = step.blocks[1].noise_scale
    weights = likely_weights(
        step.released["proxy_counts"], noise, n_rows, least=ProxyOptions().least_count
    )
    proxies = step.before.extras[PROXIES][:, :2]
    counted = weights > noise
    sizes = 90.0 * weights[counted] / weights.max()
    axes.scatter(
        *proxies[~counted].T,
        s=9,
        facecolors="none",
        edgecolors=_PROXY,
        linewidths=0.7,
        alpha=0.8,
        zorder=3,
        label=f"below the noise ({int((~counted).sum())})",
    )
    axes.scatter(
        *proxies[counted].T,
        s=sizes,
        color=_PROXY,
        alpha=0.75,
        linewidths=0.0,
        zorder=4,
        label=f"area: likely count ({int(counted.sum())})",
    )


def _start_panel(axes: Any, step: Played) -> None:
    """Clustered proxies, and the radius beyond which the first refinement clips
    residuals.
    """
    centroids, radii = step.before.centroids, _radii(step)
    _circles(axes, centroids, radii, 1.0, f"radius {radii.mean():.2f}")
    axes.plot(
        *centroids.T,
        "o",
        color=_CENTROID,
        markersize=6,
        markeredgecolor="white",
        label="start",
        zorder=5,
    )


def _refinement_panel(axes: Any, steps: Sequence[Played], points: Array) -> None:
    """Steps of the centroids, the radii of all refinements, and the optimum."""
    radii = [_radii(step) for step in steps]
    final = steps[-1].after.centroids
    for number, radius in enumerate(radii):
        label = (
            "radii " + ", ".join(f"{value.mean():.2f}" for value in radii)
            if number == 0
            else None
        )
        _circles(axes, final, radius, 0.35 + 0.65 * number / len(radii), label)
    paths = np.stack(
        [steps[0].before.centroids, *(step.after.centroids for step in steps)]
    )
    for path in np.moveaxis(paths, 1, 0):
        axes.plot(*path.T, "-", color=_PROXY, linewidth=1.6, zorder=5)
    axes.plot(
        *paths[0].T, "o", color=_PROXY, markersize=4, label="start, and steps", zorder=5
    )
    axes.plot(
        *final.T,
        "o",
        color=_CENTROID,
        markersize=5,
        markeredgecolor="white",
        markeredgewidth=0.5,
        label="in the end",
        zorder=6,
    )
    axes.plot(
        *_best(points).T,
        "+",
        color=_BEST,
        markersize=9,
        markeredgewidth=1.2,
        label="optimum",
        zorder=7,
    )


def _legend(axes: Any, place: float) -> None:
    """Below the panel, so that no data are hidden."""
    axes.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, place),
        ncols=2,
        fontsize=9,
        frameon=False,
        handletextpad=0.3,
        columnspacing=1.0,
        labelspacing=0.25,
    )


def _radii(step: Played) -> Array:
    """Of each centroid, also where there is one for all."""
    return np.resize(step.before.extras[RADIUS], len(step.before.centroids))


def _circles(
    axes: Any, centres: Array, radii: Array, alpha: float, label: str | None
) -> None:
    """A circle around each centre."""
    angles = np.linspace(0.0, 2.0 * np.pi, 60)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    for number, (centre, radius) in enumerate(zip(centres, radii, strict=True)):
        name = label if number == 0 else None
        axes.plot(
            *(centre + radius * circle).T,
            "-",
            color=_CENTROID,
            linewidth=0.8,
            alpha=alpha,
            zorder=3,
            label=name,
        )


def _best(points: Array) -> Array:
    """Centroids without noise."""
    from sklearn.cluster import KMeans

    centres: Array = (
        KMeans(_N_CLUSTERS, n_init=20, random_state=0).fit(points).cluster_centers_
    )
    return centres


def _figure(width: float, height: float) -> Any:
    """An empty figure, in inches.

    The object-oriented interface leaves matplotlib's global state alone.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(width, height), dpi=_DPI)
    FigureCanvasAgg(figure)
    return figure


def _encoded(figure: Any) -> bytes:
    """As a PNG image of few colours, a third of the size."""
    from PIL import Image

    figure.canvas.draw()
    image = (
        Image.fromarray(np.asarray(figure.canvas.buffer_rgba()))
        .convert("RGB")
        .quantize(_COLOURS)
    )
    buffer = io.BytesIO()
    image.save(buffer, format="png", optimize=True)
    return buffer.getvalue()
