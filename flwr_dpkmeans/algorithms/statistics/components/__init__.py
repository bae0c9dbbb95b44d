"""Principal components: a round of means and spreads, then one of outer products."""
