"""Trust models by the name under which a plan has them."""

from __future__ import annotations

from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.sums.registry import Registry
from flwr_dpkmeans.sums.trust.central_trust import Central, Curator
from flwr_dpkmeans.sums.trust.distributed_trust import Distributed
from flwr_dpkmeans.sums.trust.oblivious_trust import Oblivious
from flwr_dpkmeans.sums.trust.trust_base import TrustModel

TRUST_MODELS: Registry[TrustModel] = Registry("flwr_dpkmeans.trust_models", "trust")
"""Every trust model that a plan may name."""
trust_model = TRUST_MODELS.find
"""``trust_model(name)``: one of them."""


def register_trust(model: TrustModel) -> TrustModel:
    """Make a trust model known by its name.

    One without an attribute, or another one of that name, is refused.
    """
    missing = [name for name in TrustModel.__annotations__ if not hasattr(model, name)]
    if missing:
        raise ConfigurationError(
            f"the trust model {type(model).__name__} has no {missing[0]!r}: give it"
            " one, as TrustModel says."
        )
    TRUST_MODELS.add(model.name, model)
    return model


for _model in (Oblivious(), Central(), Distributed(), Curator()):
    register_trust(_model)
