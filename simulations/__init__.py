"""Experiments, benchmarks and figures; nothing here is needed to run the product."""
