"""This project, as a fork deploys it."""

from flask import Request, Response
from job import work

import dedup


def run_job_logic(run: dedup.Run) -> None:
    """The job."""
    work()


def handle_scheduled_job(request: Request) -> Response:
    """Cloud Scheduler's target."""
    return dedup.handle(request, run_job_logic)
