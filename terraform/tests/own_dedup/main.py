"""A job in a folder that has a dedup/ of its own."""
