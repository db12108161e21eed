"""Reads of one document, as they come over the wire: what the library would make of it, without an object for each value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from google.cloud.firestore_v1 import types
from proto.datetime_helpers import DatetimeWithNanoseconds  # type: ignore[import-untyped]

_Request: Any = types.BatchGetDocumentsRequest.pb()


@dataclass(frozen=True, slots=True)
class Read:
    """What the server has answered.

    Args:
        fields: the document's by name; None: there is none.
        updated_at: when the server last wrote it.
        read_at: the server's clock.
    """

    fields: dict[str, Any] | None
    updated_at: datetime | None
    read_at: datetime


def request(database: str, document: str, transaction: bytes = b"") -> types.BatchGetDocumentsRequest:
    """Asks for a document.

    Args:
        database: its full name.
        document: likewise.
        transaction: the one to read in, if any.
    """
    asked = _Request(database=database, documents=[document])
    if transaction:
        asked.transaction = transaction
    wrapped: types.BatchGetDocumentsRequest = types.BatchGetDocumentsRequest.wrap(asked)
    return wrapped


def answer(answers: Iterable[types.BatchGetDocumentsResponse]) -> Read | None:
    """What the answers to a request say of the document; None: nothing, as an empty stream does."""
    for each in answers:
        told: Any = types.BatchGetDocumentsResponse.pb(each)
        match told.WhichOneof("result"):
            case "found":
                fields = {name: _value(value) for name, value in told.found.fields.items()}
                return Read(fields, _time(told.found.update_time), _time(told.read_time))
            case "missing":
                return Read(None, None, _time(told.read_time))
    return None


def _value(value: Any) -> Any:
    match kind := value.WhichOneof("value_type"):
        case None | "null_value":
            return None
        case "timestamp_value":
            return _time(value.timestamp_value)
        case _:
            return getattr(value, kind)  # what a record never has stays as it came, and can't be read


def _time(timestamp: Any) -> datetime:
    time: datetime = DatetimeWithNanoseconds.from_timestamp_pb(timestamp)
    return time
