"""A delivery, from request to response: the HTTP contract, the log line, and what is left in the store."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import hashlib
import io
import json
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from flask import Flask, Response, request
from functions_framework.exceptions import RequestTimeoutException
from werkzeug.exceptions import ClientDisconnected

import dedup
import dedup.handler
from dedup import LeaseLost, PermanentError, Run, telemetry
from dedup.auth import Unauthenticated
from dedup.delivery import ManualRuns, ScopePart
from dedup.handler import Job
from dedup.lease import Lease
from dedup.record import Decision, Ending, RunRecord, Status
from dedup.settings import Settings
from dedup.stores import Claim, EffectsRaised, StoreUnavailable
from dedup.stores.sqlite import SQLiteRunStore
from tests.template.clock import ManualClock

NOON = "2026-10-16T12:00:00Z"
RUN_ID = hashlib.sha256(f"nightly/{NOON}".encode()).hexdigest()
HEADERS = {"X-CloudScheduler-JobName": "nightly", "X-CloudScheduler-ScheduleTime": NOON}
SECRET = "hunter2-from-the-jobs-exception"
DOWN = StoreUnavailable("the disk is gone")

app = Flask(__name__)


@dataclass
class Store:
    """A real store, which raises what a test has asked for, before or after it does its work, and notes each call."""

    real: SQLiteRunStore
    before: dict[str, list[BaseException | Callable[[], Any] | None]] = field(default_factory=lambda: defaultdict(list))
    after: dict[str, list[BaseException | Callable[[], Any] | None]] = field(default_factory=lambda: defaultdict(list))
    calls: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    supports_effects = True

    def claim_run(self, claim: Claim) -> Any:
        """Claims."""
        return self._call("claim_run", lambda: self.real.claim_run(claim))

    def renew_run(self, claim: Claim) -> bool:
        """Renews."""
        return self._call("renew_run", lambda: self.real.renew_run(claim))

    def finish_run(self, claim: Claim, ending: Ending, *, within_seconds: float = 10.0, **what: Any) -> bool:
        """Finishes."""
        self.seconds.append(within_seconds)
        return self._call(
            "finish_run", lambda: self.real.finish_run(claim, ending, within_seconds=within_seconds, **what), ending.value
        )

    def get_run(self, run_id: str) -> RunRecord | None:
        """Reads."""
        return self.real.get_run(run_id)

    def _call(self, name: str, work: Callable[[], Any], *about: str) -> Any:
        self.calls.append(" ".join([name, *about]))
        self._strike(self.before[name])
        done = work()
        self._strike(self.after[name])
        return done

    @staticmethod
    def _strike(faults: list[BaseException | Callable[[], Any] | None]) -> None:
        fault = faults.pop(0) if faults else None
        if isinstance(fault, BaseException):
            raise fault
        if fault is not None:
            fault()


@dataclass
class House:
    """Everything that a delivery needs, and how one is made."""

    store: Store
    clock: ManualClock
    capsys: pytest.CaptureFixture[str]
    settings: Settings = field(default_factory=Settings)
    lines: list[dict[str, Any]] = field(default_factory=list)
    """What the last delivery has logged."""
    ran: int = 0
    """How often a job was started."""

    def deliver(self, job: Job | Mapping[str, Job] = lambda run: "done", **how: Any) -> Response:
        """Delivers the run once, and checks what holds for every answer."""
        counted = {name: self._counted(one) for name, one in job.items()} if isinstance(job, Mapping) else self._counted(job)
        how = {"method": "POST", "headers": HEADERS} | how
        try:
            with app.test_request_context(**how):
                response = dedup.handler.handle(request, counted, settings=self.settings, store=self.store, clock=self.clock)
        finally:
            out, _ = self.capsys.readouterr()
            self.lines = [json.loads(line) for line in out.splitlines()]
        body = response.get_data(as_text=True)
        assert response.status_code != 503
        assert response.status_code == self.line["status"]
        assert response.content_type == "text/plain; charset=utf-8"
        assert SECRET not in body
        assert "Traceback" not in body
        return response

    def _counted(self, job: Job) -> Job:
        def counted(run: Run) -> Any:
            self.ran += 1
            return job(run)

        return counted

    @property
    def line(self) -> dict[str, Any]:
        """The one line that tells of the last delivery."""
        [line] = [line for line in self.lines if "outcome" in line]
        return line

    @property
    def record(self) -> RunRecord | None:
        """What the store holds for the run."""
        return self.store.get_run(RUN_ID)

    @property
    def status(self) -> Status | None:
        """The run's status; None where there is no record."""
        return self.record.status if self.record is not None else None

    def rival(self) -> None:
        """Has another attempt take the run over, whose lease lives."""
        self.clock.pause(self.settings.lease_seconds + 1)
        rival = Claim(
            run_id=RUN_ID,
            attempt_id="b" * 32,
            lease_seconds=self.settings.lease_seconds,
            retention_seconds=self.settings.retention_seconds,
            job_name="nightly",
            schedule_time=datetime.fromisoformat(NOON),
        )
        assert self.store.real.claim_run(rival) is Decision.CLAIM


@pytest.fixture
def house(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[House]:
    """A house with a real store of its own, and the logger as in production."""
    log = telemetry.log
    before = log.handlers, log.level, log.propagate
    telemetry.configure("INFO")
    clock = ManualClock()
    yield House(Store(SQLiteRunStore(tmp_path / "runs.db", clock=clock.timestamp, monotonic=clock.monotonic)), clock, capsys)
    log.handlers, log.level, log.propagate = before


def fail(run: Run) -> None:
    """A job that fails."""
    raise ZeroDivisionError(SECRET)


def fail_for_good(run: Run) -> None:
    """A job that no retry can mend."""
    raise PermanentError(SECRET)


def seen(response: Response) -> tuple[int, str, str | None, str | None]:
    """All that Cloud Scheduler, and a person with curl, is told."""
    headers = response.headers
    return response.status_code, response.get_data(as_text=True), headers.get("X-Run-Id"), headers.get("Idempotent-Replayed")


# The HTTP contract, row by row.


def test_the_job_ran_now(house: House) -> None:
    """A first delivery runs the job, records it, and is answered 200."""
    assert seen(house.deliver()) == (200, "Run processed", RUN_ID, None)
    assert (house.ran, house.status, house.line["outcome"], house.line["severity"]) == (
        1,
        Status.COMPLETED,
        "processed",
        "INFO",
    )


def test_completed_before(house: House) -> None:
    """A delivery of a run that is done runs nothing, and is answered 200, so that retries end."""
    house.deliver()
    assert seen(house.deliver()) == (200, "Duplicate run skipped", RUN_ID, "true")
    assert (house.ran, house.line["outcome"], house.line["severity"]) == (1, "duplicate_skipped", "INFO")


def test_failed_for_good_before(house: House) -> None:
    """A delivery of a run that failed for good runs nothing, and is answered 200."""
    house.deliver(fail_for_good)
    assert seen(house.deliver()) == (200, "Run failed for good, not retried", RUN_ID, "true")
    assert (house.ran, house.line["outcome"]) == (1, "failed_before")


def test_another_attempt_holds_it(house: House) -> None:
    """A delivery that comes while the job runs is answered 409, runs nothing, and harms the attempt in nothing."""
    inner: list[Any] = []

    def job(run: Run) -> None:
        inner.append(seen(house.deliver()))
        inner.append(house.line["outcome"])

    assert house.deliver(job).status_code == 200
    assert inner == [(409, "Run in progress", RUN_ID, None), "in_progress"]
    assert (house.ran, house.status) == (1, Status.COMPLETED)


def test_a_dead_attempt_is_taken_over_when_its_lease_is_over(house: House) -> None:
    """A run whose attempt died is 409 for its lease, and then runs again, as attempt 2."""
    house.store.before["finish_run"] = [SystemExit(), SystemExit()]
    with pytest.raises(SystemExit):
        house.deliver()
    house.clock.pause(299)
    assert house.deliver().status_code == 409
    house.clock.pause(1)
    attempts: list[int] = []
    assert house.deliver(lambda run: attempts.append(run.attempt)).status_code == 200
    assert attempts == [2]


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({}, "error: X-CloudScheduler-JobName is missing: Cloud Scheduler sends it, such as X-CloudScheduler-JobName: nightly"),
        (
            {"X-CloudScheduler-JobName": "nightly"},
            (
                "error: X-CloudScheduler-ScheduleTime is missing: Cloud Scheduler sends it, such as "
                "X-CloudScheduler-ScheduleTime: 2026-10-16T12:00:00Z"
            ),
        ),
        (
            HEADERS | {"X-CloudScheduler-ScheduleTime": "now"},
            (
                "error: X-CloudScheduler-ScheduleTime 'now' is not an RFC 3339 time with an offset, such as "
                "2026-10-16T12:00:00Z or 2026-10-16T05:00:00-07:00"
            ),
        ),
    ],
)
def test_a_bad_delivery(house: House, headers: dict[str, str], body: str) -> None:
    """A request that is no delivery is answered 400 with the header, the fault and an example, and touches nothing."""
    assert seen(house.deliver(headers=headers)) == (400, body, None, None)
    assert (house.ran, house.store.calls) == (0, [])
    assert (house.line["outcome"], house.line["severity"], house.line["message"]) == ("bad_delivery", "WARNING", body)
    assert "run_id" not in house.line


@pytest.mark.parametrize("raised", [ZeroDivisionError, StoreUnavailable, LeaseLost, TimeoutError])
def test_the_job_raised(house: House, raised: type[Exception]) -> None:
    """Whatever a job raises, its run is released first and then answered 500; the trace is in the log alone."""

    def job(run: Run) -> None:
        raise raised(SECRET)

    assert seen(house.deliver(job)) == (500, "error: job failed", RUN_ID, None)
    assert house.store.calls == ["claim_run", "finish_run released"]
    assert house.record is None
    assert (house.line["outcome"], house.line["severity"]) == ("job_failed", "ERROR")


@pytest.mark.parametrize("raised", [ZeroDivisionError, PermanentError, StoreUnavailable, LeaseLost])
def test_a_failed_jobs_trace_is_logged(house: House, raised: type[Exception]) -> None:
    """The log line of a failed job has the whole trace, down to the job's own line, whatever it raised."""

    def the_jobs_own_line(run: Run) -> None:
        raise raised(SECRET)

    house.deliver(the_jobs_own_line)
    assert "in the_jobs_own_line\n" in house.line["stack_trace"]
    assert house.line["stack_trace"].endswith(f"{raised.__name__}: {SECRET}\n")


def test_an_exception_that_can_not_be_told(house: House) -> None:
    """An exception whose text can't be made is a failure like any other."""

    class Unspeakable(Exception):
        def __str__(self) -> str:
            raise ZeroDivisionError

    def job(run: Run) -> None:
        raise Unspeakable

    assert seen(house.deliver(job)) == (500, "error: job failed", RUN_ID, None)
    assert house.record is None
    assert "Unspeakable" in house.line["stack_trace"]


def test_a_failed_run_is_run_again(house: House) -> None:
    """The retry after a failure runs at once, under the same id, and may succeed."""
    ids: list[str] = []
    house.deliver(lambda run: ids.append(run.id) or fail(run))
    assert house.deliver(lambda run: ids.append(run.id)).status_code == 200
    assert ids == [RUN_ID, RUN_ID]


def test_the_job_raised_permanent_error(house: House) -> None:
    """PermanentError is answered 500, recorded as failed with its reason, and logged with its trace."""
    assert seen(house.deliver(fail_for_good)) == (500, "error: job failed for good", RUN_ID, None)
    assert house.record is not None
    assert (house.status, house.record.error) == (Status.FAILED, f"PermanentError: {SECRET}")
    assert (house.line["outcome"], house.line["severity"]) == ("job_failed_for_good", "ERROR")
    assert "in fail_for_good\n" in house.line["stack_trace"]


def test_a_permanent_error_is_kept_short(house: House) -> None:
    """Of a long or broken reason, what fits into 1 KB of text is kept; a subclass is named as itself."""

    class OutOfScope(PermanentError):
        pass

    def job(run: Run) -> None:
        raise OutOfScope("\ud800" + "é" * 5000)

    house.deliver(job)
    assert house.record is not None
    assert house.record.error is not None
    assert house.record.error.startswith("OutOfScope: ?éé")
    assert 1023 <= len(house.record.error.encode()) <= 1024


def test_a_permanent_error_that_can_not_be_told(house: House) -> None:
    """A PermanentError whose text can't be made is recorded like any other."""

    class Unspeakable(PermanentError):
        def __str__(self) -> str:
            raise ZeroDivisionError

    def job(run: Run) -> None:
        raise Unspeakable

    assert house.deliver(job).status_code == 500
    assert house.record is not None
    assert (house.status, house.record.error) == (Status.FAILED, "Unspeakable")


def test_the_store_can_not_be_reached_before_the_job(house: House) -> None:
    """Without a claim nothing runs: 500, so that Cloud Scheduler tries again; why is in the log alone."""
    house.store.before["claim_run"] = [DOWN]
    assert seen(house.deliver()) == (500, "error: dedup store unavailable", RUN_ID, None)
    assert (house.ran, house.store.calls) == (0, ["claim_run"])
    assert (house.line["outcome"], house.line["severity"]) == ("store_unavailable", "ERROR")
    assert "the disk is gone" in house.line["message"]
    assert "stack_trace" not in house.line


def test_done_but_not_recorded(house: House) -> None:
    """A job that ran is answered 200 though the store is silent, with an ERROR: a retry would run it again."""
    house.store.before["finish_run"] = [DOWN]
    assert seen(house.deliver()) == (200, "Run processed", RUN_ID, None)
    assert (house.line["outcome"], house.line["severity"]) == ("done_not_recorded", "ERROR")
    assert "the disk is gone" in house.line["message"]
    assert house.store.calls == ["claim_run", "finish_run completed"]


def test_done_but_taken_over(house: House) -> None:
    """A job that ran past its lease is answered 200 with an ERROR, and leaves its successor's record alone."""
    assert seen(house.deliver(lambda run: house.rival())) == (200, "Run processed", RUN_ID, None)
    assert (house.line["outcome"], house.line["severity"]) == ("done_lease_lost", "ERROR")
    assert house.record is not None
    assert (house.status, house.record.attempts, house.record.result) == (Status.IN_PROGRESS, 2, None)


def test_lost_but_not_taken_over_is_recorded(house: House) -> None:
    """A job that ran past its lease without a successor is recorded: the store decides, not the clock."""
    assert seen(house.deliver(lambda run: house.clock.pause(1000))) == (200, "Run processed", RUN_ID, None)
    assert (house.status, house.line["outcome"]) == (Status.COMPLETED, "processed")


@pytest.mark.parametrize("taken_over", [True, False])
def test_raised_after_the_lease_was_lost(house: House, taken_over: bool) -> None:
    """An exception after the lease was lost is answered 500, and nothing is written: the run may be another's."""

    def job(run: Run) -> None:
        if taken_over:
            house.rival()
        else:
            house.clock.pause(1000)
        assert run.lost
        fail(run)

    assert seen(house.deliver(job)) == (500, "error: job failed", RUN_ID, None)
    assert house.store.calls == ["claim_run"]
    assert house.record is not None
    assert house.status is Status.IN_PROGRESS


def test_permanent_error_after_the_lease_was_lost(house: House) -> None:
    """PermanentError tries its finish all the same: recorded where nobody has taken over, and else logged as an error."""

    def job(run: Run) -> None:
        house.clock.pause(1000)
        fail_for_good(run)

    assert house.deliver(job).status_code == 500
    assert house.status is Status.FAILED


def test_permanent_error_after_a_take_over(house: House) -> None:
    """PermanentError of an attempt that was taken over leaves the successor's record alone, and logs that."""

    def job(run: Run) -> None:
        house.rival()
        fail_for_good(run)

    assert seen(house.deliver(job)) == (500, "error: job failed for good", RUN_ID, None)
    assert house.status is Status.IN_PROGRESS
    assert [line["message"] for line in house.lines if "outcome" not in line] == [
        "could not record the run as failed: the run is not this attempt's any more"
    ]


@pytest.mark.parametrize("job", [fail, fail_for_good])
def test_a_failure_that_can_not_be_recorded(house: House, job: Callable[[Run], Any]) -> None:
    """Where a failure's finish fails too, the answer is the same, and a line of its own says that the lease must run out."""
    house.store.before["finish_run"] = [DOWN]
    assert house.deliver(job).status_code == 500
    assert house.status is Status.IN_PROGRESS
    [line] = [line for line in house.lines if "outcome" not in line]
    assert line["severity"] == "ERROR"
    assert (line["run_id"], line["attempt_id"]) == (RUN_ID, house.line["attempt_id"])
    assert "the disk is gone" in line["message"]


# The job's own writes, committed with the completion.


def effects_of(effects: Callable[[Any], Any]) -> Callable[[Run], Any]:
    """A job with those effects."""

    def job(run: Run) -> str:
        run.on_commit(effects)
        return "done"

    return job


def write(db: Any) -> None:
    """A job's own write."""
    db.execute("CREATE TABLE effects (x)")


def written(house: House) -> bool:
    """Whether the job's own write is there."""
    with house.store.real._transaction() as (db, _):
        return bool(db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'effects'").fetchone()[0])


def test_effects_are_committed_with_the_completion(house: House) -> None:
    """The job's own writes and the completion are there together."""
    assert seen(house.deliver(effects_of(write))) == (200, "Run processed", RUN_ID, None)
    assert (house.status, written(house)) == (Status.COMPLETED, True)


@pytest.mark.parametrize(
    ("raised", "body", "status"),
    [
        (ZeroDivisionError, "error: job failed", None),
        (StoreUnavailable, "error: job failed", None),
        (PermanentError, "error: job failed for good", Status.FAILED),
    ],
)
def test_effects_that_raise_are_the_job_raising(
    house: House, raised: type[Exception], body: str, status: Status | None
) -> None:
    """What effects raise counts as raised by the job: nothing of them is there, and the run is released or failed."""

    def effects(db: Any) -> None:
        write(db)
        raise raised(SECRET)

    assert seen(house.deliver(effects_of(effects))) == (500, body, RUN_ID, None)
    assert (house.status, written(house)) == (status, False)
    assert house.store.calls[1] == "finish_run completed"


def test_effects_not_recorded(house: House) -> None:
    """Where effects can't be committed the answer is 500, never 200, and the run is released for the retry."""
    house.store.before["finish_run"] = [DOWN]
    assert seen(house.deliver(effects_of(write))) == (500, "error: run not recorded", RUN_ID, None)
    assert house.store.calls == ["claim_run", "finish_run completed", "finish_run released"]
    assert (house.record, written(house)) == (None, False)
    assert (house.line["outcome"], house.line["severity"]) == ("effects_not_recorded", "ERROR")
    assert house.deliver(effects_of(write)).status_code == 200


def test_effects_of_a_lost_lease(house: House) -> None:
    """Effects of an attempt that was taken over aren't there: 500, and the successor's record is left alone."""

    def job(run: Run) -> None:
        run.on_commit(write)
        house.rival()

    assert seen(house.deliver(job)) == (500, "error: run not recorded", RUN_ID, None)
    assert (house.status, written(house)) == (Status.IN_PROGRESS, False)
    assert house.record is not None
    assert house.record.attempts == 2


def test_effects_of_a_silent_store(house: House) -> None:
    """Where the release fails as well, the answer is still 500, and the run waits for its lease."""
    house.store.before["finish_run"] = [DOWN, DOWN]
    assert seen(house.deliver(effects_of(write))) == (500, "error: run not recorded", RUN_ID, None)
    assert (house.status, written(house)) == (Status.IN_PROGRESS, False)


# Interruptions: a worker's abort, a framework's time-out, raised into the thread wherever it is.


class Abort(BaseException):
    """As gevent's and the framework's time-outs are: no Exception."""


INTERRUPTIONS = pytest.mark.parametrize("interruption", [SystemExit, KeyboardInterrupt, Abort])


def interrupt(house: House, interruption: type[BaseException], job: Callable[[Run], Any] = lambda run: "done") -> None:
    """Delivers the run, and sees the interruption go up, told by one line."""
    with pytest.raises(interruption):
        house.deliver(job)
    assert (house.line["outcome"], house.line["severity"], house.line["status"]) == ("interrupted", "ERROR", 500)
    assert interruption.__name__ in house.line["stack_trace"]


@INTERRUPTIONS
def test_an_interrupted_job_is_released(house: House, interruption: type[BaseException]) -> None:
    """A job that is interrupted leaves its run to the next retry, in little time, and the interruption goes on up."""

    def job(run: Run) -> None:
        raise interruption

    interrupt(house, interruption, job)
    assert house.record is None
    assert house.store.seconds == [dedup.handler.INTERRUPTED_SECONDS]


@INTERRUPTIONS
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_interrupted_claim_is_released(house: House, interruption: type[BaseException], when: str) -> None:
    """An interruption in the claim, written or not yet, leaves no lease behind with nobody at work."""
    getattr(house.store, when)["claim_run"] = [interruption()]
    interrupt(house, interruption)
    assert (house.ran, house.record) == (0, None)
    assert house.store.calls == ["claim_run", "finish_run released"]
    assert house.store.seconds == [dedup.handler.INTERRUPTED_SECONDS]


def test_an_interrupted_claim_that_can_not_be_released(house: House) -> None:
    """Where the release fails, it is still the interruption that goes up."""
    house.store.after["claim_run"] = [Abort()]
    house.store.before["finish_run"] = [DOWN]
    interrupt(house, Abort)
    assert house.status is Status.IN_PROGRESS


def test_an_interrupted_claim_releases_nobody_elses_run(house: House) -> None:
    """An interruption in the claim of a run that another attempt holds changes nothing of that attempt's record."""

    def job(run: Run) -> None:
        house.store.after["claim_run"] = [Abort()]
        interrupt(house, Abort)

    assert house.deliver(job).status_code == 200
    assert house.status is Status.COMPLETED


@INTERRUPTIONS
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("job", "status"), [(lambda run: "done", Status.COMPLETED), (fail_for_good, Status.FAILED), (fail, None)]
)
def test_an_interrupted_finish_is_finished(
    house: House, interruption: type[BaseException], when: str, job: Callable[[Run], Any], status: Status | None
) -> None:
    """An interruption in the finish, written or not yet, doesn't keep the run's end from being recorded."""
    getattr(house.store, when)["finish_run"] = [interruption()]
    interrupt(house, interruption, job)
    assert house.status is status
    assert house.store.seconds == [dedup.handler.FINISH_SECONDS, dedup.handler.INTERRUPTED_SECONDS]


@pytest.mark.parametrize("again", [DOWN, EffectsRaised(ZeroDivisionError(SECRET))])
def test_an_interrupted_finish_that_can_not_be_finished(house: House, again: Exception) -> None:
    """Where the second try fails too, it is still the interruption that goes up."""
    house.store.before["finish_run"] = [Abort(), again]
    interrupt(house, Abort)
    assert house.status is Status.IN_PROGRESS


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_interrupted_finish_commits_its_effects_once(house: House, when: str) -> None:
    """An interruption in a finish with effects neither loses nor doubles them."""
    getattr(house.store, when)["finish_run"] = [Abort()]
    interrupt(house, Abort, effects_of(write))
    assert (house.status, written(house)) == (Status.COMPLETED, True)


@INTERRUPTIONS
def test_interrupted_just_after_the_job_returned(
    house: House, interruption: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interruption that strikes when the job has just returned never releases its run: the job is done."""
    monkeypatch.setattr(dedup.handler, "Lease", struck_lease(interruption))
    interrupt(house, interruption)
    assert (house.ran, house.status) == (1, Status.COMPLETED)
    assert house.store.calls == ["claim_run", "finish_run completed"]


def test_an_exception_just_after_the_job_returned(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """A time-out that is an Exception and strikes there doesn't make a done job a failed one."""
    monkeypatch.setattr(dedup.handler, "Lease", struck_lease(TimeoutError))
    assert seen(house.deliver()) == (200, "Run processed", RUN_ID, None)
    assert house.status is Status.COMPLETED


def struck_lease(raised: type[BaseException]) -> type[Lease]:
    """A lease at whose end something is raised."""

    class StruckLease(Lease):
        def __exit__(self, *about: Any) -> None:
            super().__exit__(*about)
            raise raised

    return StruckLease


# What is kept of the job's return value.


@pytest.mark.parametrize(
    ("value", "result"),
    [
        (None, None),
        ("", ""),
        ("sent 3", "sent 3"),
        ("é日本\n", "é日本\n"),
        (0, "0"),
        (0.0, "0.0"),
        (False, "false"),
        (True, "true"),
        ([], "[]"),
        ({}, "{}"),
        ({"sent": 3, "to": ["a"]}, '{"sent": 3, "to": ["a"]}'),
        ("x" * 1024, "x" * 1024),
        ("x" * 1025, "x" * 1024),
        ("é" * 1000, "é" * 512),
        ("x" + "é" * 1000, "x" + "é" * 511),
        ("日" * 1000, "日" * 341),
        ("\U0001f600" * 1000, "\U0001f600" * 256),
        ("a\ud800b", "a?b"),
        ("\udfff" * 2000, "?" * 1024),
        (["x" * 2000], '["' + "x" * 1022),
    ],
    ids=lambda value: ascii(value)[:30].replace("\\", "|"),
)
def test_a_result_is_kept_short(house: House, value: Any, result: str | None) -> None:
    """A text is kept as it is, None is none, anything else is JSON; falsy is not missing; 1 KB at most, in whole letters."""
    assert house.deliver(lambda run: value).status_code == 200
    assert house.record is not None
    assert house.record.result == result
    assert len(house.lines) == 1


def itself() -> list[Any]:
    """A list that contains itself."""
    value: list[Any] = []
    value.append(value)
    return value


class Mute:
    """Can't even be shown."""

    def __repr__(self) -> str:
        raise ZeroDivisionError(SECRET)


@pytest.mark.parametrize("make", [object, set, lambda: b"bytes", lambda: Response("x"), itself, lambda: {(1, 2): 3}, Mute])
def test_a_result_that_is_no_text_and_no_json(house: House, make: Callable[[], Any]) -> None:
    """A value that can't be kept is logged as an error, and the run is done all the same."""
    value = make()
    assert seen(house.deliver(lambda run: value)) == (200, "Run processed", RUN_ID, None)
    assert house.record is not None
    assert (house.status, house.record.result) == (Status.COMPLETED, None)
    assert [line["severity"] for line in house.lines] == ["ERROR", "INFO"]
    assert "neither text nor JSON" in house.lines[0]["message"]


# The log line.


def test_one_line_a_delivery(house: House) -> None:
    """A delivery is one line that says which run it was, which attempt, how it ended, and how long that took."""
    house.deliver(lambda run: house.clock.pause(1.50026))
    assert house.record is not None
    assert house.lines == [
        {
            "severity": "INFO",
            "message": "nightly 2026-10-16T12:00:00+00:00: Run processed",
            "run_id": RUN_ID,
            "job_name": "nightly",
            "schedule_time": "2026-10-16T12:00:00+00:00",
            "attempt_id": house.record.attempt_id,
            "attempt": 1,
            "outcome": "processed",
            "status": 200,
            "milliseconds": 1500.3,
            "httpRequest": {
                "requestMethod": "POST",
                "requestUrl": "/",
                "status": 200,
                "latency": "1.500s",
            },
            "logging.googleapis.com/labels": {"run_id": RUN_ID, "job_name": "nightly", "outcome": "processed"},
        }
    ]


@pytest.mark.parametrize("prepare", ["nothing", "completed", "failed", "down", "raises"])
def test_every_outcome_names_its_run(house: House, prepare: str) -> None:
    """Whatever becomes of a delivery, its line names run, job, time, attempt and outcome, and is the only one."""
    job: Callable[[Run], Any] = {"raises": fail, "failed": fail_for_good}.get(prepare, lambda run: None)
    if prepare in ("completed", "failed"):
        house.deliver(job)
    if prepare == "down":
        house.store.before["claim_run"] = [DOWN]
    house.deliver(job)
    assert len(house.lines) == 1
    named = {"run_id", "job_name", "schedule_time", "attempt_id", "outcome", "milliseconds"}
    assert named <= house.line.keys()
    assert len(house.line["attempt_id"]) == 32


def test_each_delivery_is_an_attempt_of_its_own(house: House) -> None:
    """Two deliveries of one run have two attempt ids."""
    attempt_ids = set()
    for _ in range(3):
        house.deliver(fail)
        attempt_ids.add(house.line["attempt_id"])
    assert len(attempt_ids) == 3


def test_the_line_is_tied_to_the_requests_trace(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line stands with the request's own log entry, a refused request's too."""
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)
    trace = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
    for headers in (HEADERS | trace, trace):
        house.deliver(headers=headers)
        assert house.line["logging.googleapis.com/trace"] == "a" * 32
        assert house.line["logging.googleapis.com/spanId"] == "b" * 16


# What the job is given, and when it isn't started.


def test_the_job_is_given_the_delivery(house: House) -> None:
    """The job's run has the delivery's body, scope and deadline, and the settings' lease."""
    house.settings = Settings(scope=(ScopePart("query", "region"), ScopePart("path")), timeout_seconds=60)
    told: list[Any] = []
    arrived = house.clock.utcnow()
    response = house.deliver(
        lambda run: told.extend([run.json(), run.scope, run.deadline, run.attempt, run.id]),
        path="/a?region=e/u",
        data=b'{"x": 1}',
    )
    run_id = hashlib.sha256(f"e%2Fu/%2Fa/nightly/{NOON}".encode()).hexdigest()
    assert told == [{"x": 1}, "e%2Fu/%2Fa", arrived + timedelta(seconds=60), 1, run_id]
    assert response.headers["X-Run-Id"] == run_id


@pytest.mark.parametrize("renews", [True, False])
def test_a_long_job_keeps_its_lease(house: House, renews: bool) -> None:
    """While the job runs its lease is renewed, unless that is turned off; afterwards it isn't."""
    house.settings = Settings(lease_seconds=30, renew=renews)
    lost: list[bool] = []

    def job(run: Run) -> None:
        house.clock.advance(35)
        lost.append(run.lost)

    house.deliver(job)
    house.clock.advance(1000)
    assert lost == [not renews]
    assert house.store.calls.count("renew_run") == (3 if renews else 0)


def test_renewal_ends_at_the_deadline(house: House) -> None:
    """A job that hangs isn't renewed beyond the request's time."""
    house.settings = Settings(lease_seconds=30, timeout_seconds=25)
    house.deliver(lambda run: house.clock.advance(1000))
    assert house.store.calls.count("renew_run") == 2


def test_the_body_is_read_before_the_claim(house: House) -> None:
    """A caller that goes away while it sends leaves no claim behind."""

    class Broken(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            raise ConnectionResetError

    with pytest.raises(ClientDisconnected):
        house.deliver(environ_overrides={"wsgi.input": io.BufferedReader(Broken()), "CONTENT_LENGTH": "5"})
    assert (house.ran, house.store.calls) == (0, [])
    assert house.line["outcome"] == "interrupted"


def test_an_attempt_paused_after_its_claim_claims_again(house: House) -> None:
    """An attempt that was paused past its lease before the job began asks again, and runs it once where it still may."""
    house.store.after["claim_run"] = [lambda: house.clock.pause(1000)]
    attempts: list[int] = []
    assert house.deliver(lambda run: attempts.append(run.attempt)).status_code == 200
    assert house.store.calls == ["claim_run", "claim_run", "finish_run completed"]
    assert attempts == [2]


def test_an_attempt_paused_after_its_claim_gives_way(house: House) -> None:
    """Where another attempt has taken the run meanwhile, the paused one doesn't start its job."""
    house.store.after["claim_run"] = [house.rival]
    assert seen(house.deliver()) == (409, "Run in progress", RUN_ID, None)
    assert house.ran == 0


def test_an_attempt_that_is_paused_again_and_again_gives_up(house: House) -> None:
    """An attempt that can't keep pace with its lease answers 409 in the end, and never starts its job."""
    house.store.after["claim_run"] = [lambda: house.clock.pause(1000)] * 9
    assert seen(house.deliver()) == (409, "Run in progress", RUN_ID, None)
    assert (house.ran, house.store.calls.count("claim_run")) == (0, dedup.handler.STALE_CLAIMS)
    assert house.record is None  # nobody is at work on it
    assert house.store.seconds == [dedup.handler.INTERRUPTED_SECONDS]


# A job that is a coroutine.


async def sent(run: Run) -> str:
    """An async job."""
    await asyncio.sleep(0)
    return f"{run.job_name} sent"


class Sender:
    """A job that is an object."""

    async def __call__(self, run: Run) -> str:
        """Does it."""
        return await sent(run)


class Promise:
    """What can be awaited and is no coroutine."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def __await__(self) -> Generator[Any, None, str]:
        return sent(self.run).__await__()


async def with_more(run: Run, more: str) -> str:
    """A job with an argument of its own."""
    return f"{await sent(run)}{more}"


@pytest.mark.parametrize(
    "job",
    [sent, Sender(), partial(with_more, more=""), lambda run: sent(run), Promise, {"nightly": sent, "hourly": fail}],
    ids=["function", "object", "partial", "lambda", "awaitable", "several"],
)
def test_an_async_job_is_run_to_its_end(house: House, job: Any) -> None:
    """What a job returns to be awaited is awaited, whatever kind of callable it is, and its own return value is the result."""
    assert seen(house.deliver(job)) == (200, "Run processed", RUN_ID, None)
    assert house.record is not None
    assert (house.ran, house.status, house.record.result) == (1, Status.COMPLETED, "nightly sent")
    assert seen(house.deliver(job)) == (200, "Duplicate run skipped", RUN_ID, "true")


@pytest.mark.parametrize("raised", [ZeroDivisionError, StoreUnavailable, LeaseLost, TimeoutError])
def test_an_async_job_raised(house: House, raised: type[Exception]) -> None:
    """What an async job raises releases its run, with its trace in the log."""

    async def the_jobs_own_line(run: Run) -> None:
        await asyncio.sleep(0)
        raise raised(SECRET)

    assert seen(house.deliver(the_jobs_own_line)) == (500, "error: job failed", RUN_ID, None)
    assert house.record is None
    assert "in the_jobs_own_line\n" in house.line["stack_trace"]
    assert house.line["stack_trace"].endswith(f"{raised.__name__}: {SECRET}\n")


def test_an_async_job_raised_permanent_error(house: House) -> None:
    """PermanentError is as of a plain job."""

    async def job(run: Run) -> None:
        fail_for_good(run)

    assert seen(house.deliver(job)) == (500, "error: job failed for good", RUN_ID, None)
    assert house.status is Status.FAILED


def test_an_async_job_that_is_cancelled_by_its_own_tasks(house: House) -> None:
    """A CancelledError that a job lets out is its failure, and not an abort, which would take the worker down."""

    async def job(run: Run) -> None:
        task = asyncio.create_task(asyncio.sleep(60))
        asyncio.get_running_loop().call_soon(task.cancel)
        await task

    assert seen(house.deliver(job)) == (500, "error: job failed", RUN_ID, None)
    assert house.record is None
    assert "CancelledError" in house.line["stack_trace"]
    assert house.line["stack_trace"].endswith("the job has not finished: it was cancelled by what it awaited\n")


def test_an_async_job_is_renewed_and_can_look(house: House) -> None:
    """An async job's lease is renewed; it sees whether it still holds the run, and raises as a plain job where it doesn't."""
    house.settings = Settings(lease_seconds=30)

    async def job(run: Run) -> None:
        house.clock.advance(35)
        run.ensure_held()
        await asyncio.sleep(0)
        house.rival()
        run.ensure_held()

    assert seen(house.deliver(job)) == (500, "error: job failed", RUN_ID, None)
    assert "LeaseLost" in house.line["stack_trace"]
    assert house.store.calls == ["claim_run", *["renew_run"] * 3]


def test_an_async_jobs_writes_are_committed_with_the_completion(house: House) -> None:
    """on_commit and hand_over work in an async job."""

    async def job(run: Run) -> None:
        run.on_commit(write)

    async def begin(run: Run) -> None:
        run.hand_over(1200)

    assert house.deliver(job).status_code == 200
    assert (house.status, written(house)) == (Status.COMPLETED, True)
    hourly = HEADERS | {"X-CloudScheduler-JobName": "hourly"}
    assert house.deliver(begin, headers=hourly).status_code == 202


def test_an_async_job_has_its_callers_context(house: House) -> None:
    """Context variables and the request are in an async job what they are around it."""
    told: list[Any] = []
    variable: ContextVar[str] = ContextVar("variable")
    variable.set("set outside")

    async def job(run: Run) -> None:
        await asyncio.sleep(0)
        told.extend([variable.get(), request.method, threading.current_thread()])

    house.deliver(job)
    assert told == ["set outside", "POST", threading.current_thread()]


@INTERRUPTIONS
@pytest.mark.parametrize("where", ["job", "task"])
def test_an_interrupted_async_job_is_released(house: House, interruption: type[BaseException], where: str) -> None:
    """An interruption in a job's coroutine, or in a task of it, releases the run, and goes on up."""

    async def strike() -> None:
        await asyncio.sleep(0)
        raise interruption

    async def job(run: Run) -> None:
        await (strike() if where == "job" else asyncio.gather(strike(), asyncio.sleep(60)))

    interrupt(house, interruption, job)
    assert house.record is None
    assert house.store.seconds == [dedup.handler.INTERRUPTED_SECONDS]


@pytest.mark.parametrize("interruption", [SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("tidies", [True, False])
def test_an_interrupted_loop_is_given_up(
    house: House, interruption: type[BaseException], tidies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interruption that strikes the loop itself cancels the job; one that doesn't end is not waited for."""
    monkeypatch.setattr(dedup.handler, "INTERRUPTED_SECONDS", 0.05)
    cancelled: list[bool] = []

    def strike() -> None:
        raise interruption

    async def job(run: Run) -> None:
        asyncio.get_running_loop().call_soon(strike)
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.append(True)
            if not tidies:
                await asyncio.sleep(60)

    began = time.monotonic()
    interrupt(house, interruption, job)
    assert time.monotonic() - began < 30
    assert (cancelled, house.record) == ([True], None)


@pytest.mark.parametrize("raised", [RequestTimeoutException, SystemExit, Abort])
def test_a_time_out_that_is_raised_into_a_waiting_loop(house: House, raised: type[BaseException]) -> None:
    """A framework's time-out, raised into the thread while its loop waits, ends the job and releases its run."""
    thread = ctypes.c_ulong(threading.get_ident())

    async def job(run: Run) -> None:
        strike = partial(ctypes.pythonapi.PyThreadState_SetAsyncExc, thread, ctypes.py_object(raised))
        threading.Timer(0.05, strike).start()
        for _ in range(600):
            await asyncio.sleep(0.1)

    if issubclass(raised, Exception):
        assert seen(house.deliver(job)) == (500, "error: job failed", RUN_ID, None)
    else:
        interrupt(house, raised, job)
    assert house.record is None


@pytest.mark.parametrize("raised", [SystemExit, KeyboardInterrupt, Abort, TimeoutError])
@pytest.mark.parametrize("where", ["loop", "lease"])
def test_struck_just_after_an_async_job_returned(
    house: House, raised: type[BaseException], where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What strikes when a job's coroutine has returned, while its loop is closed or later, never releases its run."""
    close = asyncio.Runner.close

    def struck(self: asyncio.Runner) -> None:
        close(self)
        raise raised

    if where == "loop":
        monkeypatch.setattr(asyncio.Runner, "close", struck)
    else:
        monkeypatch.setattr(dedup.handler, "Lease", struck_lease(raised))
    if issubclass(raised, Exception):
        assert seen(house.deliver(sent)) == (200, "Run processed", RUN_ID, None)
    else:
        interrupt(house, raised, sent)
    assert (house.ran, house.status) == (1, Status.COMPLETED)
    assert house.store.calls == ["claim_run", "finish_run completed"]


def test_an_async_job_that_leaves_tasks_behind(house: House) -> None:
    """A task that a job doesn't await is cancelled when the job has returned, and the run is done."""
    ends: list[str] = []

    async def linger() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    async def job(run: Run) -> None:
        task = asyncio.create_task(linger())
        await asyncio.sleep(0)
        assert not task.done()

    assert house.deliver(job).status_code == 200
    assert (ends, house.status) == (["cancelled"], Status.COMPLETED)


# Several jobs.


def test_one_of_several_jobs_is_run(house: House) -> None:
    """Of several jobs, the one is run that is named by the delivery."""
    assert house.deliver({"hourly": fail, "nightly": lambda run: "exported"}).status_code == 200
    assert house.record is not None
    assert house.record.result == "exported"


@pytest.mark.parametrize(
    ("jobs", "there"), [({"weekly": fail, "hourly": fail}, "hourly, weekly"), ({}, "none at all")], ids=["others", "none"]
)
def test_a_job_that_is_not_among_several_is_refused(house: House, jobs: dict[str, Job], there: str) -> None:
    """A delivery for a job that isn't there is a 400 that lists those that are; nothing is run or stored."""
    response = house.deliver(jobs)
    assert seen(response) == (400, f"error: there is no job 'nightly' here, but {there}", None, None)
    assert (house.ran, house.store.calls) == (0, [])
    assert house.line["outcome"] == "bad_delivery"


def test_one_of_several_jobs_is_a_services(house: House) -> None:
    """With a delivery of one's own, the job is chosen by the name that the delivery gives."""
    answers = []
    for service in ("billing", "mail"):
        delivery = partial(dedup.from_idempotency_key, service=service)
        with app.test_request_context(method="POST", headers={"Idempotency-Key": RUN_ID}):
            response = dedup.handler.handle(
                request, {"billing": lambda run: run.job_name}, delivery=delivery, store=house.store, clock=house.clock
            )
        answers.append((response.status_code, response.get_data(as_text=True)))
    assert answers == [(200, "Run processed"), (400, "error: there is no job 'mail' here, but billing")]


def test_several_jobs_are_told_to_nobody_who_may_not_call(house: House) -> None:
    """Who is refused isn't told which jobs there are."""

    class Nobody:
        def check(self, request: Any) -> None:
            raise Unauthenticated("no token")

    with app.test_request_context(method="POST", headers=HEADERS):
        response = dedup.handler.handle(request, {"hourly": fail}, store=house.store, clock=house.clock, auth=Nobody())
    assert response.status_code == 401
    assert b"hourly" not in response.get_data()


async def an_async_generator(run: Run) -> AsyncIterator[str]:
    """A job that does nothing when it is called."""
    yield "done"


def a_generator(run: Run) -> Iterator[str]:
    """Likewise."""
    yield "done"


async def a_coroutine_of_a_generator(run: Run) -> Iterator[str]:
    """A job that does nothing when it is awaited."""
    return a_generator(run)


async def a_coroutine_of_a_coroutine(run: Run) -> Any:
    """Likewise."""
    return sent(run)


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("job", [an_async_generator, a_generator, a_coroutine_of_a_generator, a_coroutine_of_a_coroutine])
def test_a_job_that_only_promises_to_run_has_failed(house: House, job: Callable[[Run], Any]) -> None:
    """A generator has not run by being called: its run is not recorded as done, and the log says why."""
    assert seen(house.deliver(job)) == (500, "error: job failed", RUN_ID, None)
    assert house.record is None
    gc.collect()  # while the warning of what was never awaited is expected
    assert "TypeError: the job has not run: " in house.line["stack_trace"]
    assert house.line["stack_trace"].endswith(", and must be a function\n")


def test_an_interruption_of_a_job_that_only_promises_to_run(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interruption that strikes there goes on up, and the run is released: its job has not run."""
    monkeypatch.setattr(dedup.handler, "Lease", struck_lease(Abort))
    interrupt(house, Abort, a_generator)
    assert house.record is None


def test_a_forced_run_is_judged_by_this_instances_clock(house: House) -> None:
    """DEDUP_MANUAL_RUNS reaches the delivery, with the process's clock."""
    house.settings = Settings(manual_runs=ManualRuns.REFUSE)
    assert house.deliver(headers=HEADERS | {"X-CloudScheduler-ScheduleTime": "2026-10-16T13:00:00Z"}).status_code == 400
    assert house.deliver().status_code == 200


# A run that is handed over to longer work.


def test_the_run_was_handed_over(house: House) -> None:
    """A job that hands its run over is answered 202; the run is still in progress, for as long as the hand-over says."""
    response = house.deliver(lambda run: run.hand_over(1200))
    assert seen(response) == (202, "Run handed over", RUN_ID, None)
    assert (house.status, house.line["outcome"], house.line["severity"]) == (Status.IN_PROGRESS, "handed_over", "INFO")
    assert house.store.calls == ["claim_run", "renew_run"]
    house.clock.pause(1199)
    assert seen(house.deliver())[:2] == (409, "Run in progress")
    house.clock.pause(2)
    assert seen(house.deliver())[:2] == (200, "Run processed")


def test_a_job_that_raises_after_the_hand_over(house: House) -> None:
    """Work that couldn't be started releases the run: the next delivery needn't wait for the long lease."""

    def job(run: Run) -> None:
        run.hand_over(1200)
        fail(run)

    assert seen(house.deliver(job))[:2] == (500, "error: job failed")
    assert house.record is None


def test_a_job_that_raises_after_the_work_has_begun(house: House) -> None:
    """Where the work has begun all the same, an error of the job that started it leaves the run to it."""
    begun = []

    def job(run: Run) -> None:
        run.hand_over(1200)
        house.clock.pause(1)  # the store's clock is the fencing token
        begun.append(dedup.resume(run.id, run.attempt_id, store=house.store, clock=house.clock, task_attempt=0))
        begun[0].__enter__()
        fail(run)

    assert seen(house.deliver(job))[:2] == (500, "error: job failed")
    assert house.status is Status.IN_PROGRESS
    assert [line["severity"] for line in house.lines if "outcome" not in line] == ["ERROR"]
    begun[0].__exit__(None, None, None)
    assert house.status is Status.COMPLETED


def test_a_hand_over_that_cant_be_written(house: House) -> None:
    """Where the store doesn't take the hand-over, the job fails before it starts the work, and the run is released."""
    house.store.before["renew_run"] = [DOWN]
    assert seen(house.deliver(lambda run: run.hand_over(1200)))[:2] == (500, "error: job failed")
    assert house.record is None


def test_the_work_renews_its_lease_until_its_time_is_over(house: House) -> None:
    """Work of hours keeps its run by the hand-over's lease, and no longer than its task may take."""
    house.deliver(lambda run: run.hand_over(600))
    record = house.record
    assert record is not None
    assert record.attempt_id is not None
    how: dict[str, Any] = {"store": house.store, "clock": house.clock, "task_attempt": 0, "timeout_seconds": 7200}
    with dedup.resume(RUN_ID, record.attempt_id, **how) as run:
        assert (run.deadline - house.clock.utcnow()).total_seconds() == 7200
        for _ in range(9):
            house.clock.advance(780)
            assert seen(house.deliver())[:2] == (409, "Run in progress")
        house.clock.advance(7200)
        assert run.lost
        assert seen(house.deliver())[:2] == (200, "Run processed")


def test_the_work_is_named_with_the_run(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run's result is the Cloud Run execution that did it, and its own line tells of its end."""
    monkeypatch.setenv("CLOUD_RUN_EXECUTION", "nightly-abc")
    monkeypatch.setenv("CLOUD_RUN_TASK_ATTEMPT", "3")
    house.deliver(lambda run: run.hand_over(600))
    record = house.record
    assert record is not None
    assert record.attempt_id is not None
    with pytest.raises(ZeroDivisionError), dedup.resume(RUN_ID, record.attempt_id, store=house.store, max_retries=4):
        raise ZeroDivisionError
    with dedup.resume(RUN_ID, record.attempt_id, store=house.store, max_retries=3):
        pass
    assert house.record is not None
    assert house.record.result == "nightly-abc"
    [line] = [json.loads(line) for line in house.capsys.readouterr().out.splitlines()]
    assert (line["outcome"], line["run_id"], line["message"]) == ("processed", RUN_ID, "nightly: Run processed")


# Calls that carry a key in place of Cloud Scheduler's headers.


def test_a_call_with_a_key_is_done_once(house: House) -> None:
    """A service's handler does a call's work once, by its Idempotency-Key."""
    how: dict[str, Any] = {
        "delivery": partial(dedup.from_idempotency_key, service="billing"),
        "store": house.store,
        "clock": house.clock,
    }
    ran: list[tuple[str, str]] = []
    answers = []
    for headers in ({"Idempotency-Key": RUN_ID}, {"idempotency-key": f'"{RUN_ID}"'}, HEADERS):
        with app.test_request_context(method="POST", headers=headers):
            response = dedup.handler.handle(request, lambda run: ran.append((run.id, run.job_name)), **how)
        answers.append((response.status_code, response.get_data(as_text=True)))
    assert answers[:2] == [(200, "Run processed"), (200, "Duplicate run skipped")]
    assert answers[2][0] == 400
    assert "Idempotency-Key is missing: the caller sends it" in answers[2][1]
    assert ran == [(hashlib.sha256(f"Idempotency-Key:/billing/{RUN_ID}".encode()).hexdigest(), "billing")]
    assert house.record is None
