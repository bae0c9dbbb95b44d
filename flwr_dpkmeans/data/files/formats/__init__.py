"""Tables that say the types of their columns themselves."""
