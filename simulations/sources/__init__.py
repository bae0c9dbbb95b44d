"""Research data: the census, Stack Overflow, and drawn clusters whose degree of
separation is known.
"""
