"""Where proxies lie: many more points than clusters.

They are spread over a private ellipsoid, and weighted by noisy counts.

The ellipsoid comes from a noisy mean and covariance; nothing here sees private rows.
Samples and proxies are on the grid, so that distances and sums are exact and all
machines choose the same ones; see also `eigen`.
"""
