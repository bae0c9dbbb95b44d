"""Centroids that no private row decides.

By sphere packing, and by k-means of public, weighted points.

Sphere packing (Su et al. 2016; FastLloyd, section 5.3.1): random centroids are at least
`a` away from the walls of the box [-1, 1]^d and 2a from each other; a radius `a` is
infeasible after 100 candidates in a row were rejected. Equally seeded generators give
equal centroids everywhere: candidates are on the 2^-16 grid before they are tested, so
that squared distances are exact.

A candidate is uniform in the inner box [-1 + a, 1 - a]^d, as in the FastLloyd code.
Drawing from the whole box would fit the text as well, but in many dimensions nearly
every candidate is near a wall, which forces `a` toward 0. FedDP-KMeans (appendix G.3)
keeps away from the corners instead: candidates are uniform in the box, at least `a`
away from its corners and 2a from each other, and `a` is infeasible after 1,000
rejections in a row.
"""
