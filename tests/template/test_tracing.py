"""Spans and metrics, as an OpenTelemetry SDK gets them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from flask import Flask, request
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import dedup
from dedup import telemetry
from dedup.settings import Settings
from dedup.stores import StoreUnavailable
from dedup.stores.sqlite import SQLiteRunStore
from tests.template import ROOT
from tests.template.clock import STARTS_AT, ManualClock

NOON = "2026-10-16T12:00:00Z"
HEADERS = {"X-CloudScheduler-JobName": "nightly", "X-CloudScheduler-ScheduleTime": NOON}
app = Flask(__name__)


@dataclass
class House:
    """A function with an SDK set up."""

    store: SQLiteRunStore
    clock: ManualClock
    exporter: InMemorySpanExporter
    reader: InMemoryMetricReader
    provider: TracerProvider

    def deliver(self, job: Any = lambda run: None, **headers: str) -> int:
        """Delivers a run, and gives the status of the answer."""
        with app.test_request_context("/hook?token=secret", method="POST", headers=HEADERS | headers):
            response = dedup.handle(request, job, settings=Settings(), store=self.store, clock=self.clock)
        return response.status_code

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        """The spans so far by name."""
        return {span.name: span for span in self.exporter.get_finished_spans()}

    def points(self, name: str) -> list[Any]:
        """The data points of a metric."""
        data = self.reader.get_metrics_data()
        found = [metric for r in data.resource_metrics for s in r.scope_metrics for metric in s.metrics] if data else []
        return [point for metric in found if metric.name == name for point in metric.data.data_points]


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    """An SDK for one test: the API takes a provider only once a process, so it is put in by hand."""
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    monkeypatch.setattr(metrics._internal, "_METER_PROVIDER", MeterProvider([reader]))
    telemetry._instruments.cache_clear()
    clock = ManualClock()
    yield House(
        SQLiteRunStore(tmp_path / "runs.db", clock=clock.timestamp, monotonic=clock.monotonic),
        clock,
        exporter,
        reader,
        provider,
    )
    telemetry._instruments.cache_clear()


def test_a_delivery_is_a_span_with_its_steps_below(house: House) -> None:
    """Claim, job and finish are children of the delivery's span, which says what came of which run."""
    assert house.deliver() == 200
    spans = house.spans
    assert list(spans) == ["dedup.claim", "dedup.job", "dedup.finish", "dedup.delivery"]
    delivery = spans.pop("dedup.delivery")
    assert delivery.parent is None
    assert delivery.kind is trace.SpanKind.SERVER
    for span in spans.values():
        assert span.parent is not None
        assert span.parent.span_id == delivery.context.span_id
    attributes = dict(delivery.attributes or {})
    assert len(str(attributes.pop("dedup.run_id"))) == 64
    assert len(str(attributes.pop("dedup.attempt_id"))) == 32
    assert attributes == {
        "faas.trigger": "timer",
        "http.request.method": "POST",
        "url.path": "/hook",
        "http.response.status_code": 200,
        "dedup.outcome": "processed",
        "dedup.job_name": "nightly",
        "dedup.schedule_time": "2026-10-16T12:00:00+00:00",
        "dedup.attempt": 1,
    }
    assert (spans["dedup.claim"].attributes or {})["dedup.decision"] == "claim"
    assert (spans["dedup.finish"].attributes or {}) == {"dedup.ending": "completed", "dedup.recorded": True}


def test_what_the_job_does_is_below_its_span(house: House) -> None:
    """Spans that the job makes are children of the job's."""

    def job(run: dedup.Run) -> None:
        with trace.get_tracer("fork").start_as_current_span("export"):
            pass

    house.deliver(job)
    parent = house.spans["export"].parent
    assert parent is not None
    assert parent.span_id == house.spans["dedup.job"].context.span_id


def test_a_renewal_is_a_span_in_whatever_thread(house: House) -> None:
    """A renewal, which a thread of its own makes, is below the delivery too."""
    house.deliver(lambda run: house.clock.advance(100))
    renewal = house.spans["dedup.renew"]
    assert renewal.parent is not None
    assert renewal.parent.span_id == house.spans["dedup.delivery"].context.span_id
    assert renewal.attributes == {"dedup.held": True}


def test_a_delivery_is_below_its_caller(house: House) -> None:
    """The span goes on with the trace that `traceparent` names; under an instrumented framework, it is inside of its span."""
    house.deliver(traceparent=f"00-{'a' * 32}-{'b' * 16}-01")
    span = house.spans["dedup.delivery"]
    assert span.parent is not None
    assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == ("a" * 32, "b" * 16)
    house.exporter.clear()
    with trace.get_tracer("framework").start_as_current_span("POST /") as framework:
        house.deliver(traceparent=f"00-{'a' * 32}-{'b' * 16}-01")
    span = house.spans["dedup.delivery"]
    assert span.parent is not None
    assert span.parent.span_id == framework.get_span_context().span_id
    assert span.kind is trace.SpanKind.INTERNAL


def test_a_failed_job_is_an_error_of_both_spans(house: House) -> None:
    """A job that raises leaves its exception in its span, and the delivery's outcome as its error."""

    def fail(run: dedup.Run) -> None:
        raise RuntimeError("no")

    assert house.deliver(fail) == 500
    spans = house.spans
    assert [event.name for event in spans["dedup.job"].events] == ["exception"]
    assert spans["dedup.job"].status.status_code is trace.StatusCode.ERROR
    assert spans["dedup.delivery"].status.status_code is trace.StatusCode.ERROR
    assert (spans["dedup.delivery"].attributes or {})["error.type"] == "job_failed"
    assert (spans["dedup.finish"].attributes or {})["dedup.ending"] == "released"


def test_a_refused_delivery_is_no_error(house: House) -> None:
    """What a caller does wrong is counted by its outcome, and is no error of the function's span."""
    assert house.deliver(**{"X-CloudScheduler-ScheduleTime": "soon"}) == 400
    span = house.spans["dedup.delivery"]
    assert span.status.status_code is trace.StatusCode.UNSET
    assert "dedup.run_id" not in (span.attributes or {})
    [point] = house.points("dedup.deliveries")
    assert dict(point.attributes) == {"dedup.outcome": "bad_delivery"}


def test_deliveries_are_counted_by_outcome(house: House) -> None:
    """A counter has each outcome of each job."""
    for _ in range(3):
        house.deliver()
    counted = {point.attributes["dedup.outcome"]: point.value for point in house.points("dedup.deliveries")}
    assert counted == {"processed": 1, "duplicate_skipped": 2}
    assert {point.attributes["dedup.job_name"] for point in house.points("dedup.deliveries")} == {"nightly"}


def test_lag_job_and_claim_are_measured(house: House) -> None:
    """Histograms in seconds have the lag from the scheduled time, the job's length and the claim's; a duplicate has no lag."""
    house.deliver()
    house.deliver()
    [lag] = house.points("dedup.run.lag")
    assert (lag.count, lag.sum) == (1, (STARTS_AT - STARTS_AT.replace(second=0)).total_seconds())
    [job] = house.points("dedup.job.duration")
    [claim] = house.points("dedup.claim.duration")
    assert (job.count, claim.count) == (1, 2)
    assert {3600, 0.005} < set(claim.explicit_bounds)


def test_a_run_that_was_forced_has_no_lag(house: House, caplog: pytest.LogCaptureFixture) -> None:
    """A run that comes before its time has no lag, and the SDK has nothing to complain of."""
    ahead = (STARTS_AT + timedelta(hours=1)).isoformat()
    assert house.deliver(**{"X-CloudScheduler-ScheduleTime": ahead}) == 200
    assert house.points("dedup.run.lag") == []
    assert [record for record in caplog.records if record.name.startswith("opentelemetry")] == []


def test_the_line_is_tied_to_the_span(house: House, capsys: pytest.CaptureFixture[str]) -> None:
    """With an SDK, the log line stands with the delivery's own span."""
    telemetry.configure("INFO")
    house.deliver()
    out = capsys.readouterr().out
    assert "secret" not in out  # which the request's query held
    line = json.loads(out.splitlines()[-1])
    context = house.spans["dedup.delivery"].context
    assert line["logging.googleapis.com/trace"].endswith(f"{context.trace_id:032x}")
    assert line["logging.googleapis.com/spanId"] == f"{context.span_id:016x}"


class Broken(SpanProcessor):
    """A processor that fails at every turn."""

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        """Fails."""
        raise RuntimeError("exporter broken")

    def on_end(self, span: ReadableSpan) -> None:
        """Fails."""
        raise RuntimeError("exporter broken")


def test_a_broken_sdk_decides_nothing(house: House) -> None:
    """Whatever OpenTelemetry raises, the run is done and recorded once, and the answer is the same."""
    house.provider.add_span_processor(Broken())
    began: list[int] = []
    for _ in range(2):
        assert house.deliver(lambda run: began.append(run.attempt)) == 200
    assert began == [1]


class Struck(SpanProcessor):
    """A worker's abort that strikes just as the job's span ends."""

    def on_end(self, span: ReadableSpan) -> None:
        """Strikes."""
        if span.name == "dedup.job":
            raise SystemExit


def test_an_abort_as_the_jobs_span_ends_releases_nothing(house: House) -> None:
    """A job that has returned is done, and is recorded as such, also when an abort strikes on the way out of its span."""
    house.provider.add_span_processor(Struck())
    began: list[int] = []
    with pytest.raises(SystemExit):
        house.deliver(lambda run: began.append(run.attempt))
    assert house.deliver(lambda run: began.append(run.attempt)) == 200
    assert began == [1]


def test_an_unreachable_store_is_an_error_of_the_claim(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim that fails leaves its fault in its span, and the job has none."""

    def down(*_: Any) -> None:
        raise StoreUnavailable("the disk is gone")

    monkeypatch.setattr(house.store, "claim_run", down)
    assert house.deliver() == 500
    assert house.spans["dedup.claim"].status.status_code is trace.StatusCode.ERROR
    assert "dedup.job" not in house.spans


WITHOUT_SDK = """
import sys
from flask import Flask, request
import dedup
headers = {"X-CloudScheduler-JobName": "n", "X-CloudScheduler-ScheduleTime": "2026-10-16T12:00:00Z"}
with Flask("f").test_request_context(method="POST", headers=headers):
    print(dedup.handle(request, lambda run: None).status_code)
print([name for name in sys.modules if name.startswith("opentelemetry.")])
"""


def test_without_an_sdk_nothing_is_imported(tmp_path: Path) -> None:
    """Where nobody has set OpenTelemetry up, a delivery imports none of it: the cold start is what it was."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SDK],
        cwd=ROOT,
        env={"DEDUP_STORE": f"sqlite:///{tmp_path}/runs.db", "DEDUP_LOG_LEVEL": "ERROR"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split() == ["200", "[]"]
