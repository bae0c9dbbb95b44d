"""Where ``python -m simulations.deploy`` was; it goes with the next release."""
