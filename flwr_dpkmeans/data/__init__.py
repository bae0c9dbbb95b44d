"""Tables, public bounds, partitions and the papers' federated data.

Everything between a file and points in [-1, 1].
"""
