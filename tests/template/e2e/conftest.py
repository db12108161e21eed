"""Stores and instances for the tests of the deployed shape."""

from __future__ import annotations

import os
import sqlite3
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from unittest import mock

import pytest
from google.cloud.firestore import Client

from dedup.record import RunRecord
from dedup.stores import open_store
from dedup.stores.firestore import FirestoreRunStore
from dedup.stores.sqlite import SQLiteRunStore
from tests.template.e2e.ledger import Ledger
from tests.template.e2e.server import LEDGER_JOB, Server, serving
from tests.template.emulator import Emulator, RedisServer, spanner_database
from tests.template.size import WHOLE

LEASE_SECONDS = 1
"""The shortest there is, so that the tests needn't wait."""

Serve = Callable[..., Server]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keeps each module on one worker, since its tests share instances; cuts what waits for leases."""
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        item.add_marker(pytest.mark.xdist_group(f"e2e/{item.path.stem}"))
        on = getattr(item, "callspec", None)
        if not WHOLE and item.path.stem == "test_faults" and on is not None and on.params.get("store") == "firestore":
            item.add_marker(pytest.mark.skip(reason="faults on SQLite alone: WHOLE=0"))


@dataclass(frozen=True)
class StoreInUse:
    """A store of a test's own, seen from outside of the instances."""

    environ: Mapping[str, str]
    """What points an instance at it, and its jobs at the ledger."""
    get_run: Callable[[str], RunRecord | None]
    count: Callable[[str], int]
    """A counter of jobs/ledger.py."""
    ledger: Ledger
    """What all its instances' jobs write down."""


def run_id(job: str, schedule_time: str = "2026-10-16T12:00:00Z") -> str:
    """A run's id as the documentation has it."""
    return sha256(f"{job}/{schedule_time}".encode()).hexdigest()


def sqlite_store(folder: Path) -> StoreInUse:
    """Runs in one file."""
    path, ledger = folder / "runs.db", Ledger(folder / "ledger.jsonl")

    def count(name: str) -> int:
        with closing(sqlite3.connect(path)) as db:
            if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'counters'").fetchone():
                return 0
            row = db.execute("SELECT n FROM counters WHERE name = ?", (name,)).fetchone()
            return int(row[0]) if row else 0

    environ = {"DEDUP_STORE": f"sqlite:///{path}", "LEDGER": str(ledger.path)}
    return StoreInUse(environ, SQLiteRunStore(path).get_run, count, ledger)


def firestore_store(folder: Path, host: str, *, through: str | None = None) -> StoreInUse:
    """A project of its own in the emulator.

    Args:
        folder: for the ledger.
        host: the emulator's.
        through: what the instances reach it by, if not directly.
    """
    project, ledger = f"e2e-{uuid.uuid4().hex[:12]}", Ledger(folder / "ledger.jsonl")
    store = FirestoreRunStore(project)
    with mock.patch.dict(os.environ, {"FIRESTORE_EMULATOR_HOST": host}):
        client = Client(project=project)
        store.get_run("made while the environment says where")

    def count(name: str) -> int:
        found = client.collection("counters").document(name).get(timeout=10)
        return int(found.get("n")) if found.exists else 0

    environ = {"FIRESTORE_EMULATOR_HOST": through or host, "GOOGLE_CLOUD_PROJECT": project, "LEDGER": str(ledger.path)}
    return StoreInUse(environ, store.get_run, count, ledger)


def spanner_store(folder: Path, emulator: Emulator, *, through: str | None = None) -> StoreInUse:
    """A database of its own in the emulator.

    Args:
        folder: for the ledger.
        emulator: where.
        through: what the instances reach it by, if not directly.
    """
    url, ledger = spanner_database(emulator, f"e2e-{uuid.uuid4().hex[:12]}"), Ledger(folder / "ledger.jsonl")
    store = open_store(url)
    with mock.patch.dict(os.environ, emulator.spanner_environ):
        store.get_run("made while the environment says where")

    def count(name: str) -> int:
        with store._database(store._tries(10)).snapshot() as snapshot:  # type: ignore[attr-defined]
            rows = list(snapshot.execute_sql("SELECT n FROM counters WHERE name = @name", params={"name": name}))
        return int(rows[0][0]) if rows else 0

    reached = Emulator(through) if through is not None else emulator
    return StoreInUse({"DEDUP_STORE": url, **reached.spanner_environ, "LEDGER": str(ledger.path)}, store.get_run, count, ledger)


def redis_store(folder: Path, server: RedisServer, *, through: str | None = None) -> StoreInUse:
    """A prefix of its own on the server.

    Args:
        folder: for the ledger.
        server: where.
        through: what the instances reach it by, if not directly.
    """
    prefix, ledger = f"e2e-{uuid.uuid4().hex[:12]}", Ledger(folder / "ledger.jsonl")
    environ = {"DEDUP_STORE": f"redis://{through or server.host}?prefix={prefix}", "LEDGER": str(ledger.path)}
    return StoreInUse(environ, open_store(f"redis://{server.host}?prefix={prefix}").get_run, lambda name: 0, ledger)


@contextmanager
def starter(folder: Path) -> Iterator[Serve]:
    """Starts instances, `serve(store, source, **environ)`, and ends them with the `with`.

    Args:
        folder: for their output.
    """
    with ExitStack() as running:

        def serve(store: StoreInUse, source: Path = LEDGER_JOB, **environ: str) -> Server:
            given = {"DEDUP_LEASE_SECONDS": str(LEASE_SECONDS), **store.environ, **environ}
            return running.enter_context(serving(given, folder / f"server-{uuid.uuid4().hex[:8]}.log", source))

        yield serve


EACH_STORE = [pytest.param(name, marks=pytest.mark.store(name)) for name in ("sqlite", "firestore")]


@pytest.fixture(scope="module", params=EACH_STORE)
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> StoreInUse:
    """Each store in turn, for all tests of a module: they keep apart by their jobs' names."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "sqlite":
        return sqlite_store(folder)
    return firestore_store(folder, request.getfixturevalue("emulator").host)


@pytest.fixture
def sqlite(tmp_path: Path) -> StoreInUse:
    """A store for what doesn't depend on the store."""
    return sqlite_store(tmp_path)


@pytest.fixture
def firestore(emulator: Emulator, tmp_path: Path) -> StoreInUse:
    """The store that is deployed, for what is worth no second look."""
    return firestore_store(tmp_path, emulator.host)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts instances for one test."""
    with starter(tmp_path) as serve:
        yield serve


@pytest.fixture(scope="module")
def pair(store: StoreInUse, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    """Two instances on each store, for all tests of a module. Their workers may be killed."""
    with starter(tmp_path_factory.mktemp("pair")) as serve:
        yield serve(store), serve(store)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """Threads for deliveries at once."""
    with ThreadPoolExecutor(64) as threads:
        yield threads
