"""What one experiment is: configuration, data, run, measures, table of results."""
