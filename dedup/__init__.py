"""Scheduled jobs that run once."""

import sys

if (
    sys.argv[0] != "-m"
):  # what it is while `python -m dedup` looks for itself: the command line reads the environment on its own
    from dedup.handler import handle
from dedup.lease import LeaseLost
from dedup.run import PermanentError, Run
from dedup.stores import Unsupported

__all__ = ["LeaseLost", "PermanentError", "Run", "Unsupported", "handle"]
