"""A federation on machines of its own: nodes, server, guard, certificates, pages."""
