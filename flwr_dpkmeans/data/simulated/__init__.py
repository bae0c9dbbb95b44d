"""Rows of a simulation's virtual nodes."""
