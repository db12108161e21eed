"""Runs in one SQLite file: for local runs and tests, without any server.

Safe for many threads and several processes of one machine. An instance's own disk deduplicates nothing in the cloud, which is
why `settings` refuses this store there.
"""

from __future__ import annotations

import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Unpack
from urllib.parse import unquote

from dedup.record import Decision, Ending, RunRecord, Status, decide
from dedup.stores import Claim, Details, EffectsRaised, SeenRun, StoreUnavailable, monotonic, read_record
from dedup.stores.selection import EVERY_RUN, Selection

BUSY_SECONDS = 5.0
"""How long an operation waits for another process's write; SQLite lets one write at a time."""

_TABLE = """
CREATE TABLE IF NOT EXISTS scheduler_runs (
    run_id TEXT PRIMARY KEY,
    updated_at TEXT NOT NULL,
    status TEXT NOT NULL,
    attempt_id TEXT NOT NULL,
    lease_seconds INTEGER,
    lease_expires TEXT,
    renewed_at TEXT,
    expire_at TEXT,
    job_name TEXT,
    schedule_time TEXT,
    scope TEXT,
    attempts INTEGER,
    claimed_at TEXT,
    finished_at TEXT,
    result TEXT,
    error TEXT
) WITHOUT ROWID
"""
_EXPIRY = "CREATE INDEX IF NOT EXISTS scheduler_runs_expire_at ON scheduler_runs (expire_at)"
_TIMES = ("updated_at", "lease_expires", "renewed_at", "expire_at", "schedule_time", "claimed_at", "finished_at")


class SQLiteRunStore:
    """Runs in the table `scheduler_runs` of one file, which is made with its folder at the first use.

    Args:
        path: the file.
        clock: the store's clock in seconds since 1970: the machine's, which all its processes share.
        monotonic: a clock in seconds, for how long an attempt trusts its lease.
    """

    supports_effects = True
    lists_by_index = True

    def __init__(
        self,
        path: str | Path,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = monotonic,
    ) -> None:
        self.path = Path(path)
        self._clock = clock
        self._monotonic = monotonic
        self._of_this_thread = threading.local()

    def claim_run(self, claim: Claim) -> Decision:
        """Reads, decides and claims in one transaction."""
        tried_at = self._monotonic()
        with self._transaction() as (db, now):
            record = _read(db, claim.run_id)
            decision = decide(record, claim.attempt_id, now)
            if decision is Decision.CLAIM:
                attempts = record.attempts + 1 if record is not None else 1
                _purge(db, now)
                _insert(db, claim.run_id, now, _claim_fields(claim, now, attempts))
            elif decision is Decision.HELD:
                assert record is not None
                attempts = record.attempts
                _update(db, claim.run_id, now, _lease_fields(claim, now))
            else:
                return decision
        claim.wrote(now, tried_at)
        claim.attempts = attempts
        return Decision.CLAIM

    def renew_run(self, claim: Claim) -> bool:
        """Lets the lease begin anew where the run is still this attempt's, in one transaction."""
        tried_at = self._monotonic()
        with self._transaction() as (db, now):
            record = _read(db, claim.run_id)
            if record is None or not record.is_held_by(claim.attempt_id):
                return False
            _update(db, claim.run_id, now, {"renewed_at": now, **_lease_fields(claim, now)})
        claim.wrote(now, tried_at)
        return True

    def finish_run(self, claim: Claim, ending: Ending, **details: Unpack[Details]) -> bool:
        """Ends the attempt where the run is still its own, in one transaction, which `effects` may write into."""
        effects = details.get("effects")
        with self._transaction(details.get("within_seconds", BUSY_SECONDS)) as (db, now):
            record = _read(db, claim.run_id)
            if record is None or not claim.may_finish(record):
                return claim.has_ended(record, ending)
            if ending is Ending.RELEASED:
                db.execute("DELETE FROM scheduler_runs WHERE run_id = ?", (claim.run_id,))
                return True
            if effects is not None and ending is Ending.COMPLETED:
                try:
                    effects(db)
                except Exception as raised:
                    raise EffectsRaised(raised) from raised
            ended = {"status": ending.value, "finished_at": now, "result": details.get("result"), "error": details.get("error")}
            _update(db, claim.run_id, now, ended)
        return True

    def get_run(self, run_id: str) -> RunRecord | None:
        """Reads one run."""
        with self._transaction() as (db, _):
            return _read(db, run_id)

    def list_runs(self, selection: Selection = EVERY_RUN) -> Iterator[SeenRun]:
        """Lists runs, newest first, without holding up any delivery."""
        condition, given = selection.sql()
        limit = "" if selection.limit is None else f"LIMIT {selection.limit}"
        query = f"SELECT * FROM scheduler_runs WHERE {condition} ORDER BY schedule_time DESC, run_id DESC {limit}"
        with self._reading() as (db, now):
            for row in db.execute(query, _columns(given)):
                record = _record(row)
                if record.schedule_time is not None:  # else it was edited by hand, and is no time
                    yield SeenRun(row["run_id"], record, now)

    def look_up(self, run_id: str) -> tuple[RunRecord | None, datetime]:
        """Reads one run, and the machine's clock; makes no file where there is none."""
        with self._reading() as (db, now):
            return _read(db, run_id), now

    def delete_run(self, run_id: str, updated_at: datetime) -> bool:
        """Deletes a run's record, if it is as it was at `updated_at`; always, where that can't be read any more."""
        with self._transaction() as (db, _):
            row = db.execute("SELECT updated_at FROM scheduler_runs WHERE run_id = ?", (run_id,)).fetchone()
            if row is None or _time(row["updated_at"]) not in (None, updated_at):
                return False
            db.execute("DELETE FROM scheduler_runs WHERE run_id = ?", (run_id,))
            return True

    @contextmanager
    def _reading(self) -> Iterator[tuple[sqlite3.Connection, datetime]]:
        """A connection that can only read, and takes no lock that a delivery would wait for."""
        if not self.path.exists():
            raise StoreUnavailable(f"SQLite file {self.path}: there is none (the first delivery makes it; is the path right?)")
        try:
            with closing(sqlite3.connect(f"{self.path.resolve().as_uri()}?mode=ro", uri=True, timeout=BUSY_SECONDS)) as db:
                db.row_factory = sqlite3.Row
                yield db, datetime.fromtimestamp(self._clock(), UTC)
        except sqlite3.Error as fault:
            raise self._unavailable(fault) from fault

    @contextmanager
    def _transaction(self, within_seconds: float = BUSY_SECONDS) -> Iterator[tuple[sqlite3.Connection, datetime]]:
        """Holds the file's one write lock, so that what is read stays true until it is written upon."""
        db: sqlite3.Connection | None = None
        try:  # all of it: a time-out that is raised into the thread as BEGIN returns must not leave the file locked
            db = self._connection()
            db.execute(f"PRAGMA busy_timeout = {int(min(BUSY_SECONDS, within_seconds) * 1000)}")
            db.execute("BEGIN IMMEDIATE")
            yield db, datetime.fromtimestamp(self._clock(), UTC)
            db.commit()
        except sqlite3.Error as fault:
            raise self._unavailable(fault) from fault
        finally:
            if db is not None and db.in_transaction:
                db.rollback()

    def _connection(self) -> sqlite3.Connection:
        db: sqlite3.Connection | None = getattr(self._of_this_thread, "db", None)
        if db is None:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as fault:
                raise self._unavailable(fault) from fault
            db = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
            db.row_factory = sqlite3.Row
            self._prepare(db)
            self._of_this_thread.db = db
        return db

    def _prepare(self, db: sqlite3.Connection) -> None:
        """Makes the table. Turning WAL on doesn't wait for other connections that do the same: it is tried again here."""
        give_up_at = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                db.execute("PRAGMA journal_mode = WAL")
                db.execute(_TABLE)
                db.execute(_EXPIRY)
                return
            except sqlite3.OperationalError as fault:
                if "locked" not in str(fault) or time.monotonic() >= give_up_at:
                    db.close()
                    raise
                time.sleep(0.01)

    def _unavailable(self, fault: Exception) -> StoreUnavailable:
        return StoreUnavailable(f"SQLite file {self.path}: {fault} (is its folder writable, and on a local disk?)")


def from_url(url: str) -> SQLiteRunStore:
    """Makes the store of `sqlite:///PATH`; a fourth slash begins an absolute path.

    Raises:
        ValueError: what is wrong with the URL.
    """
    match = re.fullmatch(r"sqlite:///([^?#]+)", url)
    if match is None or match[1].endswith("/") or "\0" in unquote(match[1]):
        raise ValueError(f"{url!r} names no file: write sqlite:///runs.db, or sqlite:////var/lib/runs.db")
    return SQLiteRunStore(unquote(match[1]))


def create_schema(url: str) -> str:
    """Makes the file and its table. The first delivery would, too."""
    store = from_url(url)
    with store._transaction():
        return f"SQLite file {store.path}: the table scheduler_runs is there"


def _claim_fields(claim: Claim, now: datetime, attempts: int) -> dict[str, Any]:
    """Every field of a fresh claim: a take-over clears with them what the dead attempt left."""
    return {
        "status": Status.IN_PROGRESS.value,
        "attempt_id": claim.attempt_id,
        "renewed_at": None,
        "job_name": claim.job_name,
        "schedule_time": claim.schedule_time,
        "scope": claim.scope or None,
        "attempts": attempts,
        "claimed_at": now,
        "finished_at": None,
        "result": None,
        "error": None,
        **_lease_fields(claim, now),
    }


def _lease_fields(claim: Claim, now: datetime) -> dict[str, Any]:
    return {
        "lease_seconds": claim.lease_seconds,
        "lease_expires": now + timedelta(seconds=claim.lease_seconds),
        "expire_at": now + timedelta(seconds=claim.retention_seconds),
    }


def _read(db: sqlite3.Connection, run_id: str) -> RunRecord | None:
    row = db.execute("SELECT * FROM scheduler_runs WHERE run_id = ?", (run_id,)).fetchone()
    return _record(row) if row is not None else None


def _record(row: sqlite3.Row) -> RunRecord:
    fields = dict(row)
    for name in _TIMES:
        fields[name] = _time(fields[name])
    updated_at = fields["updated_at"] or datetime.now(UTC)  # edited by hand, beyond reading: as if written just now
    return read_record(fields["run_id"], fields, updated_at)


def _time(value: object) -> datetime | None:
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return moment if moment is not None and moment.tzinfo is not None else None


def _insert(db: sqlite3.Connection, run_id: str, now: datetime, fields: dict[str, Any]) -> None:
    columns = _columns({"run_id": run_id, "updated_at": now, **fields})
    names, marks = ", ".join(columns), ", ".join("?" * len(columns))
    db.execute(f"INSERT OR REPLACE INTO scheduler_runs ({names}) VALUES ({marks})", tuple(columns.values()))


def _update(db: sqlite3.Connection, run_id: str, now: datetime, fields: dict[str, Any]) -> None:
    columns = _columns({"updated_at": now, **fields})
    changes = ", ".join(f"{name} = ?" for name in columns)
    db.execute(f"UPDATE scheduler_runs SET {changes} WHERE run_id = ?", (*columns.values(), run_id))


def _columns(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: _stored(value) if isinstance(value, datetime) else value for name, value in fields.items()}


def _stored(moment: datetime) -> str:
    """A time as text that sorts as times do."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def _purge(db: sqlite3.Connection, now: datetime) -> None:
    """Does what a TTL policy does in Firestore."""
    db.execute("DELETE FROM scheduler_runs WHERE expire_at < ? AND expire_at LIKE '____-__-__T%'", (_stored(now),))
