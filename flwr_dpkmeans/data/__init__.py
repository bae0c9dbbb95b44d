"""Tables, public bounds, partitions and the papers' federated data: everything between a file and points in [-1, 1]."""
