"""Stand between a store's client and its server: count what is sent, and let chosen ones fail, arrived or not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from google.api_core.exceptions import Aborted

from dedup.stores.firestore import FirestoreRunStore
from dedup.stores.redis import RedisRunStore
from dedup.stores.spanner import SpannerRunStore


@dataclass
class Rpc:
    """One RPC as the store sent it."""

    method: str
    request: Any
    options: dict[str, Any]


@dataclass
class Fault:
    """What becomes of the next RPCs of a method.

    Args:
        raised: what the store is told.
        arrives: whether the server does what it was asked all the same: its acknowledgement is what was lost.
        times: how many RPCs it strikes.
    """

    method: str
    raised: Exception
    arrives: bool
    times: float


class Spy:
    """A store's connection, watched."""

    watched: tuple[str, ...] = ("commit", "batch_get_documents", "begin_transaction", "rollback")

    def __init__(self, api: Any) -> None:
        self._api = api
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self.rpcs: list[Rpc] = []
        self.before_write: Callable[[], None] = lambda: None
        """Called before each commit is sent."""
        self.before_dml: Callable[[], None] = lambda: None
        """Called before each statement that writes."""
        self.before_any: Callable[[], None] = lambda: None
        """Called before each RPC."""

    @classmethod
    def on(cls, store: FirestoreRunStore) -> Spy:
        """Watches a store's connection from here on."""
        connection = store._connected()
        connection.api = spy = cls(connection.api)
        return spy

    def fail(self, method: str, raised: Exception, *, arrives: bool = False, times: float = 1) -> None:
        """Lets the next RPCs of a method fail."""
        self._faults.append(Fault(method, raised, arrives, times))

    @property
    def methods(self) -> list[str]:
        """The names of the RPCs so far."""
        return [rpc.method for rpc in self.rpcs]

    def resend(self, rpc: Rpc) -> None:
        """Lets an RPC arrive late."""
        getattr(self._api, rpc.method)(request=rpc.request, **rpc.options)

    def drop(self, request: Any) -> None:
        """The server drops a transaction that it aborts, with its locks; one that only a test aborts would keep them."""
        if transaction := transaction_of(request):
            self._api.rollback(request={"database": request["database"], "transaction": transaction})

    def __getattr__(self, method: str) -> Any:
        real = getattr(self._api, method)
        if method not in self.watched:
            return real

        def rpc(request: Any, **options: Any) -> Any:
            with self._lock:
                self.rpcs.append(Rpc(method, request, options))
                fault = next((fault for fault in self._faults if fault.method == method and fault.times > 0), None)
                if fault is not None:
                    fault.times -= 1
            self.before_any()
            if method == "commit":
                self.before_write()
            if method == "execute_sql":
                self.before_dml()
            if fault is None:
                return real(request=request, **options)
            if fault.arrives:
                answer = real(request=request, **options)
                if isinstance(answer, Iterator):
                    list(answer)
            elif isinstance(fault.raised, Aborted):
                self.drop(request)
            raise fault.raised

        return rpc


def transaction_of(request: Any) -> bytes:
    """The transaction that an RPC to Firestore belongs to, if any. The store's own commits are whole requests, others dicts."""
    transaction: bytes = request.get("transaction", b"") if isinstance(request, dict) else request.transaction
    return transaction


class SpannerSpy(Spy):
    """The same for Spanner. A rollback has no request object of its own, so it is only counted."""

    watched = ("commit", "execute_sql", "execute_streaming_sql", "streaming_read", "begin_transaction")

    @classmethod
    def on(cls, store: SpannerRunStore) -> SpannerSpy:  # type: ignore[override]
        """Watches a store's connection from here on."""
        database = store._database(store._tries(10))
        database._spanner_api = spy = cls(database._spanner_api)
        return spy

    def drop(self, request: Any) -> None:
        """As above."""
        if getattr(request, "transaction_id", b""):
            self._api.rollback(session=request.session, transaction_id=request.transaction_id)

    def rollback(self, **options: Any) -> None:
        """Counts and passes on."""
        self.rpcs.append(Rpc("rollback", None, options))
        self._api.rollback(**options)


class RedisSpy:
    """The same for Redis, where each command is a round trip."""

    def __init__(self, client: Any) -> None:
        self._send = client.execute_command
        self.sent: list[tuple[Any, ...]] = []
        self._faults: list[tuple[Exception, bool]] = []
        self.during_write: Callable[[], None] = lambda: None
        """Called while each script is under way."""
        client.execute_command = self._execute_command

    @classmethod
    def on(cls, store: RedisRunStore) -> RedisSpy:
        """Watches a store's connection from here on."""
        return cls(store._client())

    @property
    def commands(self) -> list[str]:
        """The names of the commands so far."""
        return [str(command[0]) for command in self.sent]

    def fail(self, raised: Exception, *, arrives: bool = False, times: int = 1) -> None:
        """Lets the next commands fail."""
        self._faults += [(raised, arrives)] * times

    def resend(self, command: tuple[Any, ...]) -> Any:
        """Lets a command arrive late."""
        return self._send(*command)

    def _execute_command(self, *command: Any, **options: Any) -> Any:
        self.sent.append(command)
        if not self._faults:
            answer = self._send(*command, **options)
            self.during_write()
            return answer
        raised, arrives = self._faults.pop(0)
        if arrives:
            self._send(*command, **options)
        raise raised
