"""Flower strategies: one for every algorithm."""
