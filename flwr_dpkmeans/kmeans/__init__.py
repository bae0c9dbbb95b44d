"""Numerics of k-means on clean arrays: no privacy, no messages, no files.

Points and centroids are float64 arrays whose entries are multiples of 2^-16 inside [-1, 1]. Products are then
multiples of 2^-32 and every sum is exact, so that results do not depend on the order of summation, on the BLAS library
or on the machine.
"""
