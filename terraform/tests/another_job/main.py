"""A job of another folder, as source_dir names it."""
