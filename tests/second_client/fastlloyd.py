"""FastLloyd: what its plan must say, the statistic of one round, and the next state."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from second_client.wire import from_grid, is_positive, is_whole, parse_plan, require

GRID = 2.0**16
TOP_NAMES = (
    "box columns_digest config delta fraction_bits max_silent n_clients n_examples"
    " n_features preliminary public_points rounds run_id seed server version"
)
FREE_SETTINGS = (
    "bounds bounds_share count_share delta dropout epsilon evaluation_share"
    " examples_per_client max_epsilon max_retries max_silent min_clients n_clients"
    " n_examples n_features noise profile_share random_state trust"
)
TASK_NAMES = "choose_n_clusters n_clusters name options"
OPTION_NAMES = (
    "alpha max_iter noise_schedule packing post_processing radius_clipping schedule"
    " tolerance"
)
ROUND_NAMES = "blocks name radius trust"
BLOCK_NAMES = "entry_bound name noise noise_multiplier sensitivity shape"
BOUND_NAMES = "because bound nonnegative norm unit"
FIXED_SETTINGS: dict[str, Any] = {
    "unit": "record",
    "feature_names": [],
    "schema_digest": "",
    "standard_columns": [],
    "profile_widths": [],
    "gap_columns": [],
    "allow_unnamed": False,
    "client_sampling_rate": 1.0,
    "masking": True,
    "private_bounds": False,
    "evaluation": "none",
    "n_classes": 0,
    "evaluation_radius": None,
}
FIXED_OPTIONS = {
    "packing": "bisect",
    "noise_schedule": "equal",
    "tolerance": None,
    "radius_clipping": True,
}


@dataclass(frozen=True)
class Plan:
    """What this client needs of a plan that it has agreed to."""

    digest: bytes
    n_clients: int
    max_silent: int
    min_cohort: int
    max_retries: int
    seed: int
    n_rows: int
    n_clusters: int
    n_features: int
    lower: np.ndarray
    upper: np.ndarray
    trust: str
    is_seeded: bool
    radii: tuple[float, ...]
    multipliers: tuple[tuple[float, float], ...]
    """Of sums and counts, for each round."""
    worst_epsilon: float

    @property
    def authored(self) -> bool:
        return self.trust == "oblivious"

    @property
    def shares_noise(self) -> bool:
        return self.trust == "distributed"

    @property
    def last_round(self) -> int:
        return len(self.radii)

    @property
    def length(self) -> int:
        return self.n_clusters * self.n_features + self.n_clusters

    def n_honest(self, n_members: int) -> int:
        """Shares of the noise that are counted on."""
        return n_members - max(1, self.max_silent)


def require_names(entries: Any, names: str) -> None:
    """Refuse a part of the plan that says more or less than one does."""
    require(isinstance(entries, dict), "a part of the plan is no object.")
    present = " ".join(sorted(entries))
    require(present == names, "the plan says more or less than one does.")


def read_plan(content: bytes, run_id: int, width: int) -> Plan:
    """Agree to a plan, or refuse it."""
    plan = parse_plan(content)
    require_names(plan, TOP_NAMES)
    require(plan["run_id"] == run_id, "the plan is of another run.")
    versions = (plan["version"], plan["fraction_bits"])
    require(versions == (7, 16), "the plan has another format.")
    absent = [plan["preliminary"], plan["server"], plan["public_points"], plan["box"]]
    require(absent == [[], None, None, None], "this plan is not for this client.")
    require(plan["columns_digest"] == "", "the table has no names.", "RefusalError")
    config = plan["config"]
    require_names(config, "settings task")
    settings, task = config["settings"], config["task"]
    free = {name: settings[name] for name in settings.keys() - FIXED_SETTINGS.keys()}
    require_names(free, FREE_SETTINGS)
    for name, value in FIXED_SETTINGS.items():
        require(settings[name] == value, f"{name} is not supported.", "RefusalError")
    require(settings["dropout"] in (None, "retry"), "only 'retry'.", "RefusalError")
    known_noise = settings["noise"] in ("secure", "opendp", "seeded")
    known_trust = settings["trust"] in ("oblivious", "central", "distributed")
    require(known_noise and known_trust, "unknown noise or trust.", "RefusalError")
    require(task.get("name") == "fastlloyd", "only fastlloyd.", "RefusalError")
    require_names(task, TASK_NAMES)
    options = task["options"]
    require_names(options, OPTION_NAMES)
    for name, value in FIXED_OPTIONS.items():
        require(options.get(name) == value, f"{name} is not usual.", "RefusalError")
    is_folded = options["post_processing"] in (None, "fold")
    require(is_folded, "only 'fold'.", "RefusalError")
    for name in ("n_clients", "n_examples", "n_features"):
        is_size = is_whole(plan[name]) and 1 <= plan[name] < 2**40
        require(is_size, f"{name} is no size.")
    require(is_whole(plan["seed"]) and plan["seed"] >= 0, "the seed is none.")
    require(settings["n_examples"] == plan["n_examples"], "N is not declared.")
    require(plan["n_features"] == width, "the width is another.", "RefusalError")
    n_clients, max_silent = plan["n_clients"], _max_silent(plan["n_clients"], settings)
    require(n_clients <= 100 or settings["dropout"] == "retry", "only 'retry'.")
    require(plan["max_silent"] == max_silent, "max_silent does not follow.")
    least = max(settings["min_clients"], max_silent + 2)
    if settings["trust"] == "distributed":
        least = max(least, n_clients - max(1, max_silent))
    require(n_clients >= least, "the plan is for too few.")
    rows = plan["n_examples"]
    delta = settings["delta"]
    if delta is None:
        delta = 1.0 / (rows * math.log(rows))
    is_delta = is_positive(plan["delta"]) and math.isclose(delta, plan["delta"])
    require(is_delta, "delta does not follow.")
    n_clusters = task["n_clusters"]
    require(is_whole(n_clusters) and n_clusters >= 1, "no number of clusters.")
    lower, upper = (np.broadcast_to(side, width) for side in settings["bounds"])
    radii, multipliers = _read_rounds(plan, settings["trust"], n_clusters, width)
    squares = [1.0 / z**2 + 1.0 / counted**2 for z, counted in multipliers]
    require(
        price(sum(squares), plan["delta"]) <= settings["epsilon"] * (1.0 + 1e-6),
        "the noise costs more than the plan says.",
    )
    worst = sum(squares) + settings["max_retries"] * max(squares)
    largest_sum = rows * max(*radii, 1.0)
    largest_noise = 91.0 * max(
        r * z for r, (z, _) in zip(radii, multipliers, strict=True)
    )
    require((largest_sum + largest_noise) * GRID < 2.0**63, "sums could wrap.")
    return Plan(
        digest=hashlib.sha256(content).digest(),
        n_clients=n_clients,
        max_silent=max_silent,
        min_cohort=least,
        max_retries=settings["max_retries"],
        seed=plan["seed"],
        n_rows=rows,
        n_clusters=n_clusters,
        n_features=width,
        lower=np.asarray(lower, dtype=np.float64),
        upper=np.asarray(upper, dtype=np.float64),
        trust=settings["trust"],
        is_seeded=settings["noise"] == "seeded",
        radii=radii,
        multipliers=multipliers,
        worst_epsilon=price(worst, plan["delta"]),
    )


def _max_silent(n_clients: int, settings: dict[str, Any]) -> int:
    """How many may be silent, if the plan's settings leave it open."""
    if settings["max_silent"] is not None:
        return int(settings["max_silent"])
    return 0 if n_clients <= 32 else min(20, n_clients // 10)


def _read_rounds(
    plan: dict[str, Any], trust: str, n_clusters: int, width: int
) -> tuple[tuple[float, ...], tuple[tuple[float, float], ...]]:
    """Radii and noise multipliers, of rounds that this client's statistic fits."""
    radii, multipliers = [], []
    require(bool(plan["rounds"]), "the plan has no rounds.", "RefusalError")
    for index, planned in enumerate(plan["rounds"], start=1):
        require_names(planned, ROUND_NAMES)
        names = (planned["name"], planned["trust"])
        require(names == (f"lloyd-{index}", trust), "a round is another one.")
        sums, counts = planned["blocks"]
        expected = (
            (sums, "relative_sums", [n_clusters, width], planned["radius"]),
            (counts, "counts", [n_clusters], 1.0),
        )
        for block, name, shape, bound in expected:
            require_names(block, BLOCK_NAMES)
            require_names(block["sensitivity"], BOUND_NAMES)
            require(block["name"] == name, "an array is another one.")
            require(block["shape"] == shape, "an array has another shape.")
            sensitivity = block["sensitivity"]
            kind = (sensitivity["norm"], sensitivity["unit"], block["noise"])
            require(kind == ("l2", "record", "gaussian"), "another kind of noise.")
            is_kept = is_positive(bound) and sensitivity["bound"] == bound
            require(is_kept, "a bound is not that of the statistic.")
            require(is_positive(block["noise_multiplier"]), "no noise.")
        radii.append(planned["radius"])
        multipliers.append((sums["noise_multiplier"], counts["noise_multiplier"]))
    return tuple(radii), tuple(multipliers)


def price(squares: float, delta: float) -> float:
    """Epsilon of Gaussian noise, by bisection."""
    mean = math.sqrt(squares)

    def normal(value: float) -> float:
        return 0.5 * math.erfc(-value / math.sqrt(2.0))

    low, high = 0.0, 1e3
    for _ in range(100):
        middle = (low + high) / 2.0
        beyond = math.exp(min(middle, 700.0)) * normal(-mean / 2.0 - middle / mean)
        if normal(mean / 2.0 - middle / mean) - beyond <= delta:
            high = middle
        else:
            low = middle
    return high


# -- the start -------------------------------------------------------------------------


def packing(n_clusters: int, width: int, seed: int) -> np.ndarray:
    """Centroids that no row decides."""
    generator = np.random.default_rng(seed)
    radius = 1.0
    centroids = _packed(n_clusters, width, radius, generator)
    while centroids is None:
        radius = radius / 2.0 if radius > 2.0**-17 else 0.0
        centroids = _packed(n_clusters, width, radius, generator)
    if radius in (0.0, 1.0):
        return centroids
    feasible, infeasible = radius, 2.0 * radius
    for _ in range(6):
        middle = (feasible + infeasible) / 2.0
        packed = _packed(n_clusters, width, middle, generator)
        if packed is None:
            infeasible = middle
        else:
            feasible, centroids = middle, packed
    return centroids


def _packed(
    n_clusters: int, width: int, radius: float, generator: np.random.Generator
) -> np.ndarray | None:
    if n_clusters > 1 and radius**2 > (1.0 - radius) ** 2 * width:
        return None
    chosen: list[np.ndarray] = []
    n_rejected = 0
    while True:
        uniforms = 2.0 * generator.random((64, width)) - 1.0
        for candidate in np.trunc(uniforms * ((1.0 - radius) * GRID)) / GRID:
            squares = [np.square(candidate - other).sum() for other in chosen]
            if any(square < (2.0 * radius) ** 2 for square in squares):
                n_rejected += 1
                if n_rejected == 100:
                    return None
                continue
            chosen.append(candidate)
            n_rejected = 0
            if len(chosen) == n_clusters:
                return np.array(chosen)


# -- one round -------------------------------------------------------------------------


def in_box(plan: Plan, rows: np.ndarray) -> np.ndarray:
    """Rows in [-1, 1]^d, on the grid."""
    clipped = np.clip(rows, plan.lower, plan.upper) - plan.lower
    steps = clipped / ((plan.upper - plan.lower) / (2.0 * GRID))
    return np.rint(steps - GRID) / GRID


def statistic(points: np.ndarray, centroids: np.ndarray, radius: float) -> np.ndarray:
    """Sums relative to the centroids, and counts, end to end."""
    sums, counts = np.zeros(centroids.shape), np.zeros(len(centroids))
    for point in points:
        squares = np.square(point - centroids).sum(axis=1)
        nearest = int(squares.argmin())
        if Fraction(squares[nearest]) <= Fraction(radius) ** 2:
            sums[nearest] += point - centroids[nearest]
            counts[nearest] += 1.0
    return np.concatenate([sums.ravel(), counts])


def advance(
    plan: Plan, round_index: int, state: dict[str, np.ndarray], words: np.ndarray
) -> dict[str, np.ndarray]:
    """The state after a release."""
    k, d = plan.n_clusters, plan.n_features
    radius = plan.radii[round_index - 1]
    numbers = from_grid(words)
    sums, counts = numbers[: k * d].reshape(k, d), numbers[k * d :]
    before = state["centroids"]
    with np.errstate(all="ignore"):
        moves = sums / counts[:, None]
    usable = np.isfinite(moves).all(axis=1) & (counts != 0.0)
    moves = np.where(usable[:, None], moves, 0.0)
    moved = before + np.array([_clipped(move, radius) for move in moves])
    after = np.rint(_folded(moved) * GRID) / GRID
    deviations = _deviations(plan, round_index, before, after, counts)
    return {"centroids": after, "counts": counts, "centre_deviation": deviations}


def _clipped(move: np.ndarray, radius: float) -> np.ndarray:
    """A move no longer than the radius: compared exactly, over a power of two."""
    exact = sum(Fraction(value) ** 2 for value in move.tolist())
    if exact <= Fraction(radius) ** 2:
        return move
    exponent = int(np.frexp(np.abs(move).max())[1])
    scaled = np.ldexp(move, -exponent)
    norm = math.sqrt(math.fsum(np.square(scaled).tolist()))
    return scaled * ((1.0 - 2.0**-50) / norm) * radius


def _folded(values: np.ndarray) -> np.ndarray:
    remainder = np.mod(values + 1.0, 4.0)
    reflected = np.where(remainder > 2.0, 4.0 - remainder, remainder) - 1.0
    return np.where(np.abs(values) <= 1.0, values, reflected)


def _deviations(
    plan: Plan,
    round_index: int,
    before: np.ndarray,
    after: np.ndarray,
    counts: np.ndarray,
) -> np.ndarray:
    """How far each centre may be from the mean of its rows."""
    radius = plan.radii[round_index - 1]
    sums_multiplier, of_counts = plan.multipliers[round_index - 1]
    of_sums = sums_multiplier * radius
    if plan.shares_noise:
        excess = math.sqrt(plan.n_clients / plan.n_honest(plan.n_clients))
        of_sums, of_counts = of_sums * excess, of_counts * excess
    moves = after - before
    n_rows = np.maximum(counts, 1.0)[:, None]
    noise = np.hypot(of_sums, of_counts * moves) / n_rows
    is_faint = counts < max(1.0, 2.0 * of_counts)
    noise = np.where(is_faint[:, None], 2.0, noise)
    n_missing = max(0.0, plan.n_rows - math.fsum(counts))
    n_hidden = 0.5 * (of_counts * math.sqrt(len(counts)))
    beyond = 1.5 * radius * min(math.hypot(n_missing, n_hidden) / plan.n_rows, 1.0)
    squares = np.square(noise) + np.square(beyond) + np.square(_turned(moves, after))
    deviations = np.nan_to_num(np.sqrt(squares), nan=2.0, posinf=2.0)
    return np.rint(np.clip(deviations, 1.0 / GRID, 2.0) * GRID) / GRID


def _turned(moves: np.ndarray, after: np.ndarray) -> np.ndarray:
    """How means follow the centres' last move."""
    if len(after) == 1:
        return np.zeros(after.shape)
    lines = after[None, :, :] - after[:, None, :]
    distances = np.sqrt(np.square(lines).sum(axis=2))
    distances[distances == 0.0] = np.inf
    lines /= distances[:, :, None]
    nearest = distances.min(axis=1, keepdims=True)
    followed = np.where(distances <= 2.0 * nearest, 0.5, 0.0)
    borders = (moves[None, :, :] + moves[:, None, :]) / 2.0
    along = (borders * lines).sum(axis=2) * followed
    shifts = (along[:, :, None] * lines).sum(axis=1)
    lengths = np.square(moves).mean(axis=1)
    both = np.sqrt((lengths + lengths[distances.argmin(axis=1)]) / 2.0)
    return np.hypot(shifts, 0.5 * both[:, None])


def state_digest(state: dict[str, np.ndarray]) -> bytes:
    """What the tag covers."""
    names = sorted(state)
    sizes = [size for name in names for size in (state[name].ndim, *state[name].shape)]
    content = json.dumps([names, sizes]).encode() + b"\n"
    for name in names:
        content += np.rint(state[name] * GRID).astype("<i8").tobytes()
    return hashlib.sha256(content).digest()
