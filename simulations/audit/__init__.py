"""Empirical audit of the privacy claims: lower bounds on epsilon from many runs, and attacks on what is released."""
