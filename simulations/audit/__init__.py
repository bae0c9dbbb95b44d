"""Empirical audit of the privacy claims.

Lower bounds on epsilon from many runs, and attacks on what is released.
"""
