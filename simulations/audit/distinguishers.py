"""From a view to numbers that tell "present" from "absent".

Known optimal ones, and linear ones that are learnt.

===================
=================================================================================================
name                 what it does
===================
=================================================================================================
``likelihood``       exact log-likelihood ratio over all rounds for the planned noise
(Gaussian, Laplace, or the
                     mixture of a client that takes part by a coin), from released sums
                     less all that is not the target
``seed``             the same after subtracting the noise that the plan's public seed
would have drawn ``words``            looks for exact sums in vectors that should be
unreadable, and in their differences ``unmasked``         the likelihood ratio of the
target's own vector as the server gets it, as if it were not masked ``repeated``
looks for noise that is the same in two sums: their difference is then exact
``residuals``        learnt: Fisher's linear discriminant on the standardised residuals
of all rounds ``hidden``           learnt: the same on unreadable words ``result``
learnt: the same on the final centroids and counts alone
===================
=================================================================================================

A learnt one finds whatever is linear: noise that is used twice, equal streams for two
arrays, wrong scales.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.errors import DPKMeansError
from flwr_dpkmeans.privacy.noise import NoiseKind
from flwr_dpkmeans.privacy.release import draw_noise
from flwr_dpkmeans.secagg.keys import Ring
from flwr_dpkmeans.sums.build import initial_state
from flwr_dpkmeans.sums.local import FIRST_NODE_ID
from flwr_dpkmeans.sums.outcome import Discoveries
from flwr_dpkmeans.sums.plan import make_noise_source
from flwr_dpkmeans.sums.round import State
from flwr_dpkmeans.sums.trust import trust_model
from simulations.audit.cases import Case, Neighbours
from simulations.audit.information import Information, Part, Truth, information_of
from simulations.audit.views import HiddenWords, ReadableSum, View

Array = NDArray[np.float64]

LIKELIHOOD, SEED, WORDS, UNMASKED, REPEATED = (
    "likelihood",
    "seed",
    "words",
    "unmasked",
    "repeated",
)
RESIDUALS, HIDDEN, RESULT = "residuals", "hidden", "result"
_LARGEST_RESIDUAL = 1e6


@dataclass(frozen=True)
class Features:
    """What distinguishers made of one view.

    Parameters
    ----------
    scores : mapping of str to float
        Of those that need no training.
    vectors : mapping of str to ndarray
        What the learnt ones look at.
    information : Information
        What the readable sums show.
    """

    scores: Mapping[str, float]
    vectors: Mapping[str, Array] = field(repr=False)
    information: Information


def log_likelihood_ratio(residual: Array, part: Part) -> float:
    """Log of how much likelier a residual is with the target than without, for the
    planned noise.

    Parameters
    ----------
    residual : ndarray, (length,)
        What was read less the exact sum without the target, in grid steps.
    part : Part
        Of this aggregation.

    Returns
    -------
    float
        With a rate q below 1: ln(1 - q + q e^L), where L is the ratio for a target that
        takes part.

    Examples
    --------
    >>> part = Part((), np.zeros(1), np.ones(1), np.full(1, 2.0), np.zeros(1, dtype=bool), 1.0)
    >>> log_likelihood_ratio(np.array([3.0]), part)  # (3 * 1 - 1 / 2) / 4
    0.625
    """
    ratio = float(np.sum(_ratios(residual, part)))
    if part.rate >= 1.0:
        return ratio
    return float(np.logaddexp(np.log1p(-part.rate), np.log(part.rate) + ratio))


def _ratios(residual: Array, part: Part) -> Array:
    """The ratio of each entry, for a target that takes part."""
    gaussian = (residual - 0.5 * part.delta) * part.delta / np.square(part.scales)
    if not part.laplace.any():
        return gaussian
    laplace = (np.abs(residual) - np.abs(residual - part.delta)) / part.scales
    return np.where(part.laplace, laplace, gaussian)


def nearness(values: Ring, base: Array, delta: Array) -> float:
    """How much nearer a vector is to the exact sum with the target than to that
    without, on a logarithmic scale.

    0 for uniform words, some 40 where an exact sum stands in the clear.

    Examples
    --------
    >>> exact = np.array([5], dtype=np.uint64)
    >>> round(nearness(exact, np.array([3.0]), np.array([2.0])), 6)  # ln(1 + 2^2)
    1.609438
    """
    difference = values.view(np.int64).astype(np.float64) - base
    without, with_target = (
        np.square(difference).sum(),
        np.square(difference - delta).sum(),
    )
    return float(np.log1p(without) - np.log1p(with_target))


class Observer:
    """Turns views of one case into features.

    Parameters
    ----------
    case : Case
    neighbours : Neighbours
    """

    def __init__(self, case: Case, neighbours: Neighbours) -> None:
        self._case = case
        self._truth = Truth(neighbours)
        seeded = case.plan.config.changed(noise=NoiseKind.SEEDED)
        self._seeded = replace(case.plan, config=seeded)
        self._at_start: dict[tuple[int, tuple[int, ...]], Part] = {}
        self._drawn: dict[tuple[int, int, tuple[int, ...]], Array] = {}

    def features(self, view: View) -> Features:
        """Look at one view.

        Parameters
        ----------
        view : View

        Returns
        -------
        Features
        """
        parts = [
            self._truth.part(one.plan, one.round_index, one.state, one.members)
            for one in view.sums
        ]
        residuals = [
            one.values.view(np.int64).astype(np.float64) - part.base
            for one, part in zip(view.sums, parts, strict=True)
        ]
        scores: dict[str, float] = {}
        vectors: dict[str, Array] = {}
        if parts:
            seeded = self._seeded_noise(view.sums)
            scores[LIKELIHOOD] = sum(map(log_likelihood_ratio, residuals, parts))
            without = [
                residual - drawn
                for residual, drawn in zip(residuals, seeded, strict=True)
            ]
            scores[SEED] = sum(map(log_likelihood_ratio, without, parts))
            scores[REPEATED] = _repeated(residuals, parts)
            vectors[RESIDUALS] = _standardised(residuals, parts)
        if view.words:
            scores[WORDS], vectors[HIDDEN] = self._words(view.words)
            scores[UNMASKED] = self._unmasked(view.words)
        if view.result.size:
            vectors[RESULT] = view.result
        return Features(
            scores, vectors, information_of(parts, view.plan, view.attempts)
        )

    def _words(self, words: Sequence[HiddenWords]) -> tuple[float, Array]:
        """Nearness of unreadable vectors, and of differences of consecutive ones, to
        exact sums at the public start.
        """
        score, seen = 0.0, []
        last: dict[str, tuple[Ring, Part]] = {}
        for one in words:
            part = self._part_at_start(one)
            tries = [(one.values, part.base, part.delta)]
            if one.name in last:
                before, earlier = last[one.name]
                n = min(len(before), len(one.values))
                tries.append(
                    (
                        one.values[:n] - before[:n],
                        part.base[:n] - earlier.base[:n],
                        part.delta[:n] - earlier.delta[:n],
                    )
                )
                if not np.array_equal(part.delta[:n], earlier.delta[:n]):
                    score += nearness(*tries[-1])
            last[one.name] = (one.values, part)
            score += nearness(*tries[0])
            # Readable words are small numbers; others are some 40 on this scale, of
            # either sign.
            seen += [
                np.arcsinh(values.view(np.int64) - base) for values, base, _ in tries
            ]
        return score, np.concatenate(seen)

    def _unmasked(self, words: Sequence[HiddenWords]) -> float:
        """The target's own vectors of the first aggregation.

        Noise of one share hides less than that of a sum.
        """
        place = words[0].round_index, words[0].attempt
        score = 0.0
        for one in words:
            if len(one.members) == 1 and (one.round_index, one.attempt) == place:
                part = self._part_at_start(one)
                score += log_likelihood_ratio(
                    one.values.view(np.int64).astype(np.float64) - part.base, part
                )
        return score

    def _part_at_start(self, one: HiddenWords) -> Part:
        """The exact sum at the start, which is public, in place of a state that the
        server does not know.
        """
        key = (one.round_index, one.members)
        if key not in self._at_start:
            plan = self._case.plan
            state: State | Discoveries = Discoveries()
            if one.round_index > 0:
                state = initial_state(plan, self._case.kept)
            try:
                self._at_start[key] = self._truth.part(
                    plan, one.round_index, state, one.members
                )
            except DPKMeansError:
                # A later round's statistic may need what only earlier ones release.
                n = len(one.values)
                nothing = np.zeros(n)
                self._at_start[key] = Part(
                    (), nothing, nothing, np.ones(n), np.zeros(n, dtype=bool), 1.0
                )
        return self._at_start[key]

    def _seeded_noise(self, sums: Sequence[ReadableSum]) -> list[Array]:
        """The noise that a source of the plan's seed would have drawn for the sums."""
        server = make_noise_source(self._seeded, "server")
        found = []
        fixed = all(one.plan is self._case.plan for one in sums)
        for one in sums:
            key = (one.round_index, one.attempt, one.members)
            if fixed and key in self._drawn:
                found.append(self._drawn[key])
                continue
            planned, bits = one.plan.round_at(one.round_index), one.plan.fraction_bits
            if trust_model(planned.trust).shared_noise:
                total = np.zeros(len(one.values), dtype=np.uint64)
                share = one.plan.shares_of(one.cohort).factor
                for position in one.members:
                    place = (
                        "client",
                        FIRST_NODE_ID + position,
                        one.round_index,
                        one.attempt,
                    )
                    total += draw_noise(
                        planned.blocks,
                        make_noise_source(self._seeded, *place),
                        bits,
                        share=share,
                    )
            else:
                total = draw_noise(planned.blocks, server, bits)
            drawn = total.view(np.int64).astype(np.float64)
            if fixed:
                self._drawn[key] = drawn
            found.append(drawn)
        return found


def _repeated(residuals: Sequence[Array], parts: Sequence[Part]) -> float:
    """How much nearer differences of sums are to those of exact sums with the target
    than without, as in `nearness`.

    Only the target's own moves from one sum to the next tell: where it adds the same to
    both, nothing is shown.
    """
    score = 0.0
    for (before, earlier), (after, part) in itertools.combinations(
        zip(residuals, parts, strict=True), 2
    ):
        if len(before) == len(after):
            left, moved = after - before, part.delta - earlier.delta
            score += float(
                np.log1p(np.square(left).sum())
                - np.log1p(np.square(left - moved).sum())
            )
    return score


def _standardised(residuals: Iterable[Array], parts: Iterable[Part]) -> Array:
    """Residuals in scales of the planned noise, and the sum of each array's ratios."""
    found: list[Array] = []
    for residual, part in zip(residuals, parts, strict=True):
        found.append(
            np.clip(residual / part.scales, -_LARGEST_RESIDUAL, _LARGEST_RESIDUAL)
        )
        ratios, start = _ratios(residual, part), 0
        for block in part.blocks:
            found.append(
                np.clip(
                    ratios[start : start + block.size].sum(keepdims=True),
                    -_LARGEST_RESIDUAL,
                    _LARGEST_RESIDUAL,
                )
            )
            start += block.size
    return np.concatenate(found)
