"""Masked secure aggregation over Z_2^64, without I/O.

Keys, mask streams, graphs and the two state machines.

Nothing here knows of clustering, of privacy accounting or of Flower; see protocol.md
beside this file.
"""
