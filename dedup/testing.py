"""What a fork's own tests need: Cloud Scheduler's deliveries, on a throw-away store, with its faults.

    with dedup.testing.scheduler("main.py") as scheduler:
        assert scheduler.deliver().status_code == 200
        assert scheduler.deliver().text == "Duplicate run skipped"

The function is the one that is deployed, called by functions-framework's test client, without a server or a port.
"""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import functions_framework

import dedup
from dedup import handler
from dedup.auth import open_auth
from dedup.delivery import JOB_NAME_HEADER, SCHEDULE_TIME_HEADER, Delivery, parse_schedule_time
from dedup.lease import Clock
from dedup.record import Decision, RunRecord
from dedup.settings import Settings
from dedup.stores import Claim
from dedup.stores.sqlite import SQLiteRunStore

if TYPE_CHECKING:
    from flask import Flask, Request, Response
    from werkzeug.test import TestResponse

NOON = "2026-10-16T12:00:00Z"


@contextmanager
def scheduler(
    source: str | Path = "main.py",
    target: str = "handle_scheduled_job",
    *,
    settings: Settings | None = None,
    job: handler.Job | None = None,
) -> Iterator[Scheduler]:
    """Loads a function as functions-framework does, and gives it a store of its own for as long as the `with` lasts.

    Neither DEDUP_* variables nor a store, a clock or an auth that the function gives to `dedup.handle` have any influence here.

    Args:
        source: the file.
        target: the function in it.
        settings: other than the defaults; their store is not used, and a scope is not understood here.
        job: done in place of whatever the function hands to `dedup.handle`, to try all but the job itself.
    """
    settings = settings if settings is not None else Settings()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        clock = MovableClock()
        store = SQLiteRunStore(Path(folder) / "runs.db", clock=clock.time, monotonic=clock.monotonic)
        auth = open_auth(settings.auth, audience=settings.audience, callers=settings.callers, on_platform=False)
        replaced: dict[str, Any] = {"_settings": replace(settings, scope=()), "_store": store, "_clock": clock, "_auth": auth}
        if job is not None:
            replaced["_choose_job"] = lambda *_: job

        def handle(request: Request, job: Any, *, delivery: Any = None, settings: Any = None, **_: Any) -> Response:
            return real_handle(request, job, delivery=delivery, settings=settings)  # no store that a function opens itself

        real_handle = handler.handle
        with mock.patch.multiple(handler, handle=handle, **replaced), mock.patch.object(dedup, "handle", handle):
            app: Flask = functions_framework.create_app(target, str(source))  # type: ignore[no-untyped-call]
            yield Scheduler(app, store, clock, settings)


class MovableClock(Clock):
    """The process's clock, which a test can move on."""

    def __init__(self) -> None:
        super().__init__()
        self._ahead = 0.0

    def advance(self, seconds: float) -> None:
        """Moves it on."""
        self._ahead += seconds

    def monotonic(self) -> float:
        """Seconds that only go forward."""
        return super().monotonic() + self._ahead

    def time(self) -> float:
        """Seconds since 1970, as the store takes them."""
        return time.time() + self._ahead

    def utcnow(self) -> datetime:
        """The time of day."""
        return datetime.now(UTC) + timedelta(seconds=self._ahead)


class Scheduler:
    """Cloud Scheduler, and what can go wrong between it and the function.

    Args:
        app: the function, as functions-framework serves it.
        store: the throw-away store.
        clock: the function's and the store's.
        settings: of the function.
    """

    def __init__(self, app: Flask, store: SQLiteRunStore, clock: MovableClock, settings: Settings) -> None:
        self.app = app
        self.store = store
        self.clock = clock
        self._settings = settings

    def deliver(
        self, job: str = "nightly", schedule_time: str = NOON, body: bytes | str = b"", headers: Mapping[str, str] | None = None
    ) -> TestResponse:
        """Delivers a run once, and gives the answer. Called again, it is a retry, or a duplicate."""
        sent = {JOB_NAME_HEADER: job, SCHEDULE_TIME_HEADER: schedule_time, **(headers or {})}
        return self.app.test_client().post("/", data=body, headers=sent)

    def deliver_at_once(self, times: int, job: str = "nightly", schedule_time: str = NOON) -> list[TestResponse]:
        """Delivers a run several times at the same moment."""
        with ThreadPoolExecutor(times) as threads:
            sent = [threads.submit(self.deliver, job, schedule_time) for _ in range(times)]
            return [delivery.result() for delivery in sent]

    def lose_reply(self, job: str = "nightly", schedule_time: str = NOON) -> None:
        """Delivers a run, and loses the answer on its way back: Cloud Scheduler will deliver it again."""
        self.deliver(job, schedule_time)

    def crash(self, job: str = "nightly", schedule_time: str = NOON) -> None:
        """Leaves a run as an attempt leaves it that dies in the middle of its job: in progress, with nobody at work.

        Raises:
            RuntimeError: the run can't be claimed: it is over, or under way.
        """
        moment, fraction = parse_schedule_time(schedule_time)
        claim = Claim(
            run_id=Delivery(job, moment, (), fraction).run_id,
            attempt_id=uuid.uuid4().hex,
            lease_seconds=self._settings.lease_seconds,
            retention_seconds=self._settings.retention_seconds,
            job_name=job,
            schedule_time=moment,
        )
        decision = self.store.claim_run(claim)
        if decision is not Decision.CLAIM:
            raise RuntimeError(f"{job} of {schedule_time} can't crash, it is {decision.value}")

    def expire_lease(self) -> None:
        """Lets a lease's time go by, at once: whoever holds a run has lost it, also a job that calls this in its middle."""
        self.clock.advance(self._settings.lease_seconds)

    def record(self, job: str = "nightly", schedule_time: str = NOON) -> RunRecord | None:
        """What the store holds of a run; None if there is no record."""
        moment, fraction = parse_schedule_time(schedule_time)
        return self.store.get_run(Delivery(job, moment, (), fraction).run_id)
