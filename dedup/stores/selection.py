"""Which runs are listed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dedup.record import RunRecord, Status

_CONDITIONS = {
    "job_name": "job_name = @job_name",
    "status": "status = @status",
    "since": "schedule_time >= @since",
    "until": "schedule_time < @until",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """All runs that have a schedule_time, or those of them that fit whatever is said here.

    Args:
        job_name: only runs of this job.
        status: only runs of this status.
        since: only runs scheduled then or later; aware.
        until: only runs scheduled before that; aware.
        limit: how many at most, the newest.
    """

    job_name: str | None = None
    status: Status | None = None
    since: datetime | None = None
    until: datetime | None = None
    limit: int | None = None

    def fits(self, record: RunRecord) -> bool:
        """Whether a run is one of them, the limit aside."""
        return (
            record.schedule_time is not None
            and (self.job_name is None or record.job_name == self.job_name)
            and (self.status is None or record.status is self.status)
            and (self.since is None or record.schedule_time >= self.since)
            and (self.until is None or record.schedule_time < self.until)
        )

    def sql(self) -> tuple[str, dict[str, Any]]:
        """The same as a condition in SQL, and the values of its parameters by their names."""
        values = {
            "job_name": self.job_name,
            "status": self.status.value if self.status is not None else None,
            "since": self.since,
            "until": self.until,
        }
        given = {name: value for name, value in values.items() if value is not None}
        return " AND ".join(["schedule_time IS NOT NULL", *(_CONDITIONS[name] for name in given)]), given

    def page_sizes(self, most: int) -> Iterator[int]:
        """How many runs to ask for, page after page, each of `most` or fewer; without a limit, for ever."""
        left = self.limit
        while left is None or left > 0:
            yield most if left is None else min(most, left)
            left = left - most if left is not None else None


EVERY_RUN = Selection()
