"""Trust models: who adds the noise and who may see the released sum. One file each, one test list for all."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from flwr_dpkmeans.errors import ConfigurationError, nearest
from flwr_dpkmeans.trust.base import TrustModel
from flwr_dpkmeans.trust.central import Central
from flwr_dpkmeans.trust.distributed import Distributed
from flwr_dpkmeans.trust.oblivious import Oblivious

TRUST_MODELS: Mapping[str, TrustModel] = MappingProxyType(
    {model.name: model for model in (Oblivious(), Central(), Distributed())}
)


def trust_model(name: str) -> TrustModel:
    """Look a trust model up by name; an unknown one is a `ConfigurationError` with the nearest valid name.

    Examples
    --------
    >>> trust_model("central").server_reads
    True
    """
    if name not in TRUST_MODELS:
        raise ConfigurationError(f"trust is {name!r}, which is not known: {nearest(name, TRUST_MODELS)}")
    return TRUST_MODELS[name]
