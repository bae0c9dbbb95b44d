"""Entries of the state that the rounds of ProxyLloyd leave behind."""

from __future__ import annotations

CENTRE = "centre"
CLIP = "clip"
DISTANCES = "distances"
EXTENT = "extent"
SPREAD = "spread"
SPREAD_ERROR = "spread_error"
SUBSPACE_SPREAD = "subspace_spread"
AXES = "axes"
SHAPE = "shape"
PROXIES = "proxies"
PROXY_RADIUS = "proxy_radius"
RADIUS = "radius"
AVERAGE_COUNTS = "average_counts"
