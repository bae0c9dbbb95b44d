"""What a column means: as a schema states it, or as its cells let its owner guess."""
