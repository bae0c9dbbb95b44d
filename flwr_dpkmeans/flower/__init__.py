"""The only importer of Flower: records, client, mod, strategies, apps and the
in-process grid.
"""
