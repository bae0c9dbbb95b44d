"""A whole federation on one machine, over TLS, with authenticated SuperNodes.

`python -m simulations.deploy --help`.
"""
