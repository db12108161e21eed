"""`simulate` against a server, and against the template itself."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from flask import Flask, Response, request
from werkzeug.serving import make_server

import dedup
from dedup.cli import cli
from dedup.settings import Settings
from dedup.stores.sqlite import SQLiteRunStore
from tests.template.cli.test_scheduler import StillClock

NOON = "2026-10-16T12:00:00Z"
Answer = Callable[[], Response]


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], str]]:
    """Serves a function on 127.0.0.1 and gives its URL."""
    running = []

    def start(answer: Answer) -> str:
        app = Flask(__name__)
        app.add_url_rule("/", view_func=answer, methods=["POST"])
        server = make_server("127.0.0.1", 0, app, threaded=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        running.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server, thread in running:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's request log is of no interest."""
    monkeypatch.setattr("werkzeug.serving.WSGIRequestHandler.log", lambda *a, **k: None)


def simulate(url: str, *options: str) -> Result:
    """Runs the command with a clock that is 1,000 times as fast."""
    return CliRunner().invoke(cli, ["simulate", url, "--fast", "1000", "--attempt-deadline", "30m", *options])


def lines(done: Result) -> list[dict[str, Any]]:
    """What it prints with --json."""
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_one_run_is_delivered_and_done(serve: Callable[[Answer], str]) -> None:
    """With no option, this minute's run of `nightly` is delivered once, with no fault; a 2xx is exit code 0."""
    sent: list[dict[str, str]] = []

    def answer() -> Response:
        sent.append(dict(request.headers))
        return Response("Run processed")

    done = simulate(serve(answer))
    assert done.exit_code == 0
    assert "attempt 1  200 Run processed" in done.stdout
    assert done.stdout.rstrip().endswith("done")
    [headers] = sent
    assert headers["X-Cloudscheduler-Jobname"] == "nightly"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:00Z", headers["X-Cloudscheduler-Scheduletime"])
    assert headers["User-Agent"] == "Google-Cloud-Scheduler"
    assert "Authorization" not in headers


def test_retries_come_at_the_documented_times(serve: Callable[[Answer], str]) -> None:
    """5 retries, 5 s minimum, 5 doublings: waits of 5, 10, 20, 40 and 80 s, by a clock that keeps them; then exit code 1."""
    done = simulate(
        serve(lambda: Response("no", 500)), "--retry-count", "5", "--min-backoff", "5", "--max-doublings", "5", "--json"
    )
    assert done.exit_code == 1
    made = lines(done)
    assert [line["wait_seconds"] for line in made] == [5, 10, 20, 40, 80, None]
    assert [line["status"] for line in made] == [500] * 6
    times = [line["at_seconds"] for line in made]
    for line, later in zip(made, times[1:], strict=False):
        assert later - line["at_seconds"] >= line["wait_seconds"]


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that no slow machine can move on."""
    monkeypatch.setattr("dedup.cli.simulate.Clock", lambda fast: StillClock())


@pytest.mark.usefixtures("still")
def test_durations_have_units(serve: Callable[[Answer], str]) -> None:
    """Backoffs are read as 5 or 5s or 2m, and both limits decide."""
    done = simulate(
        serve(lambda: Response("no", 409)),
        "--min-backoff",
        "10s",
        "--max-backoff",
        "1m",
        "--max-retry-duration",
        "3m",
        "--json",
    )
    assert [line["wait_seconds"] for line in lines(done)] == [10, 20, 40, 60, None]


def test_the_template_does_a_troubled_run_once(serve: Callable[[Answer], str], tmp_path: Path) -> None:
    """Against the template: a job that fails twice, loses an answer and is delivered twice at once, is done once."""
    store, settings = SQLiteRunStore(tmp_path / "runs.db"), Settings()
    begun: list[int] = []

    def job(run: dedup.Run) -> None:
        begun.append(run.attempt)
        if len(begun) <= 2:
            raise RuntimeError("not yet")

    url = serve(lambda: dedup.handle(request, job, settings=settings, store=store))
    done = simulate(url, "--time", NOON, "--retry-count", "5", "--lose-reply", "3", "--duplicate", "4", "--json")
    assert done.exit_code == 0
    made = [(line["attempt"], line["status"], line["body"]) for line in lines(done)]
    assert made == [
        (1, 500, "error: job failed"),
        (2, 500, "error: job failed"),
        (3, 200, "Run processed"),
        (4, 200, "Duplicate run skipped"),
        (4, 200, "Duplicate run skipped"),
    ]
    assert len(begun) == 3


def test_an_answer_after_the_deadline_is_none(serve: Callable[[Answer], str]) -> None:
    """An answer that isn't there by the attempt deadline is waited for no longer."""
    may_end = threading.Event()

    def answer() -> Response:
        may_end.wait(5)
        return Response("late")

    done = CliRunner().invoke(cli, ["simulate", serve(answer), "--fast", "100", "--attempt-deadline", "20s"])
    may_end.set()
    assert done.exit_code == 1
    assert "no answer by the attempt deadline" in done.stdout


@pytest.mark.usefixtures("still")
@pytest.mark.parametrize(
    ("next_tick", "expected"),
    [
        ("end", [("12:00:00", 500), ("12:00:00", 500), ("12:01:00", 200)]),
        ("skip", [("12:00:00", 500), ("12:00:00", 500), ("12:00:00", 200), ("12:01:00", None)]),
    ],
)
def test_the_next_tick(serve: Callable[[Answer], str], next_tick: str, expected: list[tuple[str, int | None]]) -> None:
    """A tick that comes while a run is retried ends its retries, or is skipped itself, as asked: Google documents both."""
    answers = [500, 500, 200]
    url = serve(lambda: Response("x", answers.pop(0)))
    options = (
        "--time",
        NOON,
        "--ticks",
        "2",
        "--interval",
        "60",
        "--retry-count",
        "5",
        "--min-backoff",
        "30",
        "--next-tick",
        next_tick,
    )
    done = simulate(url, *options, "--json")
    assert [(line["schedule_time"][11:19], line.get("status")) for line in lines(done)] == expected
    assert done.exit_code == 1


def test_a_run_forced_by_hand_carries_the_next_ticks_time(serve: Callable[[Answer], str], tmp_path: Path) -> None:
    """A forced run comes first with the next tick's time; the tick is then a duplicate, as Google documents."""
    store = SQLiteRunStore(tmp_path / "runs.db")
    url = serve(lambda: dedup.handle(request, lambda run: None, settings=Settings(), store=store))
    made = lines(simulate(url, "--manual", "--json"))
    assert [(line["forced"], line["body"]) for line in made] == [(True, "Run processed"), (False, "Duplicate run skipped")]
    assert len({line["schedule_time"] for line in made}) == 1


def test_what_is_sent_can_be_chosen(serve: Callable[[Answer], str]) -> None:
    """Headers, body and a token in Google's shape are sent as asked."""
    sent: list[tuple[dict[str, str], bytes]] = []

    def answer() -> Response:
        sent.append((dict(request.headers), request.get_data()))
        return Response()

    email = ("--oidc-service-account-email", "s@prod.iam.gserviceaccount.com")
    done = simulate(serve(answer), "--header", "X-Job-Project: prod", "--message-body", '{"a": 1}', "--job", "hourly", *email)
    assert done.exit_code == 0
    [(headers, body)] = sent
    assert (headers["X-Job-Project"], headers["X-Cloudscheduler-Jobname"], body) == ("prod", "hourly", b'{"a": 1}')
    assert re.fullmatch(r"Bearer [\w-]+\.[\w-]+\.[\w-]+", headers["Authorization"])


@pytest.mark.parametrize(
    "options",
    [
        ("--min-backoff", "soon"),
        ("--retry-count", "6"),
        ("--fast", "0"),
        ("--fast", "nan"),
        ("--fast", "inf"),
        ("--min-backoff", "99999999999"),
        ("--time", "noon"),
        ("--header", "nonsense"),
        ("--header", "X-A: two\nlines"),
        ("--header", "X-A: \u20ac"),
        ("--job", "a\nb"),
        ("--min-backoff", "10", "--max-backoff", "5"),
        ("--next-tick", "maybe"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_read_is_told(options: tuple[str, ...]) -> None:
    """A wrong option is exit code 2, and nothing is sent."""
    done = CliRunner().invoke(cli, ["simulate", "http://127.0.0.1:1", *options])
    assert done.exit_code == 2
    assert options[0] in done.stderr


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8080", "ftp://127.0.0.1", "http://", "http://h:x", "http://h:99999", "http://h/a b\n", "http://[::1"]
)
def test_a_url_is_http(url: str) -> None:
    """What isn't an http or https URL is exit code 2."""
    assert CliRunner().invoke(cli, ["simulate", url]).exit_code == 2


def test_nobody_there_is_no_traceback() -> None:
    """A server that isn't there is an attempt without an answer: exit code 1."""
    done = CliRunner().invoke(cli, ["simulate", "http://127.0.0.1:1"])
    assert done.exit_code == 1
    assert "refused" in done.stdout
