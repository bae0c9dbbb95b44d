"""The only importer of Flower.

Records, client, mod, strategies, apps and the in-process grid.
"""

# Every task is offered by name, also where Ray restores an app from a pickle, which
# imports no more than the modules of its classes.
import flwr_dpkmeans.algorithms  # noqa: F401
