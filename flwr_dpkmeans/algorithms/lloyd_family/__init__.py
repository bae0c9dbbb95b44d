"""FastLloyd (Diaa, Humphries, Kerschbaum 2025).

And GLloyd, SuLloyd (Su et al. 2016) and Lloyd on absolute sums.

All start from a sphere packing. On absolute sums, centroids that leave the box are
truncated to it by default: it costs nothing, and with independent noise on sums and
counts an unbounded quotient is much worse than the papers' figures.
"""
