"""FastLloyd: its statistic and its state, on a grid of 2^-16."""

from __future__ import annotations

import hashlib
import json
import math
from types import SimpleNamespace

import numpy as np

GRID = 2.0**16
Arrays = dict[str, np.ndarray]


def to_grid(values: np.ndarray) -> np.ndarray:
    return np.rint(values * GRID) / GRID


def as_words(values: np.ndarray) -> np.ndarray:
    """Multiples of a grid step."""
    return np.rint(values * GRID).astype("<i8")


def state_digest(arrays: Arrays) -> bytes:
    names, sizes = sorted(arrays), []
    for name in names:
        sizes += [arrays[name].ndim, *arrays[name].shape]
    content = json.dumps([names, sizes]).encode() + b"\n"
    content += b"".join(as_words(arrays[name]).tobytes() for name in names)
    return hashlib.sha256(content).digest()


def start(plan: SimpleNamespace) -> Arrays:
    """The first centroids, and counts of zero."""
    shape = (plan.n_clusters, plan.n_features)
    generator = np.random.default_rng(plan.seed)
    radius = 1.0
    while (centroids := pack_spheres(generator, radius, shape)) is None:
        radius = radius / 2 if radius > 2**-17 else 0.0
    width = radius
    for _ in range(6 if 0 < radius < 1 else 0):
        width /= 2
        trial = pack_spheres(generator, radius + width, shape)
        if trial is not None:
            radius, centroids = radius + width, trial
    return {"centroids": centroids, "counts": np.zeros(plan.n_clusters)}


def pack_spheres(
    generator: np.random.Generator, radius: float, shape: tuple[int, int]
) -> np.ndarray | None:
    """Centres of spheres in the cube, or None where they are not found."""
    n_clusters, n_columns = shape
    if n_clusters > 1 and radius**2 > (1 - radius) ** 2 * n_columns:
        return None
    centres: list[np.ndarray] = []
    n_refused = 0
    while True:
        cube = 2 * generator.random((64, n_columns)) - 1
        for candidate in np.trunc(cube * (1 - radius) * GRID) / GRID:
            distances = [np.linalg.norm(candidate - centre) for centre in centres]
            n_refused += 1
            if min(distances, default=math.inf) >= 2 * radius:
                centres.append(candidate)
                n_refused = 0
            if len(centres) == n_clusters:
                return np.array(centres)
            if n_refused == 100:
                return None


def statistic(
    plan: SimpleNamespace, index: int, arrays: Arrays, rows: np.ndarray
) -> np.ndarray:
    """Sums of rows around their centroids, and counts, in grid steps."""
    low, high = np.array(plan.settings.bounds)
    steps = (np.clip(rows, low, high) - low) / ((high - low) / 2**17)
    differences = (np.rint(steps - GRID) / GRID)[:, None] - arrays["centroids"]
    distances = np.linalg.norm(differences, axis=2)
    members = np.eye(plan.n_clusters)[distances.argmin(axis=1)]
    members *= distances <= plan.rounds[index - 1].radius
    sums = np.einsum("nk,nkd->kd", members, differences)
    return as_words(np.append(sums, members.sum(axis=0)))


def step(
    plan: SimpleNamespace, index: int, arrays: Arrays, words: np.ndarray
) -> Arrays:
    """The state after a noisy sum."""
    radius = plan.rounds[index - 1].radius
    centroids = arrays["centroids"]
    counts = words[centroids.size :] / GRID
    sums = words[: centroids.size].reshape(centroids.shape) / GRID
    with np.errstate(all="ignore"):
        moves = sums / counts[:, None]
    moves[~np.isfinite(moves).all(axis=1)] = 0
    lengths = np.linalg.norm(moves, axis=1)
    is_long = lengths > radius
    moves[is_long] *= radius * (1 - 2**-50) / lengths[is_long, None]
    new = to_grid(abs((centroids + moves - 1) % 4 - 2) - 1)
    deviation = centre_deviation(plan, index, new, new - centroids, counts)
    return {"centroids": new, "counts": counts, "centre_deviation": deviation}


def centre_deviation(
    plan: SimpleNamespace,
    index: int,
    centroids: np.ndarray,
    moves: np.ndarray,
    counts: np.ndarray,
) -> np.ndarray:
    """How far centroids may be from where they would be without noise."""
    planned = plan.rounds[index - 1]
    of_sums, of_counts = [deviation_of(plan, block) for block in planned.blocks]
    noise = np.hypot(of_sums, of_counts * moves) / np.maximum(counts, 1)[:, None]
    noise[counts < max(1, 2 * of_counts)] = 2
    n_missing = max(0, plan.n_examples - counts.sum())
    unsure = math.hypot(n_missing, of_counts * math.sqrt(plan.n_clusters) / 2)
    bias = 1.5 * planned.radius * min(1, unsure / plan.n_examples)
    coming = coming_moves(centroids, moves) if plan.n_clusters > 1 else 0
    deviation = np.sqrt(noise**2 + bias**2 + coming**2)
    return to_grid(np.clip(deviation, 1 / GRID, 2))


def coming_moves(centroids: np.ndarray, moves: np.ndarray) -> np.ndarray:
    """How far the next steps may carry the centroids."""
    away = centroids - centroids[:, None]
    distances = np.linalg.norm(away, axis=2)
    np.fill_diagonal(distances, math.inf)
    nearest = distances.argmin(axis=1)
    is_near = distances <= 2 * distances.min(axis=1)[:, None]
    units = away / distances[:, :, None] * is_near[:, :, None]
    along = (units * (moves + moves[:, None]) / 2).sum(axis=2)
    drift = (units * along[:, :, None]).sum(axis=1) / 2
    squares = (moves**2).mean(axis=1)
    typical = np.sqrt((squares + squares[nearest]) / 2) / 2
    return np.hypot(drift, typical[:, None])


def n_sure(plan: SimpleNamespace, n_members: int) -> int:
    """Members whose noise is in a sum whoever falls silent."""
    return n_members - max(1, plan.max_silent)


def deviation_of(plan: SimpleNamespace, block: SimpleNamespace) -> float:
    """The largest deviation of the noise in a released entry."""
    deviation = block.noise_multiplier * block.entry_bound
    if plan.settings.trust == "distributed":
        deviation *= math.sqrt(plan.n_clients / n_sure(plan, plan.n_clients))
    return deviation
