"""How a run's budget is shared among its releases, and what noise follows."""
