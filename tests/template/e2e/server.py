"""functions-framework as a process of its own: the shape that is deployed."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dedup.delivery import JOB_NAME_HEADER, SCHEDULE_TIME_HEADER
from tests.template import ROOT
from tests.template.emulator import free_port

LEDGER_JOB = Path(__file__).parent / "jobs" / "ledger.py"
START_SECONDS = 30

_NOT_INHERITED = (
    "DEDUP_",
    "FIRESTORE_",
    "SPANNER_",
    "GOOGLE_",
    "GCLOUD_",
    "K_",
    "GAE_",
    "CLOUD_RUN_",
    "FUNCTION_",
    "GUNICORN_",
)
_NOR = ("THREADS", "WORKERS", "PORT", "HOST", "DEBUG", "THREADED_TIMEOUT_ENABLED")


class NotStarted(Exception):
    """The process ended before it answered anything."""

    def __init__(self, exit_code: int, output: str) -> None:
        super().__init__(f"functions-framework ended with {exit_code}:\n{output}")
        self.exit_code = exit_code
        self.output = output


@dataclass(frozen=True)
class Reply:
    """What came back for one request."""

    status: int
    body: str
    headers: Mapping[str, str]
    """By name in lower case."""
    seconds: float


class Server:
    """One instance: gunicorn's master and its worker, in a process group of their own.

    Args:
        process: the master, which leads the group.
        port: on 127.0.0.1.
        log: the file that takes its output.
    """

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process = process
        self.port = port
        self._log = log

    def deliver(
        self,
        job: str = "nightly",
        schedule_time: str = "2026-10-16T12:00:00Z",
        body: Mapping[str, Any] | None = None,
        *,
        timeout: float = 60,
    ) -> Reply:
        """Delivers a run as Cloud Scheduler does."""
        headers = [(JOB_NAME_HEADER, job), (SCHEDULE_TIME_HEADER, schedule_time)]
        return self.request(headers, json.dumps(body).encode() if body is not None else b"", timeout=timeout)

    def request(self, headers: Sequence[tuple[str, str]], body: bytes = b"", *, timeout: float = 60) -> Reply:
        """Sends these headers, repeated ones too, exactly as they are."""
        return request(self.port, headers, body, timeout=timeout)

    @property
    def output(self) -> str:
        """What it has written so far."""
        return self._log.read_text(errors="replace")

    def log_lines(self, **fields: Any) -> list[dict[str, Any]]:
        """Its structured log lines that have these fields."""
        return [line for line in structured(self.output) if fields.items() <= line.items()]

    @property
    def workers(self) -> list[int]:
        """The processes that the master has forked."""
        listing = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
        pairs = (map(int, line.split()) for line in listing.splitlines())
        return [pid for pid, parent in pairs if parent == self.process.pid]

    def kill_worker(self, signal_number: int = signal.SIGKILL) -> int:
        """Lets the worker crash, whose master starts the next one at once. Says how many there were: 0 while it is starting."""
        workers = self.workers
        for pid in workers:
            with suppress(ProcessLookupError):
                os.kill(pid, signal_number)
        return len(workers)

    def kill(self) -> None:
        """Ends it as a machine that loses its power does."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def terminate(self) -> None:
        """Asks it to drain and end, as Cloud Run does."""
        self.process.terminate()


def request(port: int, headers: Sequence[tuple[str, str]], body: bytes = b"", *, timeout: float = 60) -> Reply:
    """Posts to an instance and reads the whole answer.

    Raises:
        OSError: no answer, or none in time.
        http.client.HTTPException: half of one.
    """
    began = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        send(connection, headers, body)
        answer = connection.getresponse()
        text = answer.read().decode()
        return Reply(answer.status, text, {k.lower(): v for k, v in answer.getheaders()}, time.monotonic() - began)
    finally:
        connection.close()


def send(connection: http.client.HTTPConnection, headers: Sequence[tuple[str, str]], body: bytes) -> None:
    """Sends the request and reads nothing."""
    connection.putrequest("POST", "/")
    for name, value in [*headers, ("Content-Length", str(len(body))), ("Connection", "close")]:
        connection.putheader(name, value)
    connection.endheaders(body)


def structured(output: str) -> Iterator[dict[str, Any]]:
    """The JSON objects among the lines of an output."""
    for line in output.splitlines():
        if line.startswith("{"):
            with suppress(ValueError):  # the last line of a process that was killed
                yield json.loads(line)


def deliver_until_200(server: Server, job: str, body: Mapping[str, Any] | None = None, *, within: float = 15) -> list[Reply]:
    """Retries a delivery ten times a second; gives every answer, the last of which is the 200.

    A connection that fails is retried as well: a worker that crashes drops those that wait for it.
    """
    replies: list[Reply] = []
    give_up_at = time.monotonic() + within
    while not replies or replies[-1].status != 200:
        assert time.monotonic() < give_up_at, f"no 200 in {within} s, but {[reply.status for reply in replies]}"
        if replies:
            time.sleep(0.1)
        with suppress(OSError, http.client.HTTPException):
            replies.append(server.deliver(job, body=body))
    return replies


@contextmanager
def serving(environ: Mapping[str, str], log: Path, source: Path = LEDGER_JOB) -> Iterator[Server]:
    """An instance that answers, for as long as the `with` lasts.

    Raises:
        NotStarted: it ended instead.
    """
    server = start(environ, log, source)
    try:
        await_answer(server)
        yield server
    finally:
        server.kill()


def start(environ: Mapping[str, str], log: Path, source: Path = LEDGER_JOB) -> Server:
    """Starts an instance and waits for nothing; the caller ends it."""
    port = free_port()
    framework = Path(sys.executable).with_name("functions-framework")
    with log.open("ab") as output:
        process = subprocess.Popen(
            [framework, "--target", "handle_scheduled_job", "--source", source, "--host", "127.0.0.1", "--port", str(port)],
            cwd=ROOT,
            env={**inherited(), "PYTHONPATH": str(ROOT), **environ},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    return Server(process, port, log)


def await_answer(server: Server) -> None:
    """Waits until an instance answers requests.

    Raises:
        NotStarted: it ended instead.
    """
    give_up_at = time.monotonic() + START_SECONDS
    while time.monotonic() < give_up_at:
        if server.process.poll() is not None:
            raise NotStarted(server.process.returncode, server.output)
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=START_SECONDS)
        try:
            connection.request("GET", "/robots.txt")  # the framework answers it without the function
            connection.getresponse()
            return
        except (OSError, http.client.HTTPException):
            time.sleep(0.05)
        finally:
            connection.close()
    raise RuntimeError(f"functions-framework did not answer within {START_SECONDS} s:\n{server.output}")


def inherited() -> dict[str, str]:
    """The environment without anything that the framework, the library or Google's clients read."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED) and name not in _NOR}
