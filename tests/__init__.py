"""Your tests; below template/, those of what you have forked."""
