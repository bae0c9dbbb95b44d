"""Masked secure aggregation over Z_2^64, without I/O.

Keys, mask streams, graphs and the two state machines.

Nothing here knows of clustering, of privacy accounting or of Flower; the page is
``docs/reference/protocol.md``.
"""
