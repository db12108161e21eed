"""Scheduled jobs that run once."""

import sys

from dedup.delivery import from_idempotency_key
from dedup.lease import LeaseLost
from dedup.run import PermanentError, Run
from dedup.stores import Unsupported

# "-m" is what it is while `python -m dedup` looks for itself: the command line reads the environment on its own.
if sys.argv[0] != "-m":
    from dedup.handler import handle
    from dedup.handover import resume

__version__ = "1.0.0"

__all__ = ["LeaseLost", "PermanentError", "Run", "Unsupported", "__version__", "from_idempotency_key", "handle", "resume"]
