"""Public bounds as people and files state them."""
