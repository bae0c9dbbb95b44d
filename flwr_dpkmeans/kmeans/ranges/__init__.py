"""A safe range for each column from two noisy histograms.

Its order of magnitude first, then its position in that range.

Both histograms have at most one entry per row and column, so one row moves them by at
most sqrt(n_features) in L2 norm, whatever bins are asked for. What follows from a noisy
histogram is computed with integers and single IEEE operations, so that all clients find
the same numbers.
"""
