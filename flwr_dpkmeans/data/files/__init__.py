"""Readers of files: what is a header, a record, a name, a number or a gap.

A file is read here as it is written, before any choice about its columns.
"""
