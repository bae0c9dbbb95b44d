"""Double masking with shared secrets: sums of large cohorts that survive dropouts at any stage (SecAgg+)."""
