"""Clusterings that need all rows in one place: baselines, which no federation runs."""
