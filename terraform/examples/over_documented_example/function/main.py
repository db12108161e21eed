"""The job as it was: its run_job_logic(), called by this repository's handler."""

from flask import Request, Response

import dedup


def run_job_logic(run: dedup.Run) -> str:
    """Does the work of one scheduled run."""
    return f"worked on {run.schedule_time:%Y-%m-%d %H:%M}"


def handle_scheduled_job(request: Request) -> Response:
    """Cloud Scheduler's target."""
    return dedup.handle(request, run_job_logic)
