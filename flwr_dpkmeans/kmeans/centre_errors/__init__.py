"""How far a centre may be from the exact mean of the rows that it labels.

Numbers that follow from releases alone.

Three parts add up in squares, as standard deviations of each coordinate: noise in the
last released sums and counts, rows that these sums cut, and rows whose label changed
when the centres moved for the last time.
"""
