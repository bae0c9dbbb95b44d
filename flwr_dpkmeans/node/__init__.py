"""What one party decides and remembers: its limits, its ledger, its identity."""
