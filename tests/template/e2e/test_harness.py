"""The tools of this tier: the checks of the chaos find what they are there to find, and its scheduler is Cloud Scheduler's."""

from __future__ import annotations

import http.server
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from dedup.record import RunRecord, Status
from tests.template.e2e.ledger import Execution, overlaps, read
from tests.template.e2e.relay import Fault, Relay
from tests.template.e2e.scheduler import Network, RetryPolicy, ScheduledRun, SimulatedScheduler
from tests.template.e2e.server import request
from tests.template.e2e.test_chaos import id_of, violations

RUN = ScheduledRun("nightly", "2026-10-16T12:00:00Z", {"count": "a"})
POLICY = RetryPolicy(attempt_deadline=0.3, min_backoff=0.01, max_backoff=0.05, max_doublings=2, retry_count=3)
RECORD = RunRecord(updated_at=datetime(2026, 10, 16, 12, tzinfo=UTC), status=Status.COMPLETED, result="one")
DONE = Execution("one", id_of(RUN), 1, 1, started_at=1, last_seen_at=2, held_at=2, ended="done")


def line(what: str, at: float, execution: str, *, held: bool = True) -> dict[str, object]:
    """A line of the ledger."""
    return {"what": what, "at": at, "held": held, "run": "r", "execution": execution, "attempt": 1, "pid": 1}


def test_an_execution_beside_its_owner_is_an_overlap() -> None:
    """The second one begins while the first one still holds the run."""
    first, second = read([line("start", 1, "a"), line("start", 2, "b"), line("beat", 2.1, "a"), line("done", 3, "b")])

    assert overlaps([second, first]) == [(first, second)]


@pytest.mark.parametrize(
    "rest",
    [
        pytest.param([], id="it was killed"),
        pytest.param([line("beat", 2.5, "a", held=False), line("done", 3, "a", held=False)], id="it goes on, and knows"),
    ],
)
def test_an_execution_after_its_predecessors_lease_is_none(rest: list[dict[str, object]]) -> None:
    """The first one was killed, or has been told that the run is another's."""
    assert not overlaps(read([line("start", 1, "a"), line("beat", 1.9, "a"), line("start", 2, "b"), *rest]))


@pytest.mark.parametrize(
    ("record", "processed", "counted", "told"),
    [
        pytest.param(None, 1, 1, "is lost", id="no record"),
        pytest.param(replace(RECORD, status=Status.IN_PROGRESS), 1, 1, "is lost", id="in progress for ever"),
        pytest.param(replace(RECORD, result="two"), 1, 1, "never came to its end", id="recorded by nobody"),
        pytest.param(RECORD, 2, 1, "was recorded 2 times", id="recorded twice"),
        pytest.param(RECORD, 1, 2, "was counted 2 times", id="effects twice"),
        pytest.param(RECORD, 1, 0, "was counted 0 times", id="no effects"),
    ],
)
def test_each_violation_is_found(record: RunRecord | None, processed: int, counted: int, told: str) -> None:
    """A run that is lost, or recorded or counted other than once, is named."""
    (found,) = violations([RUN], {id_of(RUN): record}, [DONE], Counter({id_of(RUN): processed}), lambda _: counted)

    assert told in found


def test_a_run_that_is_done_once_is_none() -> None:
    """Recorded in the name of an execution that came to its end, and counted once."""
    assert not violations([RUN], {id_of(RUN): RECORD}, [DONE], Counter({id_of(RUN): 1}), lambda _: 1)


def test_backoff_doubles_then_grows_evenly_up_to_its_maximum() -> None:
    """Cloud Scheduler's own example: 10 s, 300 s and 3 doublings."""
    policy = RetryPolicy(attempt_deadline=180, min_backoff=10, max_backoff=300, max_doublings=3, retry_count=8)

    assert [policy.backoff(retry) for retry in range(8)] == [10, 20, 40, 80, 160, 240, 300, 300]


class Counting(http.server.BaseHTTPRequestHandler):
    """Answers 500 twice, and 200 from then on."""

    seen = 0

    def do_POST(self) -> None:
        """Reads and counts one request."""
        type(self).seen += 1
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200 if self.seen > 2 else 500)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - so is this
        """Says nothing."""


@pytest.fixture
def port() -> Iterator[int]:
    """Of a server that counts."""
    Counting.seen = 0
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Counting) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_the_scheduler_retries_until_it_hears_a_2xx(port: int) -> None:
    """Two 500s, then a 200: three deliveries, and no more."""
    scheduler = SimulatedScheduler(1, lambda: [port], POLICY, Network())

    scheduler.deliver_all([RUN], at_once=1)

    assert (Counting.seen, scheduler.tally.deliveries, scheduler.tally.given_up) == (3, 3, [])


def test_the_scheduler_gives_up_when_its_retries_are_used_up(port: int) -> None:
    """Answers that it doesn't hear are none: the run is delivered 1 + retry_count times, and given up."""
    scheduler = SimulatedScheduler(1, lambda: [port], POLICY, Network(unheard=1))

    scheduler.deliver_all([RUN], at_once=1)

    assert (Counting.seen, scheduler.tally.lost_replies, scheduler.tally.given_up) == (4, 4, [RUN])


def test_a_muted_relay_passes_requests_and_no_answer(port: int) -> None:
    """The request has its effect, the sender never hears of it; afterwards all is well."""
    with Relay(f"127.0.0.1:{port}") as relay:
        through = int(relay.host.rpartition(":")[2])
        failing = threading.Thread(target=relay.fail, args=(Fault.MUTE, 0.5))
        failing.start()
        while not relay.faults:
            time.sleep(0.01)
        with pytest.raises(OSError, match=r"reset|closed"):
            request(through, [])
        failing.join()

        assert Counting.seen == 1
        assert request(through, []).status == 500


def test_a_frozen_relay_passes_everything_later(port: int) -> None:
    """Nothing is lost by a freeze; it takes as long."""
    with Relay(f"127.0.0.1:{port}") as relay:
        failing = threading.Thread(target=relay.fail, args=(Fault.FREEZE, 0.4))
        failing.start()
        while not relay.faults:
            time.sleep(0.01)
        reply = request(int(relay.host.rpartition(":")[2]), [])
        failing.join()

        assert reply.status == 500
        assert reply.seconds > 0.2
