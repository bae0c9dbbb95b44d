"""What a node's owner looks at and decides."""
