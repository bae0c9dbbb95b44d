"""Private statistics that are no clusterings."""
