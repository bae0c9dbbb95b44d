"""The gate: what a site enforces around an approved app of anybody's."""
