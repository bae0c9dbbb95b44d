"""A party's table, loaded by what its owner states."""
