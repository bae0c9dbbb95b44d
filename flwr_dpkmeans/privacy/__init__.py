"""Differential privacy: noise, its price, and what may still be spent."""
