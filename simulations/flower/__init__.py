"""Flower's own programs on this machine.

A whole federation over TLS (``python -m simulations.flower --help``), a soak of one,
simulations on Ray, and the app's bundle.
"""
