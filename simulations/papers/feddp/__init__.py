"""FedDP-KMeans (Scott, Lampert, Saulpic): cost above the optimum, seconds, memory.

What the paper leaves open, and what is taken here:

* The clip bound: the .95 quantile of the server points' norms, for outer products the
  median's square.
* Algorithm 2, line 10, which has T twice: once, which is what Theorem 1 needs.
* Client level, the sampling rate: all clients in each round.
* Lemma 17 and Algorithm 4, whose epsilon: the run's.
* Algorithm 5, part 3, distances in the projection or between rows: between rows, as in
  Algorithms 2 and 3.
"""
