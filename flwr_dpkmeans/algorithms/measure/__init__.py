"""Evaluation: one more private sum after the algorithm's last round.

It measures the result and does not change it.

What one row, or one client, adds to each of three arrays is at most 1 whatever the
centroids are; that the other rows' parts stay as they are takes centroids on the grid
and in the box, which clients check (`has_exact_centroids`). ``choose_epsilon.md`` says
what is released, and how it is read.
"""
