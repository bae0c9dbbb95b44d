"""What stands before Flower's programs.

Only approved apps are parsed, unpacked and run.

The programs of this folder are run as files, in Python's isolated mode, beside an app
that brings its own ``flwr_dpkmeans``. So these modules import each other by their place
alone, and nothing of the project but what is private in Flower; and the gate, in the
process that no app is loaded into.
"""
