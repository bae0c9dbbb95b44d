"""What the fixture `set_limits` gives: fields of `ResourceLimits` by name."""

from collections.abc import Callable

SetLimits = Callable[..., None]
