"""What a delivery tells of itself: a log line, and with OpenTelemetry set up, spans and metrics.

Lines are as Cloud Logging reads them, one JSON object each: https://cloud.google.com/logging/docs/structured-logging.

OpenTelemetry's API is used where the process has imported it, which whoever sets up an SDK has done. Elsewhere nothing is
imported and nothing is made: the cold start and each delivery cost what they did.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO

from dedup.delivery import JOB_NAME_HEADER
from dedup.record import Decision, Ending, RunRecord
from dedup.stores import Claim, RunStore

if TYPE_CHECKING:
    from flask import Request
    from opentelemetry.context import Context
    from opentelemetry.trace import Span
    from werkzeug.datastructures import Headers

log = logging.getLogger("dedup")

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-[0-9a-f]{2}")
_CLOUD_TRACE = re.compile(r"(?P<trace>[0-9a-f]{32})(?:/(?P<span>\d{1,20}))?(?:;.*)?", re.ASCII)
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 1800, 3600)
"""Bounds of the histograms' buckets, from an RPC to the longest job."""

_ORDINARY = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


def configure(level: str) -> None:
    """Lets the logger `dedup` write its lines to standard output, whatever else the process does with logging.

    Args:
        level: DEBUG, INFO, WARNING or ERROR.
    """
    handler = _Stdout()
    handler.setFormatter(JsonFormatter())
    log.handlers = [handler]
    log.setLevel(level)
    log.propagate = False


def trace_fields(headers: Headers) -> dict[str, str]:
    """What ties a line to the request's own log entry: its trace, from `traceparent` or `X-Cloud-Trace-Context`.

    Args:
        headers: the request's.
    """
    span = _current_span()
    if span is not None:
        context = span.get_span_context()
        return _trace_fields(f"{context.trace_id:032x}", f"{context.span_id:016x}")
    match = _TRACEPARENT.fullmatch(headers.get("traceparent", ""))
    if match is not None:
        return _trace_fields(match["trace"], match["span"])
    match = _CLOUD_TRACE.fullmatch(headers.get("X-Cloud-Trace-Context", ""))
    if match is not None:
        return _trace_fields(match["trace"], f"{int(match['span']):016x}" if match["span"] else "")
    return {}


def _trace_fields(trace: str, span: str) -> dict[str, str]:
    project = os.environ.get("GOOGLE_CLOUD_PROJECT")
    fields = {"logging.googleapis.com/trace": f"projects/{project}/traces/{trace}" if project else trace}
    return fields | {"logging.googleapis.com/spanId": span} if span else fields


def request_fields(request: Request, status: int, seconds: float) -> dict[str, Any]:
    """The request, under the name by which Cloud Logging shows one; without its query, which may hold a secret.

    Args:
        request: the delivery.
        status: of the answer.
        seconds: how long the answer took.
    """
    told = {
        "requestMethod": request.method,
        "requestUrl": request.path,
        "status": status,
        "userAgent": request.headers.get("User-Agent"),
        "latency": f"{seconds:.3f}s",
    }
    return {"httpRequest": {name: value for name, value in told.items() if value is not None}}


def label_fields(claim: Claim | None, outcome: str) -> dict[str, Any]:
    """What Cloud Logging indexes: which run, of which job, and how its delivery ended."""
    about_run = {} if claim is None else {"run_id": claim.run_id, "job_name": claim.job_name}
    return {"logging.googleapis.com/labels": {**about_run, "outcome": outcome}}


class Watch:
    """Watches one delivery: a span with children for claim, job, renewals and finish, and the metrics.

    What OpenTelemetry raises is logged and passed over: it decides nothing here.

    Args:
        request: the delivery.
    """

    def __init__(self, request: Request) -> None:
        self._request = request
        self._open = ExitStack()
        self._context: Context | None = None
        self._span: Span | None = None

    def begin(self) -> None:
        """Begins the delivery's span, below the one of an instrumented framework, or of the caller that `traceparent` names."""
        trace = sys.modules.get("opentelemetry.trace")
        if trace is not None:
            with _harmless():
                if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):  # else nobody would see them
                    self._begin()

    def _begin(self) -> None:
        from opentelemetry import context, propagate, trace

        instrumented = _current_span() is not None
        self._span = self._open.enter_context(
            trace.get_tracer("dedup").start_as_current_span(
                "dedup.delivery",
                context=None if instrumented else propagate.extract(self._request.headers),
                kind=trace.SpanKind.INTERNAL if instrumented else trace.SpanKind.SERVER,
                attributes={
                    "faas.trigger": "timer" if JOB_NAME_HEADER in self._request.headers else "http",
                    "http.request.method": self._request.method,
                    "url.path": self._request.path,
                },
            )
        )
        self._context = context.get_current()

    def end(self, claim: Claim | None, outcome: str, status: int) -> None:
        """Ends the delivery's span, and counts it.

        Args:
            claim: what it has claimed, or tried to; None: it got no run_id.
            outcome: how it ended.
            status: of the answer.
        """
        _measure("deliveries", 1, {"dedup.outcome": outcome} | _job(claim))
        with _harmless():
            if self._span is not None:
                self._span.set_attributes(_outcome_attributes(claim, outcome, status))
                if status >= 500:
                    self._span.set_status(sys.modules["opentelemetry.trace"].StatusCode.ERROR, outcome)
            self._open.close()

    def store(self, store: RunStore) -> RunStore:
        """The store, whose calls are spans below this delivery's, whichever thread makes them."""
        return _WatchedStore(store, self) if self._span is not None or "opentelemetry.metrics" in sys.modules else store

    def job(self, claim: Claim, now: datetime) -> Step:
        """Watches the job: what it does is below its span.

        Args:
            claim: the attempt's.
            now: this instance's clock, from which the run's lag is told.
        """
        lag = (now - claim.schedule_time).total_seconds()
        if lag >= 0:  # below, it was forced by hand
            _measure("lag", lag, _job(claim))
        return self.step("job", claim)

    def step(self, name: str, claim: Claim) -> Step:
        """Watches one step of a delivery, for as long as a `with` lasts."""
        return Step(name, claim, self._context)


class Step:
    """One step of a delivery: a span, and where there is a histogram of its name, its length.

    Args:
        name: `claim`, `job`, `renew` or `finish`.
        claim: the attempt's.
        context: the delivery's span; None: there is none.
    """

    def __init__(self, name: str, claim: Claim, context: Context | None) -> None:
        self._name = name
        self._claim = claim
        self._context = context
        self._open = ExitStack()
        self._span: Span | None = None
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        if self._context is not None:
            with _harmless():
                tracer = sys.modules["opentelemetry.trace"].get_tracer("dedup")
                self._span = self._open.enter_context(
                    tracer.start_as_current_span(f"dedup.{self._name}", context=self._context)
                )
        return self

    def tell(self, name: str, value: str | bool) -> None:
        """Sets an attribute of the span."""
        if self._span is not None:
            with _harmless():
                self._span.set_attribute(f"dedup.{name}", value)

    def __exit__(self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None) -> None:
        with _harmless():
            self._open.__exit__(kind, raised, trace)
        _measure(self._name, time.monotonic() - self._began, _job(self._claim))


class _WatchedStore:
    """A RunStore that tells a Watch of each call."""

    def __init__(self, store: RunStore, watch: Watch) -> None:
        self._store = store
        self._watch = watch
        self.supports_effects = store.supports_effects

    def claim_run(self, claim: Claim) -> Decision:
        with self._watch.step("claim", claim) as step:
            decision = self._store.claim_run(claim)
            step.tell("decision", decision.value)
        return decision

    def renew_run(self, claim: Claim) -> bool:
        with self._watch.step("renew", claim) as step:
            held = self._store.renew_run(claim)
            step.tell("held", held)
        return held

    def finish_run(self, claim: Claim, ending: Ending, **what: Any) -> bool:
        with self._watch.step("finish", claim) as step:
            step.tell("ending", ending.value)
            recorded = self._store.finish_run(claim, ending, **what)
            step.tell("recorded", recorded)
        return recorded

    def get_run(self, run_id: str) -> RunRecord | None:
        return self._store.get_run(run_id)


def _outcome_attributes(claim: Claim | None, outcome: str, status: int) -> dict[str, str | int]:
    told: dict[str, str | int] = {"dedup.outcome": outcome, "http.response.status_code": status}
    if status >= 500:
        told["error.type"] = outcome
    if claim is not None:
        told["dedup.run_id"] = claim.run_id
        told["dedup.job_name"] = claim.job_name
        told["dedup.schedule_time"] = claim.schedule_time.isoformat()
        told["dedup.attempt_id"] = claim.attempt_id
        told["dedup.attempt"] = claim.attempts
    return told


def _measure(name: str, value: float, attributes: dict[str, str]) -> None:
    """Adds to the metric of that name, if metrics are set up and there is one."""
    if "opentelemetry.metrics" in sys.modules:
        with _harmless():
            instrument = _instruments().get(name)
            if instrument is not None:
                instrument(value, attributes)


@cache
def _instruments() -> dict[str, Callable[[float, dict[str, str]], None]]:
    from opentelemetry import metrics

    meter = metrics.get_meter("dedup")

    def histogram(name: str, told: str) -> Callable[[float, dict[str, str]], None]:
        return meter.create_histogram(name, unit="s", description=told, explicit_bucket_boundaries_advisory=_SECONDS).record

    return {
        "deliveries": meter.create_counter("dedup.deliveries", unit="{delivery}", description="Deliveries by outcome.").add,
        "claim": histogram("dedup.claim.duration", "How long the store took to give or refuse a run."),
        "job": histogram("dedup.job.duration", "How long the job took."),
        "lag": histogram("dedup.run.lag", "From a run's scheduled time to the start of the job."),
    }


def _job(claim: Claim | None) -> dict[str, str]:
    return {} if claim is None else {"dedup.job_name": claim.job_name}


@contextmanager
def _harmless() -> Iterator[None]:
    try:
        yield
    except Exception as fault:  # an exporter's or a processor's own: the run goes on
        log.warning("OpenTelemetry failed: %r", fault)


def _current_span() -> Span | None:
    """The span that is under way in this thread, if there is one."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    span: Span = trace.get_current_span()
    return span if span.get_span_context().is_valid else None


class _Stdout(logging.StreamHandler[TextIO]):
    """Standard output as it is when a line is written: the framework exchanges it for each request."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stdout


class JsonFormatter(logging.Formatter):
    """A record as one JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Makes the line, of the fields that Cloud Logging knows and of all that was given as `extra`."""
        extra = {name: value for name, value in vars(record).items() if name not in _ORDINARY and value is not None}
        line: dict[str, Any] = {"severity": record.levelname, "message": record.getMessage(), **extra}
        if record.exc_info and record.exc_info[1] is not None:
            line["stack_trace"] = "".join(traceback.format_exception(record.exc_info[1]))
        return json.dumps(line, default=_text)


def _text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
