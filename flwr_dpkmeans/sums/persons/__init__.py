"""Persons: which rows are theirs, and which of these count."""
