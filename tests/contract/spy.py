"""Stands between the Firestore client and its server: counts RPCs, and lets chosen ones fail, arrived or not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from google.api_core.exceptions import Aborted

from dedup.stores.firestore import FirestoreRunStore


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

    def __init__(self, api: Any) -> None:
        self._api = api
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self.rpcs: list[Rpc] = []
        self.before_write: Callable[[], None] = lambda: None
        """Called before each commit is sent."""

    @classmethod
    def on(cls, store: FirestoreRunStore) -> Spy:
        """Watches a store's connection from here on."""
        client = store._client()
        client._firestore_api_internal = spy = cls(client._firestore_api)
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

    def __getattr__(self, method: str) -> Any:
        real = getattr(self._api, method)
        if method not in ("commit", "batch_get_documents", "begin_transaction", "rollback"):
            return real

        def rpc(request: Any, **options: Any) -> Any:
            with self._lock:
                self.rpcs.append(Rpc(method, request, options))
                fault = next((fault for fault in self._faults if fault.method == method and fault.times > 0), None)
                if fault is not None:
                    fault.times -= 1
            if method == "commit":
                self.before_write()
            if fault is None:
                return real(request=request, **options)
            if fault.arrives:
                answer = real(request=request, **options)
                if isinstance(answer, Iterator):
                    list(answer)
            elif isinstance(fault.raised, Aborted) and request.get("transaction"):
                # The server drops a transaction that it aborts, with its locks; one that only a test aborts would keep them.
                self._api.rollback(request={"database": request["database"], "transaction": request["transaction"]})
            raise fault.raised

        return rpc
