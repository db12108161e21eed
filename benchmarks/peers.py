"""What is compared, called in this process: the job, and whatever deduplicates it."""

from __future__ import annotations

import importlib
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from flask import Request, Response
from werkzeug.test import EnvironBuilder

from benchmarks.servers.commits import RawCommits
from benchmarks.wire import Wire, firestore_client
from dedup.delivery import JOB_NAME_HEADER, SCHEDULE_TIME_HEADER, from_request
from dedup.handler import handle
from dedup.record import Decision, Ending
from dedup.settings import Settings
from dedup.stores import Claim, RunStore, open_store
from dedup.stores.firestore import FirestoreRunStore, connect

NOON = "2026-10-16T12:00:00Z"
Job = Callable[[], None]


class Failed(Exception):
    """What a job raises that is to be retried."""


def delivery_of(job_name: str) -> Request:
    """A delivery, as a request of Flask's.

    Args:
        job_name: another one for each run.
    """
    headers = {JOB_NAME_HEADER: job_name, SCHEDULE_TIME_HEADER: NOON}
    return Request(EnvironBuilder(method="POST", headers=headers).get_environ())


def run_id_of(request: Request) -> str:
    """The run's id, the same for all that follow the documentation."""
    return from_request(request, now=datetime.now(UTC)).run_id


class Peer(Protocol):
    """One way to do a job once."""

    decides: bool
    """Whether it knows a duplicate, and an attempt that died."""

    def deliver(self, request: Request, job: Job) -> int:
        """Handles a delivery. Gives the status of the answer."""
        ...

    def leave_dead(self, request: Request) -> None:
        """Leaves the run as an attempt does that died, its lease over; only where it decides."""
        ...


class Ours:
    """This project.

    Args:
        store: where the runs are.
        lease_seconds: how long a lease is.
    """

    decides = True

    def __init__(self, store: RunStore, lease_seconds: int = 300) -> None:
        self._store = store
        self._settings = Settings(lease_seconds=lease_seconds)

    @classmethod
    def on_firestore(cls, project: str, wire: Wire | None = None, lease_seconds: int = 300) -> Ours:
        """Runs in the emulator."""
        store = FirestoreRunStore(project)
        to = connect(project, "(default)")
        to.api = firestore_client(project, wire)._firestore_api
        store._connection.made = to
        return cls(store, lease_seconds)

    def deliver(self, request: Request, job: Job) -> int:
        """Handles it as main.py does."""
        return handle(request, lambda run: job(), settings=self._settings, store=self._store).status_code

    def leave_dead(self, request: Request) -> None:
        """Claims the run for the shortest lease there is, and lets it pass."""
        delivery = from_request(request, now=datetime.now(UTC))
        claim = Claim(
            run_id=delivery.run_id,
            attempt_id="0" * 32,
            lease_seconds=1,
            retention_seconds=86400,
            job_name=delivery.job_name,
            schedule_time=delivery.schedule_time,
        )
        assert self._store.claim_run(claim) is Decision.CLAIM
        time.sleep(1.1)


class Documented:
    """The documented example."""

    decides = True

    def __init__(self, project: str, wire: Wire | None = None) -> None:
        self._example: Any = importlib.import_module("tests.template.documented")
        self._client = firestore_client(project, wire)

    def deliver(self, request: Request, job: Job) -> int:
        """Handles it as the framework has it done."""
        self._example.client, self._example.run_job_logic = self._client, job
        try:
            _, status = self._example.handle_scheduled_job(request)
        except Failed:  # the framework makes a 500 of it
            return 500
        return int(status)

    def leave_dead(self, request: Request) -> None:
        """Writes what the example writes, its lease over."""
        long_ago = datetime.now(UTC) - timedelta(hours=1)
        record = {"status": "in_progress", "attempt_id": "0" * 32, "lease_expires": long_ago, "expire_at": long_ago}
        self._client.collection(self._example.COLLECTION).document(run_id_of(request)).set(record)


class Limit:
    """Two raw commits: it decides nothing, so it knows no duplicates."""

    decides = False

    def __init__(self, project: str, wire: Wire | None = None) -> None:
        self._commits = RawCommits(firestore_client(project, wire))

    def deliver(self, request: Request, job: Job) -> int:
        """Writes, does the job, writes."""
        run = self._commits.create(run_id_of(request))
        job()
        self._commits.complete(run)
        return Response("Run processed", 200).status_code


class Bare:
    """A job without any deduplication."""

    decides = False

    def deliver(self, request: Request, job: Job) -> int:
        """Does the job."""
        job()
        return Response("Run processed", 200).status_code


# On Redis.


def on_redis(port: int) -> dict[str, Peer]:
    """The peers whose runs are in a Redis on this port of 127.0.0.1."""
    url = f"redis://127.0.0.1:{port}/0"
    return {
        "ours": Ours(open_store(url)),
        "store": OursAlone(open_store(f"{url}?prefix=alone")),
        "powertools": Powertools(port),
        "limit": RedisLimit(port),
    }


class OursAlone(Ours):
    """The store of this project without the handler, as Powertools is: no request is answered, and nothing is logged."""

    def deliver(self, request: Request, job: Job) -> int:
        """Claims, does the job, finishes."""
        claim = Claim(
            run_id=run_id_of(request),
            attempt_id=uuid.uuid4().hex,
            lease_seconds=300,
            retention_seconds=86400,
            job_name="nightly",
            schedule_time=datetime.fromisoformat(NOON),
        )
        decision = self._store.claim_run(claim)
        if decision is not Decision.CLAIM:
            return 409 if decision is Decision.IN_PROGRESS else 200
        try:
            job()
        except Failed:
            self._store.finish_run(claim, Ending.RELEASED)
            return 500
        self._store.finish_run(claim, Ending.COMPLETED)
        return 200


class Powertools:
    """Powertools for AWS Lambda's idempotency, with its Redis layer."""

    decides = True

    def __init__(self, port: int) -> None:
        import redis
        from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig, idempotent_function
        from aws_lambda_powertools.utilities.idempotency.exceptions import IdempotencyAlreadyInProgressError
        from aws_lambda_powertools.utilities.idempotency.persistence.redis import RedisCachePersistenceLayer

        self._in_progress = IdempotencyAlreadyInProgressError
        client = redis.Redis("127.0.0.1", port, decode_responses=True)
        store = RedisCachePersistenceLayer(client=client)
        self._time_left = _TimeLeft()
        config = IdempotencyConfig(expires_after_seconds=86400, lambda_context=self._time_left)

        @idempotent_function(data_keyword_argument="run", persistence_store=store, config=config)
        def run_once(run: str, job: Job) -> str:
            job()
            return "Run processed"

        self._run_once = run_once

    def deliver(self, request: Request, job: Job) -> int:
        """Does the job once for the run's id."""
        try:
            self._run_once(run=run_id_of(request), job=job)
        except self._in_progress:
            return 409
        except Failed:
            return 500
        return 200

    def leave_dead(self, request: Request) -> None:
        """Dies in the middle of the job, with no time left."""

        class Died(BaseException):
            pass

        def die() -> None:
            raise Died

        self._time_left.milliseconds = -1000
        with suppress(Died):
            self._run_once(run=run_id_of(request), job=die)
        self._time_left.milliseconds = 300_000


class _TimeLeft:
    """The part of a Lambda's context that Powertools asks: how long an attempt may hold its run."""

    milliseconds = 300_000

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds."""
        return self.milliseconds


class RedisLimit:
    """Two commands: a SET that must be the first, and one that ends it."""

    decides = False

    def __init__(self, port: int) -> None:
        import redis

        self._redis = redis.Redis("127.0.0.1", port)

    def deliver(self, request: Request, job: Job) -> int:
        """Writes, does the job, writes."""
        run_id = run_id_of(request)
        self._redis.set(run_id, "in_progress", nx=True, ex=86400)
        job()
        self._redis.set(run_id, "completed", xx=True, ex=86400)
        return Response("Run processed", 200).status_code
