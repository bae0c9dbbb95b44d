"""What speaks against clustering a table as it is, for whoever owns its rows.

All of it follows from exact cells: it is never sent, published or logged elsewhere.
"""
