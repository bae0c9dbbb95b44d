"""Flower's own programs on this machine: simulations on Ray, and the app's bundle."""
