"""Refinements of ProxyLloyd, what they cut off, and what they make of it."""
