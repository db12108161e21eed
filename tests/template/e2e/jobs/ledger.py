"""A job that writes down what it does, and does what the delivery's body tells it.

The body is a JSON object; all of it is optional:

    seconds   how long it works
    then      how it ends: "return", "raise", "permanent", "exit" (SystemExit), "linger" (works on, whatever is raised into it)
    count     a counter that it adds one to, in one commit with the run's completion
    careful   true: asks at each step whether the run is still its own
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
import uuid
from typing import Any

from flask import Request, Response

import dedup

STEP_SECONDS = 0.02
BEAT_SECONDS = 0.05
SECRET = "open sesame"

_clients: list[Any] = []
_making_client = threading.Lock()


def run_job_logic(run: dedup.Run) -> str:
    """Does as it is told; returns the execution's id, by which the record and the ledger know each other."""
    told = run.json() if run.body else {}
    execution = _Execution(run)
    execution.write("start")
    try:
        _work(run, execution, told)
        if told.get("count"):
            run.on_commit(lambda transaction: _add_one(transaction, told["count"]))
        _end(told.get("then", "return"))
    except BaseException as raised:
        execution.write("raised", kind=type(raised).__name__)
        raise
    execution.write("done")
    return execution.id


def handle_scheduled_job(request: Request) -> Response:
    """As in main.py."""
    return dedup.handle(request, run_job_logic)


class _Execution:
    """One call of the job, in the ledger."""

    def __init__(self, run: dedup.Run) -> None:
        self.id = uuid.uuid4().hex
        self._run = run
        self._ledger = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def __del__(self) -> None:
        os.close(self._ledger)

    def write(self, what: str, **more: Any) -> None:
        """Appends a line in one write. The time is taken before it is asked whether the lease is held: it was, at that time."""
        at = time.monotonic()
        line = {
            "what": what,
            "at": at,
            "held": not self._run.lost,
            "run": self._run.id,
            "execution": self.id,
            "attempt": self._run.attempt,
            "pid": os.getpid(),
            **more,
        }
        os.write(self._ledger, (json.dumps(line) + "\n").encode())


def _work(run: dedup.Run, execution: _Execution, told: dict[str, Any]) -> None:
    ends_at = time.monotonic() + told.get("seconds", 0)
    next_beat = time.monotonic() + BEAT_SECONDS
    while (now := time.monotonic()) < ends_at:
        try:
            if now >= next_beat:
                execution.write("beat")
                next_beat = now + BEAT_SECONDS
            if told.get("careful"):
                run.ensure_held()
            time.sleep(min(STEP_SECONDS, ends_at - now))
        except Exception:
            if told.get("then") != "linger":
                raise


def _end(how: str) -> None:
    match how:
        case "raise":
            raise RuntimeError(f"as it was told: {SECRET}")
        case "permanent":
            raise dedup.PermanentError("as it was told")
        case "exit":
            raise SystemExit(1)


def _add_one(transaction: Any, counter: str) -> None:
    if isinstance(transaction, sqlite3.Connection):
        transaction.execute("CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, n INTEGER)")
        transaction.execute("INSERT INTO counters VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET n = n + 1", (counter,))
    elif hasattr(transaction, "execute_update"):
        one_more = "SELECT @name, 1 + IFNULL((SELECT n FROM counters WHERE name = @name), 0)"
        insert = f"INSERT OR UPDATE counters (name, n) {one_more}"
        transaction.execute_update(insert, params={"name": counter}, param_types={"name": _text()})
    else:
        document = _firestore_client().collection("counters").document(counter)
        found = document.get(transaction=transaction, timeout=3, retry=None)
        transaction.set(document, {"n": found.get("n") + 1 if found.exists else 1})


def _text() -> Any:
    from google.cloud.spanner import param_types

    return param_types.STRING


def _firestore_client() -> Any:
    from google.cloud import firestore  # where it is the store, it has been imported before the fork

    with _making_client:
        if not _clients:
            _clients.append(firestore.Client())
        return _clients[0]
