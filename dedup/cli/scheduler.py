"""Cloud Scheduler's documented rules: when it retries, how long it waits, and what it sends. Pure, but for `send`.

https://docs.cloud.google.com/scheduler/docs/configuring/retry-jobs
https://docs.cloud.google.com/scheduler/docs/reference/rest/v1/projects.locations.jobs#RetryConfig
"""

from __future__ import annotations

import base64
import http.client
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from threading import Thread
from urllib.parse import urlsplit

from dedup.delivery import JOB_NAME_HEADER, SCHEDULE_TIME_HEADER

USER_AGENT = "Google-Cloud-Scheduler"


@dataclass(frozen=True)
class RetryPolicy:
    """What a Cloud Scheduler job is configured with, by its names and with its defaults; in seconds."""

    attempt_deadline: float = 180
    """How long an answer is waited for. The request goes on at the server."""
    retry_count: int = 0
    max_retry_duration: float = 0
    """Counted from the start of the first attempt; 0: the count alone decides."""
    min_backoff: float = 5
    max_backoff: float = 3600
    max_doublings: int = 5

    def backoff(self, retry: int) -> float:
        """The wait before a retry, counted from 0: it doubles max_doublings times, then grows by as much each time."""
        doubled = self.min_backoff * 2.0 ** min(retry, self.max_doublings)
        return min(self.max_backoff, doubled * (1 + max(0, retry - self.max_doublings)))

    def allows(self, retry: int, elapsed: float) -> bool:
        """Whether a retry, counted from 0, may start: "until both limits are reached", so while either leaves room.

        Args:
            retry: its number.
            elapsed: seconds from the start of the first attempt to the start of this retry.
        """
        return retry < self.retry_count or elapsed <= self.max_retry_duration


@dataclass(frozen=True)
class Heard:
    """What came back for one request, or why nothing did."""

    status: int | None
    body: str

    @property
    def ok(self) -> bool:
        """Whether Cloud Scheduler takes the run for done."""
        return self.status is not None and 200 <= self.status < 300


@dataclass(frozen=True)
class Attempt:
    """One attempt at a run, as the time line shows it.

    Args:
        number: 1, 2, ...
        at: seconds since the run's first attempt began.
        answers: what the server answered; two where it was delivered twice at once.
        lost: the answer was on its way, and got lost.
        wait: seconds until the next attempt; None: there is none.
        ended: why there is none, if not because the run is done.
    """

    number: int
    at: float
    answers: Sequence[Heard]
    lost: bool
    wait: float | None
    ended: str = ""

    @property
    def done(self) -> bool:
        """Whether Cloud Scheduler heard that the run is done."""
        return not self.lost and any(answer.ok for answer in self.answers)


class Clock:
    """A clock that runs `fast` times as fast as the world's."""

    def __init__(self, fast: float = 1) -> None:
        self.fast = fast
        self._began = time.monotonic()

    def now(self) -> float:
        """Seconds since it was started."""
        return (time.monotonic() - self._began) * self.fast

    def wait(self, seconds: float) -> None:
        """Lets so many of its seconds go by."""
        time.sleep(max(0.0, seconds) / self.fast)


def attempts(
    deliver: Callable[[], Heard],
    policy: RetryPolicy,
    clock: Clock,
    *,
    next_tick: float | None = None,
    duplicated: frozenset[int] = frozenset(),
    unheard: frozenset[int] = frozenset(),
) -> Iterator[Attempt]:
    """Delivers one run until Cloud Scheduler hears a 2xx or its retries end. Each attempt is given before the wait after it.

    Args:
        deliver: makes one request.
        policy: the job's.
        clock: by which it waits.
        next_tick: seconds from the first attempt to the tick at which retries end; None: they go on past it.
        duplicated: the attempts that arrive twice at once.
        unheard: the attempts whose answer gets lost.
    """
    began = clock.now()
    number = 1
    while True:
        at = clock.now() - began
        answers = _twice(deliver) if number in duplicated else [deliver()]
        lost = number in unheard
        wait = policy.backoff(number - 1)
        starts_at = clock.now() - began + wait
        made = Attempt(number, at, answers, lost, wait)
        if made.done:
            yield Attempt(number, at, answers, lost, None)
            return
        ended = "its retries are used up" if not policy.allows(number - 1, starts_at) else ""
        if not ended and next_tick is not None and starts_at >= next_tick:
            ended = "the next tick is due, and ends its retries"
        if ended:
            yield Attempt(number, at, answers, lost, None, ended)
            return
        yield made
        clock.wait(wait)
        number += 1


def _twice(deliver: Callable[[], Heard]) -> list[Heard]:
    heard: list[Heard] = []
    twins = [Thread(target=lambda: heard.append(deliver())) for _ in range(2)]
    for twin in twins:
        twin.start()
    for twin in twins:
        twin.join()
    return heard


def headers_of(job: str, schedule_time: str) -> dict[str, str]:
    """What Cloud Scheduler sends with each attempt at a run."""
    return {
        "User-Agent": USER_AGENT,
        "X-CloudScheduler": "true",
        JOB_NAME_HEADER: job,
        SCHEDULE_TIME_HEADER: schedule_time,
    }


def unsigned_token(email: str, audience: str, now: datetime) -> str:
    """A token in the shape of Google's OIDC tokens, with no valid signature: a server that verifies it answers 401 or 403."""
    claims = {
        "iss": "https://accounts.google.com",
        "aud": audience,
        "email": email,
        "email_verified": True,
        "iat": int(now.timestamp()),
        "exp": int(now.timestamp()) + 3600,
    }
    parts = [{"alg": "RS256", "typ": "JWT", "kid": "unsigned"}, claims]
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join([*encoded, base64.urlsafe_b64encode(b"unsigned").rstrip(b"=").decode()])


def send(url: str, headers: Mapping[str, str], body: bytes, deadline: float) -> Heard:
    """Posts once, and gives whatever comes back within the deadline; follows no redirect.

    Args:
        url: http or https.
        headers: all of them, but for Host and Content-Length.
        body: the message.
        deadline: seconds.
    """
    parts = urlsplit(url)
    connect = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = connect(parts.hostname or "", parts.port, timeout=deadline)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection.request("POST", target, body, {**headers, "Connection": "close"})
        answer = connection.getresponse()
        return Heard(answer.status, answer.read().decode("utf-8", "replace"))
    except TimeoutError:
        return Heard(None, "no answer by the attempt deadline")
    except (OSError, http.client.HTTPException) as fault:
        return Heard(None, f"no answer: {fault or type(fault).__name__}")
    finally:
        connection.close()
