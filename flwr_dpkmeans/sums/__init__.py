"""Private sums over many parties: what is released, who adds the noise, and the two sides of a run."""
