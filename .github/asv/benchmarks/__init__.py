"""What users wait for, timed commit by commit."""
