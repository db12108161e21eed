"""Starts one execution of a workflow for each scheduled run."""

import os

from flask import Request, Response

import dedup
from dedup.forward import start_workflow_execution

WORKFLOW = os.environ["WORKFLOW"]  # projects/PROJECT/locations/LOCATION/workflows/WORKFLOW


def run_job_logic(run: dedup.Run) -> str:
    """Starts the workflow with the day to work on. The run's id goes along, and the workflow checks it again."""
    return start_workflow_execution(run, WORKFLOW, {"day": f"{run.schedule_time:%Y-%m-%d}"})


def handle_scheduled_job(request: Request) -> Response:
    """Cloud Scheduler's target, in place of the Workflows API itself."""
    return dedup.handle(request, run_job_logic)
