"""Private sums, whatever they are of: what is summed is a `Task`, handed in.

Who adds noise is a `TrustModel`.

A package of somebody else's adds one or the other in one file (``add_a_method.md``),
and makes it known by `register` or `register_trust` or, without being
imported first, by an entry point of the group ``flwr_dpkmeans.tasks`` or
``flwr_dpkmeans.trust_models``. Every party of a run needs it: each client builds the
rounds itself.
"""

from __future__ import annotations

from importlib import import_module

# Names are looked up when they are first used: whoever needs one module of this room
# does not load SciPy for another.
_EXPORTS = {
    "privacy.release": "Block NoiseShape Norm PrivacyUnit ReleasedSum Sensitivity",
    "sums.checks.neighbours": "check_sensitivity",
    "sums.option_rules": "Options choice flag real whole",
    "sums.outcome": "Result",
    "sums.public_facts": "PublicFacts",
    "sums.round": "Algorithm Array PrivateSum State",
    "sums.settings": "Settings",
    "sums.task": "Task register",
    "sums.trust": "Broadcast Shares TrustModel register_trust",
}
_HOMES = {
    name: f"flwr_dpkmeans.{module}"
    for module, names in _EXPORTS.items()
    for name in names.split()
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
