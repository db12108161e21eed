"""Cloud Scheduler's documented rules."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import accumulate

import pytest

from dedup.cli.scheduler import Attempt, Clock, Heard, RetryPolicy, attempts, headers_of, send, unsigned_token

FAILED, DONE = Heard(500, "error: job failed"), Heard(200, "Run processed")


class StillClock(Clock):
    """A clock that only goes on while somebody waits by it, or takes time for an answer."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 0.0

    def now(self) -> float:
        """Seconds."""
        return self.time

    def wait(self, seconds: float) -> None:
        """Goes on."""
        self.time += seconds


def waits(policy: RetryPolicy, *, answer_takes: float = 0, next_tick: float | None = None, at_most: int = 40) -> list[float]:
    """How long Cloud Scheduler waits before each retry of a run that always fails."""
    clock = StillClock()

    def deliver() -> Heard:
        clock.wait(answer_takes)
        return FAILED

    made: list[Attempt] = []
    for attempt in attempts(deliver, policy, clock, next_tick=next_tick):
        made.append(attempt)
        if len(made) > at_most:
            break
    assert [attempt.at for attempt in made] == list(
        accumulate([answer_takes + (attempt.wait or 0) for attempt in made[:-1]], initial=0)
    )
    return [attempt.wait for attempt in made if attempt.wait is not None]


@pytest.mark.parametrize(
    ("policy", "documented"),
    [
        (RetryPolicy(), []),
        (RetryPolicy(retry_count=1), [5]),
        (RetryPolicy(retry_count=5, min_backoff=5, max_doublings=5), [5, 10, 20, 40, 80]),
        (RetryPolicy(retry_count=5, min_backoff=5, max_doublings=5, max_backoff=30), [5, 10, 20, 30, 30]),
        (RetryPolicy(retry_count=5, min_backoff=5, max_doublings=2), [5, 10, 20, 40, 60]),
        (RetryPolicy(retry_count=5, min_backoff=5, max_doublings=0), [5, 10, 15, 20, 25]),
        (RetryPolicy(retry_count=5, min_backoff=7, max_backoff=7), [7, 7, 7, 7, 7]),
        # Both limits: retries go on until both are reached.
        (RetryPolicy(retry_count=5, max_retry_duration=60), [5, 10, 20, 40, 80]),
        (RetryPolicy(retry_count=2, max_retry_duration=100), [5, 10, 20, 40]),
        (RetryPolicy(retry_count=0, max_retry_duration=36), [5, 10, 20]),
        (RetryPolicy(retry_count=0, max_retry_duration=34), [5, 10]),
        (RetryPolicy(retry_count=1, max_retry_duration=1), [5]),
        (RetryPolicy(retry_count=0, max_retry_duration=40, max_backoff=10), [5, 10, 10, 10]),
    ],
)
def test_retries_come_when_they_are_documented(policy: RetryPolicy, documented: list[float]) -> None:
    """The waits before each retry follow from count, backoffs, doublings and duration as documented."""
    assert waits(policy) == documented


def test_googles_own_example() -> None:
    """10 s, at most 300 s, 3 doublings: retried after 10, 20, 40, 80, 160, 240, 300, 300 s, as the API's reference has it."""
    policy = RetryPolicy(max_retry_duration=10**6, min_backoff=10, max_backoff=300, max_doublings=3)
    assert waits(policy, at_most=8)[:8] == [10, 20, 40, 80, 160, 240, 300, 300]


def test_the_duration_counts_from_the_first_attempt() -> None:
    """The time that attempts themselves take is part of the maximum retry duration."""
    policy = RetryPolicy(max_retry_duration=60)
    assert waits(policy) == [5, 10, 20]
    assert waits(policy, answer_takes=15) == [5, 10]


def test_the_next_tick_ends_the_retries() -> None:
    """Where retries end at the next tick, none starts at it or later."""
    policy = RetryPolicy(retry_count=5)
    assert waits(policy, next_tick=60) == [5, 10, 20]
    assert waits(policy, next_tick=35) == [5, 10]
    assert waits(policy, next_tick=36) == [5, 10, 20]


@pytest.mark.parametrize("answers", [[DONE], [FAILED, DONE], [Heard(None, "no answer"), Heard(409, ""), Heard(204, "")]])
def test_it_ends_with_the_first_2xx(answers: list[Heard]) -> None:
    """Whatever isn't 2xx, no answer included, is retried, and nothing is after it."""
    left = list(answers)
    made = list(attempts(lambda: left.pop(0), RetryPolicy(retry_count=5), StillClock()))
    assert [attempt.done for attempt in made] == [False] * (len(answers) - 1) + [True]
    assert left == []


@pytest.mark.parametrize("status", [301, 302, 400, 403, 404, 409, 429, 500, 503])
def test_what_is_not_2xx_is_retried(status: int) -> None:
    """Each other status is a failure to Cloud Scheduler, a redirect and a 4xx too."""
    made = list(attempts(lambda: Heard(status, ""), RetryPolicy(retry_count=1), StillClock()))
    assert len(made) == 2
    assert made[-1].ended


def test_a_lost_answer_is_retried() -> None:
    """An answer that gets lost counts as none, also a 200."""
    made = list(attempts(lambda: DONE, RetryPolicy(retry_count=5), StillClock(), unheard=frozenset({1})))
    assert [(attempt.lost, attempt.done) for attempt in made] == [(True, False), (False, True)]


def test_a_duplicate_is_sent_at_once() -> None:
    """A duplicated attempt is two requests at the same time, and one 2xx is enough."""
    both = threading.Barrier(2, timeout=5)
    answers = [DONE, Heard(409, "Run in progress")]

    def deliver() -> Heard:
        both.wait()
        return answers.pop()

    [attempt] = attempts(deliver, RetryPolicy(), StillClock(), duplicated=frozenset({1}))
    assert sorted(answer.status or 0 for answer in attempt.answers) == [200, 409]
    assert attempt.done


def test_a_fast_clock_tells_its_own_seconds() -> None:
    """A clock that is 1,000 times as fast waits 2 of its seconds in 2 ms."""
    clock = Clock(fast=1000)
    began = clock.now()
    clock.wait(2)
    assert 2 <= clock.now() - began < 500


def test_the_headers_are_cloud_schedulers() -> None:
    """Each attempt carries the two headers that name the run, and says whose it is."""
    assert headers_of("nightly", "2026-10-16T12:00:00Z") == {
        "User-Agent": "Google-Cloud-Scheduler",
        "X-CloudScheduler": "true",
        "X-CloudScheduler-JobName": "nightly",
        "X-CloudScheduler-ScheduleTime": "2026-10-16T12:00:00Z",
    }


def test_the_token_has_googles_shape() -> None:
    """A simulated token is three parts with Google's issuer, the audience and the e-mail, for an hour."""
    now = datetime(2026, 10, 16, 12, tzinfo=UTC)
    token = unsigned_token("s@p.iam.gserviceaccount.com", "https://f", now)
    head, claims, _ = (base64.urlsafe_b64decode(part + "==") for part in token.split("."))
    assert json.loads(head)["alg"] == "RS256"
    told = json.loads(claims)
    assert (told["iss"], told["aud"], told["email"]) == (
        "https://accounts.google.com",
        "https://f",
        "s@p.iam.gserviceaccount.com",
    )
    assert told["exp"] - told["iat"] == 3600


class Answering(BaseHTTPRequestHandler):
    """Answers what the path says."""

    def do_POST(self) -> None:
        """Echoes the body, redirects, or never answers."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/slow":
            threading.Event().wait(2)
        with suppress(OSError):  # nobody waits for the slow one
            self.send_response(302 if self.path == "/moved" else 200)
            self.send_header("Location", "/")
            self.end_headers()
            self.wfile.write(self.path.encode() + b" " + body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server on 127.0.0.1."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_send_posts_once(url: str) -> None:
    """The body arrives at the URL's path and query; a redirect is given back, not followed."""
    assert send(f"{url}/a?b=c", {}, b"body", 5) == Heard(200, "/a?b=c body")
    assert send(f"{url}/moved", {}, b"", 5).status == 302


def test_send_gives_up_at_the_deadline(url: str) -> None:
    """An answer that isn't there by the attempt deadline is none, and so is a connection that is refused."""
    assert send(f"{url}/slow", {}, b"", 0.1) == Heard(None, "no answer by the attempt deadline")
    refused = send("http://127.0.0.1:1", {}, b"", 5)
    assert refused.status is None
    assert "refused" in refused.body
