"""What a run leaves behind: files that are never half-written, and a picture that a person can read."""
