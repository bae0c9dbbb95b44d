"""Clients of one process, and how many of them answer together."""
