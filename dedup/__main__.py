"""`python -m dedup`: what ran, what didn't, and what to do about it."""

from dedup.cli import cli

cli(prog_name="python -m dedup")
