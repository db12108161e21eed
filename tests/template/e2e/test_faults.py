"""Long jobs, deaths and time-outs: a run outlives the instance that had it, and nobody runs beside its owner."""

from __future__ import annotations

import http.client
import signal
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

import pytest

from dedup.record import Status
from tests.template.e2e.conftest import LEASE_SECONDS as LEASE
from tests.template.e2e.conftest import Serve, StoreInUse, firestore_store, run_id, starter
from tests.template.e2e.ledger import overlaps
from tests.template.e2e.server import Reply, Server, await_answer, deliver_until_200
from tests.template.emulator import EmulatorMissing, own_firestore_emulator

Pair = tuple[Server, Server]

SLACK = 1.0
"""What a poll, a process and a busy machine may take beyond what is promised."""
FRAMEWORK_TIMES_OUT = {"CLOUD_RUN_TIMEOUT_SECONDS": "1", "THREADED_TIMEOUT_ENABLED": "true", "THREADS": "4"}


def test_a_long_job_runs_to_its_end_while_duplicates_arrive(pair: Pair, store: StoreInUse, pool: ThreadPoolExecutor) -> None:
    """A job of three leases keeps its run: every duplicate meanwhile, on whichever instance, is answered 409."""
    one, other = pair
    running = pool.submit(one.deliver, "long", body={"seconds": 3 * LEASE})
    store.ledger.await_start(run_id("long"))

    answers: Counter[int] = Counter()
    while not running.done():
        answers.update(reply.status for reply in pool.map(lambda server: server.deliver("long"), (one, other)))
        time.sleep(0.1)

    assert running.result().body == "Run processed"
    assert answers[409] >= 10
    assert set(answers) <= {409, 200}, "a 200 is a duplicate that came just after the end"
    (execution,) = store.ledger.executions(run_id("long"))
    assert (execution.attempt, execution.ended) == (1, "done")
    record = store.get_run(run_id("long"))
    assert record is not None
    assert (record.status, record.result, record.attempts) == (Status.COMPLETED, execution.id, 1)
    assert record.renewed_at is not None


def test_a_long_job_that_is_killed_is_taken_over_within_about_a_lease(
    pair: Pair, store: StoreInUse, pool: ThreadPoolExecutor
) -> None:
    """Its lease is as young as its last renewal: whoever dies after one and a half leases is replaced within about one."""
    one, other = pair
    pool.submit(one.deliver, "killed", body={"seconds": 30})
    store.ledger.await_start(run_id("killed"))
    time.sleep(1.5 * LEASE)
    killed_at = time.monotonic()
    assert one.kill_worker()

    replies = deliver_until_200(other, "killed")

    assert {reply.status for reply in replies[:-1]} == {409}
    dead, second = store.ledger.executions(run_id("killed"))
    assert (second.attempt, second.ended) == (2, "done")
    assert LEASE * 2 / 3 - 0.3 <= second.started_at - killed_at <= LEASE + SLACK
    assert not overlaps([dead, second])
    await_answer(one)
    assert one.deliver("killed").body == "Duplicate run skipped", "its master has started a new worker"


def test_a_job_that_hangs_is_taken_over_a_lease_after_its_deadline(
    serve: Serve, store: StoreInUse, pool: ThreadPoolExecutor
) -> None:
    """Renewal ends at the request's deadline; the run is another's a lease later, and the first one's end writes nothing.

    Done is done, so its answer is 200; but with effects of its own, which aren't there, it is 500.
    """
    server, bodies = serve(store, DEDUP_TIMEOUT_SECONDS="1"), {"hung": {}, "hung-counted": {"count": "hung"}}
    began = time.monotonic()
    late = [pool.submit(server.deliver, job, body={"seconds": 1 + LEASE + 1.2, **body}) for job, body in bodies.items()]
    for job in bodies:
        store.ledger.await_start(run_id(job))

    for over in [pool.submit(deliver_until_200, server, job, body) for job, body in bodies.items()]:
        assert over.result()[-1].body == "Run processed"

    written = {}
    for job in bodies:
        first, second = store.ledger.executions(run_id(job))
        assert LEASE <= second.started_at - began <= 1 + LEASE + SLACK
        assert first.ended is None, "it is still at work, beside its successor"
        assert not overlaps([first, second])
        record = written[job] = store.get_run(run_id(job))
        assert record is not None
        assert (record.result, record.attempts) == (second.id, 2)

    assert [(reply.status, reply.body) for reply in (delivery.result() for delivery in late)] == [
        (200, "Run processed"),
        (500, "error: run not recorded"),
    ]
    assert {job: store.get_run(run_id(job)) for job in bodies} == written
    assert store.count("hung") == 1
    outcomes = ["done_lease_lost", "effects_not_recorded"]
    assert [line["severity"] for outcome in outcomes for line in server.log_lines(outcome=outcome)] == ["ERROR"] * 2


def test_a_job_that_asks_stops_when_its_lease_is_lost(pair: Pair, store: StoreInUse, pool: ThreadPoolExecutor) -> None:
    """A worker that was paused beyond its lease goes on beside its successor only until it asks; its failure writes nothing."""
    one, other = pair
    paused = pool.submit(one.deliver, "paused", body={"seconds": 30, "careful": True})
    store.ledger.await_start(run_id("paused"))
    assert one.kill_worker(signal.SIGSTOP)

    try:
        deliver_until_200(other, "paused")
    finally:
        one.kill_worker(signal.SIGCONT)
    written = store.get_run(run_id("paused"))

    assert paused.result().status == 500
    first, second = store.ledger.executions(run_id("paused"))
    assert (first.ended, second.ended) == ("LeaseLost", "done")
    assert not overlaps([first, second])
    assert store.get_run(run_id("paused")) == written


def test_system_exit_releases_the_run(serve: Serve, store: StoreInUse) -> None:
    """A job that leaves by SystemExit takes its worker with it and gets no 200, but its run is free for the next delivery."""
    server = serve(store, DEDUP_LEASE_SECONDS="60")

    with suppress(OSError, http.client.HTTPException):
        assert server.deliver("leaver", body={"then": "exit"}).status >= 500

    assert store.get_run(run_id("leaver")) is None
    assert deliver_until_200(server, "leaver")[-1].body == "Run processed"
    assert [one.ended for one in store.ledger.executions(run_id("leaver"))] == ["SystemExit", "done"]


def test_deliveries_at_once_of_an_expired_run_run_once(
    serve: Serve, pair: Pair, store: StoreInUse, pool: ThreadPoolExecutor
) -> None:
    """When the owner is dead and its lease just over, one of 50 simultaneous deliveries takes the run over, and only one."""
    doomed = serve(store)
    pool.submit(doomed.deliver, "expired", body={"seconds": 30})
    store.ledger.await_start(run_id("expired"))
    doomed.kill()
    record = store.get_run(run_id("expired"))
    assert record is not None
    time.sleep(max(0.0, record.live_until.timestamp() - time.time()))  # the emulator's clock is this machine's
    assert store.get_run(run_id("expired")) == record

    deliveries = [pool.submit(server.deliver, "expired", body={"seconds": 0.5}) for server in [*pair] * 25]
    answers = Counter((reply.status, reply.body) for reply in (delivery.result() for delivery in deliveries))

    assert answers.pop((200, "Run processed")) == 1
    assert set(answers) <= {(409, "Run in progress"), (200, "Duplicate run skipped")}
    dead, second = store.ledger.executions(run_id("expired"))
    assert (dead.attempt, second.attempt, second.ended) == (1, 2, "done")


def test_sigterm_lets_a_long_job_finish(serve: Serve, firestore: StoreInUse, pool: ThreadPoolExecutor) -> None:
    """An instance that drains keeps its run's lease until the job has ended, and records it; then the process ends."""
    draining, other = serve(firestore), serve(firestore)
    running = pool.submit(draining.deliver, "drained", body={"seconds": 2.5 * LEASE})
    firestore.ledger.await_start(run_id("drained"))
    draining.terminate()

    answers = []
    while not running.done():
        answers.append(other.deliver("drained").status)
        time.sleep(0.1)

    assert running.result().body == "Run processed"
    assert set(answers[:-1]) == {409}
    assert draining.process.wait(timeout=10) == 0
    (execution,) = firestore.ledger.executions(run_id("drained"))
    record = firestore.get_run(run_id("drained"))
    assert record is not None
    assert (record.status, record.result) == (Status.COMPLETED, execution.id)
    assert other.deliver("drained").body == "Duplicate run skipped"


def test_an_aborted_worker_loses_no_run(pair: Pair, store: StoreInUse, pool: ThreadPoolExecutor) -> None:
    """Gunicorn aborts a worker that it takes for dead: the run ends recorded, and nobody runs it beside its owner."""
    one, other = pair
    pool.submit(one.deliver, "aborted", body={"seconds": 1.5 * LEASE})
    store.ledger.await_start(run_id("aborted"))
    assert one.kill_worker(signal.SIGABRT)

    replies = deliver_until_200(other, "aborted")

    assert {reply.status for reply in replies[:-1]} == {409}
    executions = store.ledger.executions(run_id("aborted"))
    assert not overlaps(executions)
    record = store.get_run(run_id("aborted"))
    assert record is not None
    assert record.status is Status.COMPLETED
    assert record.result in {execution.id for execution in executions if execution.ended == "done"}
    await_answer(one)


def test_the_frameworks_time_out_releases_the_run(serve: Serve, sqlite: StoreInUse) -> None:
    """With THREADED_TIMEOUT_ENABLED the framework raises into the job's thread: the run is released, and the retry runs it."""
    server = serve(sqlite, DEDUP_LEASE_SECONDS="60", **FRAMEWORK_TIMES_OUT)

    timed_out = server.deliver("slow", body={"seconds": 5})

    assert timed_out.status == 500
    assert timed_out.seconds < 1 + SLACK
    assert "Traceback" not in timed_out.body
    assert sqlite.get_run(run_id("slow")) is None
    assert server.deliver("slow").body == "Run processed"
    assert [one.ended for one in sqlite.ledger.executions()] == ["RequestTimeoutException", "done"]


def test_a_job_that_works_on_past_the_time_out_is_recorded(serve: Serve, sqlite: StoreInUse) -> None:
    """A job that swallows the framework's time-out and returns has been done: it is recorded, and no retry does it again."""
    server = serve(sqlite, DEDUP_LEASE_SECONDS="60", **FRAMEWORK_TIMES_OUT)

    assert server.deliver("stubborn", body={"seconds": 1.6, "then": "linger"}).status == 200

    record = sqlite.get_run(run_id("stubborn"))
    assert record is not None
    assert record.status is Status.COMPLETED
    assert server.deliver("stubborn").body == "Duplicate run skipped"
    assert [one.ended for one in sqlite.ledger.executions()] == ["done"]


@pytest.fixture(scope="module", autouse=True)
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Future[Reply], Future[None], Server, StoreInUse] | None]:
    """A delivery to an instance whose store is frozen; it takes ten seconds, so it begins before all other tests."""
    folder = tmp_path_factory.mktemp("frozen")
    with suppress(EmulatorMissing), own_firestore_emulator() as emulator:
        store = firestore_store(folder, emulator.host)
        with starter(folder) as serve, ThreadPoolExecutor(2) as threads:
            server = serve(store, DEDUP_LEASE_SECONDS="2")
            assert server.deliver("warm-up").status == 200
            emulator.freeze()
            delivery = threads.submit(server.deliver, "frozen")

            def thaw() -> None:
                delivery.exception()
                emulator.thaw()

            yield delivery, threads.submit(thaw), server, store
        return
    yield None


def test_a_frozen_store_is_answered_in_time(
    frozen: tuple[Future[Reply], Future[None], Server, StoreInUse] | None, request: pytest.FixtureRequest
) -> None:
    """A claim that a frozen store doesn't answer ends in 500 within 10 s; thawed, the run is done after a lease at most.

    The claim may still arrive when the store goes on: it leaves a record with a live lease, and nobody at work.
    """
    request.getfixturevalue("emulator")  # skips where there is none
    assert frozen is not None
    delivery, thawing, server, store = frozen

    reply = delivery.result()

    assert (reply.status, reply.body) == (500, "error: dedup store unavailable")
    assert reply.seconds < 10
    thawing.result()
    assert not store.ledger.executions(run_id("frozen"))

    asked_at = time.monotonic()
    replies = deliver_until_200(server, "frozen")

    assert {answer.status for answer in replies[:-1]} <= {409}
    assert replies[-1].body == "Run processed"
    (execution,) = store.ledger.executions(run_id("frozen"))
    assert execution.started_at - asked_at <= 2 + SLACK
    assert server.deliver("frozen").body == "Duplicate run skipped"
