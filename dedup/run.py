"""What the job is given."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from dedup.lease import Lease
from dedup.stores import Claim, Unsupported


class PermanentError(Exception):
    """Raised by a job whose run no retry can mend: it is recorded as failed, and later deliveries are answered 200."""


class Run:
    """One attempt at one scheduled run.

    Args:
        claim: what the attempt has claimed.
        lease: keeps it.
        body: of the delivery.
        deadline: when the request's time is over, aware, UTC. Renewal of the lease ends then.
        supports_effects: whether the store takes `on_commit`.
    """

    def __init__(self, claim: Claim, lease: Lease, *, body: bytes, deadline: datetime, supports_effects: bool) -> None:
        self._claim = claim
        self._lease = lease
        self.body = body
        self.deadline = deadline
        self._supports_effects = supports_effects
        self.effects: Callable[[Any], None] | None = None
        """What `on_commit` was given."""

    @property
    def id(self) -> str:
        """The run's id, 64 hex digits, the same in each attempt: the idempotency token for every call that the job makes."""
        return self._claim.run_id

    @property
    def job_name(self) -> str:
        """The Cloud Scheduler job's id, without project and location."""
        return self._claim.job_name

    @property
    def schedule_time(self) -> datetime:
        """When the run was due; aware, UTC."""
        return self._claim.schedule_time

    @property
    def scope(self) -> str:
        """What tells the job from others of the same id, percent-encoded, `/` between the parts; empty without DEDUP_SCOPE."""
        return self._claim.scope

    @property
    def attempt(self) -> int:
        """1, 2, ...: which claim of this record it is. A failed attempt deletes the record, and the count starts anew."""
        return self._claim.attempts

    @property
    def lost(self) -> bool:
        """Whether the run may be another attempt's by now."""
        return self._lease.lost

    def ensure_held(self) -> None:
        """Returns while the run is this attempt's alone: call it before each step that can't be taken back.

        Raises:
            LeaseLost: it may be another attempt's by now.
        """
        self._lease.ensure_held()

    def json(self) -> Any:
        """The delivery's body, read as JSON.

        Raises:
            ValueError: it isn't JSON.
        """
        return json.loads(self.body)

    def on_commit(self, effects: Callable[[Any], None]) -> None:
        """Makes the job's own writes and the run's completion one commit: both, or neither.

        Args:
            effects: called when the job has returned, maybe more than once, with the store's transaction: a
                `google.cloud.firestore.Transaction`, whose reads come before its writes, a
                `google.cloud.spanner_v1.transaction.Transaction`, or a `sqlite3.Connection`.

        Raises:
            Unsupported: the store has no transactions to offer.
            RuntimeError: it was called before.
        """
        if not self._supports_effects:
            raise Unsupported(
                "this store can't commit a job's own writes with the run's completion: on_commit needs Firestore or Spanner"
            )
        if self.effects is not None:
            raise RuntimeError("on_commit was called before: put both into one function, which reads before it writes")
        self.effects = effects
