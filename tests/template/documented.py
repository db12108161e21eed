"""The documented example, written anew from its description: what the tests compare with, and the benchmarks' baseline.

It is not for production, as the page itself says: "Deduplicate job requests",
https://cloud.google.com/scheduler/docs. Run it as it would be deployed:

    FIRESTORE_EMULATOR_HOST=127.0.0.1:8080 GOOGLE_CLOUD_PROJECT=demo \
        functions-framework --source tests/template/documented.py --target handle_scheduled_job
"""

from __future__ import annotations

import hashlib
import uuid
from datetime import UTC, datetime, timedelta

import functions_framework
from flask import Request
from google.cloud import firestore

COLLECTION = "scheduler_runs"
LEASE = timedelta(minutes=5)
RETENTION = timedelta(days=1)

client = firestore.Client()


@firestore.transactional
def claim_run(transaction: firestore.Transaction, ref: firestore.DocumentReference, attempt_id: str) -> str:
    """Claims a run.

    Returns:
        `claimed`, or why it isn't: `completed` or `in_progress`.
    """
    snapshot = ref.get(transaction=transaction)
    now = datetime.now(UTC)
    if snapshot.exists:
        if snapshot.get("status") == "completed":
            return "completed"
        if snapshot.get("lease_expires") > now:
            return "in_progress"
    transaction.set(
        ref,
        {"status": "in_progress", "attempt_id": attempt_id, "lease_expires": now + LEASE, "expire_at": now + RETENTION},
    )
    return "claimed"


@firestore.transactional
def finish_run(transaction: firestore.Transaction, ref: firestore.DocumentReference, attempt_id: str, succeeded: bool) -> None:
    """Marks a run completed, or deletes its record for a retry, if the record is still this attempt's."""
    snapshot = ref.get(transaction=transaction)
    if not snapshot.exists or snapshot.get("attempt_id") != attempt_id:
        return
    if succeeded:
        transaction.update(ref, {"status": "completed"})
    else:
        transaction.delete(ref)


def run_job_logic() -> None:
    """The job: to be replaced."""


@functions_framework.http
def handle_scheduled_job(request: Request) -> tuple[str, int]:
    """Cloud Scheduler's target."""
    job_name = request.headers.get("X-CloudScheduler-JobName")
    schedule_time = request.headers.get("X-CloudScheduler-ScheduleTime")
    if not job_name or not schedule_time:
        return "Missing Cloud Scheduler headers", 400

    run_id = hashlib.sha256(f"{job_name}/{schedule_time}".encode()).hexdigest()
    ref = client.collection(COLLECTION).document(run_id)
    attempt_id = uuid.uuid4().hex

    claimed = claim_run(client.transaction(), ref, attempt_id)
    if claimed == "completed":
        return "Duplicate run skipped", 200
    if claimed == "in_progress":
        return "Run in progress", 409

    try:
        run_job_logic()
    except Exception:
        finish_run(client.transaction(), ref, attempt_id, succeeded=False)
        raise
    finish_run(client.transaction(), ref, attempt_id, succeeded=True)
    return "Run processed", 200
