"""Commits of one write to one document, as they go over the wire.

The library's DocumentReference makes an object for each value and copies each of them: a quarter of the time that a run takes
on the processor. What it would send is what is made here, byte for byte; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from google.cloud.firestore_v1 import types
from proto.datetime_helpers import DatetimeWithNanoseconds  # type: ignore[import-untyped]

from dedup.stores.conditional import SERVER_TIME

_Commit: Any = types.CommitRequest.pb()
_REQUEST_TIME = types.DocumentTransform.FieldTransform.ServerValue.REQUEST_TIME


def create(document: str, fields: Mapping[str, Any]) -> types.CommitRequest:
    """Writes a document that must not be there.

    Args:
        document: its full name.
        fields: texts, whole numbers and aware times.
    """
    request, write = _request(document)
    write.current_document.exists = False
    write.update.name = document
    for name, value in fields.items():
        _put(write, name, value)
    return request


def update(document: str, fields: Mapping[str, Any], written_at: datetime) -> types.CommitRequest:
    """Changes fields of a document that must not have been written since.

    Args:
        document: its full name.
        fields: the same, SERVER_TIME, and None for what is taken away.
        written_at: the store's time of the last write.
    """
    request, write = _request(document, written_at)
    write.update.name = document
    for name in sorted(fields):
        if fields[name] is SERVER_TIME:
            write.update_transforms.add(field_path=name, set_to_server_value=_REQUEST_TIME)
            continue
        write.update_mask.field_paths.append(name)  # of a field that the write doesn't have, this deletes it
        if fields[name] is not None:
            _put(write, name, fields[name])
    return request


def delete(document: str, written_at: datetime) -> types.CommitRequest:
    """Deletes a document that must not have been written since.

    Args:
        document: its full name.
        written_at: the store's time of the last write.
    """
    request, write = _request(document, written_at)
    write.delete = document
    return request


def time_of(answer: types.CommitResponse) -> datetime:
    """The store's time of the write: the document's update_time, or the commit's where it was deleted."""
    told: Any = types.CommitResponse.pb(answer)
    [result] = told.write_results
    timestamp = result.update_time if result.HasField("update_time") else told.commit_time
    time: datetime = DatetimeWithNanoseconds.from_timestamp_pb(timestamp)
    return time


def _request(document: str, written_at: datetime | None = None) -> tuple[types.CommitRequest, Any]:
    database = "/".join(document.split("/", 4)[:4])  # projects/PROJECT/databases/DATABASE
    commit = _Commit(database=database)
    write = commit.writes.add()
    if written_at is not None:
        _put_time(write.current_document.update_time, written_at)
    request: types.CommitRequest = types.CommitRequest.wrap(commit)
    return request, write


def _put(write: Any, name: str, value: Any) -> None:
    match value:
        case str():
            write.update.fields[name].string_value = value
        case int():
            write.update.fields[name].integer_value = value
        case datetime():
            _put_time(write.update.fields[name].timestamp_value, value)
        case _:
            raise TypeError(f"{name} is {value!r}: a record has texts, whole numbers and times only")


def _put_time(timestamp: Any, value: datetime) -> None:
    if isinstance(value, DatetimeWithNanoseconds):
        timestamp.CopyFrom(value.timestamp_pb())
    else:
        timestamp.FromDatetime(value)
