"""What goes over the wire is what Google's library would send."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from google.cloud import firestore
from google.cloud.firestore_v1 import _helpers, types
from proto.datetime_helpers import DatetimeWithNanoseconds

from dedup.stores import firestore_write
from dedup.stores.conditional import SERVER_TIME

DOCUMENT = "projects/p/databases/(default)/documents/scheduler_runs/" + "a" * 64
NOON = datetime(2026, 10, 16, 12, 0, 0, 510855, UTC)
ODD = datetime(2026, 10, 16, 5, 0, tzinfo=timezone(timedelta(hours=-7)))
"""An aware time that isn't UTC."""
NANOSECONDS = DatetimeWithNanoseconds(2026, 10, 16, 12, nanosecond=123456789, tzinfo=UTC)

CLAIM = {
    "status": "in_progress",
    "attempt_id": "b" * 32,
    "lease_seconds": 300,
    "schedule_time": ODD,
    "claimed_at": NOON,
    "scope": "é/ü",
}
END = {"status": "completed", "finished_at": NOON, "result": ""}
RENEWAL = {"renewed_at": SERVER_TIME, "lease_expires": NOON, "expire_at": NOON + timedelta(days=1)}
TIME_FIRST = {"a": SERVER_TIME, "b": "after it"}
TAKE_OVER = CLAIM | dict.fromkeys(("renewed_at", "finished_at", "result", "error"))


def on_the_wire(request: types.CommitRequest) -> bytes:
    """The bytes, fields in order: in a map they have none."""
    return bytes(types.CommitRequest.pb(request).SerializeToString(deterministic=True))


def library_commit(write: types.Write) -> bytes:
    """What the library sends for a write."""
    return on_the_wire(types.CommitRequest(database="projects/p/databases/(default)", writes=[write]))


def library_value(value: object) -> object:
    """What the library writes for it."""
    if value is None:
        return firestore.DELETE_FIELD
    return firestore.SERVER_TIMESTAMP if value is SERVER_TIME else value


def test_create() -> None:
    """A create is the library's own, byte for byte."""
    (wanted,) = _helpers.pbs_for_create(DOCUMENT, CLAIM)
    assert on_the_wire(firestore_write.create(DOCUMENT, CLAIM)) == library_commit(wanted)


@pytest.mark.parametrize("written_at", [NOON, NANOSECONDS], ids=["microseconds", "nanoseconds"])
@pytest.mark.parametrize("fields", [END, RENEWAL, TIME_FIRST, TAKE_OVER], ids=["end", "renewal", "time first", "take-over"])
def test_update(fields: dict[str, Any], written_at: datetime) -> None:
    """An end, a renewal and a take-over are the library's own updates, byte for byte."""
    option = firestore.Client.write_option(last_update_time=written_at)
    (wanted,) = _helpers.pbs_for_update(DOCUMENT, {name: library_value(value) for name, value in fields.items()}, option)
    assert on_the_wire(firestore_write.update(DOCUMENT, fields, written_at)) == library_commit(wanted)


@pytest.mark.parametrize("written_at", [NOON, NANOSECONDS], ids=["microseconds", "nanoseconds"])
def test_delete(written_at: datetime) -> None:
    """A delete is the library's own, byte for byte."""
    wanted = _helpers.pb_for_delete(DOCUMENT, firestore.Client.write_option(last_update_time=written_at))
    assert on_the_wire(firestore_write.delete(DOCUMENT, written_at)) == library_commit(wanted)


def test_time_of_a_write() -> None:
    """It is the document's update_time with its nanoseconds, and the commit's time where the document was deleted."""
    updated = types.WriteResult(update_time=NANOSECONDS)
    assert time_is(types.CommitResponse(write_results=[updated], commit_time=NOON), NANOSECONDS)
    assert time_is(types.CommitResponse(write_results=[types.WriteResult()], commit_time=NANOSECONDS), NANOSECONDS)


def time_is(answer: types.CommitResponse, wanted: DatetimeWithNanoseconds) -> bool:
    """Whether the time read is that one, to the nanosecond."""
    at = firestore_write.time_of(answer)
    assert isinstance(at, DatetimeWithNanoseconds)
    return at.timestamp_pb() == wanted.timestamp_pb()


@pytest.mark.parametrize("database", ["projects/p/databases/(default)", "projects/documents/databases/documents"])
@pytest.mark.parametrize("collection", ["scheduler_runs", "documents"])
def test_database(database: str, collection: str) -> None:
    """A commit names its database, whatever that and the collection are called."""
    request = firestore_write.delete(f"{database}/documents/{collection}/{'a' * 64}", NOON)
    assert request.database == database


def test_what_a_record_never_has() -> None:
    """A value that is neither text, number nor time is refused with its field's name."""
    with pytest.raises(TypeError, match=r"result is 1\.5"):
        firestore_write.create(DOCUMENT, {"result": 1.5})
