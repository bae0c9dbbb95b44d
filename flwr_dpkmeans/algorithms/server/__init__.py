"""What the server's own points tell everybody before a run, at no budget.

a centre and clip bounds, for the plan.

So no hyper-parameter has to be taken from private data. Also from the caller's units to
the plan's box and back.
"""
