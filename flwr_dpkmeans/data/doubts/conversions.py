"""How a unit is turned into another one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Conversion:
    """A unit in another one: `factor` times the value, plus `offset`."""

    units: str
    factor: float
    offset: float = 0.0

    @property
    def size(self) -> float:
        """The factor from the smaller to the larger unit."""
        return max(self.factor, 1.0 / self.factor)

    @property
    def step(self) -> str:
        """What it does to a value."""
        if self.offset:
            return "by a factor of 1.8 and 32 degrees"
        return f"by a factor of about {self.size:.3g}"

    def inverted(self) -> Conversion:
        """Return the way back."""
        factor = 1.0 / self.factor
        offset = -self.offset / self.factor
        return Conversion(self.units, factor, offset)

    def undone(self, values: Array) -> Array:
        """Return values as they were before the conversion."""
        return (values - self.offset) / self.factor


TYPICAL = (
    Conversion("pounds and kilograms", 2.20462),
    Conversion("centimetres and inches", 2.54),
    Conversion("feet and metres", 3.28084),
    Conversion("a decimal point that moved, or millimetres and centimetres", 10.0),
    Conversion("years and months", 12.0),
    Conversion("mmol/l and mg/dl of glucose", 18.016),
    Conversion("days and hours", 24.0),
    Conversion("months and days", 30.437),
    Conversion("mmol/l and mg/dl of cholesterol", 38.67),
    Conversion("hours and minutes, or minutes and seconds", 60.0),
    Conversion("mg/dl and µmol/l of creatinine", 88.42),
    Conversion("metres and centimetres, or parts and percent", 100.0),
    Conversion("years and days", 365.25),
    Conversion("kilograms and grams, or another step of 1000", 1000.0),
    Conversion("degrees Celsius and Fahrenheit", 1.8, 32.0),
)
"""What tables of the same column differ by."""


TYPICAL_WAYS = tuple(
    way for conversion in TYPICAL for way in (conversion, conversion.inverted())
)
