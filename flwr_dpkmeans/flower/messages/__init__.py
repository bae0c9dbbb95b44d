"""Packets of the protocol as Flower's messages, and who is sent them."""
