"""A federation on machines of its own: nodes, server, guard, certificates, pages."""

SERVER_PORTS = range(8000, 9000)
"""Among which a server looks for a free one."""
