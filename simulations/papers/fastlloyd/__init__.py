"""FastLloyd (Diaa, Humphries, Kerschbaum): Table 3, and utility beside a reference."""
