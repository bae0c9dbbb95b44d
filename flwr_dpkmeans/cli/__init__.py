"""The command lines of ``flwr-dpkmeans``.

Only a command that runs imports what its work takes: ``--help`` and completion wait for
no library.
"""
