"""An in-memory Firestore, in the place of the generated client that google-cloud-firestore calls.

It takes and gives the protobufs that the real one does, so that everything above it is the real library:

    client = firestore.Client(project="simulated", credentials=AnonymousCredentials())
    client._firestore_api_internal = Service()

What it answers is what the official emulator answers; test_service.py holds the two together. One thing differs on purpose:
transactions are optimistic here (a commit is aborted when a document that it has read was changed since), where the emulator
lets other writers wait for a lock. It has no queries, no listeners, and no second write to one document in a commit.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from google.api_core import exceptions as google
from google.cloud.firestore_v1 import types
from google.cloud.firestore_v1.field_path import FieldPath
from google.protobuf.timestamp_pb2 import Timestamp

Document = type(types.Document.pb(types.Document()))
"""The protobuf of a document: its name, fields, create_time and update_time."""
_Found = type(types.BatchGetDocumentsResponse.pb(types.BatchGetDocumentsResponse()))
_Committed = type(types.CommitResponse.pb(types.CommitResponse()))

Watcher = Callable[[str, Any, Any], None]
"""Is told of each change: the document's name, what it was and what it is, None for absent."""

_SERVER_TIME = 1
_NO_WATCHER: Watcher = lambda name, before, after: None  # noqa: E731


class Service:
    """One Firestore database server. Documents are never changed in place, so what has been handed out stays as it was.

    Args:
        now: its clock, in microseconds since 1970.
        watcher: is told of each change, within the commit.
    """

    def __init__(self, now: Callable[[], int] = lambda: time.time_ns() // 1000, watcher: Watcher = _NO_WATCHER) -> None:
        self._now = now
        self._watcher = watcher
        self._lock = threading.Lock()
        self._last_commit = 0
        self.transactions = 0
        """How many have begun."""
        self._open: dict[bytes, dict[str, int]] = {}
        """What each transaction under way has read: the version of each document, 0 for absent."""
        self.documents: dict[str, Any] = {}

    @property
    def clock(self) -> int:
        """Its time: never before the last commit."""
        return max(self._now(), self._last_commit)

    # The generated client's methods, as far as the library calls them here.

    def begin_transaction(self, request: dict[str, Any], **_rpc: Any) -> types.BeginTransactionResponse:
        """Begins a transaction. One that is retried is an ordinary new one."""
        with self._lock:
            self.transactions += 1
            name = b"transaction-%d" % self.transactions
            self._open[name] = {}
            return types.BeginTransactionResponse(transaction=name)

    def rollback(self, request: dict[str, Any], **_rpc: Any) -> None:
        """Ends a transaction; one that has ended already is no fault."""
        with self._lock:
            self._open.pop(request["transaction"], None)

    def batch_get_documents(self, request: Any, **_rpc: Any) -> Iterator[types.BatchGetDocumentsResponse]:
        """Reads documents as they are now."""
        with self._lock:
            read = self._transaction(request)
            answers = []
            for name in documents_of(request):
                document = self.documents.get(name)
                if read is not None:
                    read.setdefault(name, _version(document))
                answer = _Found(read_time=_timestamp(self.clock))
                if document is None:
                    answer.missing = name
                else:
                    answer.found.CopyFrom(document)
                answers.append(types.BatchGetDocumentsResponse.wrap(answer))
            return iter(answers)

    def commit(self, request: dict[str, Any] | types.CommitRequest, **_rpc: Any) -> types.CommitResponse:
        """Writes all, or raises and writes nothing."""
        with self._lock:
            read = self._transaction(request)
            if read is not None and isinstance(request, dict):
                del self._open[request["transaction"]]  # however it ends, there is no second commit
                if any(_version(self.documents.get(name)) != version for name, version in read.items()):
                    raise google.Aborted("what the transaction has read was changed")
            time = max(self._now(), self._last_commit + 1)
            after: dict[str, Any] = {}
            written = [self._apply(write, time, after) for write in writes_of(request)]
            self._last_commit = time
            for name, document in after.items():
                before = self.documents.pop(name, None)
                if document is not None:
                    self.documents[name] = document
                if document is not before:
                    self._watcher(name, before, document)
            answer = _Committed(commit_time=_timestamp(time))
            for name in written:
                result = answer.write_results.add()
                if after[name] is not None:
                    result.update_time.CopyFrom(after[name].update_time)
            return types.CommitResponse.wrap(answer)

    def _transaction(self, request: Any) -> dict[str, int] | None:
        name = request.get("transaction") if isinstance(request, dict) else request.transaction
        if not name:
            return None
        if name not in self._open:
            raise google.InvalidArgument("Transaction is invalid or closed.")
        return self._open[name]

    def _apply(self, write: Any, time: int, after: dict[str, Any]) -> str:
        """Notes in `after` what one write makes of its document, and says which that is."""
        deletes = write.WhichOneof("operation") == "delete"
        name = write.delete if deletes else write.update.name
        assert name not in after, "of one document, there is one write a commit"
        old = self.documents.get(name)
        _check(write.current_document, old, name)
        if deletes:
            after[name] = None
            return name
        new = Document(name=name)
        if old is not None:
            new.CopyFrom(old)
        if write.HasField("update_mask"):
            for path in write.update_mask.field_paths:
                _put(new.fields, _parts(path), _look_up(write.update.fields, _parts(path)))
        else:
            new.ClearField("fields")
            new.MergeFrom(write.update)
        for transform in write.update_transforms:
            _transform(new.fields, transform, time)
        if old is not None and new == old:
            after[name] = old  # a write that changes nothing leaves update_time alone
            return name
        new.update_time.CopyFrom(_timestamp(time))
        if old is None:
            new.create_time.CopyFrom(new.update_time)
        after[name] = new
        return name


def writes_of(request: dict[str, Any] | types.CommitRequest) -> Iterable[Any]:
    """The protobufs of a commit's writes: where there are effects, a transaction gives them in a dict."""
    if isinstance(request, dict):
        return (write._pb for write in request["writes"])
    writes: Iterable[Any] = types.CommitRequest.pb(request).writes
    return writes


def documents_of(request: dict[str, Any] | types.BatchGetDocumentsRequest) -> Iterable[str]:
    """The names of the documents that are read: the library gives them in a dict."""
    names: Iterable[str] = request["documents"] if isinstance(request, dict) else request.documents
    return names


def _check(wanted: Any, document: Any, name: str) -> None:
    """Raises what the emulator does where a precondition doesn't hold."""
    match wanted.WhichOneof("condition_type"):
        case "exists" if wanted.exists and document is None:
            raise google.NotFound(f"no entity to update: {name}")
        case "exists" if not wanted.exists and document is not None:
            raise google.AlreadyExists(f"entity already exists: {name}")
        case "update_time" if document is None or document.update_time != wanted.update_time:
            raise google.FailedPrecondition("the stored version does not match the required base version")


def _version(document: Any) -> int:
    return 0 if document is None else document.update_time.seconds * 1_000_000 + document.update_time.nanos // 1000


def _timestamp(microseconds: int) -> Timestamp:
    return Timestamp(seconds=microseconds // 1_000_000, nanos=microseconds % 1_000_000 * 1000)


def _parts(path: str) -> Iterable[str]:
    return FieldPath.from_api_repr(path).parts if "." in path or "`" in path else (path,)


def _look_up(fields: Any, parts: Iterable[str]) -> Any:
    """The value at a path, None if there is none."""
    value = None
    for part in parts:
        if part not in fields:
            return None
        value = fields[part]
        fields = value.map_value.fields
    return value


def _put(fields: Any, parts: Iterable[str], value: Any) -> None:
    """Sets the value at a path, or takes it away if it is None."""
    *way, last = parts
    for part in way:
        if value is None and part not in fields:
            return
        fields = fields[part].map_value.fields
    if value is None:
        fields.pop(last, None)
    else:
        fields[last].CopyFrom(value)


def _transform(fields: Any, transform: Any, time: int) -> None:
    assert transform.set_to_server_value == _SERVER_TIME, "of transforms, there is SERVER_TIMESTAMP only"
    *way, last = _parts(transform.field_path)
    for part in way:
        fields = fields[part].map_value.fields
    fields[last].timestamp_value.CopyFrom(_timestamp(time // 1000 * 1000))  # it has milliseconds only
