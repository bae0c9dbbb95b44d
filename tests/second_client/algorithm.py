"""FastLloyd: state, statistic and noise, all in grid steps of 2^-16."""

import hashlib
import json
import math
import secrets
from fractions import Fraction

import numpy as np

GRID = 2.0**16
Arrays = dict[str, np.ndarray]


def state_digest(arrays):
    names, sizes = sorted(arrays), []
    for name in names:
        sizes += [arrays[name].ndim, *arrays[name].shape]
    content = json.dumps([names, sizes]).encode() + b"\n"
    content += b"".join(arrays[name].astype("<i8").tobytes() for name in names)
    return hashlib.sha256(content).digest()


def start(plan):
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


def pack_spheres(generator, radius, shape):
    """Centres of spheres in the cube, or None where they are not found."""
    n_clusters, n_columns = shape
    if n_clusters > 1 and radius**2 > (1 - radius) ** 2 * n_columns:
        return None
    centres, n_refused = [], 0
    while True:
        cube = 2 * generator.random((64, n_columns)) - 1
        for candidate in np.trunc(cube * (1 - radius) * GRID):
            distances = [np.linalg.norm(candidate - centre) for centre in centres]
            n_refused += 1
            if min(distances, default=math.inf) >= 2 * radius * GRID:
                centres.append(candidate)
                n_refused = 0
            if len(centres) == n_clusters:
                return np.array(centres)
            if n_refused == 100:
                return None


def statistic(plan, index, arrays, rows):
    """Sums of rows around their centroids, and counts."""
    low, high = np.array(plan.settings.bounds)
    clipped = np.clip(rows, low, high)
    on_grid = np.rint((clipped - low) / ((high - low) / 2**17) - GRID)
    differences = on_grid[:, None] - arrays["centroids"]
    distances = np.linalg.norm(differences, axis=2)
    members = np.eye(plan.n_clusters)[distances.argmin(axis=1)]
    members *= distances <= plan.rounds[index - 1].radius * GRID
    sums = np.einsum("nk,nkd->kd", members, differences)
    return np.append(sums, members.sum(axis=0) * GRID).astype("<i8")


def step(plan, index, arrays, words):
    """The state after a noisy sum."""
    radius = plan.rounds[index - 1].radius * GRID
    centroids = arrays["centroids"]
    sums = words[: centroids.size].reshape(centroids.shape)
    counts = words[centroids.size :].astype(float)
    with np.errstate(all="ignore"):
        moves = sums / counts[:, None] * GRID
    moves[~np.isfinite(moves).all(axis=1)] = 0
    lengths = np.linalg.norm(moves, axis=1)
    is_long = lengths > radius
    moves[is_long] *= radius * (1 - 2**-50) / lengths[is_long, None]
    reflected = abs((centroids + moves - GRID) % (4 * GRID) - 2 * GRID) - GRID
    state = {"centroids": np.rint(reflected), "counts": counts}
    moves = state["centroids"] - centroids
    return state | {"centre_deviation": centre_deviation(plan, index, moves, **state)}


def centre_deviation(plan, index, moves, centroids, counts):
    """How far centroids may be from where they would be without noise."""
    planned, n_examples, counts = plan.rounds[index - 1], plan.n_examples, counts / GRID
    of_sums, of_counts = [noise_deviation(plan, block) for block in planned.blocks]
    noise = np.hypot(of_sums * GRID, of_counts * moves) / np.maximum(counts, 1)[:, None]
    noise[counts < max(1, 2 * of_counts)] = 2 * GRID
    n_missing = max(0, n_examples - counts.sum())
    unsure = math.hypot(n_missing, of_counts * math.sqrt(plan.n_clusters) / 2)
    bias = 1.5 * planned.radius * GRID * min(1, unsure / n_examples)
    coming = coming_moves(centroids, moves)
    return np.rint(np.clip(np.sqrt(noise**2 + bias**2 + coming**2), 1, 2 * GRID))


def coming_moves(centroids, moves):
    """How far the next steps may carry the centroids."""
    away = centroids - centroids[:, None]
    distances = np.linalg.norm(away, axis=2)
    distances[distances == 0] = math.inf
    nearest = distances.argmin(axis=1)
    is_near = distances <= 2 * distances.min(axis=1)[:, None]
    units = away / distances[:, :, None] * is_near[:, :, None]
    along = (units * (moves + moves[:, None]) / 2).sum(axis=2)
    drift = (units * along[:, :, None]).sum(axis=1) / 2
    squares = (moves**2).mean(axis=1)
    typical = np.sqrt((squares + squares[nearest]) / 2) / 2
    typical[np.isinf(distances).all(axis=1)] = 0
    return np.hypot(drift, typical[:, None])


def n_sure(plan, n_members):
    """Members whose noise is in a sum whoever falls silent."""
    return n_members - max(1, plan.max_silent)


def noise_deviation(plan, block):
    """The largest deviation of the noise in a released entry."""
    deviation = block.noise_multiplier * block.entry_bound
    if plan.settings.trust == "distributed":
        deviation *= math.sqrt(plan.n_clients / n_sure(plan, plan.n_clients))
    return deviation


def noise_share(plan, pair, node, n_members):
    """A client's share of the noise."""
    text = str((plan.seed, "client", node, *pair))
    seed = hashlib.sha256(text.encode()).digest()[:8]
    generator = np.random.default_rng(int.from_bytes(seed, "little"))
    n_shares = n_sure(plan, n_members)
    noise = []
    for block in plan.rounds[pair[0] - 1].blocks:
        deviation = block.noise_multiplier * block.entry_bound / math.sqrt(n_shares)
        size = math.prod(block.shape)
        if plan.settings.noise == "seeded":
            noise += np.rint(generator.normal(0, deviation * GRID, size)).tolist()
        else:
            # Rounded up, so that no rounding leaves less noise than the plan's.
            steps = math.ceil(deviation * GRID * (1 + 2**-40))
            noise += [discrete_gaussian(steps) for _ in range(size)]
    return np.array(noise, "<i8")


def discrete_gaussian(deviation):
    """An integer k within 91 deviations, P(k) as exp(-k^2 / (2 deviation^2))."""
    reach = math.ceil(91 * deviation)
    while True:
        value = secrets.randbelow(2 * reach + 1) - reach
        if survives(value**2 / (2 * Fraction(deviation) ** 2)):
            return value


def survives(exponent):
    """True with probability exp(-exponent), exactly."""
    if exponent > 1:
        return survives(Fraction(1)) and survives(exponent - 1)
    n_drawn = 1
    while secrets.randbelow(exponent.denominator * n_drawn) < exponent.numerator:
        n_drawn += 1
    return n_drawn % 2 == 1
