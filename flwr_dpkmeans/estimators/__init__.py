"""Estimators by scikit-learn's conventions: k-means and naive Bayes, of several parties
or of one table.
"""
