"""What every store that can be looked into promises: listing, looking up, and deleting what was seen."""

from __future__ import annotations

from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import cast

import pytest
from google.api_core.exceptions import FailedPrecondition, ServiceUnavailable
from google.cloud import firestore

from dedup.record import Ending, Status
from dedup.stores import Inspectable, SeenRun, StoreUnavailable
from dedup.stores.sqlite import SQLiteRunStore
from tests.contract.harness import A_RUN, SCHEDULE_TIME, FirestoreHarness, Harness

HOUR = timedelta(hours=1)


@pytest.fixture
def store(inspectable: Harness) -> Inspectable:
    """A fresh store, which holds nothing."""
    inspectable.store.get_run(A_RUN)
    return cast(Inspectable, inspectable.store)


def hours(listed: list[SeenRun]) -> list[float]:
    """How many hours after the first each run was scheduled."""
    return [(run.record.schedule_time - SCHEDULE_TIME) / HOUR for run in listed if run.record.schedule_time is not None]


def fill(inspectable: Harness) -> None:
    """Six runs, in no order: of two jobs in turn, the last two in progress."""
    for number in (3, 0, 5, 1, 4, 2):
        claim = inspectable.claimed(f"{number:064x}", job_name=f"j{number % 2}", schedule_time=SCHEDULE_TIME + number * HOUR)
        if number < 4:
            assert inspectable.store.finish_run(claim, Ending.COMPLETED)


def test_an_empty_store_lists_nothing(store: Inspectable) -> None:
    """A store without runs lists none."""
    assert list(store.list_runs()) == []


def test_runs_are_listed_newest_first(inspectable: Harness, store: Inspectable) -> None:
    """All runs are listed, the newest schedule time first, each with its id, its record and the store's clock."""
    fill(inspectable)
    listed = list(store.list_runs())
    assert hours(listed) == [5, 4, 3, 2, 1, 0]
    for run in listed:
        assert run.record == inspectable.record(run.run_id)
        assert abs(run.seen_at - inspectable.now()) < timedelta(seconds=30)


def test_filters_and_limit_go_together(inspectable: Harness, store: Inspectable) -> None:
    """Whatever is filtered by, the runs that fit are listed, from `since` until before `until`, as many as the limit says."""
    fill(inspectable)
    for job_name, status, times, limit in product((None, "j1"), (None, *Status), (None, (1, 5)), (None, 1, 2, 100)):
        fitting = [
            number
            for number in (5, 4, 3, 2, 1, 0)
            if (job_name is None or number % 2 == 1)
            and (status is None or status is (Status.COMPLETED if number < 4 else Status.IN_PROGRESS))
            and (times is None or times[0] <= number < times[1])
        ]
        since, until = (SCHEDULE_TIME + number * HOUR for number in times) if times is not None else (None, None)
        listed = store.list_runs(job_name=job_name, status=status, since=since, until=until, limit=limit)
        assert hours(list(listed)) == fitting[:limit], (job_name, status, times, limit)


def test_a_record_without_a_schedule_time_is_not_listed(inspectable: Harness, store: Inspectable) -> None:
    """A record of the documented example, which has no schedule time, is found by its id alone."""
    inspectable.put_documented(A_RUN, "completed", HOUR)
    assert list(store.list_runs()) == []
    assert store.look_up(A_RUN)[0] is not None


def test_a_listing_goes_on_over_pages(inspectable: Harness, store: Inspectable, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing that is longer than a page is whole, and no run is in it twice, however many are scheduled for one time."""
    monkeypatch.setattr("dedup.stores.firestore.PAGE", 2)
    for number in range(7):
        inspectable.claimed(f"{number:064x}", schedule_time=SCHEDULE_TIME + (number // 4) * HOUR)
    for limit in (None, 3, 4, 7):
        listed = [run.run_id for run in store.list_runs(limit=limit)]
        assert len(set(listed)) == len(listed) == min(7, limit or 7)


def test_a_run_is_looked_up_with_the_stores_clock(inspectable: Harness, store: Inspectable) -> None:
    """Looking up gives the record, or None, and the store's clock with either."""
    record, now = store.look_up(A_RUN)
    assert record is None
    assert abs(now - inspectable.now()) < timedelta(seconds=30)
    inspectable.claimed()
    record, later = store.look_up(A_RUN)
    assert record == inspectable.record()
    assert later >= now


def test_what_was_seen_is_deleted(inspectable: Harness, store: Inspectable) -> None:
    """A record that is as it was seen is deleted."""
    inspectable.claimed()
    assert store.delete_run(A_RUN, inspectable.record().updated_at)
    assert inspectable.raw(A_RUN) is None


def test_what_was_written_since_is_not_deleted(inspectable: Harness, store: Inspectable) -> None:
    """A record that somebody has written since it was seen stays, and so does one that is gone."""
    claim = inspectable.claimed()
    seen = inspectable.record().updated_at
    assert inspectable.store.renew_run(claim)
    before = inspectable.raw(A_RUN)
    assert not store.delete_run(A_RUN, seen)
    assert inspectable.raw(A_RUN) == before
    inspectable.delete(A_RUN)
    assert not store.delete_run(A_RUN, seen)


@pytest.mark.store("firestore")
@pytest.mark.parametrize("arrives", [True, False], ids=["arrived", "lost"])
def test_an_unclear_delete_is_cleared_up(request: pytest.FixtureRequest, arrives: bool) -> None:
    """On Firestore, a delete whose acknowledgement is lost is told as what it came to."""
    inspectable = FirestoreHarness(request)
    inspectable.claimed()
    inspectable.spy.fail("commit", ServiceUnavailable("lost"), arrives=arrives)
    assert inspectable.store.delete_run(A_RUN, inspectable.record().updated_at)
    assert inspectable.raw(A_RUN) is None
    inspectable.close()


@pytest.mark.store("firestore")
def test_a_missing_index_is_named(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """On Firestore, a query without its index says where the index comes from; the emulator would never miss it."""

    def refuse(*_: object, **__: object) -> None:
        raise FailedPrecondition("The query requires an index. You can create it here: https://...")

    inspectable = FirestoreHarness(request)
    monkeypatch.setattr(firestore.Query, "stream", refuse)
    with pytest.raises(StoreUnavailable, match=r"requires an index.*firestore\.tf"):
        list(cast(Inspectable, inspectable.store).list_runs())
    inspectable.close()


@pytest.mark.store("sqlite")
def test_reading_makes_no_file(tmp_path: Path) -> None:
    """On SQLite, looking at a file that isn't there says so, and leaves none behind: its path may be misspelt."""
    path = tmp_path / "nowhere" / "runs.db"
    store = SQLiteRunStore(path)
    for look in (lambda: list(store.list_runs()), lambda: store.look_up(A_RUN)):
        with pytest.raises(StoreUnavailable, match="there is none"):
            look()
    assert not path.parent.exists()
