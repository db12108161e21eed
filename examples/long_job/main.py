"""Hands each scheduled run over to a Cloud Run job, for work that takes longer than Cloud Scheduler waits."""

import os

from flask import Request, Response

import dedup
from dedup.forward import start_cloud_run_job

JOB = os.environ["JOB"]  # projects/PROJECT/locations/LOCATION/jobs/JOB
START_SECONDS = 600  # how long a container may take to start, and how soon a dead job's run may be taken over


def run_job_logic(run: dedup.Run) -> str:
    """Hands the run over, then starts the job: in this order, so that the run is the job's when it begins."""
    run.hand_over(lease_seconds=START_SECONDS)
    return start_cloud_run_job(run, JOB, look_first=False)  # there is none yet: ATTEMPT_ID is new with each claim


def handle_scheduled_job(request: Request) -> Response:
    """Cloud Scheduler's target. It answers 202, and the run is done when the job is."""
    return dedup.handle(request, run_job_logic)
