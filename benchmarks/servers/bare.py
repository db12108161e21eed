"""A job without any deduplication."""

from flask import Request, Response
from job import work


def handle_scheduled_job(request: Request) -> Response:
    """Does the job."""
    work()
    return Response("Run processed", 200)
