"""What is read off the wire is what Google's library would read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from google.cloud import firestore
from google.cloud.firestore_v1 import _helpers, types
from proto.datetime_helpers import DatetimeWithNanoseconds

from dedup.record import RunRecord
from dedup.stores import firestore_read

DATABASE = "projects/p/databases/(default)"
DOCUMENT = f"{DATABASE}/documents/scheduler_runs/{'a' * 64}"
WRITTEN = DatetimeWithNanoseconds(2026, 10, 16, 12, nanosecond=123456789, tzinfo=UTC)
READ = DatetimeWithNanoseconds(2026, 10, 16, 13, nanosecond=1, tzinfo=UTC)

RECORD = {"status": "in_progress", "attempt_id": "b" * 32, "lease_seconds": 300, "schedule_time": WRITTEN, "scope": "é/ü"}
PLAIN = {"a": 1.5, "b": True, "c": None, "d": b"bytes", "e": -(2**60), "f": ""}


def found(fields: dict[str, Any]) -> types.BatchGetDocumentsResponse:
    """The server's answer where there is a document of these fields."""
    document = types.Document(name=DOCUMENT, fields=_helpers.encode_dict(fields), update_time=WRITTEN)
    return types.BatchGetDocumentsResponse(found=document, read_time=READ)


def nanoseconds(time: datetime | None) -> Any:
    """To the nanosecond: two times that differ by less are equal."""
    assert isinstance(time, DatetimeWithNanoseconds)
    return time.timestamp_pb()


@pytest.mark.parametrize("fields", [RECORD, PLAIN, {}], ids=["record", "other values", "empty"])
def test_document(fields: dict[str, Any]) -> None:
    """Texts, numbers, times and nothing are read as the library reads them, with both times to the nanosecond."""
    answer = found(fields)
    read = firestore_read.answer(iter([answer]))
    assert read is not None
    assert read.fields == _helpers.decode_dict(answer.found.fields, None)
    assert nanoseconds(read.updated_at) == WRITTEN.timestamp_pb()
    assert nanoseconds(read.read_at) == READ.timestamp_pb()


def test_time_of_a_field() -> None:
    """A field's time has its nanoseconds too."""
    document = types.Document(name=DOCUMENT, fields={"renewed_at": types.Value(timestamp_value=WRITTEN)})
    read = firestore_read.answer([types.BatchGetDocumentsResponse(found=document, read_time=READ)])
    assert read is not None
    assert read.fields is not None
    assert nanoseconds(read.fields["renewed_at"]) == WRITTEN.timestamp_pb()


@pytest.mark.parametrize("value", [["a"], {"a": 1}, firestore.GeoPoint(1, 2), b"300"], ids=["list", "map", "place", "bytes"])
def test_what_a_record_never_has(value: object) -> None:
    """A lease of another type is none that can be read, and doesn't pass for no lease: the run is held."""
    read = firestore_read.answer([found({**RECORD, "lease_seconds": value, "lease_expires": WRITTEN})])
    assert read is not None
    assert read.fields is not None
    assert read.fields["lease_seconds"] is not None
    assert RunRecord.from_fields(read.fields, WRITTEN).malformed


def test_missing_document() -> None:
    """A document that isn't there is told with the server's clock."""
    read = firestore_read.answer([types.BatchGetDocumentsResponse(missing=DOCUMENT, read_time=READ)])
    assert read is not None
    assert (read.fields, read.updated_at) == (None, None)
    assert nanoseconds(read.read_at) == READ.timestamp_pb()


@pytest.mark.parametrize("answers", [[], [types.BatchGetDocumentsResponse(read_time=READ)]], ids=["nothing", "a time alone"])
def test_empty_answer(answers: list[types.BatchGetDocumentsResponse]) -> None:
    """An answer that names no document says nothing of it."""
    assert firestore_read.answer(answers) is None


@pytest.mark.parametrize("transaction", [b"", b"of this name"], ids=["alone", "in a transaction"])
def test_request(transaction: bytes) -> None:
    """A request names its database and its document, and a transaction only where there is one."""
    request = firestore_read.request(DATABASE, DOCUMENT, transaction)
    wanted = {"transaction": transaction} if transaction else {}
    assert request == types.BatchGetDocumentsRequest(database=DATABASE, documents=[DOCUMENT], **wanted)
