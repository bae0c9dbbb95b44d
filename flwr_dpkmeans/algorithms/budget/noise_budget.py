"""How a total budget becomes the noise of many releases.

Whatever their noise, unit and sampling.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from flwr_dpkmeans.algorithms.budget.noise_kinds import NoiseFamily, ReleasePart
from flwr_dpkmeans.errors import LocalMisuseError, PlanError
from flwr_dpkmeans.privacy import release
from flwr_dpkmeans.privacy.calibration import calibrate_scale, gaussian_noise_multiplier
from flwr_dpkmeans.privacy.release import Block, Event, NoiseShape, Norm
from flwr_dpkmeans.sums.public_facts import PublicFacts
from flwr_dpkmeans.sums.round import PrivateSum

PlannedSum = tuple[Sequence[ReleasePart], PrivateSum]
"""One round before its noise is known: what it releases, and the rest of it, without
blocks.
"""


def private_sums(
    public: PublicFacts, rounds: Sequence[PlannedSum]
) -> tuple[PrivateSum, ...]:
    """A run's rounds with the noise that `allocate` finds for them.

    Of the family that its options name, if any.

    Their statistics take points, and labels, by slices.
    """
    kind = getattr(public.options, "noise_kind", NoiseFamily.GAUSSIAN)
    allocated = allocate(public, [parts for parts, _ in rounds], kind)
    with_noise = []
    for (_, planned), blocks in zip(rounds, allocated, strict=True):
        with_noise.append(replace(planned, blocks=blocks, in_blocks=True))
    return tuple(with_noise)


def allocate(
    public: PublicFacts,
    rounds: Sequence[Sequence[ReleasePart]],
    kind: NoiseFamily = NoiseFamily.GAUSSIAN,
) -> tuple[tuple[Block, ...], ...]:
    """Find the least noise with which all rounds cost the run's epsilon.

    Each round is some arrays that are released together.

    Under joint Gaussian accounting release i gets the multiplier sigma / sqrt(w_i), its
    squared-GDP weight w_i being s_i^2; with the paper's mixture each release is (s_i E,
    delta)- or (s_i E, 0)-DP on its own and E is as large as the composition by PLD
    allows. What was released before (a private count, histograms) is part of the
    composition.
    """
    settings = public.settings
    before = public.released_events()

    def blocks_at(scale: float) -> tuple[tuple[Block, ...], ...]:
        return tuple(
            tuple(
                _block(
                    public,
                    part,
                    scale,
                    kind,
                )
                for part in parts
            )
            for parts in rounds
        )

    def events_at(scale: float) -> Sequence[Event]:
        events = list(before)
        try:
            for blocks in blocks_at(scale):
                events += release.round_events(
                    blocks,
                    public.fraction_bits,
                    1,
                    settings.client_sampling_rate,
                )
        except PlanError:
            raise
        except LocalMisuseError:
            # Noise below the grid has no price: as dear as none.
            return [release.ExactRelease("noise below the grid")]
        return release.with_joint_pure_release(events) if public.counted else events

    start = gaussian_noise_multiplier(settings.epsilon, public.delta)
    return blocks_at(
        calibrate_scale(
            events_at,
            settings.epsilon,
            public.delta,
            start=start,
        )
    )


def divided(
    parts: Sequence[ReleasePart],
    share: float,
    entire: float,
) -> tuple[Block, ...]:
    """One round's Gaussian blocks, with a share of the budget.

    All of which would take the multiplier `entire`.
    """
    total = sum(part.share for part in parts)
    blocks = []
    for part in parts:
        share_of_budget = share * part.share / total
        block = Block(
            part.name,
            part.shape,
            part.sensitivity,
            NoiseShape.GAUSSIAN,
            entire / math.sqrt(share_of_budget),
            part.entry_bound,
        )
        blocks.append(block)
    return tuple(blocks)


def _block(
    public: PublicFacts,
    part: ReleasePart,
    scale: float,
    kind: NoiseFamily,
) -> Block:
    noise = (
        NoiseShape.LAPLACE if part.sensitivity.norm is Norm.L1 else NoiseShape.GAUSSIAN
    )
    if noise is NoiseShape.LAPLACE or kind is NoiseFamily.GAUSSIAN:
        multiplier = scale / part.share
    else:
        multiplier = gaussian_noise_multiplier(part.share / scale, public.delta)
    return Block(
        part.name,
        part.shape,
        part.sensitivity,
        noise,
        multiplier,
        part.entry_bound,
    )
