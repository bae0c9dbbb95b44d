"""Numbers about a federation's machines, for Prometheus and its alerts."""
