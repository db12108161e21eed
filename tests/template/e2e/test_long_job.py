"""Work past Cloud Scheduler's 30 minutes: a Cloud Run job's own processes go on with the run that was handed over to them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from flask import Flask, request

import dedup.handler
from dedup import Run
from dedup.forward import start_cloud_run_job
from dedup.record import RunRecord, Status
from dedup.stores.sqlite import SQLiteRunStore
from tests.template import ROOT
from tests.template.apis import CloudRunJobs, GoogleApis, serving_apis
from tests.template.e2e.conftest import run_id
from tests.template.size import WHOLE

JOB = "projects/prod/locations/europe-west6/jobs/nightly"
RUN_ID = run_id("nightly")
HEADERS = {"X-CloudScheduler-JobName": "nightly", "X-CloudScheduler-ScheduleTime": "2026-10-16T12:00:00Z"}

app = Flask(__name__)


@dataclass
class Place:
    """A function that hands its runs over, the Cloud Run API, and the job's processes."""

    store: SQLiteRunStore
    apis: GoogleApis
    jobs: CloudRunJobs
    ledger: Path
    lease_seconds: int = 60
    answers: list[tuple[int, str]] = field(default_factory=list)

    def deliver(self) -> tuple[int, str]:
        """Delivers the run once, as main.py of examples/long_job takes it."""

        def job(run: Run) -> str:
            run.hand_over(self.lease_seconds)
            return start_cloud_run_job(run, JOB, look_first=False)

        with app.test_request_context(method="POST", headers=HEADERS):
            response = dedup.handler.handle(request, job, store=self.store)
        return response.status_code, response.get_data(as_text=True)

    def await_attempt(self, number: int) -> None:
        """Waits until so many task attempts have had the run."""
        give_up_at = time.monotonic() + 20
        while len(self.attempts) < number:
            assert time.monotonic() < give_up_at, f"{len(self.attempts)} attempts at the task, not {number}"
            time.sleep(0.02)

    @property
    def attempts(self) -> list[list[str]]:
        """The run, its owner and the number of each task attempt that had it."""
        return [line.split() for line in self.ledger.read_text().splitlines()] if self.ledger.exists() else []

    @property
    def record(self) -> RunRecord:
        """The run's record, which must be there."""
        record = self.store.get_run(RUN_ID)
        assert record is not None
        return record


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Place]]:
    """Makes a place whose job's attempts end as they are told."""
    made: list[Place] = []
    apis = GoogleApis()

    def make(*told: str, **how: int) -> Place:
        environ = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "DEDUP_STORE": f"sqlite:///{tmp_path}/runs.db",
            "LEDGER": str(tmp_path / "ledger"),
            "TOLD": ",".join(told),
        }
        command = [sys.executable, str(ROOT / "tests/template/e2e/jobs/long.py")]
        jobs = CloudRunJobs(command, max_retries=len(told) - 1, environ=environ)
        apis.on_start = jobs.start
        made.append(Place(SQLiteRunStore(tmp_path / "runs.db"), apis, jobs, tmp_path / "ledger", **how))
        return made[-1]

    with serving_apis(apis):
        monkeypatch.setenv("RUN_EMULATOR_HOST", apis.host)
        yield make
        for one in made:
            one.jobs.end()


def test_a_task_that_is_killed_is_gone_on_with(place: Callable[..., Place]) -> None:
    """Killed in the middle, the task's retry goes on as the same owner; duplicates get 409 and start nothing, then 200."""
    here = place("hang", "hang", "work")
    assert here.deliver() == (202, "Run handed over")
    for number in (1, 2):
        here.await_attempt(number)
        assert here.deliver() == (409, "Run in progress")
        here.jobs.kill()
    here.jobs.wait()

    assert here.attempts == [[RUN_ID, here.record.attempt_id, str(number)] for number in range(3)]
    assert (here.record.status, here.record.attempts) == (Status.COMPLETED, 1)
    assert here.record.result == here.apis.started[0].resource["name"].rpartition("/")[2]
    assert here.deliver() == (200, "Duplicate run skipped")
    assert len(here.apis.started) == 1


def test_a_task_that_fails_each_time_is_recorded_by_its_last_attempt(place: Callable[..., Place]) -> None:
    """An exception in each attempt: until the last one the run is in progress, and then it has failed, with its error."""
    here = place("raise", "hang", "raise")
    assert here.deliver()[0] == 202
    here.await_attempt(2)
    assert here.record.status is Status.IN_PROGRESS
    assert here.deliver() == (409, "Run in progress")
    here.jobs.kill()
    here.jobs.wait()

    assert (here.record.status, here.record.error) == (Status.FAILED, "RuntimeError: attempt 2 fails, as it was told")
    assert here.deliver() == (200, "Run failed for good, not retried")
    assert len(here.apis.started) == 1


@pytest.mark.skipif(not WHOLE, reason="waits 2 s: WHOLE=0; the contract tier asks the same")
def test_a_last_attempt_that_is_killed_leaves_its_lease(place: Callable[..., Place]) -> None:
    """What is left is a run in progress whose lease runs out; a later delivery takes it over, with an execution of its own."""
    here = place("hang", lease_seconds=2)
    assert here.deliver()[0] == 202
    here.await_attempt(1)
    here.jobs.kill()
    here.jobs.wait()

    first = here.record.attempt_id
    assert here.record.status is Status.IN_PROGRESS
    assert here.deliver() == (409, "Run in progress")
    time.sleep(2.1)
    assert here.record.status is Status.IN_PROGRESS
    assert here.deliver() == (202, "Run handed over")
    assert here.record.attempts == 2
    here.await_attempt(2)
    assert [owner == first for _, owner, _ in here.attempts] == [True, False]
    assert len(here.apis.started) == 2


def test_an_execution_whose_start_seemed_lost_changes_nothing(place: Callable[..., Place]) -> None:
    """Where the start's answer is lost and it can't be looked up, the run is released, and the execution finds it another's."""
    here = place("work")
    here.apis.faults.append("lost")
    here.apis.look_up_faults.append(500)
    started_at_last = here.apis.on_start
    held_back = []
    here.apis.on_start = held_back.append

    assert here.deliver() == (500, "error: job failed")
    assert here.store.get_run(RUN_ID) is None
    here.apis.on_start = started_at_last
    assert here.deliver() == (202, "Run handed over")
    started_at_last(held_back[0])
    here.jobs.wait()

    assert here.record.status is Status.COMPLETED
    assert here.attempts == [[RUN_ID, here.record.attempt_id, "0"]]
    assert len(here.apis.started) == 2
