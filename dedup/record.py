"""The record of a run, and the rule that says who may run it. Pure: no I/O, no clock of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, StrEnum
from typing import Any

LONGEST_LEASE_SECONDS = 10**9
"""A lease beyond this (31 years) is a mistake, and would overflow a date."""

MALFORMED_LIVES_FOR = timedelta(days=1)
"""How long a record that nobody can read holds its run, if it doesn't say so itself."""


class Status(StrEnum):
    """What a record says of its run; the first two are the documented example's own words."""

    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"


class Decision(Enum):
    """What an attempt may do with a run."""

    CLAIM = "claim"
    """Nobody holds it: claim it, or take it over."""
    HELD = "held"
    """This attempt holds it: an earlier write of its own arrived, the acknowledgement did not."""
    IN_PROGRESS = "in progress"
    """Another attempt holds it."""
    COMPLETED = "completed"
    FAILED = "failed"


class Ending(Enum):
    """How an attempt gives up its run."""

    COMPLETED = "completed"
    FAILED = "failed"
    RELEASED = "released"
    """The attempt failed: the next retry may run at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run, as a store holds it, and the time of the last write.

    Times are aware, in UTC. What can't be read as its type is None: see `malformed`.
    """

    updated_at: datetime
    """When the record was last written, by the store's clock: the start of the lease, and the fencing token."""
    status: Status | None = None
    attempt_id: str | None = None
    lease_seconds: float | None = None
    lease_expires: datetime | None = None
    """When the lease ends by the writer's clock: decides only where the documented example wrote the record."""
    renewed_at: datetime | None = None
    expire_at: datetime | None = None
    job_name: str | None = None
    schedule_time: datetime | None = None
    scope: str | None = None
    attempts: int = 1
    claimed_at: datetime | None = None
    finished_at: datetime | None = None
    result: str | None = None
    error: str | None = None

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any], updated_at: datetime) -> RunRecord:
        """Reads what a store holds, whoever wrote it; never raises.

        Args:
            fields: the stored fields by name; unknown ones are passed over.
            updated_at: when the store last wrote them, by its own clock, aware.
        """
        attempts = fields.get("attempts")
        lease_seconds = _lease_seconds(fields.get("lease_seconds"))
        # A length that can't be read must not pass for a record of the documented example, which has none and goes by the time.
        has_none = fields.get("lease_seconds") is None
        lease_expires = _time(fields.get("lease_expires")) if has_none or lease_seconds is not None else None
        return cls(
            updated_at=updated_at,
            status=_status(fields.get("status")),
            attempt_id=_text(fields.get("attempt_id")),
            lease_seconds=lease_seconds,
            lease_expires=lease_expires,
            renewed_at=_time(fields.get("renewed_at")),
            expire_at=_time(fields.get("expire_at")),
            job_name=_text(fields.get("job_name")),
            schedule_time=_time(fields.get("schedule_time")),
            scope=_text(fields.get("scope")),
            attempts=attempts if type(attempts) is int and attempts > 0 else 1,
            claimed_at=_time(fields.get("claimed_at")),
            finished_at=_time(fields.get("finished_at")),
            result=_text(fields.get("result")),
            error=_text(fields.get("error")),
        )

    @property
    def malformed(self) -> bool:
        """Whether nobody can tell from this record who owns the run, or until when."""
        if self.status is None:
            return True
        if self.status is not Status.IN_PROGRESS:
            return False
        return not self.attempt_id or (self.lease_seconds is None and self.lease_expires is None)

    @property
    def live_until(self) -> datetime:
        """When the run may be taken over, by the store's clock."""
        if self.malformed:
            return self.expire_at if self.expire_at is not None else self.updated_at + MALFORMED_LIVES_FOR
        if self.lease_seconds is not None:
            return self.updated_at + timedelta(seconds=self.lease_seconds)
        assert self.lease_expires is not None  # or it would be malformed
        return self.lease_expires

    def is_held_by(self, attempt_id: str) -> bool:
        """Whether the run is in progress in the name of this attempt, its lease over or not."""
        return self.status is Status.IN_PROGRESS and self.attempt_id == attempt_id


def decide(record: RunRecord | None, attempt_id: str, now: datetime) -> Decision:
    """Says what an attempt may do with a run.

    Args:
        record: what the store holds for the run, None if nothing.
        attempt_id: the asking attempt, 32 hex digits.
        now: the store's clock when it was read, aware.
    """
    if record is None:
        return Decision.CLAIM
    if record.status is Status.COMPLETED:
        return Decision.COMPLETED
    if record.status is Status.FAILED:
        return Decision.FAILED
    if now >= record.live_until:
        return Decision.CLAIM
    if record.is_held_by(attempt_id) and not record.malformed:
        return Decision.HELD
    return Decision.IN_PROGRESS


def _status(value: object) -> Status | None:
    return next((status for status in Status if status.value == value), None)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _time(value: object) -> datetime | None:
    return value if isinstance(value, datetime) and value.tzinfo is not None else None


def _lease_seconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if 0 <= value <= LONGEST_LEASE_SECONDS else None
