"""What one experiment is: its configuration, data, run, measures and table of results."""
