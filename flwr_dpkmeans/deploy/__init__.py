"""A federation on machines of its own: nodes, server, guard, certificates, pages."""

FIRST_PORT, N_PORTS = 8000, 1000
"""Among which a server looks for a free one."""
