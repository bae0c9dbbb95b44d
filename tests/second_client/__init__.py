"""A second client, written from ``docs/reference/client.md`` and ``tests/vectors``.

Nothing of the package is imported here.
"""
