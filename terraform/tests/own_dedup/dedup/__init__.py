"""It stands for a copy of dedup/, or a link to it."""
