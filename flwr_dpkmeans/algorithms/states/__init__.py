"""What clusterings keep in their state, and what a client admits of it."""
