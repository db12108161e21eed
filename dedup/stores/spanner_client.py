"""The Spanner library within a time: the one place that knows more of it than what it documents.

Its objects take no time-out for most of what they send, and each RPC's default is an hour (googleapis/python-spanner issue 71
asked; what came of it covers reads). They send everything by `Database.spanner_api`, so that is what is bounded here.

Its own `Database.run_in_transaction` leaves a thread that got no session without a transaction for good
(googleapis/google-cloud-python issue 18375), so a transaction is run here by a session of `Database.sessions_manager`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Self

from google.api_core import exceptions as google
from google.cloud import spanner
from google.cloud.spanner_v1.database import Database
from google.cloud.spanner_v1.database_sessions_manager import TransactionType

from dedup.stores.conditional import FAULTS
from dedup.stores.tries import Tries

ROLLBACK_SECONDS = 1.0
"""A transaction that isn't rolled back keeps its locks for 10 s, and that is all: it needn't be waited for."""
SESSIONS = 100
"""Where the library doesn't share one session among all threads, as on the emulator: how many are kept."""
_STREAMS = ("execute_streaming_sql", "streaming_read")

log = logging.getLogger("dedup")


def open_database(project: str | None, instance: str, database: str) -> BoundedDatabase:
    """Makes the library's object; it has sent nothing yet.

    Args:
        project: the project's id; None: what the environment says.
        instance: the instance's id.
        database: the database's id.
    """
    client = spanner.Client(project=project, disable_builtin_metrics=True)
    sessions = spanner.BurstyPool(target_size=SESSIONS)
    opened = BoundedDatabase(database, client.instance(instance), pool=sessions)
    sessions.bind(opened)
    return opened


class BoundedDatabase(Database):
    """A database whose RPCs all end with the operation that sends them: the library's own go on for an hour."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)  # type: ignore[no-untyped-call]
        self._bounds = threading.local()

    @contextmanager
    def bounded_by(self, tries: Tries) -> Iterator[Self]:
        """Lets this thread's RPCs end with these tries, for as long as the `with` lasts."""
        self._bounds.tries = tries
        try:
            yield self
        finally:
            self._bounds.tries = None

    def make_session(self, tries: Tries) -> Self:
        """Makes the session that threads share. The library would make the first waiting thread wait for all the others."""
        with self.bounded_by(tries):
            self.sessions_manager.get_session(TransactionType.READ_ONLY)
        return self

    def commit_once(self, write: Callable[[Any], None]) -> datetime:
        """Runs a transaction, once: aborted, it is for our own tries to try again. Gives the time of its commit.

        Args:
            write: is given the transaction.
        """
        transactions = []

        def noted(transaction: Any) -> None:
            transactions.append(transaction)
            write(transaction)

        session = self.sessions_manager.get_session(TransactionType.READ_WRITE)
        try:
            session.run_in_transaction(noted, timeout_secs=0)
        finally:
            self.sessions_manager.put_session(session)
        committed: datetime = transactions[-1].committed
        return committed

    @property
    def spanner_api(self) -> Any:
        """What sends the RPCs."""
        tries: Tries | None = getattr(self._bounds, "tries", None)
        api = super().spanner_api
        return _BoundedApi(api, tries) if tries is not None else api


class _BoundedApi:
    """Sends each RPC once, and no longer than there is time.

    The library repeats some by itself: a stream that is unavailable at once and for ever, an internal error after 2, 4, 8, 16
    and 32 s. A stream waits here before it is repeated; an internal error comes back as one that the library leaves alone.
    """

    def __init__(self, api: Any, tries: Tries) -> None:
        self._api = api
        self._tries = tries

    def __getattr__(self, method: str) -> Any:
        rpc = getattr(self._api, method)
        if method == "rollback":
            return lambda *request, **options: _roll_back(rpc, request, options)

        def bounded(*request: Any, **options: Any) -> Any:
            try:
                answer = rpc(*request, **{**options, "timeout": self._tries.next_timeout(), "retry": None})
                return self._stream(answer) if method in _STREAMS else answer
            except google.ServiceUnavailable as fault:
                if method in _STREAMS:
                    self._tries.failed(fault)
                raise
            except google.InternalServerError as fault:
                raise google.Unknown(str(fault)) from fault

        return bounded

    def _stream(self, answer: Any) -> Iterator[Any]:
        try:
            yield from answer
        except google.InternalServerError as fault:
            raise google.Unknown(str(fault)) from fault


def _roll_back(rpc: Callable[..., Any], request: tuple[Any, ...], options: dict[str, Any]) -> None:
    try:
        rpc(*request, **{**options, "timeout": ROLLBACK_SECONDS, "retry": None})
    except FAULTS as fault:
        log.debug("Spanner ends the abandoned transaction by itself: %s", fault)
