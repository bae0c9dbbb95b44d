"""The price of a list of releases.

Events only describe what was released; the functions here price them. The releases may be adaptive: each may depend
on what the earlier ones showed. The rules are

* Gaussian releases: Gaussian differential privacy composes exactly, ``mu^2 = sum 1 / multiplier^2`` (Dong, Roth and
  Su 2022, Corollary 2); see ``gaussian``.
* Pure releases (Laplace noise, exponential mechanism): the sum of the pure epsilons, which is exact for the adaptive
  pure statement.
* Both: each pure release counts as the worst mechanism of its epsilon (Kairouz, Oh and Viswanath 2015), whatever the
  grid and dimension of its noise; see ``mixture``. Where their number follows from an earlier release, all of them
  count as one; see ``events.with_joint_pure_release``.
* Gaussian releases over Poisson samples, with any of the others: numerical privacy-loss distributions by
  ``dp_accounting`` for adding and for removing a unit, or, if that is less, the price as if everybody were included;
  see ``pld``.
* Discrete noise: probabilities of what is drawn are within factors ``exp(a)`` and ``exp(b)`` of those of what is
  analysed, up to a probability ``tau``; each adds up over the list. Drawn noise costs ``epsilon + a + b`` and ``exp(a)
  (delta + (1 + exp(epsilon)) tau)`` where the analysed noise costs epsilon and delta; see ``slack``.

This module gathers the names that others use; the rooms behind it are ``events`` (what was released), ``composition``
(the total price), ``pld`` (an independent price) and ``calibration`` (from a price to the noise).
"""

from flwr_dpkmeans.privacy.calibration import calibrate_gaussian, calibrate_scale
from flwr_dpkmeans.privacy.composition import compose_delta, compose_epsilon
from flwr_dpkmeans.privacy.events import (
    Event,
    ExactRelease,
    GaussianRelease,
    LaplaceRelease,
    PureRelease,
    SampledGaussianRelease,
    joint_sampled_release,
)
from flwr_dpkmeans.privacy.pld import pld_epsilon

__all__ = [
    "Event",
    "ExactRelease",
    "GaussianRelease",
    "LaplaceRelease",
    "PureRelease",
    "SampledGaussianRelease",
    "calibrate_gaussian",
    "calibrate_scale",
    "compose_delta",
    "compose_epsilon",
    "joint_sampled_release",
    "pld_epsilon",
]
