"""What a run leaves behind.

Files that are never half-written, a picture that a person can read, and its quality.
"""
