"""Steps and radii that are made of noisy residual sums, by empirical Bayes.

A quotient of noisy sum and count is a poor step where a cluster is small. So steps are
posterior means under a prior whose parameter tau, their length, all clusters' sums
tell: post-processing, which costs nothing.
"""
