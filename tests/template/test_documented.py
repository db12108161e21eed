"""The documented example beside this: the same deliveries, the same answers, the same records."""

from __future__ import annotations

import hashlib
import importlib
import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import pytest
from flask import Flask, Request, request
from google.cloud import firestore

import dedup
from dedup.record import Ending
from dedup.settings import Settings
from dedup.stores import Claim, StoreUnavailable
from dedup.stores.firestore import FirestoreRunStore
from tests.template.emulator import Emulator
from tests.template.size import WHOLE

pytestmark = pytest.mark.store("firestore")

DELIVERIES = ("success", "failure", "crash", "duplicate")
"""What a delivery's job does, if it gets to run: `duplicate` is delivered again while it works, and succeeds."""
LONGEST = 4 if WHOLE else 3
LONGEST_WITH_OVERTAKEN = 3 if WHOLE else 1
FIELDS = ("status", "attempt_id", "lease_expires", "expire_at")
"""The example's fields."""
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)

Answer = tuple[int, str | None]
"""Status, and the body where it is documented: None for a failure's."""
Fields = dict[str, Any]


class Crash(BaseException):
    """The instance dies in the middle of the job."""


class Side(Protocol):
    """One of the two."""

    job: Callable[[], None]

    def handle(self, request: Request) -> Any:
        """Answers a delivery."""


class Documented:
    """The example. A crash passes its `except Exception`, and leaves the claim as it was."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self.job: Callable[[], None] = lambda: None
        module.run_job_logic = lambda: self.job()

    def handle(self, request: Request) -> Any:
        """Its handler."""
        return self._module.handle_scheduled_job(request)


class Ours:
    """The handler over its store. After a crash, nothing reaches the store: the instance is gone."""

    def __init__(self, project: str) -> None:
        self._store = MortalStore(project)
        self._settings = Settings()
        self.job: Callable[[], None] = lambda: None

    def handle(self, request: Request) -> Any:
        """Its handler."""
        self._store.dead = False
        return dedup.handle(request, self._run_job, settings=self._settings, store=self._store)

    def _run_job(self, run: dedup.Run) -> None:
        try:
            self.job()
        except Crash:
            self._store.dead = True
            raise


class MortalStore(FirestoreRunStore):
    """A store that a dead attempt can't reach any more."""

    dead = False

    def finish_run(self, claim: Claim, ending: Ending, **how: Any) -> bool:
        """Finishes a run, as long as its attempt lives."""
        if self.dead:
            raise StoreUnavailable("the instance is gone")
        return super().finish_run(claim, ending, **how)


@dataclass
class Town:
    """Both sides over one database, and the deliveries to them."""

    client: firestore.Client
    documented: Documented
    ours: Ours
    app: Flask = field(default_factory=lambda: Flask("deliveries"))

    def __post_init__(self) -> None:
        self._handler: Callable[[Request], Any] = lambda request: None
        self.app.add_url_rule("/", view_func=lambda: self._handler(request), methods=["POST"])
        self.app.logger.disabled = True

    def post(self, side: Side, job_name: str, job: Callable[[], None]) -> Answer | None:
        """Delivers a run to one side; None: the instance died."""
        side.job, before = job, side.job
        self._handler = side.handle
        headers = {"X-CloudScheduler-JobName": job_name, "X-CloudScheduler-ScheduleTime": "2026-10-16T12:00:00Z"}
        try:
            response = self.app.test_client().post("/", headers=headers)
        except Crash:
            return None
        finally:
            side.job = before
        return response.status_code, response.text if response.status_code < 500 else None

    def deliver(self, side: Side, job_name: str, delivery: str) -> list[Answer | None]:
        """Delivers a run whose job does as the delivery says. Returns every answer, and what ran, in its order."""
        heard: list[Any] = []

        def job() -> None:
            heard.append("ran")
            if delivery == "failure":
                raise RuntimeError("the job failed")
            if delivery == "crash":
                raise Crash
            if delivery == "overtaken":
                self.end_lease(job_name)
            if delivery in ("duplicate", "overtaken"):
                heard.append(self.post(side, job_name, lambda: heard.append("ran beside")))

        heard.append(self.post(side, job_name, job))
        return heard

    @property
    def runs(self) -> firestore.CollectionReference:
        """The collection of both."""
        return self.client.collection("scheduler_runs")

    def record(self, job_name: str) -> Fields | None:
        """What is stored for a run."""
        return self.records([job_name])[job_name]

    def records(self, job_names: list[str]) -> dict[str, Fields | None]:
        """What is stored for several."""
        names = {run_id(job_name): job_name for job_name in job_names}
        found = self.client.get_all([self.runs.document(each) for each in names])
        return {names[snapshot.id]: snapshot.to_dict() for snapshot in found}

    def put(self, records: dict[str, Fields | None]) -> None:
        """Writes records as they are; None is no record."""
        there = [(job_name, fields) for job_name, fields in records.items() if fields is not None]
        for n in range(0, len(there), 400):
            batch = self.client.batch()
            for job_name, fields in there[n : n + 400]:
                batch.set(self.runs.document(run_id(job_name)), fields)
            batch.commit()

    def end_lease(self, job_name: str) -> None:
        """Ends the lease of a run now, whoever wrote it."""
        self.put({job_name: without_lease(self.record(job_name))})


def without_lease(fields: Fields | None) -> Fields | None:
    """The same record with its lease over: of both, each only what it has."""
    if fields is None:
        return None
    return fields | {name: over for name, over in {"lease_seconds": 0, "lease_expires": LONG_AGO}.items() if name in fields}


def run_id(job_name: str) -> str:
    """The example's id of a run, worked out here once more."""
    return hashlib.sha256(f"{job_name}/2026-10-16T12:00:00Z".encode()).hexdigest()


@pytest.fixture
def town(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> Iterator[Town]:
    """Both sides over one database of the emulator."""
    project = f"test-{uuid.uuid4().hex[:20]}"
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", emulator.host)
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", project)
    module = importlib.import_module("tests.template.documented")  # makes its client at import, as deployed
    client = firestore.Client(project=project)
    monkeypatch.setattr(module, "client", client)
    monkeypatch.setattr(module, "run_job_logic", module.run_job_logic)
    yield Town(client, Documented(module), Ours(project))
    client.close()


@dataclass(frozen=True)
class Step:
    """One delivery of a history: whether the lease of what it finds has ended before, and what its job does."""

    late: bool
    delivery: str

    def __str__(self) -> str:
        return f"{'late ' if self.late else ''}{self.delivery}"


@dataclass
class History:
    """What was delivered so far, and what each side has stored by then."""

    steps: tuple[Step, ...] = ()
    documented: Fields | None = None
    ours: Fields | None = None

    def next_steps(self) -> list[Step]:
        """Every delivery that may follow. One that is late is another history only where there is a lease to end."""
        deliveries = [*DELIVERIES, "overtaken"] if len(self.steps) < LONGEST_WITH_OVERTAKEN else DELIVERIES
        held = self.documented is not None and self.documented["status"] == "in_progress"
        return [Step(late, delivery) for late in ((False, True) if held else (False,)) for delivery in deliveries]


def shape(fields: Fields | None, before: Fields | None) -> Fields | None:
    """What must be the same on both sides: all of a record but which times and which attempt."""
    if fields is None:
        return None
    assert re.fullmatch("[0-9a-f]{32}", fields["attempt_id"])
    types = {name: type(fields[name]) for name in FIELDS}
    return types | {"is": fields["status"], "by another": before is None or before["attempt_id"] != fields["attempt_id"]}


def lengths(fields: Fields | None) -> tuple[float, float] | None:
    """How long the lease and the retention of a claim are, to a minute."""
    if fields is None or fields["lease_expires"] == LONG_AGO:
        return None
    now = datetime.now(UTC)
    return tuple(round((fields[name] - now) / timedelta(minutes=1), -1) for name in ("lease_expires", "expire_at"))  # type: ignore[return-value]


def test_every_history(town: Town) -> None:
    """Whatever is delivered up to four times, in order, both give the same answers, run the job as often, and store the same.

    Where it isn't run whole: up to three times, and once.

    Deliveries: its job succeeds, fails, crashes, or is delivered again while it works; each in time, or when the lease of a
    crashed one is over. Up to three also: its lease ends while it works, and the next delivery takes over.
    """
    histories, walked = [History()], 0
    for length in range(1, LONGEST + 1):
        following = [(history, step) for history in histories for step in history.next_steps()]
        names = [f"{side}-{length}-{n}" for n in range(len(following)) for side in ("documented", "ours")]
        found: dict[str, Fields | None] = {}
        for n, (history, step) in enumerate(following):  # each goes on with a copy of its own of what came before
            for side, fields in (("documented", history.documented), ("ours", history.ours)):
                found[f"{side}-{length}-{n}"] = without_lease(fields) if step.late else fields
        town.put(found)
        heard = {
            name: town.deliver(side, name, step.delivery)
            for n, (_, step) in enumerate(following)
            for side, name in ((town.documented, f"documented-{length}-{n}"), (town.ours, f"ours-{length}-{n}"))
        }
        left = town.records(names)
        histories = []
        for n, (history, step) in enumerate(following):
            documented, ours = f"documented-{length}-{n}", f"ours-{length}-{n}"
            told = " -> ".join(map(str, [*history.steps, step]))
            assert heard[ours] == heard[documented], told
            assert shape(left[ours], found[ours]) == shape(left[documented], found[documented]), told
            assert lengths(left[ours]) == lengths(left[documented]), told
            assert set(left[documented] or ()) <= set(FIELDS), told
            histories.append(History((*history.steps, step), left[documented], left[ours]))
        walked += len(histories)
    print(f"{walked} histories")
    assert {len(history.steps) for history in histories} == {LONGEST}


@pytest.fixture(params=["documented first", "ours first"])
def sides(request: pytest.FixtureRequest, town: Town) -> tuple[Side, Side]:
    """The one that leaves a run, and the one that finds it."""
    return (town.documented, town.ours) if request.param == "documented first" else (town.ours, town.documented)


def test_finds_a_completed_run(town: Town, sides: tuple[Side, Side]) -> None:
    """A run that one has completed is a duplicate to the other, which leaves it as it is."""
    left_by, found_by = sides
    assert town.deliver(left_by, "nightly", "success") == ["ran", (200, "Run processed")]
    before = town.record("nightly")
    assert town.deliver(found_by, "nightly", "success") == [(200, "Duplicate run skipped")]
    assert town.record("nightly") == before


def test_finds_a_live_run(town: Town, sides: tuple[Side, Side]) -> None:
    """A run that one has in progress is in progress to the other, which leaves it as it is."""
    left_by, found_by = sides
    assert town.deliver(left_by, "nightly", "crash") == ["ran", None]
    before = town.record("nightly")
    assert town.deliver(found_by, "nightly", "success") == [(409, "Run in progress")]
    assert town.record("nightly") == before


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_finds_an_expired_run(town: Town, sides: tuple[Side, Side], delivery: str) -> None:
    """A run whose lease is over is taken over by the other, whatever then becomes of it, as one of its own is."""
    left_by, found_by = sides
    for name, first in (("nightly", left_by), ("hourly", found_by)):
        assert town.deliver(first, name, "crash") == ["ran", None]
        town.end_lease(name)
    heard = town.deliver(found_by, "nightly", delivery)
    assert heard == town.deliver(found_by, "hourly", delivery)
    assert heard[0] == "ran"
    assert shape(town.record("nightly"), None) == shape(town.record("hourly"), None)


def test_finds_a_failed_run(town: Town, sides: tuple[Side, Side]) -> None:
    """A run that failed with one is run by the other at once."""
    left_by, found_by = sides
    assert town.deliver(left_by, "nightly", "failure") == ["ran", (500, None)]
    assert town.deliver(found_by, "nightly", "success") == ["ran", (200, "Run processed")]


@pytest.mark.parametrize("ends", ["success", "failure"])
@pytest.mark.parametrize("overtakes", ["success", "crash"])
def test_overtaken_by_the_other(town: Town, sides: tuple[Side, Side], ends: str, overtakes: str) -> None:
    """An attempt of the one that works past its lease changes nothing of the other's, which has taken over meanwhile."""
    slow, successor = sides
    left: list[Fields | None] = []

    def job() -> None:
        town.end_lease("nightly")
        assert town.deliver(successor, "nightly", overtakes)[0] == "ran"
        left.append(town.record("nightly"))
        if ends == "failure":
            raise RuntimeError("the job failed")

    answer = town.post(slow, "nightly", job)
    assert answer == ((200, "Run processed") if ends == "success" else (500, None))
    assert left == [town.record("nightly")]
    assert (left[0] or {})["status"] == ("completed" if overtakes == "success" else "in_progress")


def test_deployed_in_the_middle_of_a_run(town: Town, sides: tuple[Side, Side]) -> None:
    """A run that the one has in progress while the other is deployed is in progress to that one, then a duplicate."""
    old, new = sides
    heard: list[Any] = []
    answer = town.post(old, "nightly", lambda: heard.append(town.deliver(new, "nightly", "success")))
    heard += [answer, town.deliver(new, "nightly", "success")]
    assert heard == [[(409, "Run in progress")], (200, "Run processed"), [(200, "Duplicate run skipped")]]


@pytest.mark.parametrize("missing", ["X-CloudScheduler-JobName", "X-CloudScheduler-ScheduleTime"])
def test_header_is_missing(town: Town, sides: tuple[Side, Side], missing: str) -> None:
    """A delivery without one of the two headers is answered 400 by both, and leaves no record."""
    headers = {"X-CloudScheduler-JobName": "nightly", "X-CloudScheduler-ScheduleTime": "2026-10-16T12:00:00Z"}
    del headers[missing]
    town._handler = sides[0].handle
    assert town.app.test_client().post("/", headers=headers).status_code == 400
    assert list(town.runs.stream()) == []
