"""What a fork gets: functions-framework runs main.py, and each scheduled run is done once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from dedup.record import Status
from tests.template.e2e.conftest import Serve, StoreInUse, run_id
from tests.template.e2e.jobs.ledger import SECRET
from tests.template.e2e.ledger import Ledger, overlaps
from tests.template.e2e.server import NotStarted, Reply, Server, deliver_until_200, serving
from tests.template.shipped import MAIN_PY

NOON = "2026-10-16T12:00:00Z"
NAMED = ("X-CloudScheduler-JobName", "nightly")
TIMED = ("X-CloudScheduler-ScheduleTime", NOON)


def test_main_py_runs_a_run_and_skips_its_duplicate(serve: Serve, store: StoreInUse) -> None:
    """functions-framework alone serves main.py: the first delivery of a run is processed, the next one is skipped."""
    server = serve(store, MAIN_PY)

    first, second = server.deliver(), server.deliver()

    assert (first.status, first.body) == (200, "Run processed")
    assert (second.status, second.body) == (200, "Duplicate run skipped")
    assert [reply.headers.get("idempotent-replayed") for reply in (first, second)] == [None, "true"]
    assert [reply.headers["x-run-id"] for reply in (first, second)] == [run_id("nightly")] * 2
    assert server.output.count("nightly of 2026-10-16 12:00 UTC, attempt 1") == 1
    record = store.get_run(run_id("nightly"))
    assert record is not None
    assert (record.status, record.result, record.attempts) == (Status.COMPLETED, "replace this with your job", 1)


def test_a_record_outlives_the_instance(serve: Serve, store: StoreInUse, pair: tuple[Server, Server]) -> None:
    """What one instance has done, another one doesn't do again; the next run and another job's are done."""
    first, (second, _) = serve(store), pair
    assert first.deliver("hourly").body == "Run processed"
    first.kill()

    assert second.deliver("hourly").body == "Duplicate run skipped"
    assert second.deliver("hourly", "2026-10-16T14:00:00+02:00").body == "Duplicate run skipped"
    assert second.deliver("hourly", "2026-10-16T13:00:00Z").body == "Run processed"
    assert second.deliver("daily").body == "Run processed"
    runs = [run_id("hourly"), run_id("hourly", "2026-10-16T13:00:00Z"), run_id("daily")]
    assert [len(store.ledger.executions(run)) for run in runs] == [1, 1, 1]


@pytest.fixture(scope="module")
def picky(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One instance for all the requests that it refuses."""
    folder = tmp_path_factory.mktemp("picky")
    environ = {"DEDUP_STORE": f"sqlite:///{folder}/runs.db", "LEDGER": f"{folder}/ledger.jsonl"}
    with serving(environ, folder / "server.log") as server:
        yield server
    assert not Ledger(folder / "ledger.jsonl").executions()


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        pytest.param([TIMED], "X-CloudScheduler-JobName is missing", id="no job"),
        pytest.param([NAMED], "X-CloudScheduler-ScheduleTime is missing", id="no time"),
        pytest.param([("X-CloudScheduler-JobName", "  "), TIMED], "X-CloudScheduler-JobName is blank", id="blank job"),
        pytest.param([NAMED, ("X-CloudScheduler-ScheduleTime", "")], "X-CloudScheduler-ScheduleTime is blank", id="blank time"),
        pytest.param([NAMED, NAMED, TIMED], "X-CloudScheduler-JobName was sent more than once", id="job twice"),
        pytest.param([NAMED, TIMED, TIMED], "X-CloudScheduler-ScheduleTime was sent more than once", id="time twice"),
        pytest.param(
            [NAMED, TIMED, (TIMED[0].lower(), "2026-10-16T12:01:00Z")],
            "X-CloudScheduler-ScheduleTime was sent more than once",
            id="two times in two cases",
        ),
        pytest.param([("X-CloudScheduler-JobName", "a/b"), TIMED], "'a/b' is not a job's id", id="no job's id"),
        pytest.param([NAMED, (TIMED[0], "noon")], "'noon' is not an RFC 3339 time", id="garbage"),
        pytest.param([NAMED, (TIMED[0], "2026-10-16")], "'2026-10-16' is not an RFC 3339 time", id="bare date"),
        pytest.param([NAMED, (TIMED[0], "2026-10-16T12:00:00")], "is not an RFC 3339 time", id="no offset"),
        pytest.param([NAMED, (TIMED[0], "2026-02-30T12:00:00Z")], "does not exist", id="impossible date"),
    ],
)
def test_what_is_no_delivery_is_refused(picky: Server, headers: list[tuple[str, str]], told: str) -> None:
    """A header that is missing, blank, sent twice or malformed is answered 400, by name and with an example; nothing runs."""
    reply = picky.request(headers)

    assert reply.status == 400
    assert reply.body.startswith("error: ")
    assert told in reply.body
    assert "such as" in reply.body or "a real time is" in reply.body
    assert "Traceback" not in reply.body
    assert "x-run-id" not in reply.headers


def test_header_names_are_read_in_any_case(serve: Serve, sqlite: StoreInUse) -> None:
    """Proxies change the case of a header's name; the run stays the same."""
    server = serve(sqlite)
    upper = server.request([(NAMED[0].upper(), NAMED[1]), (TIMED[0].upper(), TIMED[1])])
    lower = server.request([(NAMED[0].lower(), f" {NAMED[1]} "), (TIMED[0].lower(), TIMED[1])])

    assert (upper.body, lower.body) == ("Run processed", "Duplicate run skipped")


def test_a_job_that_raises_is_retried(pair: tuple[Server, Server], store: StoreInUse) -> None:
    """It is answered 500 and no word of why, its record is gone, and the next delivery runs it."""
    server, _ = pair

    failed = server.deliver("raiser", body={"then": "raise"})

    assert (failed.status, failed.body) == (500, "error: job failed")
    assert store.get_run(run_id("raiser")) is None
    (line,) = server.log_lines(outcome="job_failed", job_name="raiser")
    assert "Traceback" in line["stack_trace"]
    assert SECRET in line["stack_trace"]
    assert server.deliver("raiser").body == "Run processed"
    assert [(one.attempt, one.ended) for one in store.ledger.executions(run_id("raiser"))] == [(1, "RuntimeError"), (1, "done")]


def test_a_job_that_fails_for_good_is_not_retried(pair: tuple[Server, Server], store: StoreInUse) -> None:
    """PermanentError is answered 500 once; it is recorded, and later deliveries are answered 200 without the job."""
    server, other = pair

    failed, retried = server.deliver("hopeless", body={"then": "permanent"}), other.deliver("hopeless")

    assert (failed.status, failed.body) == (500, "error: job failed for good")
    assert (retried.status, retried.body) == (200, "Run failed for good, not retried")
    assert retried.headers["idempotent-replayed"] == "true"
    record = store.get_run(run_id("hopeless"))
    assert record is not None
    assert (record.status, record.error) == (Status.FAILED, "PermanentError: as it was told")
    assert len(store.ledger.executions(run_id("hopeless"))) == 1


def test_a_run_under_way_is_answered_409_at_once(
    pair: tuple[Server, Server], store: StoreInUse, pool: ThreadPoolExecutor
) -> None:
    """While the job runs, a second delivery waits for nothing, whichever instance gets it."""
    one, other = pair
    running = pool.submit(one.deliver, "busy", body={"seconds": 1})
    store.ledger.await_start(run_id("busy"))

    replies = [one.deliver("busy"), other.deliver("busy")]

    assert [(reply.status, reply.body) for reply in replies] == [(409, "Run in progress")] * 2
    assert max(reply.seconds for reply in replies) < 0.5
    assert not running.done()
    assert running.result().body == "Run processed"
    assert len(store.ledger.executions(run_id("busy"))) == 1


def test_a_run_that_was_killed_is_taken_over_when_its_lease_ends(
    serve: Serve, store: StoreInUse, pair: tuple[Server, Server], pool: ThreadPoolExecutor
) -> None:
    """After kill -9 the answer is 409 until the lease of 2 s is over; the next delivery then runs it, as attempt 2."""
    doomed, (other, _) = serve(store, DEDUP_LEASE_SECONDS="2"), pair
    began = time.monotonic()
    unanswered = pool.submit(doomed.deliver, "killed", body={"seconds": 30})
    first = store.ledger.await_start(run_id("killed"))
    doomed.kill()
    assert unanswered.exception() is not None

    replies = deliver_until_200(other, "killed")

    assert {(reply.status, reply.body) for reply in replies[:-1]} == {(409, "Run in progress")}
    assert replies[-1].body == "Run processed"
    dead, second = store.ledger.executions(run_id("killed"))
    assert (dead.attempt, dead.ended) == (1, None)
    assert (second.attempt, second.ended) == (2, "done")
    assert second.started_at - began >= 2 - 0.1, "its lease can't have begun before its delivery"
    assert second.started_at - first.started_at <= 2 + 1
    assert not overlaps([dead, second])


@pytest.mark.parametrize("start", ["warm", "cold"])
def test_simultaneous_deliveries_run_once(
    serve: Serve, store: StoreInUse, pair: tuple[Server, Server], pool: ThreadPoolExecutor, start: str
) -> None:
    """Of 20 deliveries at once one runs the job; the others get 409 or 200, no later than a second after the job."""
    server, job = pair[0] if start == "warm" else serve(store), f"crowd-{start}"

    replies = [future.result() for future in [pool.submit(server.deliver, job, body={"seconds": 0.5}) for _ in range(20)]]

    answers = Counter((reply.status, reply.body) for reply in replies)
    assert answers.pop((200, "Run processed")) == 1
    assert set(answers) <= {(409, "Run in progress"), (200, "Duplicate run skipped")}
    assert max(reply.seconds for reply in replies) <= 0.5 + 1
    assert [one.ended for one in store.ledger.executions(run_id(job))] == ["done"]


def test_two_runs_of_a_job_run_at_once(pair: tuple[Server, Server], store: StoreInUse, pool: ThreadPoolExecutor) -> None:
    """The runs of 12:00 and of 12:01 are two: neither waits for the other."""
    server, times = pair[0], [NOON, "2026-10-16T12:01:00Z"]

    replies: list[Reply] = list(pool.map(lambda when: server.deliver("minutely", when, {"seconds": 0.5}), times))

    assert [reply.body for reply in replies] == ["Run processed"] * 2
    (first,), (second,) = (store.ledger.executions(run_id("minutely", when)) for when in times)
    assert max(first.started_at, second.started_at) < min(first.last_seen_at, second.last_seen_at)


@pytest.fixture(scope="module", autouse=True)
def unreachable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Future[Reply], Ledger]]:
    """A delivery to an instance that has no Firestore to ask; it takes ten seconds, so it begins before all other tests."""
    folder = tmp_path_factory.mktemp("unreachable")
    ledger = Ledger(folder / "ledger.jsonl")
    environ = {"FIRESTORE_EMULATOR_HOST": "127.0.0.1:1", "GOOGLE_CLOUD_PROJECT": "nowhere", "LEDGER": str(ledger.path)}
    with serving(environ, folder / "server.log") as server, ThreadPoolExecutor(1) as thread:
        yield server, thread.submit(server.deliver), ledger


def test_an_unreachable_store_runs_nothing(unreachable: tuple[Server, Future[Reply], Ledger]) -> None:
    """With no Firestore to ask, the answer is 500 within 10 s, and the job is not run."""
    server, delivery, ledger = unreachable

    reply = delivery.result()

    assert (reply.status, reply.body) == (500, "error: dedup store unavailable")
    assert reply.seconds < 10
    assert not ledger.executions()
    (line,) = server.log_lines(outcome="store_unavailable")
    assert line["severity"] == "ERROR"


def test_wrong_settings_stop_the_start(serve: Serve, sqlite: StoreInUse) -> None:
    """The start ends with one error that names every variable that is wrong, and no traceback stands before it."""
    with pytest.raises(NotStarted) as stopped:
        serve(sqlite, MAIN_PY, DEDUP_LEASE_SECONDS="soon", DEDUP_RENEWAL="true")

    assert stopped.value.exit_code != 0
    assert stopped.value.output.startswith("Error: the environment is wrong:\n")
    assert len(stopped.value.output.splitlines()) == 3
    assert "DEDUP_LEASE_SECONDS: 'soon' is not a number of whole seconds" in stopped.value.output
    assert "DEDUP_RENEWAL is no setting: did you mean DEDUP_RENEW?" in stopped.value.output
