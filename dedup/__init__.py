"""Scheduled jobs that run once."""

from dedup.delivery import from_idempotency_key
from dedup.handler import handle
from dedup.handover import resume
from dedup.lease import LeaseLost
from dedup.run import PermanentError, Run
from dedup.stores import Unsupported

__all__ = ["LeaseLost", "PermanentError", "Run", "Unsupported", "from_idempotency_key", "handle", "resume"]
