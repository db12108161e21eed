"""What every store promises to who looks into it: listing, looking up, and deleting what was seen."""

from __future__ import annotations

from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import redis
from google.api_core.exceptions import FailedPrecondition, ServiceUnavailable
from google.cloud import firestore

from dedup.record import Ending, Status
from dedup.stores import Inspectable, SeenRun, StoreUnavailable
from dedup.stores.redis import RedisRunStore
from dedup.stores.selection import Selection
from dedup.stores.sqlite import SQLiteRunStore
from tests.template.contract.harness import (
    A_RUN,
    HARNESSES,
    SCHEDULE_TIME,
    FirestoreHarness,
    Harness,
    RedisHarness,
    SpannerHarness,
    SQLiteHarness,
)

HOUR = timedelta(hours=1)


@pytest.fixture
def store(harness: Harness) -> Inspectable:
    """A fresh store, which holds nothing."""
    harness.store.get_run(A_RUN)  # makes SQLite's file
    return harness.store


def hours(listed: list[SeenRun]) -> list[float]:
    """How many hours after the first each run was scheduled."""
    return [(run.record.schedule_time - SCHEDULE_TIME) / HOUR for run in listed if run.record.schedule_time is not None]


def fill(harness: Harness) -> None:
    """Six runs, in no order: of two jobs in turn, the last two in progress."""
    for number in (3, 0, 5, 1, 4, 2):
        claim = harness.claimed(f"{number:064x}", job_name=f"j{number % 2}", schedule_time=SCHEDULE_TIME + number * HOUR)
        if number < 4:
            assert harness.store.finish_run(claim, Ending.COMPLETED)


def test_an_empty_store_lists_nothing(store: Inspectable) -> None:
    """A store without runs lists none."""
    assert list(store.list_runs()) == []


def test_runs_are_listed_newest_first(harness: Harness, store: Inspectable) -> None:
    """All runs are listed, the newest schedule time first, each with its id, its record and the store's clock."""
    fill(harness)
    listed = list(store.list_runs())
    assert hours(listed) == [5, 4, 3, 2, 1, 0]
    for run in listed:
        assert run.record == harness.record(run.run_id)
        assert abs(run.seen_at - harness.now()) < timedelta(seconds=30)


def test_filters_and_limit_go_together(harness: Harness, store: Inspectable) -> None:
    """Whatever is filtered by, the runs that fit are listed, from `since` until before `until`, as many as the limit says."""
    fill(harness)
    for job_name, status, times, limit in product((None, "j1"), (None, *Status), (None, (1, 5)), (None, 1, 2, 100)):
        fitting = [
            number
            for number in (5, 4, 3, 2, 1, 0)
            if (job_name is None or number % 2 == 1)
            and (status is None or status is (Status.COMPLETED if number < 4 else Status.IN_PROGRESS))
            and (times is None or times[0] <= number < times[1])
        ]
        since, until = (SCHEDULE_TIME + number * HOUR for number in times) if times is not None else (None, None)
        listed = store.list_runs(Selection(job_name=job_name, status=status, since=since, until=until, limit=limit))
        assert hours(list(listed)) == fitting[:limit], (job_name, status, times, limit)


def test_a_record_without_a_schedule_time_is_not_listed(harness: Harness, store: Inspectable) -> None:
    """A record of the documented example, which has no schedule time, is found by its id alone."""
    harness.put_documented(A_RUN, "completed", HOUR)
    assert list(store.list_runs()) == []
    assert store.look_up(A_RUN)[0] is not None


def test_a_schedule_time_that_is_none_is_not_listed(harness: Harness, store: Inspectable) -> None:
    """A record whose schedule time was edited to nonsense is found by its id alone."""
    if isinstance(harness, SpannerHarness):
        pytest.skip("its column holds times alone")
    harness.put(A_RUN, {"status": "completed", "attempt_id": "a" * 32, "job_name": "nightly", "schedule_time": "yesterday"})
    assert list(store.list_runs()) == []
    assert store.look_up(A_RUN)[0] is not None


def test_a_listing_goes_on_over_pages(harness: Harness, store: Inspectable, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing that is longer than a page is whole, and no run is in it twice, however many are scheduled for one time."""
    for paged in ("firestore", "spanner", "redis"):
        monkeypatch.setattr(f"dedup.stores.{paged}.PAGE", 2)
    for number in range(7):
        harness.claimed(f"{number:064x}", schedule_time=SCHEDULE_TIME + (number // 4) * HOUR)
    for limit in (None, 3, 4, 7):
        listed = [run.run_id for run in store.list_runs(Selection(limit=limit))]
        assert len(set(listed)) == len(listed) == min(7, limit or 7)


def test_a_run_is_looked_up_with_the_stores_clock(harness: Harness, store: Inspectable) -> None:
    """Looking up gives the record, or None, and the store's clock with either."""
    record, now = store.look_up(A_RUN)
    assert record is None
    assert abs(now - harness.now()) < timedelta(seconds=30)
    harness.claimed()
    record, later = store.look_up(A_RUN)
    assert record == harness.record()
    assert later >= now


def test_what_was_seen_is_deleted(harness: Harness, store: Inspectable) -> None:
    """A record that is as it was seen is deleted."""
    harness.claimed()
    assert store.delete_run(A_RUN, harness.record().updated_at)
    assert harness.raw(A_RUN) is None


def test_what_was_written_since_is_not_deleted(harness: Harness, store: Inspectable) -> None:
    """A record that somebody has written since it was seen stays, and so does one that is gone."""
    claim = harness.claimed()
    seen = harness.record().updated_at
    assert harness.store.renew_run(claim)
    before = harness.raw(A_RUN)
    assert not store.delete_run(A_RUN, seen)
    assert harness.raw(A_RUN) == before
    harness.delete(A_RUN)
    assert not store.delete_run(A_RUN, seen)


LOST = {"firestore": ServiceUnavailable("lost"), "spanner": ServiceUnavailable("lost"), "redis": redis.TimeoutError("lost")}


@pytest.mark.parametrize("of", [pytest.param(name, marks=pytest.mark.store(name)) for name in LOST])
@pytest.mark.parametrize("arrives", [True, False], ids=["arrived", "lost"])
def test_an_unclear_delete_is_cleared_up(request: pytest.FixtureRequest, of: str, arrives: bool) -> None:
    """On a server, a delete whose acknowledgement is lost is told as what it came to."""
    harness: Any = HARNESSES[of](request)
    harness.claimed()
    seen = harness.record().updated_at
    harness.spy.fail(*(() if of == "redis" else ("commit",)), LOST[of], arrives=arrives)
    assert harness.store.delete_run(A_RUN, seen)
    assert harness.raw(A_RUN) is None
    harness.close()


@pytest.mark.parametrize("of", [pytest.param(name, marks=pytest.mark.store(name)) for name in LOST])
def test_a_delete_that_cannot_be_cleared_up_is_unclear(request: pytest.FixtureRequest, of: str) -> None:
    """A delete without acknowledgement, of a run that somebody has claimed by now, is not told as having done nothing."""
    harness: Any = HARNESSES[of](request)
    harness.claimed()
    seen = harness.record().updated_at
    harness.delete(A_RUN)  # the try that arrived
    harness.claimed()
    harness.spy.fail(*(() if of == "redis" else ("commit",)), LOST[of])
    if of == "spanner":  # a transaction that finds nothing to delete has no commit
        harness.spy.fail("execute_sql", LOST[of])
    with pytest.raises(StoreUnavailable, match="not acknowledged"):
        harness.store.delete_run(A_RUN, seen)
    assert harness.raw(A_RUN) is not None
    harness.close()


@pytest.mark.store("redis")
def test_only_runs_are_listed(request: pytest.FixtureRequest) -> None:
    """On Redis, keys of other prefixes, or of other types, are no runs, and a prefix means each of its characters."""
    harness = RedisHarness(request)
    harness.claimed()
    harness.client.set(harness.key("0" * 64), "not a hash")
    harness.client.hset(f"{harness.prefix}:longer:{A_RUN}", mapping=harness.client.hgetall(harness.key(A_RUN)))
    for prefix, listed in ((harness.prefix, 1), (harness.prefix[:-1], 0), (f"{harness.prefix[:-1]}?", 0), ("*", 0)):
        assert len(list(RedisRunStore(harness.store.server, prefix).list_runs())) == listed
    harness.close()


@pytest.mark.store("redis")
def test_a_record_beyond_reading_is_deleted(request: pytest.FixtureRequest) -> None:
    """On Redis, a record whose time of writing was edited to nonsense is seen as of now, and can be deleted all the same."""
    harness = RedisHarness(request)
    harness.claimed()
    harness.client.hset(harness.key(A_RUN), "updated_at", "yesterday")
    seen, _ = harness.store.look_up(A_RUN)
    assert seen is not None
    assert harness.store.delete_run(A_RUN, seen.updated_at)
    harness.close()


@pytest.mark.store("firestore")
def test_a_missing_index_is_named(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """On Firestore, a query without its index says where the index comes from; the emulator would never miss it."""

    def refuse(_: object, *, timeout: float | None, retry: object) -> None:
        assert timeout is not None
        assert retry is None
        raise FailedPrecondition("The query requires an index. You can create it here: https://...")

    harness = FirestoreHarness(request)
    monkeypatch.setattr(firestore.Query, "stream", refuse)
    with pytest.raises(StoreUnavailable, match=r"requires an index.*firestore\.tf"):
        list(harness.store.list_runs())
    harness.close()


@pytest.mark.store("sqlite")
def test_a_row_beyond_reading_is_deleted(request: pytest.FixtureRequest) -> None:
    """On SQLite, the same."""
    harness = SQLiteHarness(request)
    harness.claimed()
    harness.db.execute("UPDATE scheduler_runs SET updated_at = 'yesterday'")
    seen, _ = harness.store.look_up(A_RUN)
    assert seen is not None
    assert harness.store.delete_run(A_RUN, seen.updated_at)
    harness.close()


@pytest.mark.store("sqlite")
def test_reading_makes_no_file(tmp_path: Path) -> None:
    """On SQLite, looking at a file that isn't there says so, and leaves none behind: its path may be misspelt."""
    path = tmp_path / "nowhere" / "runs.db"
    store = SQLiteRunStore(path)
    for look in (lambda: list(store.list_runs()), lambda: store.look_up(A_RUN)):
        with pytest.raises(StoreUnavailable, match="there is none"):
            look()
    assert not path.parent.exists()
