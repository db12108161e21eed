"""Goes on with a run that a job has handed over: in a Cloud Run job, past the 30 minutes that Cloud Scheduler waits.

Cloud Scheduler has its 2xx by then and delivers no more, so the Cloud Run job's own task retries carry the run. Each task
attempt comes with the same two ids and owns the run as the one before did. An exception therefore keeps the record: without it,
a duplicate delivery would start a second execution.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from dedup import handler
from dedup.lease import Clock, Lease, LeaseLost
from dedup.run import PermanentError, Run
from dedup.settings import Settings
from dedup.stores import Claim, RunStore

log = logging.getLogger("dedup")


@contextmanager
def resume(
    run_id: str,
    attempt_id: str,
    *,
    timeout_seconds: int = 600,
    max_retries: int = 3,
    task_attempt: int | None = None,
    settings: Settings | None = None,
    store: RunStore | None = None,
    clock: Clock | None = None,
) -> Iterator[Run]:
    """Owns the run while the `with` lasts, and completes its record at the end.

    What the `with` raises goes on up, so that the task is retried. The last attempt, and a PermanentError in any, records the
    run as failed before that.

    Args:
        run_id: what `run.id` was where the run was handed over.
        attempt_id: likewise `run.attempt_id`.
        timeout_seconds: of the task, when renewal of the lease ends; as in Cloud Run, 600 by default.
        max_retries: of the task; as in Cloud Run, 3 by default.
        task_attempt: 0, 1, ...; None: Cloud Run's CLOUD_RUN_TASK_ATTEMPT.
        settings: other than the environment's.
        store: other than the one that DEDUP_STORE names.
        clock: other than the process's.

    Raises:
        LeaseLost: there is nothing to go on with: the run is over, or another attempt's. End the task well, or it is retried.
        StoreUnavailable: the store can't be asked, or can't record what the run has asked for with `on_commit`.
    """
    settings = settings if settings is not None else handler._settings
    store = store if store is not None else handler._store
    clock = clock if clock is not None else handler._clock
    if task_attempt is None:
        task_attempt = int(os.environ.get("CLOUD_RUN_TASK_ATTEMPT", "0"))

    claim = _claim_again(store, run_id, attempt_id, settings.retention_seconds)
    lease = Lease(store, claim, renews=True, ends_at=clock.monotonic() + timeout_seconds, clock=clock)
    deadline = clock.utcnow() + timedelta(seconds=timeout_seconds)
    run = Run(claim, lease, body=b"", deadline=deadline, supports_effects=store.supports_effects)
    attempt = handler.Attempt(store, claim, lease, handler.FINISH_SECONDS, releases=False)
    try:
        with lease:
            yield run
        outcome, fault = attempt.complete(os.environ.get("CLOUD_RUN_EXECUTION"), run.effects)
        extra = {"run_id": run_id, "job_name": claim.job_name, "attempt_id": attempt_id, "outcome": outcome.name}
        log.log(outcome.level, "%s: %s", claim.job_name, outcome.message or outcome.body, extra=extra)
        if outcome.status != 200:
            raise fault if fault is not None else LeaseLost(f"run {run_id} was another attempt's when its work was done")
    except BaseException as raised:
        if not lease.lost and (task_attempt >= max_retries or isinstance(raised, PermanentError)):
            attempt.fail(raised)
        raise


def _claim_again(store: RunStore, run_id: str, attempt_id: str, retention_seconds: int) -> Claim:
    """Renews the lease of a run that is still this attempt's, which also keeps its job from releasing it."""
    record = store.get_run(run_id)
    if record is None:
        raise LeaseLost(f"there is nothing to go on with: run {run_id} has no record")
    if not record.is_held_by(attempt_id) or not record.lease_seconds:
        whose = "another attempt's" if record.attempt_id != attempt_id else record.status or "beyond reading"
        raise LeaseLost(f"there is nothing to go on with: run {run_id} is {whose}")
    claim = Claim(
        run_id=run_id,
        attempt_id=attempt_id,
        lease_seconds=int(record.lease_seconds),
        retention_seconds=retention_seconds,
        job_name=record.job_name or "",
        schedule_time=record.schedule_time or record.updated_at,
        scope=record.scope or "",
    )
    claim.found(record)
    if not store.renew_run(claim):
        raise LeaseLost(f"there is nothing to go on with: run {run_id} is another attempt's")
    return claim
