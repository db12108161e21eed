"""The deployed shape on the stores that a team may choose instead: nothing but one variable is another."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from dedup.record import Decision, Status
from dedup.stores import Claim, open_store
from tests.template.e2e.conftest import StoreInUse, redis_store, run_id, spanner_store, starter
from tests.template.e2e.server import Server

OTHERS = [pytest.param(name, marks=pytest.mark.store(name)) for name in ("spanner", "redis")]


@pytest.fixture(scope="module", params=OTHERS)
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> StoreInUse:
    """Each of them in turn."""
    server = request.getfixturevalue(request.param)
    return {"spanner": spanner_store, "redis": redis_store}[request.param](tmp_path_factory.mktemp(request.param), server)


@pytest.fixture(scope="module")
def server(store: StoreInUse, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One instance on each."""
    with starter(tmp_path_factory.mktemp("servers")) as serve:
        yield serve(store, DEDUP_LEASE_SECONDS="2")


def answers(server: Server, job: str, pool: ThreadPoolExecutor) -> Counter[tuple[int, str]]:
    """What 50 simultaneous deliveries of one run are answered."""
    deliveries = [pool.submit(server.deliver, job, body={"seconds": 0.5}) for _ in range(50)]
    return Counter((reply.status, reply.body) for reply in (delivery.result() for delivery in deliveries))


def test_a_run_and_its_duplicate(server: Server, store: StoreInUse) -> None:
    """The first delivery of a run is processed, the next one is skipped, and the record says what came of it."""
    assert [server.deliver("first").body, server.deliver("first").body] == ["Run processed", "Duplicate run skipped"]
    record = store.get_run(run_id("first"))
    assert record is not None
    assert (record.status, record.attempts) == (Status.COMPLETED, 1)


def test_fifty_deliveries_at_once_run_once(server: Server, store: StoreInUse, pool: ThreadPoolExecutor) -> None:
    """Of 50 deliveries at once one runs the job; the others are told that it is in progress, or done."""
    heard = answers(server, "crowd", pool)
    assert heard.pop((200, "Run processed")) == 1
    assert set(heard) <= {(409, "Run in progress"), (200, "Duplicate run skipped")}
    assert [one.ended for one in store.ledger.executions(run_id("crowd"))] == ["done"]


def test_fifty_deliveries_at_once_of_an_expired_run_run_once(
    server: Server, store: StoreInUse, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a lease is just over whose owner is gone, one of 50 deliveries takes the run over, and only one."""
    for name, value in store.environ.items():
        monkeypatch.setenv(name, value)
    gone = Claim(
        run_id=run_id("expired"),
        attempt_id=uuid.uuid4().hex,
        lease_seconds=1,
        retention_seconds=60,
        job_name="expired",
        schedule_time=datetime.now(UTC),
    )
    assert open_store(store.environ["DEDUP_STORE"]).claim_run(gone) is Decision.CLAIM
    time.sleep(1.01)

    heard = answers(server, "expired", pool)

    assert heard.pop((200, "Run processed")) == 1
    assert set(heard) <= {(409, "Run in progress"), (200, "Duplicate run skipped")}
    assert [(one.attempt, one.ended) for one in store.ledger.executions(run_id("expired"))] == [(2, "done")]


def test_a_job_that_raises_is_retried(server: Server, store: StoreInUse) -> None:
    """A failed job's record is gone, and the next delivery runs it."""
    assert server.deliver("raiser", body={"then": "raise"}).body == "error: job failed"
    assert store.get_run(run_id("raiser")) is None
    assert server.deliver("raiser").body == "Run processed"


def test_writes_of_the_jobs_own(server: Server, store: StoreInUse) -> None:
    """on_commit counts once on Spanner; Redis refuses it where it is called, and the job fails."""
    reply = server.deliver("counted", body={"count": "c"})
    if store.environ["DEDUP_STORE"].startswith("spanner"):
        assert (reply.body, server.deliver("counted", body={"count": "c"}).body) == ("Run processed", "Duplicate run skipped")
        assert store.count("c") == 1
    else:
        assert (reply.status, reply.body) == (500, "error: job failed")
        (line,) = server.log_lines(outcome="job_failed", job_name="counted")
        assert "on_commit needs Firestore or Spanner" in line["stack_trace"]
