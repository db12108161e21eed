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
    def attempt_id(self) -> str:
        """Whose lease it is, 32 hex digits: the work that a run is handed over to needs it to go on with it."""
        return self._claim.attempt_id

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
        if self.handed_over:
            raise RuntimeError(
                "on_commit after hand_over: the run is completed by the work it was handed over to, use it there"
            )
        self.effects = effects

    @property
    def handed_over(self) -> bool:
        """Whether longer work finishes this run, and the answer to its delivery says only that it was begun."""
        return self._claim.handed_over

    def hand_over(self, lease_seconds: int) -> None:
        """Leaves the run to longer work, which goes on with it by `dedup.resume(run.id, run.attempt_id)`.

        Call it before that work is started, and return only when it was: Cloud Scheduler delivers no more then. From here the
        run is this job's only as long as that work hasn't begun: a job that raises releases it, unless the work has it by then.

        Args:
            lease_seconds: how long the work may take to begin, such as the start of a container. It is the length of the
                work's own lease too: how soon the run of a dead one may be taken over.

        Raises:
            LeaseLost: the run may be another attempt's by now.
            StoreUnavailable: the store can't be asked.
            ValueError: the lease is no number of seconds that a record can have.
            RuntimeError: on_commit was called before.
        """
        if self.effects is not None:
            raise RuntimeError("hand_over after on_commit: the run is completed by the work it is handed over to, not here")
        longest = self._claim.retention_seconds
        if type(lease_seconds) is not int or not 1 <= lease_seconds <= longest:
            raise ValueError(
                f"hand_over({lease_seconds!r}): a lease is 1 to {longest} whole seconds, as long as DEDUP_RETENTION_SECONDS "
                "keeps its record"
            )
        self._lease.hand_over(lease_seconds)
