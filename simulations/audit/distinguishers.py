"""From a view to numbers that tell "present" from "absent".

PublicFacts optimal ones, and linear ones that are learnt.

==================  ==============================================================
name                what it does
==================  ==============================================================
``likelihood``      exact log-likelihood ratio over all rounds for the planned
                    noise (Gaussian, Laplace, or the mixture of a client that
                    takes part by a coin), from released sums less all that is not
                    the target
``seed``            the same after subtracting the noise that the plan's public
                    seed would have drawn
``words``           looks for exact sums in vectors that should be unreadable, and
                    in their differences
``unmasked``        the likelihood ratio of the target's own vector as the server
                    gets it, as if it were not masked
``repeated``        looks for noise that is the same in two sums: their difference
                    is then exact
``residuals``       learnt: Fisher's linear discriminant on the standardised
                    residuals of all rounds
``hidden``          learnt: the same on unreadable words
``result``          learnt: the same on the final centroids and counts alone
==================  ==============================================================

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
from flwr_dpkmeans.privacy.noise import NoiseKind, NoiseSource
from flwr_dpkmeans.privacy.release import draw_noise
from flwr_dpkmeans.secagg.ring import Ring
from flwr_dpkmeans.sums.build import initial_state
from flwr_dpkmeans.sums.outcome import Discoveries
from flwr_dpkmeans.sums.plan import FIRST_NODE_ID, make_noise_source
from flwr_dpkmeans.sums.round import State
from flwr_dpkmeans.sums.trust import trust_model
from simulations.audit.cases import Case, Neighbours
from simulations.audit.information import Information, Part, Truth, information_of
from simulations.audit.views import HiddenWords, ReadableSum, View

Array = NDArray[np.float64]

LIKELIHOOD = "likelihood"
SEED = "seed"
WORDS = "words"
UNMASKED = "unmasked"
REPEATED = "repeated"
RESIDUALS = "residuals"
HIDDEN = "hidden"
RESULT = "result"
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
    """Log of how much likelier a residual is with the target, for the planned noise.

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
    >>> is_laplace = np.zeros(1, dtype=bool)
    >>> part = Part((), np.zeros(1), np.ones(1), np.full(1, 2.0), is_laplace, 1.0)
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


def nearness(
    values: Ring,
    base: Array,
    delta: Array,
) -> float:
    """How much nearer a vector is to the exact sum with the target than without it.

    On a logarithmic scale: 0 for uniform words, some 40 where an exact sum stands in
    the clear.

    Examples
    --------
    >>> exact = np.array([5], dtype=np.uint64)
    >>> round(nearness(exact, np.array([3.0]), np.array([2.0])), 6)  # ln(1 + 2^2)
    1.609438
    """
    difference = _numbers(values) - base
    without = np.square(difference).sum()
    with_target = np.square(difference - delta).sum()
    return float(np.log1p(without) - np.log1p(with_target))


def _numbers(values: Ring) -> Array:
    """Words of the ring as signed numbers, in grid steps."""
    return values.view(np.int64).astype(np.float64)


class Observer:
    """Turns views of one case into features.

    Parameters
    ----------
    case : Case
    neighbours : Neighbours
    """

    def __init__(
        self,
        case: Case,
        neighbours: Neighbours,
    ) -> None:
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
            self._truth.part(total.plan, total.round_index, total.state, total.members)
            for total in view.sums
        ]
        residuals = [
            _numbers(total.values) - part.base
            for total, part in zip(view.sums, parts, strict=True)
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
        information = information_of(parts, view.plan, view.attempts)
        return Features(scores, vectors, information)

    def _words(self, words: Sequence[HiddenWords]) -> tuple[float, Array]:
        """Nearness of unreadable vectors to exact sums at the public start.

        And of the differences of consecutive vectors to those of exact sums.
        """
        score = 0.0
        scaled: list[Array] = []
        last: dict[str, tuple[Ring, Part]] = {}
        for vector in words:
            values = vector.values
            part = self._part_at_start(vector)
            compared = [(values, part.base)]
            if vector.name in last:
                before, earlier = last[vector.name]
                n = min(len(before), len(values))
                difference = values[:n] - before[:n]
                base = part.base[:n] - earlier.base[:n]
                delta = part.delta[:n] - earlier.delta[:n]
                compared.append((difference, base))
                if not np.array_equal(part.delta[:n], earlier.delta[:n]):
                    score += nearness(difference, base, delta)
            last[vector.name] = (values, part)
            score += nearness(values, part.base, part.delta)
            # Readable words are small numbers; others are some 40 on this scale, of
            # either sign.
            scaled += [
                np.arcsinh(ring.view(np.int64) - base) for ring, base in compared
            ]
        return score, np.concatenate(scaled)

    def _unmasked(self, words: Sequence[HiddenWords]) -> float:
        """The target's own vectors of the first aggregation.

        Noise of one share hides less than that of a sum.
        """
        first = words[0]
        score = 0.0
        for vector in words:
            is_first = (vector.round_index, vector.attempt) == (
                first.round_index,
                first.attempt,
            )
            if is_first and len(vector.members) == 1:
                part = self._part_at_start(vector)
                residual = _numbers(vector.values) - part.base
                score += log_likelihood_ratio(residual, part)
        return score

    def _part_at_start(self, vector: HiddenWords) -> Part:
        """The exact sum at the start, which is public.

        It stands in for a state that the server does not know.
        """
        key = (vector.round_index, vector.members)
        if key not in self._at_start:
            self._at_start[key] = self._compute_part_at_start(vector)
        return self._at_start[key]

    def _compute_part_at_start(self, vector: HiddenWords) -> Part:
        plan = self._case.plan
        state: State | Discoveries = Discoveries()
        if vector.round_index > 0:
            state = initial_state(plan, self._case.private_points)
        try:
            return self._truth.part(plan, vector.round_index, state, vector.members)
        except DPKMeansError:
            # A later round's statistic may need what only earlier ones release.
            length = len(vector.values)
            return Part(
                blocks=(),
                base=np.zeros(length),
                delta=np.zeros(length),
                scales=np.ones(length),
                laplace=np.zeros(length, dtype=bool),
                rate=1.0,
            )

    def _seeded_noise(self, sums: Sequence[ReadableSum]) -> list[Array]:
        """The noise that a source of the plan's seed would have drawn for the sums."""
        server = make_noise_source(self._seeded, "server")
        is_fixed = all(released.plan is self._case.plan for released in sums)
        noise = []
        for released in sums:
            key = (released.round_index, released.attempt, released.members)
            if is_fixed and key in self._drawn:
                noise.append(self._drawn[key])
                continue
            drawn = _numbers(self._draw(released, server))
            if is_fixed:
                self._drawn[key] = drawn
            noise.append(drawn)
        return noise

    def _draw(
        self,
        released: ReadableSum,
        server: NoiseSource,
    ) -> Ring:
        """One sum's noise: of each client in it, or of the server."""
        plan = released.plan
        planned = plan.round_at(released.round_index)
        if not trust_model(planned.trust).shared_noise:
            return draw_noise(planned.blocks, server, plan.fraction_bits)
        share = plan.shares_of(released.cohort).factor
        total = np.zeros(len(released.values), dtype=np.uint64)
        for position in released.members:
            node = FIRST_NODE_ID + position
            stream = ("client", node, released.round_index, released.attempt)
            source = make_noise_source(self._seeded, *stream)
            total += draw_noise(planned.blocks, source, plan.fraction_bits, share=share)
        return total


def _repeated(residuals: Sequence[Array], parts: Sequence[Part]) -> float:
    """How much nearer differences of sums are to exact ones with the target, as a sum.

    As `nearness` says it of one vector.

    Only the target's own moves from one sum to the next tell: where it adds the same to
    both, nothing is shown.
    """
    score = 0.0
    both = list(zip(residuals, parts, strict=True))
    for (before, earlier), (after, later) in itertools.combinations(both, 2):
        if len(before) != len(after):
            continue
        difference = after - before
        moved = later.delta - earlier.delta
        without = np.log1p(np.square(difference).sum())
        with_target = np.log1p(np.square(difference - moved).sum())
        score += float(without - with_target)
    return score


def _standardised(residuals: Iterable[Array], parts: Iterable[Part]) -> Array:
    """Residuals in scales of the planned noise, and the sum of each array's ratios."""
    features: list[Array] = []
    for residual, part in zip(residuals, parts, strict=True):
        features.append(residual / part.scales)
        ratios = _ratios(residual, part)
        start = 0
        for block in part.blocks:
            end = start + block.size
            features.append(ratios[start:end].sum(keepdims=True))
            start = end
    every = np.concatenate(features)
    return np.clip(every, -_LARGEST_RESIDUAL, _LARGEST_RESIDUAL)
