"""What the package costs, and how true the errors are that it prints."""
