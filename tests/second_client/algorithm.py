"""FastLloyd: its statistic, its state and its noise, on a grid of 2^-16."""

from __future__ import annotations

import hashlib
import json
import math
import secrets
from collections.abc import Iterator
from fractions import Fraction
from types import SimpleNamespace

import numpy as np

GRID = 2.0**16
Arrays = dict[str, np.ndarray]


def grid_rows(rows: np.ndarray, bounds: list[list[float]]) -> np.ndarray:
    """Rows between -1 and 1."""
    low, high = np.array(bounds)
    clipped = np.clip(rows, low, high)
    steps = (clipped - low) / ((high - low) / 2**17)
    return np.rint(steps - GRID) / GRID


def candidates(
    generator: np.random.Generator, radius: float, n_columns: int
) -> Iterator[np.ndarray]:
    """Random points whose spheres lie within the cube."""
    while True:
        cube = 2 * generator.random((64, n_columns)) - 1
        yield from np.trunc(cube * (1 - radius) * GRID) / GRID


def pack_spheres(
    generator: np.random.Generator, radius: float, shape: tuple[int, int]
) -> np.ndarray | None:
    """Centroids at least two radii apart, if they are found."""
    n_clusters, n_columns = shape
    if n_clusters > 1 and radius**2 > (1 - radius) ** 2 * n_columns:
        return None
    taken: list[np.ndarray] = []
    n_refused = 0
    for candidate in candidates(generator, radius, n_columns):
        distances = [np.linalg.norm(candidate - other) for other in taken]
        if min(distances, default=math.inf) < 2 * radius:
            n_refused += 1
        else:
            n_refused = 0
            taken.append(candidate)
        if len(taken) == n_clusters:
            return np.array(taken)
        if n_refused == 100:
            return None


def start(plan: SimpleNamespace) -> Arrays:
    """The first centroids: as far from each other as six bisections find."""
    shape = (plan.config.task.n_clusters, plan.n_features)
    generator = np.random.default_rng(plan.seed)
    radius = 1.0
    while (packed := pack_spheres(generator, radius, shape)) is None:
        radius = radius / 2 if radius > 2**-17 else 0.0
    low, high = radius, 2 * radius
    for _ in range(6 if 0 < radius < 1 else 0):
        middle = (low + high) / 2
        trial = pack_spheres(generator, middle, shape)
        low, high = (low, middle) if trial is None else (middle, high)
        packed = packed if trial is None else trial
    return {"centroids": packed, "counts": np.zeros(shape[0])}


def statistic(rows: np.ndarray, centroids: np.ndarray, radius: float) -> np.ndarray:
    """Sums of rows around their centroids, and their counts, in grid steps."""
    differences = rows[:, None] - centroids
    distances = np.linalg.norm(differences, axis=2)
    nearest = distances.argmin(axis=1)
    sums = np.zeros_like(centroids)
    counts = np.zeros(len(centroids))
    for row, cluster in enumerate(nearest):
        if distances[row, cluster] <= radius:
            sums[cluster] += differences[row, cluster]
            counts[cluster] += 1
    return words_of(np.append(sums, counts))


def words_of(values: np.ndarray) -> np.ndarray:
    """Multiples of a grid step."""
    return np.rint(values * GRID).astype("<i8")


def step(
    plan: SimpleNamespace, index: int, arrays: Arrays, words: np.ndarray
) -> Arrays:
    """The state after a noisy sum."""
    radius = plan.rounds[index].radius
    centroids = arrays["centroids"]
    values = words / GRID
    sums = values[: centroids.size].reshape(centroids.shape)
    counts = values[centroids.size :]
    with np.errstate(all="ignore"):
        moves = sums / counts[:, None]
    moves[~np.isfinite(moves).all(axis=1)] = 0
    lengths = np.linalg.norm(moves, axis=1, keepdims=True)
    shortened = moves * (radius * (1 - 2**-50) / np.maximum(lengths, radius))
    moves = np.where(lengths > radius, shortened, moves)
    reflected = abs((centroids + moves - 1) % 4 - 2) - 1
    new = np.rint(reflected * GRID) / GRID
    deviation = centre_deviation(plan, index, new, new - centroids, counts)
    return {"centroids": new, "counts": counts, "centre_deviation": deviation}


def centre_deviation(
    plan: SimpleNamespace,
    index: int,
    centroids: np.ndarray,
    moves: np.ndarray,
    counts: np.ndarray,
) -> np.ndarray:
    """How far each coordinate may be from where it would be without noise."""
    n_examples, radius = plan.n_examples, plan.rounds[index].radius
    of_sums, of_counts = [
        block.noise_multiplier * block.sensitivity.bound * noise_growth(plan)
        for block in plan.rounds[index].blocks
    ]
    some = np.maximum(counts, 1)[:, None]
    noise = np.hypot(of_sums, of_counts * moves) / some
    noise[counts < max(1, 2 * of_counts)] = 2
    n_missing = max(0, n_examples - counts.sum())
    uncertain = math.hypot(n_missing, of_counts * math.sqrt(len(counts)) / 2)
    bias = 1.5 * radius * min(1, uncertain / n_examples)
    total = np.sqrt(noise**2 + bias**2 + movement(centroids, moves) ** 2)
    return np.rint(np.clip(total, 1 / GRID, 2) * GRID) / GRID


def movement(centroids: np.ndarray, moves: np.ndarray) -> np.ndarray:
    """How far the next steps may carry the centroids."""
    result = np.zeros_like(centroids)
    squares = (moves**2).mean(axis=1)
    for cluster, centroid in enumerate(centroids):
        away = centroids - centroid
        distances = np.linalg.norm(away, axis=1)
        distances[cluster] = math.inf
        if len(centroids) == 1:
            return result
        nearest = distances.argmin()
        drift = np.zeros(len(centroid))
        for other in np.flatnonzero(distances <= 2 * distances[nearest]):
            unit = away[other] / distances[other]
            both = moves[cluster] + moves[other]
            drift += unit * (unit @ both / 2) / 2
        typical = math.sqrt((squares[cluster] + squares[nearest]) / 2) / 2
        result[cluster] = np.hypot(drift, typical)
    return result


def state_digest(arrays: Arrays) -> bytes:
    """What the tag of a state is made of."""
    names = sorted(arrays)
    sizes = []
    for name in names:
        sizes += [arrays[name].ndim, *arrays[name].shape]
    content = json.dumps([names, sizes]).encode() + b"\n"
    for name in names:
        content += words_of(arrays[name]).tobytes()
    return hashlib.sha256(content).digest()


# -- noise -----------------------------------------------------------------------------


def share_factor(n_honest: int) -> float:
    """The least double whose square, times the clients that are sure, is 1 at least."""
    factor = math.nextafter(1 / math.sqrt(n_honest), 0)
    while n_honest * Fraction(factor) ** 2 < 1:
        factor = math.nextafter(factor, 2)
    return factor


def n_sure(plan: SimpleNamespace, n_members: int) -> int:
    """Members whose noise counts on."""
    return n_members - max(1, plan.max_silent)


def noise_growth(plan: SimpleNamespace) -> float:
    """By how much the noise in a sum exceeds the plan's."""
    if plan.config.settings.trust != "distributed":
        return 1.0
    return math.sqrt(plan.n_clients / n_sure(plan, plan.n_clients))


def own_noise(
    plan: SimpleNamespace, pair: tuple[int, int], node: int, n_members: int
) -> np.ndarray:
    """A client's share of the noise, in grid steps."""
    settings = plan.config.settings
    text = str((settings.random_state, "client", node, *pair))
    seed = hashlib.sha256(text.encode()).digest()[:8]
    generator = np.random.default_rng(int.from_bytes(seed, "little"))
    factor = share_factor(n_sure(plan, n_members))
    noise: list[int] = []
    for block in plan.rounds[pair[0] - 1].blocks:
        deviation = block.noise_multiplier * block.entry_bound * factor * GRID
        size = math.prod(block.shape)
        if settings.noise == "seeded":
            noise += np.rint(generator.normal(0, deviation, size)).astype(int).tolist()
        else:
            noise += [discrete_gaussian(math.ceil(deviation)) for _ in range(size)]
    return np.array(noise)


def is_lucky(chance: Fraction) -> bool:
    """True with a probability, exactly."""
    return secrets.randbelow(chance.denominator) < chance.numerator


def survives(exponent: Fraction) -> bool:
    """True with probability exp(-exponent), exactly."""
    while exponent > 1:
        if not survives(Fraction(1)):
            return False
        exponent -= 1
    n_drawn = 1
    while is_lucky(exponent / n_drawn):
        n_drawn += 1
    return n_drawn % 2 == 1


def discrete_laplace(scale: int) -> int:
    """An integer with probability proportional to exp(-|k| / scale)."""
    while True:
        rest = secrets.randbelow(scale)
        if not survives(Fraction(rest, scale)):
            continue
        magnitude = rest
        while survives(Fraction(1)):
            magnitude += scale
        is_negative = secrets.randbelow(2)
        if magnitude or not is_negative:
            return -magnitude if is_negative else magnitude


def discrete_gaussian(deviation: float) -> int:
    """An integer with probability proportional to exp(-k^2 / (2 deviation^2))."""
    variance = Fraction(deviation) ** 2
    scale = math.floor(deviation) + 1
    while True:
        value = discrete_laplace(scale)
        excess = abs(value) - variance / scale
        if survives(excess**2 / (2 * variance)):
            return value
