"""ProxyLloyd: a private start from proxies, then shrunk Lloyd steps.

Every statistic is a sum of vectors of length at most 1: rows, residuals and outer
products are divided by their radius before they are sent, so that all L2 sensitivities
are 1 (and the rounding of a sum), whatever an earlier release or a hostile server made
the radius. Client level: every client adds the mean over its rows of the same vectors,
clipped. Pictures and reasons: ``docs/explanation/proxy_lloyd.md``.
"""
