"""Numerics of k-means on clean arrays: no privacy, no messages, no files.

Points and centroids are float64 arrays whose entries are multiples of 2^-16 inside [-1,
1]. Products are multiples of 2^-32 and every sum is exact, so that results depend
neither on the order of summation nor on BLAS library or machine.
"""
