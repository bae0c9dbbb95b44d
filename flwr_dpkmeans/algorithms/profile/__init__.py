"""Federated profiles: one more private sum after the algorithm's last round.

Of what the rows of each cluster are like.

Columns need not be clustered: they stand beside the points in a block that no other
round sees. Record level: every row adds 1, its numbers, their squares less one half,
its flags less one half and its categories, to the cluster of its nearest centroid. A
cell that is missing, and stays in the clustering (``missing = "centre"``), adds nothing
of these, and how many cells of such a column are there is one more sum. Client level:
every client adds the mean of these over its own rows, so that clients weigh alike.
"""
