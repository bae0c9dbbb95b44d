"""Thousands of games, in chunks over processes, and what they say of each attack."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.results.whole_files import write_whole
from simulations.audit.attack_games import TARGETS, Game, load_pool, make_game, play
from simulations.audit.attack_scores import (
    ATTACKS,
    DIRECT,
    direct_scores,
    fit_ratio,
    shadow_features,
)
from simulations.audit.attack_success import (
    Measured,
    advantage,
    area_under_curve,
    true_positive_rate,
)
from simulations.audit.bounds import Scores
from simulations.experiments.code_version import code_version, require_this_code

Array = NDArray[np.float64]

RATES = (0.001, 0.01, 0.1)
"""False positive rates that true positive rates are given at."""
ABSENT = "absent"
_CHUNK = 50
_APART = 10**8
"""Seeds of one kind of run; kinds are this far apart."""


@dataclass(frozen=True)
class Cell:
    """One algorithm at one epsilon on one data set.

    Parameters
    ----------
    algorithm : str
    epsilon : float
    data : str
    noise : str
    """

    algorithm: str
    epsilon: float
    data: str
    noise: str


@dataclass(frozen=True)
class Chunk:
    """Games of one kind with consecutive seeds.

    Parameters
    ----------
    cell : Cell
    world : str
        ``"absent"``, or the target that is present.
    shadow : bool
        Whether they serve to make the attacks, or to measure them.
    first, count : int
    """

    cell: Cell
    world: str
    shadow: bool
    first: int
    count: int

    @property
    def targets(self) -> tuple[str, ...]:
        """Whom these games are scored for."""
        return TARGETS if self.world == ABSENT else (self.world,)


@dataclass(frozen=True)
class Row:
    """What one attack on one target achieves.

    Parameters
    ----------
    cell : Cell
    target, attack : str
    scores : Scores
        Of the games that were measured.
    auc, advantage : Measured
    rates : mapping of float to Measured
        True positive rates at false positive rates.
    is_above : bool
        Whether something lies above what the guarantee allows, beyond an interval that
        holds for the whole table.
    """

    cell: Cell
    target: str
    attack: str
    scores: Scores = field(repr=False)
    auc: Measured
    advantage: Measured
    rates: Mapping[float, Measured]
    is_above: bool


@lru_cache(maxsize=16)
def game_of(cell: Cell) -> Game:
    """The game of a cell, once in each process."""
    return make_game(
        cell.algorithm, cell.epsilon, load_pool(cell.data), noise=cell.noise
    )


def chunks_of(cell: Cell, trials: int, shadows: int) -> list[Chunk]:
    """All games of a cell: without the targets, and with each of them."""
    return [
        Chunk(cell, world, shadow, first, min(_CHUNK, total - first))
        for shadow, total in ((False, trials), (True, shadows))
        for world in (ABSENT, *TARGETS)
        for first in range(0, total, _CHUNK)
    ]


def seed_of(chunk: Chunk) -> int:
    """Seed of a chunk's first game; games of different kinds have none in common."""
    kind = 2 * (ABSENT, *TARGETS).index(chunk.world) + chunk.shadow
    return kind * _APART + chunk.first


def run_chunk(chunk: Chunk) -> tuple[Array, Array]:
    """Play, and score for each target.

    Parameters
    ----------
    chunk : Chunk

    Returns
    -------
    scores : ndarray, (n_targets, count, 5)
        In the order of `DIRECT`.
    features : ndarray, (n_targets, count, d + 1)
        Of the shadow attack.
    """
    game = game_of(chunk.cell)
    targets = [game.targets[name] for name in chunk.targets]
    present = chunk.world != ABSENT
    scores, features = [], []
    for seed in range(seed_of(chunk), seed_of(chunk) + chunk.count):
        played = play(game, seed, targets[0] if present else None)
        scores.append(
            [
                direct_scores(game.plan, played, target, present=present)
                for target in targets
            ]
        )
        features.append([shadow_features(played, target) for target in targets])
    return np.array(scores).swapaxes(0, 1), np.array(features).swapaxes(0, 1)


def run_cells(
    cells: Sequence[Cell],
    trials: int,
    shadows: int,
    workers: int,
    folder: Path,
    progress: Callable[[int, int], None],
    *,
    other_code: bool = False,
) -> list[Row]:
    """Play all games of all cells, and measure every attack on every target.

    Parameters
    ----------
    cells : sequence of Cell
    trials, shadows : int
        Games of each world that are measured, and that attacks are made from.
    workers : int
        Processes.
    folder : Path
        Keeps the scores of finished cells of seeded runs, which the same call takes
        from there.
    progress : callable
        ``progress(done, all)`` games, after each chunk.
    other_code : bool
        Whether scores that other sources than today's left there are taken.

    Returns
    -------
    list of Row
        In the order of cells, targets and attacks.

    Raises
    ------
    ConfigurationError
        If there are some and they are not to be taken.
    """
    paths = [folder / f"{_digest(cell, trials, shadows)}.npz" for cell in cells]
    stored = [
        path
        for cell, path in zip(cells, paths, strict=True)
        if cell.noise == "seeded" and path.exists()
    ]
    others = sum(_loaded(path).get("code") != code_version() for path in stored)
    require_this_code(
        others,
        f"{len(stored)} files of scores in {folder.absolute()}",
        "them",
        take_others=other_code,
    )
    each = (trials + shadows) * (1 + len(TARGETS))
    joint = 1.0 - 0.05 / (len(cells) * len(TARGETS) * len(ATTACKS) * (len(RATES) + 2))
    rows = []
    with ProcessPoolExecutor(workers) if workers > 1 else nullcontext() as pool:
        for place, (cell, path) in enumerate(zip(cells, paths, strict=True)):
            before = place * each
            if path in stored:
                arrays = _loaded(path)
            else:
                arrays = _play_cell(
                    cell,
                    trials,
                    shadows,
                    pool,
                    partial(_tell, progress, before, len(cells) * each),
                )
                write_whole(path, _packed(arrays))
            progress(before + each, len(cells) * each)
            for target in TARGETS:
                rows += _rows_of(cell, target, arrays, joint)
    return rows


def _play_cell(
    cell: Cell,
    trials: int,
    shadows: int,
    pool: ProcessPoolExecutor | None,
    progress: Callable[[int], None],
) -> dict[str, Array]:
    """All games of a cell: scores and features by target, purpose and world."""
    jobs, done = chunks_of(cell, trials, shadows), 0
    pieces: dict[str, list[Array]] = {}
    played = map(run_chunk, jobs) if pool is None else pool.map(run_chunk, jobs)
    for chunk, (scores, features) in zip(jobs, played, strict=True):
        for place, target in enumerate(chunk.targets):
            for kind, values in (("scores", scores), ("features", features)):
                pieces.setdefault(
                    _key(kind, target, chunk.shadow, chunk.world != ABSENT), []
                ).append(values[place])
        done += chunk.count
        progress(done)
    return {key: np.concatenate(parts) for key, parts in pieces.items()}


def _tell(
    progress: Callable[[int, int], None], before: int, total: int, done: int
) -> None:
    """Tell how far all cells are."""
    progress(before + done, total)


def _key(kind: str, target: str, shadow: bool, present: bool) -> str:
    """Name of an array of results."""
    purpose = "shadow" if shadow else "measured"
    world = "present" if present else ABSENT
    return f"{kind} {target} {purpose} {world}"


def _digest(cell: Cell, trials: int, shadows: int) -> str:
    """Name of a cell's file."""
    described = repr((cell, trials, shadows)).encode()
    return f"{cell.algorithm}-{hashlib.sha256(described).hexdigest()[:12]}"


def _packed(arrays: Mapping[str, Array]) -> bytes:
    """Arrays as the content of an npz file, with the sources that made them."""
    archive = io.BytesIO()
    named: dict[str, Any] = {**arrays, "code": code_version()}
    np.savez_compressed(archive, **named)
    return archive.getvalue()


def _loaded(path: Path) -> dict[str, Any]:
    """What `_packed` wrote."""
    with np.load(path) as stored:
        return dict(stored)


def _rows_of(
    cell: Cell, target: str, arrays: Mapping[str, Array], joint: float
) -> list[Row]:
    """Measure all attacks on one target."""
    features, scores = (
        {
            shadow: [
                arrays[_key(kind, target, shadow, present)] for present in (False, True)
            ]
            for shadow in (False, True)
        }
        for kind in ("features", "scores")
    )
    ratio = fit_ratio(*features[True])
    rows = []
    for attack in ATTACKS:
        if attack == "shadow":
            training, test = (
                Scores(*map(ratio.scores, features[shadow])) for shadow in (True, False)
            )
        else:
            place = DIRECT.index(attack)
            training, test = (
                Scores(*(array[:, place] for array in scores[shadow]))
                for shadow in (True, False)
            )
        rows.append(
            measure(cell, target, attack, training, test, game_of(cell).mu, joint)
        )
    return rows


def measure(
    cell: Cell,
    target: str,
    attack: str,
    training: Scores,
    scores: Scores,
    mu: float,
    joint: float,
) -> Row:
    """Measure one attack.

    `joint` is the confidence of the intervals by which it is said to break the
    guarantee.
    """
    rates = {rate: true_positive_rate(scores, rate, mu) for rate in RATES}
    wide = [true_positive_rate(scores, rate, mu, joint) for rate in RATES]
    wide += [
        area_under_curve(scores, mu, joint),
        advantage(training, scores, mu, joint),
    ]
    above = any(measured.is_above for measured in wide)
    return Row(
        cell,
        target,
        attack,
        scores,
        area_under_curve(scores, mu),
        advantage(training, scores, mu),
        rates,
        above,
    )


def flat_row(row: Row) -> dict[str, Any]:
    """One line of the table."""
    game = game_of(row.cell)
    line: dict[str, Any] = {
        "data": row.cell.data,
        "algorithm": row.cell.algorithm,
        "epsilon": game.epsilon if np.isfinite(game.mu) else None,
        "delta": game.delta if np.isfinite(game.mu) else None,
        "mu": game.mu if np.isfinite(game.mu) else None,
        "noise": row.cell.noise,
        "target": row.target,
        "attack": row.attack,
        "games": row.scores.absent.size + row.scores.present.size,
    }
    named = {"auc": row.auc, "advantage": row.advantage}
    named |= {f"tpr_at_{rate:g}": measured for rate, measured in row.rates.items()}
    for name, number in named.items():
        line[name] = number.value
        line[f"{name}_low"] = number.low
        line[f"{name}_high"] = number.high
        line[f"{name}_bound"] = number.bound
    return line | {"above_bound": row.is_above}
