"""Delimited text: records, quotes, headers and encodings."""
