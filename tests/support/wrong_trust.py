"""Trust models that draw other noise than they say, in the place of honest ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from flwr_dpkmeans.sums.trust import TRUST_MODELS, TrustModel
from support.watching import Call, watch

Words = NDArray[np.uint64]
Draw = Callable[..., Words]
"""Called as `flwr_dpkmeans.privacy.release.draw_noise` is."""


def plant_trust(patch: pytest.MonkeyPatch, *models: TrustModel) -> None:
    """Let models stand for the honest ones of their names."""
    for model in models:
        patch.setitem(TRUST_MODELS, model.name, model)


def plant_noise(patch: pytest.MonkeyPatch, draw: Draw) -> None:
    """Let every trust model draw so, on the server and in the clients."""
    for model in [*TRUST_MODELS.values()]:
        kind = type(model)

        class Wrong(kind):  # type: ignore[valid-type, misc]
            def draw(self, *args: Any, **options: Any) -> Words:
                return draw(*args, **options)

        plant_trust(patch, Wrong())


def watch_noise(note: Callable[[Words, float], None]) -> None:
    """Note what every trust model draws, and its share, until the test ends.

    Planted ones, too.
    """

    def noted(call: Call) -> None:
        note(call.result, call.arguments.get("share", 1.0))

    for draw in {type(model).draw for model in TRUST_MODELS.values()}:
        watch(draw, noted)
