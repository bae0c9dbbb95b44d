"""Private counts and private bounds, which are released before a plan is complete."""
