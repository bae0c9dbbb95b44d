"""What is held against what: plans, tables, sums and statistics."""
