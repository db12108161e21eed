"""Cloud Scheduler as its documentation describes it, in small: it delivers at least once, and retries until it gets a 2xx."""

from __future__ import annotations

import http.client
import itertools
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from dedup.cli.scheduler import RetryPolicy
from dedup.delivery import JOB_NAME_HEADER, SCHEDULE_TIME_HEADER
from tests.template.e2e.server import Reply, request, send


@dataclass(frozen=True)
class Network:
    """How often the way to the function and back fails, of 1."""

    duplicated: float = 0.0
    """The delivery arrives twice at once, maybe at two instances."""
    hung_up: float = 0.0
    """The connection closes after the request, before the answer."""
    unheard: float = 0.0
    """The answer is on its way, and gets lost."""


@dataclass(frozen=True)
class ScheduledRun:
    """One tick of one job."""

    job: str
    schedule_time: str
    body: Mapping[str, Any]


@dataclass
class Tally:
    """What happened on the way."""

    deliveries: int = 0
    duplicates: int = 0
    lost_replies: int = 0
    """Hung up on, or unheard."""
    late_replies: int = 0
    """Not there at the attempt's deadline."""
    broken: int = 0
    """The instance was not there, or died."""
    answers: Counter[str] = field(default_factory=Counter)
    """By body, those that got lost included."""
    given_up: list[ScheduledRun] = field(default_factory=list)
    """Runs whose retries are used up."""


class SimulatedScheduler:
    """Delivers runs, many at once; each run by one thread, as its retries follow each other.

    What happens to a delivery is drawn from the seed, the run and the number of the attempt: it doesn't depend on the threads.

    Args:
        seed: of all that is drawn.
        ports: the instances that are up at a moment.
        policy: of all jobs.
        network: between here and there.
    """

    def __init__(self, seed: int, ports: Callable[[], list[int]], policy: RetryPolicy, network: Network) -> None:
        self.tally = Tally()
        self._seed = seed
        self._ports = ports
        self._policy = policy
        self._network = network
        self._counting = threading.Lock()

    def deliver_all(self, runs: Iterable[ScheduledRun], *, at_once: int) -> None:
        """Takes a run from the iterable whenever one is through; ends when all are."""
        taking, left = threading.Lock(), iter(runs)

        def deliver_what_is_left() -> None:
            while True:
                with taking:
                    run = next(left, None)
                if run is None:
                    return
                self._deliver(run)

        with ThreadPoolExecutor(at_once) as threads:
            for worker in [threads.submit(deliver_what_is_left) for _ in range(at_once)]:
                worker.result()

    def _deliver(self, run: ScheduledRun) -> None:
        began = time.monotonic()
        for attempt in itertools.count():
            if self._attempt(run, random.Random(f"{self._seed}/{run.job}/{run.schedule_time}/{attempt}")):
                return
            wait = self._policy.backoff(attempt)
            if not self._policy.allows(attempt, time.monotonic() - began + wait):
                break
            time.sleep(wait)
        with self._counting:
            self.tally.given_up.append(run)

    def _attempt(self, run: ScheduledRun, draw: random.Random) -> bool:
        """One attempt, once or twice at once. Says whether a 2xx was heard."""
        if draw.random() >= self._network.duplicated:
            return self._send(run, draw)
        with self._counting:
            self.tally.duplicates += 1
        twin_draw, heard = random.Random(draw.random()), []
        twin = threading.Thread(target=lambda: heard.append(self._send(run, twin_draw)))
        twin.start()
        heard.append(self._send(run, draw))
        twin.join()
        return any(heard)

    def _send(self, run: ScheduledRun, draw: random.Random) -> bool:
        fate, where = draw.random(), draw.random()
        with self._counting:
            self.tally.deliveries += 1
        ports = self._ports()
        if not ports:
            return self._count("broken")
        port = ports[int(where * len(ports))]
        headers = [(JOB_NAME_HEADER, run.job), (SCHEDULE_TIME_HEADER, run.schedule_time)]
        body = json.dumps(run.body).encode()
        try:
            if fate < self._network.hung_up:
                _send_and_hang_up(port, headers, body, after=draw.uniform(0, 0.1))
                return self._count("lost_replies")
            reply = request(port, headers, body, timeout=self._policy.attempt_deadline)
        except TimeoutError:
            return self._count("late_replies")
        except (OSError, http.client.HTTPException):
            return self._count("broken")
        self._hear(reply)
        if fate < self._network.hung_up + self._network.unheard:
            return self._count("lost_replies")
        return 200 <= reply.status < 300

    def _hear(self, reply: Reply) -> None:
        with self._counting:
            self.tally.answers[f"{reply.status} {reply.body}"] += 1

    def _count(self, what: str) -> bool:
        """Counts a delivery whose answer was not heard."""
        with self._counting:
            setattr(self.tally, what, getattr(self.tally, what) + 1)
        return False


def _send_and_hang_up(port: int, headers: list[tuple[str, str]], body: bytes, *, after: float) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        send(connection, headers, body)
        time.sleep(after)
    finally:
        connection.close()
