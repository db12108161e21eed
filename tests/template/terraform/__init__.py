"""terraform/: what it plans, refuses, and leaves behind."""
