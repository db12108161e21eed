"""The fewest round trips of a run which leaves a record: two commits, and nothing that decides."""

import hashlib

from commits import RawCommits
from flask import Request, Response
from job import work

commits = RawCommits()


def handle_scheduled_job(request: Request) -> Response:
    """Writes a record, does the job, marks the record."""
    key = f"{request.headers['X-CloudScheduler-JobName']}/{request.headers['X-CloudScheduler-ScheduleTime']}"
    run = commits.create(hashlib.sha256(key.encode()).hexdigest())
    work()
    commits.complete(run)
    return Response("Run processed", 200)
