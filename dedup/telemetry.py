"""Log lines as Cloud Logging reads them: one JSON object a line, one line a delivery.

Fields: https://cloud.google.com/logging/docs/structured-logging
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import traceback
from datetime import datetime
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from werkzeug.datastructures import Headers

log = logging.getLogger("dedup")

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-[0-9a-f]{2}")
_CLOUD_TRACE = re.compile(r"(?P<trace>[0-9a-f]{32})(?:/(?P<span>\d{1,20}))?(?:;.*)?", re.ASCII)
_ORDINARY = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


def configure(level: str) -> None:
    """Lets the logger `dedup` write its lines to standard output, whatever else the process does with logging.

    Args:
        level: DEBUG, INFO, WARNING or ERROR.
    """
    handler = _Stdout()
    handler.setFormatter(_JsonFormatter())
    log.handlers = [handler]
    log.setLevel(level)
    log.propagate = False


def trace_fields(headers: Headers) -> dict[str, str]:
    """What ties a line to the request's own log entry: its trace, from `traceparent` or `X-Cloud-Trace-Context`.

    Args:
        headers: the request's.
    """
    match = _TRACEPARENT.fullmatch(headers.get("traceparent", ""))
    span = match["span"] if match else ""
    if match is None:
        match = _CLOUD_TRACE.fullmatch(headers.get("X-Cloud-Trace-Context", ""))
        if match is None:
            return {}
        span = f"{int(match['span']):016x}" if match["span"] else ""
    project = os.environ.get("GOOGLE_CLOUD_PROJECT")
    trace = f"projects/{project}/traces/{match['trace']}" if project else match["trace"]
    fields = {"logging.googleapis.com/trace": trace}
    return fields | {"logging.googleapis.com/spanId": span} if span else fields


class _Stdout(logging.StreamHandler[TextIO]):
    """Standard output as it is when a line is written: the framework exchanges it for each request."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stdout


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        extra = {name: value for name, value in vars(record).items() if name not in _ORDINARY and value is not None}
        line: dict[str, Any] = {"severity": record.levelname, "message": record.getMessage(), **extra}
        if record.exc_info and record.exc_info[1] is not None:
            line["stack_trace"] = "".join(traceback.format_exception(record.exc_info[1]))
        return json.dumps(line, default=_text)


def _text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
