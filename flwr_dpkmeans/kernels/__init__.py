"""Statistics over rows: exact, in blocks, the same on every machine."""
