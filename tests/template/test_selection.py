"""Which runs are selected."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest

from dedup.record import RunRecord, Status
from dedup.stores.selection import EVERY_RUN, Selection

NOON = datetime(2026, 10, 16, 12, tzinfo=UTC)
MOMENT = timedelta(microseconds=1)
RUN = RunRecord(updated_at=NOON, status=Status.FAILED, job_name="nightly", schedule_time=NOON)


@pytest.mark.parametrize(
    ("selection", "fits"),
    [
        (EVERY_RUN, True),
        (Selection(job_name="nightly"), True),
        (Selection(job_name="Nightly"), False),
        (Selection(status=Status.FAILED), True),
        (Selection(status=Status.COMPLETED), False),
        (Selection(since=NOON), True),
        (Selection(since=NOON + MOMENT), False),
        (Selection(until=NOON + MOMENT), True),
        (Selection(until=NOON), False),
        (Selection(job_name="nightly", status=Status.COMPLETED), False),
        (Selection(limit=0), True),
    ],
    ids=str,
)
def test_what_fits(selection: Selection, fits: bool) -> None:
    """A run fits where each thing that is said is so of it; from `since`, and before `until`."""
    assert selection.fits(RUN) is fits


def test_a_run_without_a_time_never_fits() -> None:
    """A run that has no schedule time is in no selection."""
    assert not EVERY_RUN.fits(RunRecord(updated_at=NOON, status=Status.FAILED))


def test_condition_in_sql() -> None:
    """Only what is said is asked for, and a value is a parameter, never text of the statement."""
    assert EVERY_RUN.sql() == ("schedule_time IS NOT NULL", {})
    condition, given = Selection(job_name="'; --", status=Status.FAILED, since=NOON, until=NOON + MOMENT, limit=3).sql()
    assert condition == (
        "schedule_time IS NOT NULL AND job_name = @job_name AND status = @status AND schedule_time >= @since"
        " AND schedule_time < @until"
    )
    assert given == {"job_name": "'; --", "status": "failed", "since": NOON, "until": NOON + MOMENT}


@pytest.mark.parametrize(
    ("limit", "sizes"),
    [(0, []), (1, [1]), (9, [9]), (10, [10]), (11, [10, 1]), (25, [10, 10, 5]), (None, [10, 10, 10, 10])],
)
def test_page_sizes(limit: int | None, sizes: list[int]) -> None:
    """Pages are as large as they may be, and add up to the limit; without one they go on."""
    assert list(islice(Selection(limit=limit).page_sizes(10), 4)) == sizes
