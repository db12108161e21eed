"""Scheduled jobs that run once."""

from dedup.handler import handle
from dedup.lease import LeaseLost
from dedup.run import PermanentError, Run
from dedup.stores import Unsupported

__all__ = ["LeaseLost", "PermanentError", "Run", "Unsupported", "handle"]
