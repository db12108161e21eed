"""Starts one execution of a Cloud Run job for each scheduled run."""

import os

from flask import Request, Response

import dedup
from dedup.forward import start_cloud_run_job

JOB = os.environ["JOB"]  # projects/PROJECT/locations/LOCATION/jobs/JOB


def run_job_logic(run: dedup.Run) -> str:
    """Starts the job with the day to work on. Its container finds the run's id in RUN_ID, and sends it wherever it writes."""
    return start_cloud_run_job(run, JOB, env={"DAY": f"{run.schedule_time:%Y-%m-%d}"})


def handle_scheduled_job(request: Request) -> Response:
    """Cloud Scheduler's target, in place of the Cloud Run API itself."""
    return dedup.handle(request, run_job_logic)
