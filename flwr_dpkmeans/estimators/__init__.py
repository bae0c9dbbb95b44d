"""Estimators by scikit-learn's conventions.

K-means and naive Bayes, of several parties or of one table.
"""
