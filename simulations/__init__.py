"""Benchmarks and experiments; the only importer of Hydra and Ray."""
