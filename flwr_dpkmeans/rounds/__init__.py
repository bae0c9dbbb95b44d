"""The one idea: an algorithm is an ordered list of private-sum rounds."""
