"""Runs google-cloud-firestore's own transactions within a time: the one place that knows something private of that library.

A job is given a `firestore.Transaction`, to use as it does everywhere else. The library takes neither `timeout` nor `retry` for
what a transaction itself sends, its begin, commit and rollback, which go on for minutes by default; whether it should was asked
in googleapis/python-firestore issue 221. It sends everything by the client's `_firestore_api`, so that is what is lent here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any

from google.api_core import exceptions as google
from google.cloud import firestore

from dedup.stores import StoreUnavailable
from dedup.stores.tries import Tries

log = logging.getLogger("dedup")


def run_in_transaction(
    function: Callable[[firestore.Transaction, firestore.Client], None], api: Any, tries: Tries, **place: Any
) -> datetime:
    """Calls a function with a transaction that is committed when it returns; again, where the server aborts that.

    Args:
        function: is given the transaction and its client; reads before it writes.
        api: the generated client.
        tries: bound what the transaction itself sends; what the function reads is its own affair.
        place: the project's id, the database's id, and the credentials.

    Returns:
        The server's time of the commit.
    """
    client = _Client(_Bounded(api, tries), **place)
    transaction = client.transaction()
    try:
        # Made anew for each call: the decorator keeps state of its transaction, and threads would share it.
        firestore.transactional(function)(transaction, client)
    except ValueError as stands_before:
        # Its attempts are used up, or it never began and can't be rolled back (issue 879): a fault is behind it.
        fault = stands_before.__cause__ or stands_before.__context__ or stands_before
        raise fault from fault.__cause__
    committed: Any = transaction.commit_time
    at: datetime = committed
    return at


class _Client(firestore.Client):
    """A client whose RPCs are sent by what it is given."""

    def __init__(self, api: _Bounded, **place: Any) -> None:
        super().__init__(**place)
        self._api = api

    @property
    def _firestore_api(self) -> Any:
        return self._api


class _Bounded:
    """The generated client, which sends what a transaction needs once, and no longer than there is time."""

    def __init__(self, api: Any, tries: Tries) -> None:
        self._api = api
        self._tries = tries

    def begin_transaction(self, **rpc: Any) -> Any:
        return self._api.begin_transaction(**rpc, timeout=self._tries.next_timeout(), retry=None)

    def commit(self, **rpc: Any) -> Any:
        return self._api.commit(**rpc, timeout=self._tries.next_timeout(), retry=None)

    def rollback(self, **rpc: Any) -> None:
        try:
            self._api.rollback(**rpc, timeout=self._tries.next_timeout(), retry=None)
        except (StoreUnavailable, google.GoogleAPIError) as fault:
            log.debug("Firestore ends the abandoned transaction by itself: %s", fault)

    def __getattr__(self, method: str) -> Any:
        return getattr(self._api, method)
