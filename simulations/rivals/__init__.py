"""Other people's methods, built here to be compared with: federated where they are sums over rows, else central.

Importing `pe_means` or `uniform_grid` registers its methods; an installed `flwr-dpkmeans-rivals` (the pyproject.toml in
this folder) makes them known everywhere.
"""
