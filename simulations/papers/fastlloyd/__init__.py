"""FastLloyd (Diaa, Humphries, Kerschbaum): Table 3, and utility beside a reference.

What the paper leaves open, and what is taken here:

* Figure 3a, which of the G2 sets: ``data.deviation=30``.
* Figures 3b, 4 and 5, three sets of a cell with 100 runs each: a set of its own for
  each seed; 3 or 5 seeds.
* Lloyd without noise, number of rounds: 7.
* GLloyd, T on both sides of equation 33: T of equation 32, once.
"""
