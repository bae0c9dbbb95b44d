"""Constants of the papers."""

from __future__ import annotations

ERROR_TARGET = 0.004
"""Mean squared error per iteration that the number of iterations aims at (Su et al.
2016).
"""
RHO = 0.225
"""Su et al.'s estimate of a normalised centroid coordinate, used by SuLloyd and GLloyd.
"""
