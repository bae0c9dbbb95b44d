"""FedDP-KMeans (Scott, Lampert, Saulpic, ICML 2025).

a private start from server-held data, then DP-Lloyd.

Rounds: outer product -> weights -> centers -> Lloyd x T. The choice of k needs the
first two alone, the paper's baselines the Lloyd rounds alone, after starts that cost no
privacy.

Record level (section 3): a row is clipped to the data radius. Client level (appendix
G.4): a client's whole statistic is clipped, and the centers round sums cluster means
and indicators instead of rows and counts. In both cases the bounds come from the plan
and do not depend on what the server sends, so a false projection costs nothing.
"""
