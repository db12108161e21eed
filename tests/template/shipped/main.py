"""Your scheduled job. Edit run_job_logic(); add the packages it imports to requirements.txt."""

from flask import Request, Response

import dedup


def run_job_logic(run: dedup.Run) -> str | None:
    """Does the work of one scheduled run.

    Raise to have Cloud Scheduler retry the run, and dedup.PermanentError not to. Send `run.id` with every call that changes
    something elsewhere: it is the same in each attempt at this run. What you return is kept with the run, as a short summary.
    """
    print(f"{run.job_name} of {run.schedule_time:%Y-%m-%d %H:%M} UTC, attempt {run.attempt}")
    return "replace this with your job"


def handle_scheduled_job(request: Request) -> Response:
    """Cloud Scheduler's target: each scheduled run is done once, however often it is delivered."""
    return dedup.handle(request, run_job_logic)
