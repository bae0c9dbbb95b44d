"""Flower's own programs on this machine: Ray, throw-away deployments, the bundle."""
