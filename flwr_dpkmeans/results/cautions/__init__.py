"""What speaks against a result: noise, gaps, bounds and columns."""
