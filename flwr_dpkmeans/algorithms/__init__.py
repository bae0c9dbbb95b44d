"""Algorithms: each is a file of private-sum rounds and a line in the registry below."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from flwr_dpkmeans.algorithms import dplloyd, fastlloyd
from flwr_dpkmeans.algorithms.lloyd_family import Public
from flwr_dpkmeans.errors import ConfigurationError, nearest
from flwr_dpkmeans.privacy.mechanisms import NoiseShape
from flwr_dpkmeans.privacy.sensitivity import PrivacyUnit
from flwr_dpkmeans.rounds.private_sum import Algorithm


@dataclass(frozen=True)
class AlgorithmEntry:
    """One registered algorithm.

    Parameters
    ----------
    build : callable
        ``build(public) -> Algorithm``.
    noise : NoiseShape
        Its noise; NONE for a non-private baseline.
    units : tuple of PrivacyUnit
        Units of privacy that it supports.
    needs_n_examples : bool
        Whether its rounds depend on the number of rows.
    title : str
        One line for logs and reports.
    """

    build: Callable[[Public], Algorithm]
    noise: NoiseShape
    units: tuple[PrivacyUnit, ...]
    needs_n_examples: bool
    title: str


_RECORD = (PrivacyUnit.RECORD,)

ALGORITHMS: Mapping[str, AlgorithmEntry] = MappingProxyType(
    {
        "fastlloyd": AlgorithmEntry(
            fastlloyd.build, NoiseShape.GAUSSIAN, _RECORD, True, "FastLloyd (Diaa, Humphries, Kerschbaum 2025)"
        ),
        "glloyd": AlgorithmEntry(
            dplloyd.build_glloyd, NoiseShape.GAUSSIAN, _RECORD, True, "GLloyd: DP-Lloyd with Gaussian noise"
        ),
        "sulloyd": AlgorithmEntry(
            dplloyd.build_sulloyd, NoiseShape.LAPLACE, _RECORD, True, "SuLloyd: DP-Lloyd with Laplace noise (Su et al.)"
        ),
        "lloyd": AlgorithmEntry(
            dplloyd.build_lloyd, NoiseShape.NONE, _RECORD, False, "Lloyd: no noise, not private, for comparison"
        ),
    }
)


def algorithm_entry(name: str) -> AlgorithmEntry:
    """Look an algorithm up by name; an unknown one is a `ConfigurationError` with the nearest valid name.

    Examples
    --------
    >>> algorithm_entry("lloyd").noise
    <NoiseShape.NONE: 'none'>
    """
    if name not in ALGORITHMS:
        raise ConfigurationError(f"algorithm is {name!r}, which is not known: {nearest(name, ALGORITHMS)}")
    return ALGORITHMS[name]
