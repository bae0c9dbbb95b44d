"""A client in Flower: its configuration, its table, and what is wrapped."""
