"""Estimators of what several parties' columns are like."""
