"""What the suite needs of a store beyond the RunStore protocol: one harness a store, one entry in HARNESSES."""

from __future__ import annotations

import sqlite3
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import pytest
import redis
from google.cloud import firestore, spanner

from dedup.record import RunRecord
from dedup.stores import Claim, Inspectable
from dedup.stores.firestore import FirestoreRunStore
from dedup.stores.redis import RedisRunStore
from dedup.stores.redis_client import Server
from dedup.stores.spanner import SpannerRunStore
from dedup.stores.sqlite import SQLiteRunStore
from tests.template.contract.spy import RedisSpy, SpannerSpy, Spy
from tests.template.emulator import Emulator, RedisServer, spanner_database
from tests.template.size import WHOLE

LEASE = 60
RETENTION = 3600
MARGIN = 1.0
SCHEDULE_TIME = datetime(2026, 10, 16, 12, tzinfo=UTC)
A_RUN = "70023a432b2b34153735624b1c8a9dc5296d98a0dcf2da93ad3bf13a849a1ce2"

Effects = Callable[[Any], None]


def a_claim(run_id: str = A_RUN, **other: Any) -> Claim:
    """The claim of an attempt that hasn't asked the store for anything yet."""
    fields: dict[str, Any] = {
        "attempt_id": uuid.uuid4().hex,
        "lease_seconds": LEASE,
        "retention_seconds": RETENTION,
        "job_name": "nightly",
        "schedule_time": SCHEDULE_TIME,
    }
    return Claim(run_id=run_id, **(fields | other))


class Ticker:
    """A monotonic clock that a test can move on."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        """Seconds."""
        return time.monotonic() + self.ahead

    def wait(self, seconds: float) -> None:
        """Passes for sleeping."""
        self.ahead += seconds


class Harness(ABC):
    """One store of its own for one test, and what can't be had through the store's own methods."""

    store: Inspectable
    url: str
    """What DEDUP_STORE would say to name this store."""
    examples: int
    """How many examples of the state machine this store is worth: its share of ten seconds."""
    shrinks: bool
    """Whether an example that fails is made smaller, which takes hundreds more."""
    runs_at_once = 50
    """How many runs are claimed and finished at the same moment."""

    def __init__(self) -> None:
        self.monotonic = Ticker()
        self.write_seconds = 0.0
        """How long each write takes, by the attempt's monotonic clock."""

    @abstractmethod
    def close(self) -> None:
        """Ends what the harness has opened."""

    @abstractmethod
    def now(self) -> datetime:
        """The store's clock."""

    @abstractmethod
    def expire_lease(self, run_id: str) -> None:
        """Ends the lease of a run now."""

    @abstractmethod
    def raw(self, run_id: str) -> dict[str, Any] | None:
        """The stored fields of a run, those that say nothing left out; None if there is no record."""

    @abstractmethod
    def put(self, run_id: str, fields: Mapping[str, Any]) -> None:
        """Writes a record of these fields alone, as the documented example or a human would."""

    @abstractmethod
    def delete(self, run_id: str) -> None:
        """Deletes a record, as a human or TTL would."""

    @abstractmethod
    def count_one(self, transaction: Any) -> None:
        """Effects: reads the counter and writes one more, in the transaction that a finish hands to its effects."""

    @abstractmethod
    def counted(self) -> int:
        """The counter."""

    def record(self, run_id: str = A_RUN) -> RunRecord:
        """The record of a run that must be there."""
        record = self.store.get_run(run_id)
        assert record is not None
        return record

    def claimed(self, run_id: str = A_RUN, **other: Any) -> Claim:
        """The claim of an attempt that holds the run."""
        claim = a_claim(run_id, **other)
        decision = self.store.claim_run(claim)
        assert decision.name == "CLAIM"
        return claim

    def put_documented(self, run_id: str, status: str, lease: timedelta) -> None:
        """Writes a record of the documented example, whose lease ends so long from now."""
        now = self.now()
        fields = {"status": status, "attempt_id": uuid.uuid4().hex, "lease_expires": now + lease}
        self.put(run_id, {**fields, "expire_at": now + timedelta(days=1)})


class SQLiteHarness(Harness):
    """SQLite's clock is the machine's; the test's is handed in."""

    examples = 300 if WHOLE else 50
    shrinks = True

    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__()
        self.path = request.getfixturevalue("tmp_path") / "runs.db"
        self.url = f"sqlite:///{self.path}"
        self.ahead = 0.0
        self.store = SQLiteRunStore(self.path, clock=self._clock, monotonic=self.monotonic)
        self._db: sqlite3.Connection | None = None

    def close(self) -> None:
        """Ends the test's own connection."""
        if self._db is not None:
            self._db.close()

    def now(self) -> datetime:
        """The machine's clock, moved on."""
        return datetime.fromtimestamp(time.time() + self.ahead, UTC)

    def expire_lease(self, run_id: str) -> None:
        """Moves the clock on to the end of the lease."""
        self.ahead += max(0.0, (self.record(run_id).live_until - self.now()).total_seconds())

    def raw(self, run_id: str) -> dict[str, Any] | None:
        """The row, its times read."""
        row = self.db.execute("SELECT * FROM scheduler_runs WHERE run_id = ?", (run_id,)).fetchone()
        if row is None:
            return None
        own = ("run_id", "updated_at")
        return {name: _read(name, row[name]) for name in row.keys() if name not in own and row[name] is not None}  # noqa: SIM118

    def put(self, run_id: str, fields: Mapping[str, Any]) -> None:
        """Replaces the row."""
        columns = {"run_id": run_id, "updated_at": self.now(), "status": "", "attempt_id": "", **fields}
        values = [value.isoformat() if isinstance(value, datetime) else value for value in columns.values()]
        marks = ", ".join("?" * len(columns))
        self.db.execute(f"INSERT OR REPLACE INTO scheduler_runs ({', '.join(columns)}) VALUES ({marks})", values)

    def delete(self, run_id: str) -> None:
        """Deletes the row."""
        self.db.execute("DELETE FROM scheduler_runs WHERE run_id = ?", (run_id,))

    def count_one(self, transaction: Any) -> None:
        """Counts in a table of its own."""
        transaction.execute("CREATE TABLE IF NOT EXISTS counter (n INTEGER)")
        (n,) = transaction.execute("SELECT coalesce(max(n), 0) FROM counter").fetchone()
        transaction.execute("INSERT INTO counter VALUES (?)", (n + 1,))

    def counted(self) -> int:
        """Reads that table."""
        if self.db.execute("SELECT 1 FROM sqlite_master WHERE name = 'counter'").fetchone() is None:
            return 0
        return int(self.db.execute("SELECT coalesce(max(n), 0) FROM counter").fetchone()[0])

    @property
    def db(self) -> sqlite3.Connection:
        """A connection of the test's own, once the store has made the table."""
        if self._db is None:
            self.store.get_run(A_RUN)
            self._db = sqlite3.connect(self.path, isolation_level=None)
            self._db.row_factory = sqlite3.Row
        return self._db

    def _clock(self) -> float:
        self.monotonic.ahead += self.write_seconds
        return time.time() + self.ahead


class FirestoreHarness(Harness):
    """Firestore's clock is the server's: a lease is ended by hand."""

    examples = 12 if WHOLE else 4
    shrinks = False

    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__()
        emulator: Emulator = request.getfixturevalue("emulator")
        request.getfixturevalue("monkeypatch").setenv("FIRESTORE_EMULATOR_HOST", emulator.host)
        self.project = f"test-{uuid.uuid4().hex[:20]}"
        self.url = f"firestore://{self.project}"
        self.client = firestore.Client(project=self.project)
        self.runs = self.client.collection("scheduler_runs")
        self.store: FirestoreRunStore = FirestoreRunStore(self.project, monotonic=self.monotonic, sleep=self.monotonic.wait)
        self.spy = Spy.on(self.store)
        self.spy.before_write = self._take_time
        self._counter = self.client.document("effects/counter")

    def close(self) -> None:
        """Closes both clients."""
        self.client.close()
        self.store._connected().api.transport.close()

    def now(self) -> datetime:
        """The emulator runs on this machine."""
        return datetime.now(UTC)

    def expire_lease(self, run_id: str) -> None:
        """Cuts the lease to nothing."""
        self.runs.document(run_id).update({"lease_seconds": 0, "lease_expires": self.now() - timedelta(seconds=1)})

    def raw(self, run_id: str) -> dict[str, Any] | None:
        """The document."""
        fields: dict[str, Any] | None = self.runs.document(run_id).get().to_dict()
        return fields

    def put(self, run_id: str, fields: Mapping[str, Any]) -> None:
        """Replaces the document."""
        self.runs.document(run_id).set(dict(fields))

    def delete(self, run_id: str) -> None:
        """Deletes the document."""
        self.runs.document(run_id).delete()

    def count_one(self, transaction: Any) -> None:
        """Counts in a document of its own."""
        counter = self._counter.get(transaction=transaction)
        n = counter.get("n") if counter.exists else 0
        transaction.set(self._counter, {"n": n + 1})

    def counted(self) -> int:
        """Reads that document."""
        counter = self._counter.get()
        return int(counter.get("n")) if counter.exists else 0

    def _take_time(self) -> None:
        self.monotonic.ahead += self.write_seconds


class SpannerHarness(Harness):
    """One table of one database for all tests, emptied before each."""

    examples = 40 if WHOLE else 2
    shrinks = False
    runs_at_once = 50 if WHOLE else 10  # the emulator has one transaction at a time, and aborts all others

    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__()
        emulator: Emulator = request.getfixturevalue("spanner")
        environ = request.getfixturevalue("monkeypatch")
        for name, value in emulator.spanner_environ.items():
            environ.setenv(name, value)
        self.database = _database_of(emulator)
        for table in ("scheduler_runs", "counter"):
            with self.database.batch() as batch:
                batch.delete(table, spanner.KeySet(all_=True))
        project, instance = self.database.name.split("/")[1:4:2]
        self.url = f"spanner://{project}/{instance}/{self.database.database_id}"
        self.store: SpannerRunStore = SpannerRunStore(
            project, instance, self.database.database_id, monotonic=self.monotonic, sleep=time.sleep
        )
        self.spy = SpannerSpy.on(self.store)
        self.spy.before_write = self._take_time

    def close(self) -> None:
        """Closes the store's client."""
        self.spy.transport.close()

    def now(self) -> datetime:
        """The emulator runs on this machine."""
        return datetime.now(UTC)

    def expire_lease(self, run_id: str) -> None:
        """Lets the last write have been longer ago."""
        record = self.record(run_id)
        ago = self.now() - timedelta(seconds=(record.lease_seconds or 0) + 1)
        self._do("UPDATE scheduler_runs SET updated_at = @ago WHERE run_id = @run_id", ago=ago, run_id=run_id)

    def raw(self, run_id: str) -> dict[str, Any] | None:
        """The row."""
        with self.database.snapshot() as snapshot:
            result = snapshot.execute_sql("SELECT * FROM scheduler_runs WHERE run_id = @run_id", params={"run_id": run_id})
            rows = [dict(zip([field.name for field in result.fields], row, strict=True)) for row in result]
        own = ("run_id", "updated_at")
        return {name: value for name, value in rows[0].items() if name not in own and value is not None} if rows else None

    def put(self, run_id: str, fields: Mapping[str, Any]) -> None:
        """Replaces the row. A column of numbers takes no text: a number that can be no lease stands for it."""
        row = {"run_id": run_id, "updated_at": self.now(), "status": "", "attempt_id": "", **fields}
        if isinstance(row.get("lease_seconds"), str):
            row["lease_seconds"] = -60
        with self.database.batch() as batch:
            batch.replace("scheduler_runs", list(row), [list(row.values())])

    def delete(self, run_id: str) -> None:
        """Deletes the row."""
        self._do("DELETE FROM scheduler_runs WHERE run_id = @run_id", run_id=run_id)

    def count_one(self, transaction: Any) -> None:
        """Counts in a table of its own."""
        transaction.execute_update(
            "INSERT OR UPDATE counter (id, n) SELECT 1, 1 + IFNULL((SELECT n FROM counter WHERE id = 1), 0)"
        )

    def counted(self) -> int:
        """Reads that table."""
        with self.database.snapshot() as snapshot:
            return sum(row[0] for row in snapshot.execute_sql("SELECT n FROM counter"))

    def _do(self, sql: str, **given: Any) -> None:
        types = {
            name: spanner.param_types.TIMESTAMP if isinstance(value, datetime) else spanner.param_types.STRING
            for name, value in given.items()
        }
        self.database.run_in_transaction(lambda transaction: transaction.execute_update(sql, params=given, param_types=types))

    def _take_time(self) -> None:
        self.monotonic.ahead += self.write_seconds


@cache
def _database_of(emulator: Emulator) -> Any:
    """A connection of the tests' own to the one database for all of them."""
    project, instance, database = spanner_database(emulator, "contract").removeprefix("spanner://").split("/")
    return spanner.Client(project=project, disable_builtin_metrics=True).instance(instance).database(database)


class RedisHarness(Harness):
    """Keys of one prefix."""

    of = "redis"
    """The fixture of its server."""
    examples = 200 if WHOLE else 10
    shrinks = True

    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__()
        self.server: RedisServer = request.getfixturevalue(self.of)
        self.prefix = uuid.uuid4().hex
        self.url = f"redis://127.0.0.1:{self.server.port}/0?prefix={self.prefix}"
        self.client = redis.Redis(port=self.server.port, decode_responses=True)
        self.store: RedisRunStore = RedisRunStore(
            Server(host="127.0.0.1", port=self.server.port), self.prefix, monotonic=self.monotonic, sleep=self.monotonic.wait
        )
        self.spy = RedisSpy.on(self.store)
        self.spy.during_write = self._take_time

    def close(self) -> None:
        """Closes both clients."""
        self.client.close()
        self.store._client().close()

    def now(self) -> datetime:
        """The server runs on this machine."""
        return datetime.now(UTC)

    def expire_lease(self, run_id: str) -> None:
        """Lets the last write have been longer ago."""
        ago = self.now() - timedelta(seconds=(self.record(run_id).lease_seconds or 0) + 1)
        self.client.hset(self.key(run_id), "updated_at", _micros(ago))

    def raw(self, run_id: str) -> dict[str, Any] | None:
        """The hash, its numbers and times read where they can be."""
        fields = self.client.hgetall(self.key(run_id))
        fields.pop("updated_at", None)
        return {name: _read_text(name, text) for name, text in fields.items()} if fields else None

    def put(self, run_id: str, fields: Mapping[str, Any]) -> None:
        """Replaces the hash."""
        self.delete(run_id)
        texts = {name: _micros(value) if isinstance(value, datetime) else str(value) for name, value in fields.items()}
        self.client.hset(self.key(run_id), mapping={"updated_at": _micros(self.now()), **texts})

    def delete(self, run_id: str) -> None:
        """Deletes the hash."""
        self.client.delete(self.key(run_id))

    def count_one(self, transaction: Any) -> None:
        """There is no transaction to count in."""
        raise NotImplementedError

    def counted(self) -> int:
        """Nothing is."""
        return 0

    def key(self, run_id: str) -> str:
        """Where a run is."""
        return f"{self.prefix}:{run_id}"

    def _take_time(self) -> None:
        self.monotonic.ahead += self.write_seconds


class ValkeyHarness(RedisHarness):
    """The same on the other server."""

    of = "valkey"


HARNESSES: dict[str, Callable[[pytest.FixtureRequest], Harness]] = {
    "sqlite": SQLiteHarness,
    "firestore": FirestoreHarness,
    "spanner": SpannerHarness,
    "redis": RedisHarness,
    **({"valkey": ValkeyHarness} if WHOLE else {}),
}
"""Add a store here: the whole suite then runs on it."""


TRANSACTIONAL = [name for name in HARNESSES if name not in ("redis", "valkey")]
"""Those whose finish takes a job's own writes."""


def _micros(moment: datetime) -> str:
    return str((moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1))


def _read_text(name: str, text: str) -> Any:
    """Redis has texts alone."""
    times = ("lease_expires", "renewed_at", "expire_at", "schedule_time", "claimed_at", "finished_at")
    if not text.isdigit() or name not in (*times, "lease_seconds", "attempts"):
        return text
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(text)) if name in times else int(text)


def _read(name: str, value: Any) -> Any:
    """SQLite has no type for times: their columns hold them as text."""
    times = ("lease_expires", "renewed_at", "expire_at", "schedule_time", "claimed_at", "finished_at")
    return datetime.fromisoformat(value) if name in times else value
