"""A budget that several fits share, and what each of them costs."""
