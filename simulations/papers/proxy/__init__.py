"""ProxyLloyd: what its ingredients are worth, its utility, and its page's pictures."""
