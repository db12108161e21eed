"""Runs a Cloud Build trigger once for each scheduled run."""

import os

from flask import Request, Response

import dedup
from dedup.forward import start_build

TRIGGER = os.environ["TRIGGER"]  # projects/PROJECT/locations/LOCATION/triggers/ID


def run_job_logic(run: dedup.Run) -> str:
    """Builds what the trigger says. The build's steps find the run's id in $_RUN_ID."""
    return start_build(run, TRIGGER)


def handle_scheduled_job(request: Request) -> Response:
    """Cloud Scheduler's target, in place of the Cloud Build API itself."""
    return dedup.handle(request, run_job_logic)
