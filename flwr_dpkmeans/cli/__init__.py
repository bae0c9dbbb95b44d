"""All commands of ``flwr-dpkmeans``."""
