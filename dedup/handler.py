"""A delivery, from request to response. The one file that knows all the others."""

from __future__ import annotations

import inspect
import json
import logging
import os
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from flask import Request, Response

from dedup import telemetry
from dedup.auth import Auth, Forbidden, Unauthenticated, Unverifiable, open_auth
from dedup.delivery import BadDelivery, Delivery, from_request
from dedup.lease import Clock, Lease
from dedup.record import Decision, Ending
from dedup.run import PermanentError, Run
from dedup.settings import Settings
from dedup.stores import Claim, EffectsRaised, RunStore, StoreUnavailable, open_store

Job = Callable[[Run], Any]

FINISH_SECONDS = 10.0
INTERRUPTED_SECONDS = 2.0
"""A worker that is being aborted is killed soon after: what is left to write must be quick."""
STALE_CLAIMS = 3
"""How often a run is claimed again because the attempt was paused until its lease could not be trusted any more."""
SUMMARY_BYTES = 1024

log = logging.getLogger("dedup")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a delivery ended.

    Args:
        name: what it is called in the log.
        status: for Cloud Scheduler, which retries whatever isn't 2xx.
        body: likewise.
        level: of the log line.
        message: of the log line, where it can say more than the body.
        replayed: nothing ran because the run was over.
    """

    name: str
    status: int
    body: str
    level: int = logging.INFO
    message: str = ""
    replayed: bool = False


PROCESSED = Outcome("processed", 200, "Run processed")
HANDED_OVER = Outcome("handed_over", 202, "Run handed over")
NOT_RUN = {
    Decision.COMPLETED: Outcome("duplicate_skipped", 200, "Duplicate run skipped", replayed=True),
    Decision.FAILED: Outcome("failed_before", 200, "Run failed for good, not retried", replayed=True),
    Decision.IN_PROGRESS: Outcome("in_progress", 409, "Run in progress"),  # not 503: App Engine doesn't count its retries
}
BAD_DELIVERY = Outcome("bad_delivery", 400, "error", logging.WARNING)
UNAUTHENTICATED = Outcome("unauthenticated", 401, "error", logging.WARNING)
FORBIDDEN = Outcome("forbidden", 403, "error", logging.WARNING)
TELLING_WHY = (BAD_DELIVERY, UNAUTHENTICATED, FORBIDDEN)
CALLER_NOT_VERIFIED = Outcome("caller_not_verified", 500, "error: caller not verified", logging.ERROR)
STORE_UNAVAILABLE = Outcome("store_unavailable", 500, "error: dedup store unavailable", logging.ERROR)
JOB_FAILED = Outcome("job_failed", 500, "error: job failed", logging.ERROR)
JOB_FAILED_FOR_GOOD = Outcome("job_failed_for_good", 500, "error: job failed for good", logging.ERROR)
DONE_NOT_RECORDED = Outcome(
    "done_not_recorded", 200, "Run processed", logging.ERROR, "job done, but its completion could not be recorded"
)
DONE_LEASE_LOST = Outcome(
    "done_lease_lost", 200, "Run processed", logging.ERROR, "job done, but the run was not this attempt's any more"
)
EFFECTS_NOT_RECORDED = Outcome(
    "effects_not_recorded",
    500,
    "error: run not recorded",
    logging.ERROR,
    "job done, but neither its effects nor its completion are recorded",
)
INTERRUPTED = Outcome("interrupted", 500, "error: interrupted", logging.ERROR)


def handle(
    request: Request,
    job: Job | Mapping[str, Job],
    *,
    delivery: Callable[[Request], Delivery] | None = None,
    settings: Settings | None = None,
    store: RunStore | None = None,
    auth: Auth | None = None,
    clock: Clock | None = None,
) -> Response:
    """Runs the job for the scheduled run that a request delivers, unless that run is done or under way.

    Args:
        request: Cloud Scheduler's.
        job: is given the Run. It may return a short summary; it raises to be retried, and PermanentError not to be. It may be
            an `async def`. Several jobs come by their ids: the one that is delivered is run, and no other id is accepted.
        delivery: how a request is read; None: by Cloud Scheduler's headers. A service that other callers call gives
            `from_idempotency_key` with its name.
        settings: other than the environment's.
        store: other than the one that DEDUP_STORE names.
        auth: other than what DEDUP_AUTH names.
        clock: other than the process's.

    Returns:
        The answer by which Cloud Scheduler retries, or stops: see "HTTP contract" in docs/outcomes.md.
    """
    settings = settings if settings is not None else _settings
    store = store if store is not None else _store
    auth = auth if auth is not None else _auth
    clock = clock if clock is not None else _clock
    with _Answer(request, clock) as answer:
        store = answer.watch.store(store)
        try:
            auth.check(request)
        except Unauthenticated as refusal:
            return answer.of(UNAUTHENTICATED, refusal)
        except Forbidden as refusal:
            return answer.of(FORBIDDEN, refusal)
        except Unverifiable as unverifiable:
            return answer.of(CALLER_NOT_VERIFIED, unverifiable)

        try:
            if delivery is not None:
                delivered = delivery(request)
            else:
                delivered = from_request(request, scope=settings.scope, manual_runs=settings.manual_runs, now=clock.utcnow())
            chosen = _choose_job(job, delivered.job_name)
        except BadDelivery as refusal:
            return answer.of(BAD_DELIVERY, refusal)

        claim = answer.claim = _new_claim(delivered, settings)
        lease = Lease(store, claim, renews=settings.renew, ends_at=answer.began + settings.timeout_seconds, clock=clock)
        deadline = clock.utcnow() + timedelta(seconds=settings.timeout_seconds)
        run = Run(claim, lease, body=request.get_data(), deadline=deadline, supports_effects=store.supports_effects)

        try:
            decision = _claim_run(store, claim, clock)
        except StoreUnavailable as unavailable:
            return answer.of(STORE_UNAVAILABLE, unavailable)
        if decision is not Decision.CLAIM:
            return answer.of(NOT_RUN[decision])

        returned, raised = _run_job(chosen, run, lease, answer.watch.job(claim, clock.utcnow()))
        aborted = raised is not None and not isinstance(raised, Exception)
        attempt = Attempt(store, claim, lease, INTERRUPTED_SECONDS if aborted else FINISH_SECONDS)
        if raised is None or returned:
            outcome, fault = attempt.complete(returned[0], run.effects)
        else:
            outcome, fault = attempt.give_up(raised)
        if raised is not None and aborted:
            raise raised
        return answer.of(outcome, fault)


def _choose_job(job: Job | Mapping[str, Job], job_name: str) -> Job:
    """The job that a delivery is for.

    Raises:
        BadDelivery: there are several, and none of that name.
    """
    if not isinstance(job, Mapping):
        return job
    if job_name not in job:
        raise BadDelivery(f"there is no job {job_name!r} here, but {', '.join(sorted(map(str, job))) or 'none at all'}")
    return job[job_name]


def _new_claim(delivery: Delivery, settings: Settings) -> Claim:
    return Claim(
        run_id=delivery.run_id,
        attempt_id=uuid.uuid4().hex,
        lease_seconds=settings.lease_seconds,
        retention_seconds=settings.retention_seconds,
        job_name=delivery.job_name,
        schedule_time=delivery.schedule_time,
        scope="/".join(delivery.scope_parts),
    )


def _claim_run(store: RunStore, claim: Claim, clock: Clock) -> Decision:
    """Claims the run; again, if the attempt was paused for so long that another may have been given it meanwhile."""
    try:
        for _ in range(STALE_CLAIMS):
            decision = store.claim_run(claim)
            if decision is not Decision.CLAIM or claim.is_trusted(clock.monotonic()):
                return decision
        store.finish_run(claim, Ending.RELEASED, within_seconds=INTERRUPTED_SECONDS)
        return Decision.IN_PROGRESS
    except StoreUnavailable:
        raise
    except BaseException:  # a framework's time-out or a worker's abort: nobody will be at work on what was claimed
        with suppress(StoreUnavailable):
            store.finish_run(claim, Ending.RELEASED, within_seconds=INTERRUPTED_SECONDS)
        raise


def _run_job(job: Job, run: Run, lease: Lease, watched: telemetry.Step) -> tuple[list[Any], BaseException | None]:
    """Runs the job, and says what it returned, and what was raised.

    Both can be: a framework's time-out is raised into the thread wherever it is, also when the job has just returned. The job
    is done then, and its run must not be released.
    """
    returned: list[Any] = []
    raised: BaseException | None = None
    try:
        with lease, watched:
            returned.append(job(run))
            if inspect.isawaitable(returned[0]):
                _await(returned)
    except BaseException as struck:
        raised = struck
    if any(inspect.isawaitable(value) or inspect.isgenerator(value) or inspect.isasyncgen(value) for value in returned):
        not_run = TypeError("the job has not run: it is a generator, or its coroutine returned another, and must be a function")
        return [], raised if raised is not None else not_run
    return returned, raised


def _await(returned: list[Any]) -> None:
    """Runs the coroutine that a job has returned, as asyncio.run does, and puts what that returns in its place.

    In its place at once, inside the loop: what strikes while the loop is closed finds a job that is done.
    """
    import asyncio  # where it is needed: a cold start may do without

    ended = False

    async def run() -> None:
        nonlocal ended
        try:
            returned[0] = await returned[0]
        finally:
            ended = True

    runner = asyncio.Runner()
    try:
        runner.run(run())
    except BaseException as strike:
        if not ended:  # the loop itself was struck, and may have lost a task's next step: the task can't be waited for
            runner.get_loop().call_later(INTERRUPTED_SECONDS, runner.get_loop().stop)
            with suppress(RuntimeError):  # that it was stopped
                runner.close()
        if isinstance(strike, asyncio.CancelledError):  # the job's own doing: the process's end is another BaseException
            raise RuntimeError("the job has not finished: it was cancelled by what it awaited") from strike
        raise
    finally:
        runner.close()


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt whose job has ended, and what it writes at last.

    Args:
        store: where the run is.
        claim: the attempt's.
        lease: likewise.
        within_seconds: how long each write may be tried.
        releases: whether a failure gives the run back to the next delivery; if not, the run stays as it is.
    """

    store: RunStore
    claim: Claim
    lease: Lease
    within_seconds: float
    releases: bool = True

    def complete(self, value: Any, effects: Callable[[Any], None] | None) -> tuple[Outcome, BaseException | None]:
        """Records the run as completed, together with the job's own writes where it has asked for that."""
        if self.claim.handed_over:
            return HANDED_OVER, None
        fault: Exception | None = None
        try:
            if self._finish_run(Ending.COMPLETED, result=_summary(value), effects=effects):
                return PROCESSED, None
            outcome = DONE_LEASE_LOST
        except EffectsRaised as wrapped:
            return self.give_up(wrapped.raised)
        except StoreUnavailable as unavailable:
            outcome, fault = DONE_NOT_RECORDED, unavailable
        if effects is None:
            return outcome, fault
        self._release()
        return EFFECTS_NOT_RECORDED, fault

    def give_up(self, raised: BaseException) -> tuple[Outcome, BaseException]:
        """Leaves the run to the next retry, or records that none is wanted."""
        if isinstance(raised, PermanentError):
            self.fail(raised)
            return JOB_FAILED_FOR_GOOD, raised
        if not self.lease.lost:
            self._release()
        return JOB_FAILED, raised

    def fail(self, raised: BaseException) -> None:
        """Records the run as failed for good."""
        self._finish_run_if_possible(Ending.FAILED, error=_describe(raised))

    def _release(self) -> None:
        if self.releases:
            self._finish_run_if_possible(Ending.RELEASED)

    def _finish_run_if_possible(self, ending: Ending, error: str | None = None) -> None:
        """Finishes a run whose answer is an error anyway. Where it can't, the run is taken over when its lease ends."""
        try:
            recorded = self._finish_run(ending, error=error)
            fault = None if recorded else "the run is not this attempt's any more"
        except StoreUnavailable as unavailable:
            fault = str(unavailable)
        if fault is not None:
            extra = {"run_id": self.claim.run_id, "attempt_id": self.claim.attempt_id}
            log.error("could not record the run as %s: %s", ending.value, fault, extra=extra)

    def _finish_run(self, ending: Ending, **what: Any) -> bool:
        """Finishes the run, also when a framework's time-out or a worker's abort strikes in the middle of it."""
        try:
            return self.store.finish_run(self.claim, ending, within_seconds=self.within_seconds, **what)
        except (StoreUnavailable, EffectsRaised):
            raise
        except BaseException:
            with suppress(StoreUnavailable, EffectsRaised):
                self.store.finish_run(self.claim, ending, within_seconds=INTERRUPTED_SECONDS, **what)
            raise


def _summary(value: Any) -> str | None:
    """What is kept of the job's return value: a text as it is, anything else as JSON."""
    if value is None:
        return None
    if isinstance(value, str):
        return _cut(value)
    try:
        return _cut(json.dumps(value))
    except Exception as fault:  # whatever a job's own classes raise: the job is done, its summary is not worth a failure
        log.error("the job's result is neither text nor JSON, so it is not kept: %r", fault)
        return None


def _describe(raised: BaseException) -> str:
    try:
        return _cut(f"{type(raised).__name__}: {raised}")
    except Exception:  # the job's own class can't say what it is
        return type(raised).__name__


def _cut(text: str) -> str:
    return text.encode("utf-8", "replace")[:SUMMARY_BYTES].decode("utf-8", "ignore")


class _Answer:
    """The answer to a delivery, and the one log line that tells of it."""

    def __init__(self, request: Request, clock: Clock) -> None:
        self._request = request
        self._clock = clock
        self._outcome = INTERRUPTED
        self._fault: BaseException | None = None
        self.began = clock.monotonic()
        self.claim: Claim | None = None
        self.watch = telemetry.Watch(request)

    def of(self, outcome: Outcome, fault: BaseException | None = None) -> Response:
        """Makes the answer. What a refused request is told is all of a fault that leaves the house."""
        self._outcome, self._fault = outcome, fault
        body = f"{outcome.body}: {fault}" if outcome in TELLING_WHY else outcome.body
        headers = {"X-Run-Id": self.claim.run_id} if self.claim is not None else {}
        if outcome is UNAUTHENTICATED:
            headers["WWW-Authenticate"] = "Bearer"
        if outcome.replayed:
            headers["Idempotent-Replayed"] = "true"
        return Response(body, outcome.status, headers, content_type="text/plain; charset=utf-8")

    def __enter__(self) -> Self:
        self.watch.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None) -> None:
        fault = raised if raised is not None else self._fault
        claim = self.claim
        about_run = (
            {}
            if claim is None
            else {
                "run_id": claim.run_id,
                "job_name": claim.job_name,
                "schedule_time": claim.schedule_time,
                "attempt_id": claim.attempt_id,
                "attempt": claim.attempts or None,
            }
        )
        seconds = self._clock.monotonic() - self.began
        message = self._outcome.message or self._outcome.body
        of_the_job = self._outcome in (JOB_FAILED, JOB_FAILED_FOR_GOOD, INTERRUPTED)  # its trace is wanted; others say all
        log.log(
            self._outcome.level,
            "%s%s",
            f"{claim.job_name} {claim.schedule_time.isoformat()}: " if claim is not None else "",
            message if of_the_job or fault is None else f"{message}: {fault}",
            exc_info=fault if of_the_job else None,
            extra={
                **about_run,
                "outcome": self._outcome.name,
                "status": self._outcome.status,
                "milliseconds": round(seconds * 1000, 1),
                **telemetry.request_fields(self._request, self._outcome.status, seconds),
                **telemetry.label_fields(claim, self._outcome.name),
                **telemetry.trace_fields(self._request.headers),
            },
        )
        self.watch.end(claim, self._outcome.name, self._outcome.status)


_settings = Settings.from_environment()
_store = open_store(_settings.store)
_auth = open_auth(
    _settings.auth,
    audience=_settings.audience,
    callers=_settings.callers,
    on_platform=bool(os.environ.get("K_SERVICE")),
)
_clock = Clock()
telemetry.configure(_settings.log_level)
