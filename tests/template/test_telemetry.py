"""Log lines, as Cloud Logging reads them."""

from __future__ import annotations

import contextlib
import io
import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from werkzeug.datastructures import Headers

from dedup import telemetry

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
TRACE_FIELD = "logging.googleapis.com/trace"
SPAN_FIELD = "logging.googleapis.com/spanId"


@pytest.fixture(autouse=True)
def configured() -> Iterator[None]:
    """The logger set up as in production, and put back afterwards."""
    log = telemetry.log
    before = log.handlers, log.level, log.propagate
    telemetry.configure("INFO")
    yield
    log.handlers, log.level, log.propagate = before


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Any:
    """Reads what has been logged: each line must be one JSON object."""

    def read() -> list[dict[str, Any]]:
        out, err = capsys.readouterr()
        assert err == ""
        return [json.loads(line) for line in out.splitlines()]

    return read


@pytest.mark.parametrize("severity", ["INFO", "WARNING", "ERROR"])
def test_a_line_is_one_object(lines: Any, severity: str) -> None:
    """A line has the severity and message that Cloud Logging looks for, the given fields, and nothing else."""
    telemetry.log.log(getattr(logging, severity), "run %s", "r1", extra={"run_id": "r1", "milliseconds": 1.5, "attempt": None})
    assert lines() == [{"severity": severity, "message": "run r1", "run_id": "r1", "milliseconds": 1.5}]


def test_values_of_any_kind_are_told(lines: Any) -> None:
    """A datetime is told as RFC 3339, and what JSON doesn't know as its text."""
    when = datetime(2026, 10, 16, 12, tzinfo=UTC)
    telemetry.log.info("x", extra={"when": when, "what": {1: ValueError("v")}, "falsy": 0})
    assert lines() == [
        {"severity": "INFO", "message": "x", "when": "2026-10-16T12:00:00+00:00", "what": {"1": "v"}, "falsy": 0}
    ]


@pytest.mark.parametrize("text", ["two\nlines", "\r\n", "\u2028\x85\x0b", '"quoted" \\', "\ud800", "%s", "é日本"])
def test_a_message_never_breaks_its_line(lines: Any, text: str) -> None:
    """Whatever a message contains, it arrives whole, on one line."""
    telemetry.log.info("%s", text)
    assert [line["message"] for line in lines()] == [text]


def test_a_stack_trace_is_in_its_line(lines: Any) -> None:
    """An exception's whole trace is a field of the one line: it can't be torn into entries of their own."""
    try:
        raise ValueError("out of\nluck") from KeyError("cause")
    except ValueError as raised:
        telemetry.log.error("failed", exc_info=raised)
    [line] = lines()
    assert line["message"] == "failed"
    assert line["stack_trace"].startswith("KeyError: 'cause'\n")
    assert "in test_a_stack_trace_is_in_its_line" in line["stack_trace"]
    assert line["stack_trace"].endswith("ValueError: out of\nluck\n")


def test_without_an_exception_there_is_no_stack_trace(lines: Any) -> None:
    """exc_info outside of an exception adds nothing."""
    telemetry.log.error("failed", exc_info=True)
    assert "stack_trace" not in lines()[0]


def test_writes_to_standard_output_as_it_is_now() -> None:
    """The framework exchanges sys.stdout for each request: a line goes to the one in force when it is written."""
    for _ in range(2):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            telemetry.log.info("here")
        assert json.loads(out.getvalue())["message"] == "here"


def test_configuring_twice_writes_once(lines: Any) -> None:
    """A module that is imported again doesn't double the lines."""
    telemetry.configure("INFO")
    telemetry.log.info("once")
    assert len(lines()) == 1


def test_leaves_the_root_logger_alone(lines: Any) -> None:
    """Our lines don't reach the root logger, and what it does is the fork's own matter."""
    seen: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = seen.append  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    try:
        telemetry.log.error("ours")
    finally:
        logging.getLogger().removeHandler(handler)
    assert seen == []
    assert len(lines()) == 1


@pytest.mark.parametrize(("level", "messages"), [("DEBUG", ["d", "i"]), ("INFO", ["i"]), ("WARNING", [])])
def test_the_level_decides_what_is_written(lines: Any, level: str, messages: list[str]) -> None:
    """What is below DEDUP_LOG_LEVEL isn't written."""
    telemetry.configure(level)
    telemetry.log.debug("d")
    telemetry.log.info("i")
    assert [line["message"] for line in lines()] == messages


@pytest.mark.parametrize(
    ("headers", "trace", "span"),
    [
        ({"traceparent": f"00-{TRACE}-{SPAN}-01"}, TRACE, SPAN),
        ({"Traceparent": f"00-{TRACE}-{SPAN}-00"}, TRACE, SPAN),
        ({"X-Cloud-Trace-Context": f"{TRACE}/255;o=1"}, TRACE, "00000000000000ff"),
        ({"x-cloud-trace-context": f"{TRACE}/18446744073709551615"}, TRACE, "f" * 16),
        ({"X-Cloud-Trace-Context": f"{TRACE};o=0"}, TRACE, None),
        ({"X-Cloud-Trace-Context": TRACE}, TRACE, None),
        ({"traceparent": f"00-{TRACE}-{SPAN}-01", "X-Cloud-Trace-Context": f"{'0' * 31}1/1"}, TRACE, SPAN),
        ({"traceparent": "junk", "X-Cloud-Trace-Context": f"{TRACE}/255"}, TRACE, "00000000000000ff"),
    ],
)
@pytest.mark.parametrize("project", ["prod", None])
def test_a_line_is_tied_to_its_requests_trace(
    monkeypatch: pytest.MonkeyPatch, headers: dict[str, str], trace: str, span: str | None, project: str | None
) -> None:
    """Trace and span come from `traceparent`, else from Google's older header; the project is named where it is known."""
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)
    if project is not None:
        monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", project)
        trace = f"projects/prod/traces/{trace}"
    expected = {TRACE_FIELD: trace} | ({SPAN_FIELD: span} if span is not None else {})
    assert telemetry.trace_fields(Headers(headers)) == expected


@pytest.mark.parametrize(
    "headers",
    [
        {},
        *(
            {"traceparent": value}
            for value in (
                "",
                f"00-{TRACE}-{SPAN}",
                f"00-{TRACE.upper()}-{SPAN}-01",
                f"00-{TRACE[1:]}-{SPAN}-01",
                f"00-{'g' * 32}-{SPAN}-01",
                f"00_{TRACE}_{SPAN}_01",
            )
        ),
        *(
            {"X-Cloud-Trace-Context": value}
            for value in (
                "",
                "junk",
                f"{TRACE}/",
                f"{TRACE}/x",
                f"{TRACE}/-1",
                f"{TRACE}/\u0661",
                f"{TRACE}/{'9' * 21}",
                TRACE[1:],
            )
        ),
    ],
    ids=lambda headers: ascii(headers).replace("\\", "|"),
)
def test_a_malformed_trace_is_passed_over(headers: dict[str, str]) -> None:
    """A header that can't be read ties the line to nothing, and harms nothing."""
    assert telemetry.trace_fields(Headers(headers)) == {}
