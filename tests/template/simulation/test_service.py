"""The in-memory Firestore is held to the official emulator: it passes the stores' suite, and answers what the emulator does."""

from __future__ import annotations

import dataclasses
import logging
import random
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from google.api_core import exceptions as google
from google.auth.credentials import AnonymousCredentials
from google.cloud import firestore

from dedup.stores import RunStore
from dedup.stores.firestore import Connection, FirestoreRunStore
from tests.template.contract import test_firestore, test_model, test_store
from tests.template.contract.conftest import errors  # noqa: F401  # a fixture of the suite
from tests.template.contract.harness import FirestoreHarness, Harness, Ticker
from tests.template.contract.spy import Spy
from tests.template.emulator import Emulator
from tests.template.simulation.service import Service
from tests.template.size import WHOLE

# The suite that every store passes, and what is asked of Firestore beside it.


class SimulatedHarness(FirestoreHarness):
    """The Firestore store on the stand-in."""

    examples = 20 if WHOLE else 4

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monotonic = Ticker()
        self.write_seconds = 0.0
        self.project = "simulated"
        service = Service()
        database = "projects/simulated/databases/(default)"
        metadata = [("google-cloud-resource-prefix", database)]
        connection = Connection(service, "simulated", database, metadata, AnonymousCredentials())
        monkeypatch.setattr("dedup.stores.firestore.connect", lambda *_: dataclasses.replace(connection))
        self.client = _client(service)
        self.runs = self.client.collection("scheduler_runs")
        self.store = FirestoreRunStore(self.project, monotonic=self.monotonic)
        self.spy = Spy.on(self.store)
        self.spy.before_write = self._take_time
        self._counter = self.client.document("effects/counter")

    def close(self) -> None:
        """There is no channel."""


def _client(service: Service) -> firestore.Client:
    client = firestore.Client(project="simulated", credentials=AnonymousCredentials())
    client._firestore_api_internal = service
    return client


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `-s`, the count of interleavings isn't to be looked for between the suite's log lines."""
    monkeypatch.setattr(logging.getLogger("dedup"), "handlers", [logging.NullHandler()])


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Harness:
    """A fresh store on a fresh stand-in."""
    return SimulatedHarness(monkeypatch)


@pytest.fixture
def store(harness: Harness) -> RunStore:
    """A fresh store."""
    return harness.store


unclear = test_firestore.unclear
arrives = test_firestore.arrives


def _of(suite: Any, *, but: tuple[str, ...] = ()) -> dict[str, Any]:
    """The tests of a suite that take a harness or a store, marked with the store's name in the last line of a run."""
    return {
        name: pytest.mark.store("simulated")(_copy(test))
        for name, test in vars(suite).items()
        if name.startswith("test_") and name not in but and {"harness", "store"} & set(_arguments(test))
    }


def _arguments(test: Any) -> tuple[str, ...]:
    names: tuple[str, ...] = test.__code__.co_varnames[: test.__code__.co_argcount]
    return names


def _copy(test: Any) -> Any:
    """Its own function, so that a mark on it is none on the original."""
    copy = type(test)(test.__code__, test.__globals__, test.__name__, test.__defaults__, test.__closure__)
    copy.__dict__.update({name: list(value) if name == "pytestmark" else value for name, value in vars(test).items()})
    copy.__doc__, copy.__annotations__ = test.__doc__, test.__annotations__
    return copy


if WHOLE:
    not_here = ("test_effects_in_many_threads", "test_nothing_but_empty_reads")  # one queries, one takes 9 s here as there
    globals().update(_of(test_store) | _of(test_model) | _of(test_firestore, but=not_here))


# What a client sees, here and there.

OPERATIONS = 60


class Side:
    """A database, and what it has said so far: outcomes and fields, without times that the other can't know.

    Args:
        client: of the emulator or the stand-in.
    """

    def __init__(self, client: firestore.Client) -> None:
        self.client = client
        self.documents = [client.document(f"things/{name}") for name in "ab"]
        self.tokens: list[list[Any]] = [[], []]
        self.transaction: bytes | None = None
        self.closed: bytes | None = None

    def do(self, operation: Callable[[Side], Any]) -> Any:
        """What comes of an operation: a value, or the class of what it raised."""
        try:
            return operation(self)
        except google.GoogleAPIError as raised:
            return type(raised).__name__

    def state(self) -> list[Any]:
        """Both documents, and whether they were written or created by the last operations."""
        states = []
        for document, tokens in zip(self.documents, self.tokens, strict=True):
            snapshot = document.get(timeout=30, retry=None)
            assert snapshot.read_time is not None
            changed = not tokens or tokens[-1] != snapshot.update_time
            if snapshot.exists:
                assert snapshot.read_time >= snapshot.update_time >= snapshot.create_time
                if changed:
                    assert not tokens or tokens[-1] is None or snapshot.update_time > tokens[-1], "commit times rise"
            if changed:
                tokens.append(snapshot.update_time)
            fields = snapshot.to_dict()
            if fields and "at" in fields:
                late = snapshot.update_time - fields["at"]
                assert fields["at"].microsecond % 1000 == 0
                fields["at"] = timedelta() <= late
            states.append((fields, changed, snapshot.exists and snapshot.create_time == snapshot.update_time))
        return states


def _write(side: Side, chance: random.Random, batch: Any, number: int) -> None:
    """Adds one write to a document, the same on both sides."""
    document, tokens = side.documents[number], [token for token in side.tokens[number] if token is not None]
    kind = chance.choice(["create", "update", "update", "update", "set", "delete"])
    fields = {
        "n": chance.randrange(2),
        "name": chance.choice(["x", None, True, 1.5]),
        "map": {"in": chance.randrange(2), "by": [1, "two"]},
    }
    if kind != "update":
        fields = {name: value for name, value in fields.items() if chance.random() < 0.7}
    if chance.random() < 0.3:
        fields["at"] = firestore.SERVER_TIMESTAMP
    condition = chance.choice(["none", "token", "token", "stale"])
    which = chance.random()
    option = None
    if condition != "none" and tokens:
        token = tokens[-1] if condition == "token" else tokens[int(which * len(tokens))]
        option = firestore.Client.write_option(last_update_time=token)
    if kind == "create":
        batch.create(document, fields)
    elif kind == "set":
        batch.set(document, fields)
    elif kind == "delete":
        batch.delete(document, option=option)
    else:
        paths: dict[str, Any] = {name: value for name, value in fields.items() if name != "map"}
        if chance.random() < 0.3:
            paths[chance.choice(["name", "gone", "map.by", "map"])] = firestore.DELETE_FIELD
        if "map" not in paths and "map.by" not in paths and chance.random() < 0.5:
            paths[chance.choice(["map.in", "`odd name`.in"])] = chance.randrange(2)
        batch.update(document, paths, option=option)


def _commit(side: Side, batch: Any, transaction: bytes | None) -> Any:
    answer = side.client._firestore_api.commit(
        request={"database": side.client._database_string, "writes": batch._write_pbs, "transaction": transaction},
        timeout=30,
        retry=None,
    )
    return [bool(result.update_time) and result.update_time <= answer.commit_time for result in answer.write_results]


def _operation(seed: int) -> Callable[[Side], Any]:
    """One operation, chosen by a seed: the same one on both sides."""

    def write(side: Side) -> Any:
        chance = random.Random(seed)
        batch = side.client.batch()
        for number in chance.choice([(0,), (1,), (0,), (1,), (0, 1)]):
            _write(side, chance, batch, number)
        return _commit(side, batch, None)

    def transact(side: Side) -> Any:
        """A transaction from its begin to its end, and on: its second commit, a read in it, a rollback."""
        chance = random.Random(seed)
        api, database = side.client._firestore_api, side.client._database_string
        transaction = api.begin_transaction(request={"database": database}, timeout=30, retry=None).transaction

        def read() -> Any:
            request = {"database": database, "documents": [side.documents[0]._document_path], "transaction": transaction}
            return [bool(answer.found) for answer in api.batch_get_documents(request=request, timeout=30, retry=None)]

        def write() -> Any:
            batch = side.client.batch()
            _write(side, chance, batch, chance.randrange(2))
            return _commit(side, batch, transaction)

        def roll_back() -> Any:
            return api.rollback(request={"database": database, "transaction": transaction}, timeout=30, retry=None)

        steps = [chance.choice([read, write, write, roll_back]) for _ in range(3)]
        return [side.do(lambda _, step=step: step()) for step in [*steps, roll_back]]

    return transact if seed % 4 == 0 else write


@pytest.mark.parametrize("seed", range(4 if WHOLE else 1))
def test_stand_in_answers_as_the_emulator(emulator: Emulator, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """The same random operations have the same outcome on both, and leave the same fields with the same writes counted."""
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", emulator.host)
    there = firestore.Client(project=f"twin-{uuid.uuid4().hex[:20]}")
    sides = Side(there), Side(_client(Service()))
    done = []
    for number in range(OPERATIONS):
        operation = _operation(seed * 1000 + number)
        outcomes = [side.do(operation) for side in sides]
        done.append((number, outcomes[0]))
        assert outcomes[0] == outcomes[1], f"operation {number} of seed {seed}: {outcomes}"
        states = [side.state() for side in sides]
        assert states[0] == states[1], f"after operation {number} of seed {seed}: {outcomes}"
    assert len({str(outcome) for _, outcome in done}) > 3  # they are not all refused alike
    there.close()


@pytest.fixture
def alone() -> tuple[Service, firestore.Client]:
    """A stand-in whose clock stands still."""
    service = Service(now=lambda: 1_000_000_000)
    return service, _client(service)


def test_transaction_is_aborted_by_another_write(alone: tuple[Service, firestore.Client]) -> None:
    """A commit whose transaction has read what was changed since is aborted, and writes nothing."""
    _, client = alone
    thing = client.document("things/a")
    thing.create({"n": 1})
    api, database = client._firestore_api, client._database_string
    transaction = api.begin_transaction(request={"database": database}).transaction
    list(
        api.batch_get_documents(request={"database": database, "documents": [thing._document_path], "transaction": transaction})
    )
    thing.update({"n": 2})
    batch = client.batch()
    batch.update(thing, {"n": 3})
    with pytest.raises(google.Aborted):
        api.commit(request={"database": database, "writes": batch._write_pbs, "transaction": transaction})
    assert thing.get().to_dict() == {"n": 2}


def test_commit_times_rise(alone: tuple[Service, firestore.Client]) -> None:
    """No two changes have one time, though the clock stands still; one that changes nothing keeps the last change's."""
    _, client = alone
    thing = client.document("things/a")
    times = [thing.create({"n": 0}).update_time, *(thing.update({"n": n}).update_time for n in (1, 2, 2))]
    assert times[0] < times[1] < times[2] == times[3]
