"""What is SQLite's own: several processes on one file, and all that a file can be."""

from __future__ import annotations

import ctypes
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from functions_framework.exceptions import RequestTimeoutException

from dedup.record import Decision, Ending, Status
from dedup.stores import StoreUnavailable, sqlite
from dedup.stores.sqlite import SQLiteRunStore
from tests.template import ROOT
from tests.template.contract.harness import A_RUN, LEASE, RETENTION, SQLiteHarness, a_claim
from tests.template.contract.threads import at_once
from tests.template.size import WHOLE

pytestmark = pytest.mark.store("sqlite")


CLAIMS = """
import sys, uuid
from datetime import UTC, datetime
from dedup.stores import Claim
from dedup.stores.sqlite import SQLiteRunStore

def claim(store, run_id):
    now = datetime(2026, 10, 16, 12, tzinfo=UTC)
    return store.claim_run(Claim(run_id=run_id, attempt_id=uuid.uuid4().hex, lease_seconds=60, retention_seconds=3600,
                                 job_name="nightly", schedule_time=now)).name

print("ready", flush=True)
sys.stdin.readline()
for path in sys.argv[2:]:
    store = SQLiteRunStore(path)
    print(*(claim(store, f"{n:064x}") for n in range(int(sys.argv[1]))), flush=True)
"""
"""A process that claims a number of runs in each of several files, when it is told to."""

LOCKS = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute(sys.argv[2])
db.execute("BEGIN EXCLUSIVE")
print("ready", flush=True)
sys.stdin.readline()
"""
"""A process that keeps a file locked until it is told to end."""


@pytest.fixture
def harness(request: pytest.FixtureRequest) -> Iterator[SQLiteHarness]:
    """A fresh store with its harness."""
    made = SQLiteHarness(request)
    yield made
    made.close()


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a Python program in a process of its own, and returns at once; what still runs at the end is ended."""
    started: list[subprocess.Popen[str]] = []

    def start_one(program: str, *arguments: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", program, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | {"DEDUP_STORE": "sqlite:///unused.db"},  # spares each process the import of Firestore's library
        )
        started.append(process)
        return process

    yield start_one
    for process in started:
        process.kill()
        process.communicate()


def claimed_by(
    start: Callable[..., subprocess.Popen[str]], processes: int, runs: int, paths: list[Path]
) -> list[list[Counter[str]]]:
    """What the processes heard when all of them claimed the same runs at once: for each file, for each run."""
    started = [start(CLAIMS, runs, *paths) for _ in range(processes)]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    lines = [process.communicate(timeout=60)[0].splitlines() for process in started]
    return [[Counter(of_run) for of_run in zip(*(line[n].split() for line in lines), strict=True)] for n in range(len(paths))]


# Several processes.


def test_many_processes_claim(harness: SQLiteHarness, start: Callable[..., subprocess.Popen[str]]) -> None:
    """Of 8 processes that claim the same 20 runs, one gets each of them."""
    assert harness.store.get_run(A_RUN) is None
    assert claimed_by(start, 8, 20, [harness.path]) == [[Counter(CLAIM=1, IN_PROGRESS=7)] * 20]


def test_first_use_by_many_processes(tmp_path: Path, start: Callable[..., subprocess.Popen[str]]) -> None:
    """4 processes that use a file which doesn't exist yet, at the same moment, each get an answer, and one of them the run."""
    paths = [tmp_path / f"folder-{n}" / "runs.db" for n in range(20)]
    assert claimed_by(start, 4, 1, paths) == [[Counter(CLAIM=1, IN_PROGRESS=3)]] * 20


def test_first_use_by_many_threads(tmp_path: Path) -> None:
    """30 threads that use a file which doesn't exist yet, at the same moment, each get an answer, and one of them the run."""
    for n in range(5):
        store = SQLiteRunStore(tmp_path / str(n) / "runs.db")
        decisions = at_once(store.claim_run, [a_claim() for _ in range(30)])
        assert Counter(decisions) == {Decision.CLAIM: 1, Decision.IN_PROGRESS: 29}


class Locked(sqlite3.Connection):
    """A connection whose next statements are refused."""

    faults: list[str]

    def execute(self, *statement: Any) -> sqlite3.Cursor:
        """Refuses, or executes."""
        if self.faults:
            raise sqlite3.OperationalError(self.faults.pop(0))
        return super().execute(*statement)


@pytest.mark.parametrize(
    ("faults", "waits", "refused"),
    [
        ([], 0, None),
        (["database is locked"] * 3, 3, None),
        (["database is locked"] * 9999, 500, "database is locked"),
        (["database is locked", "disk I/O error"], 1, "disk I/O error"),
    ],
    ids=["free", "locked for a while", "locked for long", "broken"],
)
def test_first_use_of_a_locked_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faults: list[str], waits: int, refused: str | None
) -> None:
    """While others turn WAL on, a first use tries again every 10 ms for 5 s; any other fault ends it at once."""
    db = sqlite3.connect(tmp_path / "runs.db", factory=Locked)
    db.faults = faults
    hundredths: list[float] = []
    monkeypatch.setattr("dedup.stores.sqlite.time.sleep", hundredths.append)
    monkeypatch.setattr("dedup.stores.sqlite.time.monotonic", lambda: len(hundredths) / 100)
    if refused is None:
        SQLiteRunStore(tmp_path / "runs.db")._prepare(db)
    else:
        with pytest.raises(sqlite3.OperationalError, match=refused):
            SQLiteRunStore(tmp_path / "runs.db")._prepare(db)
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            db.commit()
    assert hundredths == [0.01] * waits
    db.close()


def test_thread_keeps_its_connection(harness: SQLiteHarness) -> None:
    """A thread opens the file once."""
    assert isinstance(harness.store, SQLiteRunStore)
    assert harness.store._connection() is harness.store._connection()


def test_first_use_beside_a_reader(tmp_path: Path) -> None:
    """A first use waits for another's read of the same file to end."""
    reader = sqlite3.connect(tmp_path / "runs.db", isolation_level=None, check_same_thread=False)
    reader.execute("CREATE TABLE other (n)")
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM other").fetchall()
    end_of_read = threading.Timer(0.3, reader.rollback)
    end_of_read.start()
    assert SQLiteRunStore(tmp_path / "runs.db").claim_run(a_claim()) is Decision.CLAIM
    end_of_read.join()
    reader.close()


def test_another_process_sees_the_run(harness: SQLiteHarness, start: Callable[..., subprocess.Popen[str]]) -> None:
    """What one process has claimed is held for another."""
    assert harness.store.claim_run(a_claim(f"{0:064x}")) is Decision.CLAIM
    assert claimed_by(start, 1, 2, [harness.path]) == [[Counter(IN_PROGRESS=1), Counter(CLAIM=1)]]


# The file.


def test_file_is_made_at_the_first_use(tmp_path: Path) -> None:
    """The file and its folders are made by the first use, not by making the store."""
    path = tmp_path / "a" / "b" / "runs.db"
    store = SQLiteRunStore(path)
    assert not path.parent.exists()
    assert store.claim_run(a_claim()) is Decision.CLAIM
    assert path.is_file()


def test_file_is_kept(tmp_path: Path) -> None:
    """A store that is opened on a file again finds the runs of before."""
    claim = a_claim()
    first = SQLiteRunStore(tmp_path / "runs.db")
    assert first.claim_run(claim) is Decision.CLAIM
    assert first.finish_run(claim, Ending.COMPLETED)
    assert SQLiteRunStore(tmp_path / "runs.db").claim_run(a_claim()) is Decision.COMPLETED


def test_file_is_no_database(tmp_path: Path) -> None:
    """A store whose file is no database says so, and names it."""
    path = tmp_path / "runs.db"
    path.write_text("this is no database, and much longer than the hundred bytes of a database's header " * 20)
    refuses(SQLiteRunStore(path), path)


def refuses(store: SQLiteRunStore, path: Path) -> None:
    """Each method says that the store is unavailable, and names the file."""
    calls: list[Callable[[], Any]] = [
        lambda: store.claim_run(a_claim()),
        lambda: store.renew_run(a_claim()),
        lambda: store.finish_run(a_claim(), Ending.COMPLETED),
        lambda: store.get_run(A_RUN),
    ]
    for call in calls:
        with pytest.raises(StoreUnavailable) as raised:
            call()
        assert str(path) in str(raised.value)


def test_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """Where the folder can't be made, each method says so, and names the file."""
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "folder" / "runs.db"
    refuses(SQLiteRunStore(path), path)


def test_path_is_a_folder(tmp_path: Path) -> None:
    """Where the path is a folder's, each method says so, and names it."""
    refuses(SQLiteRunStore(tmp_path), tmp_path)


def test_refused_first_use_can_be_mended(tmp_path: Path) -> None:
    """A store that couldn't be opened opens when what was in the way is gone."""
    path = tmp_path / "runs.db"
    path.mkdir()
    store = SQLiteRunStore(path)
    refuses(store, path)
    path.rmdir()
    assert store.claim_run(a_claim()) is Decision.CLAIM


def test_file_locked_by_another_process(
    tmp_path: Path, start: Callable[..., subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While another process keeps the file locked, each method says so within 10 s; afterwards it works."""
    if not WHOLE:
        monkeypatch.setattr(sqlite, "BUSY_SECONDS", 1.0)
    used, unused = (SQLiteRunStore(tmp_path / name) for name in ("used.db", "unused.db"))
    held = a_claim("b" * 64)
    assert used.claim_run(held) is Decision.CLAIM
    lockers = [start(LOCKS, used.path, "PRAGMA journal_mode = WAL"), start(LOCKS, unused.path, "PRAGMA journal_mode = DELETE")]
    for locker in lockers:
        assert locker.stdout is not None
        assert locker.stdout.readline() == "ready\n"

    def timed(call: Callable[[], Any]) -> float:
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match=r"used\.db: database is locked"):
            call()
        return time.monotonic() - began

    calls: list[Callable[[], Any]] = [
        lambda: unused.claim_run(a_claim()),
        lambda: unused.get_run(A_RUN),
        lambda: used.claim_run(a_claim()),
        lambda: used.renew_run(held),
        lambda: used.finish_run(held, Ending.COMPLETED),
        lambda: used.get_run(A_RUN),
    ]
    assert max(at_once(timed, calls)) < 10
    for locker in lockers:
        locker.communicate("end\n", timeout=10)
    assert unused.claim_run(a_claim()) is Decision.CLAIM
    assert used.finish_run(held, Ending.COMPLETED)


def test_hurried_finish_of_a_locked_file(harness: SQLiteHarness) -> None:
    """A finish that has little time waits no longer for another's write."""
    claim = harness.claimed()
    harness.db.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        harness.store.finish_run(claim, Ending.RELEASED, within_seconds=0.5)
    assert 0.4 < time.monotonic() - began < 2


def test_time_out_while_waiting_for_the_lock(harness: SQLiteHarness) -> None:
    """A framework's time-out, raised into a thread that waits for the file, doesn't leave the file locked for everybody."""
    waits, struck, free_again = threading.Event(), threading.Event(), threading.Event()

    def wait_for_the_file() -> None:
        waits.set()
        try:
            harness.store.get_run(A_RUN)
        except RequestTimeoutException:
            struck.set()
        free_again.wait(10)  # the thread lives on, and its connection with it, as a server's do

    harness.db.execute("BEGIN IMMEDIATE")
    waiting = threading.Thread(target=wait_for_the_file)
    waiting.start()
    assert waits.wait(5)
    time.sleep(0.2)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_long(waiting.ident or 0), ctypes.py_object(RequestTimeoutException))
    harness.db.execute("ROLLBACK")
    assert struck.wait(5)
    assert harness.store.claim_run(a_claim()) is Decision.CLAIM
    free_again.set()
    waiting.join()


# Records.


def test_expired_records_are_purged(harness: SQLiteHarness) -> None:
    """The next claim deletes the records that are past their expire_at, and no others: what TTL does in Firestore."""
    assert harness.store.finish_run(harness.claimed("a" * 64), Ending.COMPLETED)
    harness.claimed("b" * 64, retention_seconds=RETENTION + 1000)
    harness.ahead += RETENTION + 1
    assert harness.raw("a" * 64) is not None
    harness.claimed("c" * 64)
    assert [harness.raw(run * 64) is None for run in "abc"] == [True, False, False]


def test_renewed_record_is_not_purged(harness: SQLiteHarness) -> None:
    """The record of a job that works for longer than the retention stays while it is renewed."""
    claim = harness.claimed("a" * 64, retention_seconds=LEASE)
    for _ in range(4):
        harness.ahead += LEASE / 2
        assert harness.store.renew_run(claim)
        harness.claimed(f"{harness.ahead:064}")
    assert harness.record("a" * 64).status is Status.IN_PROGRESS


BROKEN = {
    "status is a blob": ("status", b"completed"),
    "status is misspelt": ("status", "Completed"),
    "owner is a blob": ("attempt_id", b"a"),
    "lease is text": ("lease_seconds", "soon"),
    "lease is a blob": ("lease_seconds", b"60"),
    "lease is huge": ("lease_seconds", 10**18),
    "lease is missing, and its end is no time": ("lease_expires", "tomorrow"),
    "last write is no time": ("updated_at", "yesterday"),
    "last write is a number": ("updated_at", 0),
    "last write is a blob": ("updated_at", b"2020-01-01T00:00:00+00:00"),
    "last write has no zone": ("updated_at", "2999-01-01 00:00:00"),
    "expiry is a number": ("expire_at", 0),
    "expiry is text": ("expire_at", "tomorrow"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_broken_row_fails_closed(harness: SQLiteHarness, fault: str) -> None:
    """A row that a hand has broken holds its run, is left as it is, can be looked at, and is nobody's to finish."""
    claim = harness.claimed()
    if "missing" in fault:
        harness.db.execute("UPDATE scheduler_runs SET lease_seconds = NULL")
    column, value = BROKEN[fault]
    harness.db.execute(f"UPDATE scheduler_runs SET {column} = ?", (value,))
    row = tuple(harness.db.execute("SELECT * FROM scheduler_runs").fetchone())
    assert harness.store.claim_run(a_claim()) is Decision.IN_PROGRESS
    assert harness.store.get_run(A_RUN) is not None
    harness.claimed("f" * 64)
    assert tuple(harness.db.execute("SELECT * FROM scheduler_runs WHERE run_id = ?", (A_RUN,)).fetchone()) == row
    if column in ("status", "attempt_id"):
        assert not harness.store.finish_run(claim, Ending.COMPLETED)
        assert tuple(harness.db.execute("SELECT * FROM scheduler_runs WHERE run_id = ?", (A_RUN,)).fetchone()) == row


def test_broken_times_are_passed_over(harness: SQLiteHarness) -> None:
    """A time for people that can't be read doesn't keep the run from being claimed when its lease is over."""
    harness.claimed()
    harness.db.execute("UPDATE scheduler_runs SET claimed_at = 'noon', schedule_time = '2026-10-16', finished_at = x'00'")
    harness.ahead += LEASE + timedelta(seconds=1).total_seconds()
    assert harness.store.claim_run(a_claim()) is Decision.CLAIM


def test_times_are_stored_in_utc(harness: SQLiteHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the machine's zone is another, times are stored in UTC all the same, and so sort."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        harness.claimed()
    finally:
        monkeypatch.undo()
        time.tzset()
    assert harness.db.execute("SELECT lease_expires FROM scheduler_runs").fetchone()[0].endswith("+00:00")


def test_effects_share_the_transaction(harness: SQLiteHarness) -> None:
    """Effects are handed a connection in the middle of the transaction that completes the run."""
    claim = harness.claimed()
    ledgers = "SELECT count(*) FROM sqlite_master WHERE name = 'ledger'"
    others_see = [harness.db.execute(ledgers).fetchone()[0]]

    def effects(db: sqlite3.Connection) -> None:
        assert db.in_transaction
        db.execute("CREATE TABLE ledger (amount INTEGER)")
        others_see.append(harness.db.execute(ledgers).fetchone()[0])

    assert harness.store.finish_run(claim, Ending.COMPLETED, effects=effects)
    others_see.append(harness.db.execute(ledgers).fetchone()[0])
    assert others_see == [0, 0, 1]
