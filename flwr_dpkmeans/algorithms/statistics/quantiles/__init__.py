"""Quantiles of columns, from one round of counts in halves of halves of the bounds."""
