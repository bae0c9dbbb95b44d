"""Numbers with their noise."""

from __future__ import annotations

from dataclasses import dataclass

from flwr_dpkmeans.privacy.shown import share_text


@dataclass(frozen=True)
class Measured:
    """A number and the standard deviation of the noise in it, to first order.

    Over sampled clients a bound of it.

    Noise may carry a value out of its range, such as below 0. Sums and counts are
    unbiased up to rounding; ratios are so to first order only, and the largest of noisy
    numbers are too high.
    """

    value: float
    noise: float
    """0 for an exact evaluation."""

    def times(self, factor: float) -> Measured:
        """The same in another unit."""
        return Measured(self.value * factor, self.noise * factor)

    def __str__(self) -> str:
        """A number that is never negative; below 0 is noise alone."""
        if self.value < 0.0:
            return f"under {2.0 * self.noise:.2g}"
        return f"{self.value:.4g} +- {self.noise:.2g}"

    @property
    def as_share(self) -> str:
        """The same as a share, in per cent."""
        return share_text(self.value, self.noise)
