"""The same job on App Engine, whose own headers say that Cloud Scheduler calls."""

from flask import Request, Response

import dedup


def run_job_logic(run: dedup.Run) -> str | None:
    """Your job, as in the repository's main.py."""
    print(f"{run.job_name} of {run.schedule_time:%Y-%m-%d %H:%M} UTC, attempt {run.attempt}")
    return "replace this with your job"


def handle_scheduled_job(request: Request) -> Response:
    """The App Engine target: 403 without X-Appengine-Cron, and never 503, which App Engine retries without counting."""
    return dedup.handle(request, run_job_logic)
