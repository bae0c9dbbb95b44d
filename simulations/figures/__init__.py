"""Figures of results tables, and those that the pages show."""
