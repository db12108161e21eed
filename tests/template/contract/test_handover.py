"""A run that is handed over: the work it goes to holds it, and the job that has begun it can't take it away again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from google.api_core import exceptions as google

import dedup
from dedup.handler import Attempt
from dedup.lease import Clock, Lease, LeaseLost
from dedup.record import Decision, Ending, RunRecord, Status
from dedup.settings import Settings
from dedup.stores import Claim, RunStore
from tests.template.contract.harness import A_RUN, LEASE, RETENTION, SCHEDULE_TIME, FirestoreHarness, Harness, a_claim

LONG = 600


def handed_over(harness: Harness) -> Claim:
    """The claim of a job that has handed its run over."""
    claim = harness.claimed()
    lease_of(harness.store, claim).hand_over(LONG)
    return claim


def lease_of(store: RunStore, claim: Claim) -> Lease:
    """A claim's lease, by the real clock."""
    clock = Clock()
    return Lease(store, claim, renews=True, ends_at=clock.monotonic() + 3600, clock=clock)


def resume(harness: Harness, claim: Claim, **how: Any) -> Any:
    """Goes on with the run, as the task that was started with its two ids."""
    settings = Settings(retention_seconds=RETENTION)
    return dedup.resume(claim.run_id, claim.attempt_id, settings=settings, store=harness.store, **{"task_attempt": 0, **how})


def test_hand_over_lengthens_the_lease(harness: Harness) -> None:
    """From the hand-over the lease is as long as it says, in the store and in the attempt's own eyes."""
    began = harness.monotonic()
    claim = handed_over(harness)
    record = harness.record()
    assert (record.lease_seconds, record.status, record.attempts) == (LONG, Status.IN_PROGRESS, 1)
    assert claim.token == record.updated_at
    assert claim.trusted_until >= began + LONG - 1
    assert harness.store.claim_run(a_claim()) is Decision.IN_PROGRESS


def test_hand_over_of_a_lost_run(harness: Harness) -> None:
    """A run that another attempt has taken over can't be handed over."""
    claim = harness.claimed()
    harness.expire_lease(A_RUN)
    successor = harness.claimed()
    with pytest.raises(LeaseLost):
        lease_of(harness.store, claim).hand_over(LONG)
    assert not claim.handed_over
    assert harness.record().attempt_id == successor.attempt_id
    assert harness.record().lease_seconds == LEASE


@pytest.mark.parametrize(("length", "trusted_until"), [(LEASE, 100 + LEASE - 1), (LONG, 110 + LONG - 1)])
def test_a_write_is_trusted_for_its_own_length(length: int, trusted_until: float) -> None:
    """An unclear write that is found is trusted for the lease that it has written, not for the one that was asked for since."""
    claim = a_claim()
    claim.wrote(SCHEDULE_TIME, 100.0)
    claim.lease_seconds, claim.unsettled_since = LONG, 110.0
    arrived = SCHEDULE_TIME + timedelta(seconds=1)
    claim.found(RunRecord(updated_at=arrived, status=Status.IN_PROGRESS, attempt_id=claim.attempt_id, lease_seconds=length))
    assert (claim.token, claim.trusted_until) == (arrived, trusted_until)


def test_the_work_completes_the_run(harness: Harness) -> None:
    """The run is in progress until the work is done, and completed then."""
    claim = handed_over(harness)
    with resume(harness, claim) as run:
        assert (run.id, run.attempt, run.job_name, run.attempt_id) == (A_RUN, 1, "nightly", claim.attempt_id)
        assert harness.store.claim_run(a_claim()) is Decision.IN_PROGRESS
    assert harness.record().status is Status.COMPLETED
    assert harness.store.claim_run(a_claim()) is Decision.COMPLETED


def test_the_job_may_take_the_run_back_before_the_work_begins(harness: Harness) -> None:
    """A job that couldn't start its work releases the run, and work that begins all the same finds nothing to go on with."""
    claim = handed_over(harness)
    assert harness.store.finish_run(claim, Ending.RELEASED)
    assert harness.raw(A_RUN) is None
    with pytest.raises(LeaseLost, match="no record"), resume(harness, claim):
        pytest.fail("resumed")


@pytest.mark.parametrize("ending", [Ending.RELEASED, Ending.FAILED])
def test_the_job_can_not_end_a_run_that_the_work_has(harness: Harness, ending: Ending) -> None:
    """Once the work has begun, an error of the job that has started it changes nothing."""
    claim = handed_over(harness)
    with resume(harness, claim):
        assert not harness.store.finish_run(claim, ending)
        assert harness.record().status is Status.IN_PROGRESS
    assert not harness.store.finish_run(claim, ending)
    assert harness.record().status is Status.COMPLETED


def test_an_error_keeps_the_run_for_the_next_task(harness: Harness) -> None:
    """An exception leaves the run in progress, its lease running, and the task's next attempt goes on as its owner."""
    claim = handed_over(harness)
    for task_attempt in range(2):
        with pytest.raises(ZeroDivisionError), resume(harness, claim, max_retries=2, task_attempt=task_attempt):
            raise ZeroDivisionError
        assert harness.record().is_held_by(claim.attempt_id)
        assert harness.store.claim_run(a_claim()) is Decision.IN_PROGRESS
    with resume(harness, claim, max_retries=2, task_attempt=2):
        pass
    assert harness.record().status is Status.COMPLETED


@pytest.mark.parametrize(
    ("raised", "task_attempt"), [(ZeroDivisionError("again"), 2), (SystemExit(1), 2), (dedup.PermanentError("no use"), 0)]
)
def test_the_last_error_is_recorded(harness: Harness, raised: BaseException, task_attempt: int) -> None:
    """The last attempt's exception, and a PermanentError in any, records the run as failed, with what was raised."""
    claim = handed_over(harness)
    with pytest.raises(type(raised)), resume(harness, claim, max_retries=2, task_attempt=task_attempt):
        raise raised
    record = harness.record()
    assert (record.status, record.error) == (Status.FAILED, f"{type(raised).__name__}: {raised}")
    assert harness.store.claim_run(a_claim()) is Decision.FAILED


def test_a_run_that_is_over_is_not_resumed(harness: Harness) -> None:
    """A task that is started again when its run is done finds that out before it does anything."""
    claim = handed_over(harness)
    with resume(harness, claim):
        pass
    with pytest.raises(LeaseLost, match="is completed"), resume(harness, claim):
        pytest.fail("resumed")


def test_a_run_that_was_taken_over_is_not_resumed(harness: Harness) -> None:
    """A task that comes when another attempt has taken its run over ends, and leaves the successor alone."""
    claim = handed_over(harness)
    harness.expire_lease(A_RUN)
    successor = harness.claimed()
    with pytest.raises(LeaseLost, match="another attempt's"), resume(harness, claim):
        pytest.fail("resumed")
    assert harness.record().attempt_id == successor.attempt_id


def test_a_run_without_lease_is_not_resumed(harness: Harness) -> None:
    """A run that was released by cutting its lease is nobody's, its own attempt's neither."""
    claim = handed_over(harness)
    raw = harness.raw(A_RUN)
    assert raw is not None
    harness.put(A_RUN, {**raw, "lease_seconds": 0})
    with pytest.raises(LeaseLost), resume(harness, claim):
        pytest.fail("resumed")


def test_the_last_task_was_killed(harness: Harness) -> None:
    """What is left of it is a run in progress whose lease runs out, and which a later delivery takes over."""
    handed_over(harness)
    assert harness.store.claim_run(a_claim()) is Decision.IN_PROGRESS
    harness.expire_lease(A_RUN)
    assert harness.record().status is Status.IN_PROGRESS
    assert harness.claimed().attempts == 2


def test_a_run_that_is_lost_on_the_way(harness: Harness) -> None:
    """Work whose run was taken over changes nothing of it when it ends well."""
    with resume(harness, handed_over(harness)):
        harness.expire_lease(A_RUN)
        successor = harness.claimed()
    assert harness.record().is_held_by(successor.attempt_id)


def test_a_run_that_is_lost_before_the_last_error(harness: Harness) -> None:
    """Nor does work that finds its run lost, in its last attempt: LeaseLost is no failure of the run."""
    with pytest.raises(LeaseLost), resume(harness, handed_over(harness), task_attempt=3) as run:
        _lose(harness, run)
    assert (harness.record().status, harness.record().attempts) == (Status.IN_PROGRESS, 2)


def test_a_run_that_may_be_lost_has_not_failed(harness: Harness) -> None:
    """Where the lease ran out in the last attempt and nobody has taken the run yet, it is left for somebody to take."""
    with pytest.raises(LeaseLost), resume(harness, handed_over(harness), task_attempt=3) as run:
        _outlive(run)
    assert harness.record().status is Status.IN_PROGRESS


def _outlive(run: dedup.Run) -> None:
    """Lets the attempt's trust in its lease end, as a pause does."""
    run._claim.trusted_until = float("-inf")
    run.ensure_held()


def _lose(harness: Harness, run: dedup.Run) -> None:
    """Lets a rival take the run over, and its owner find that out."""
    harness.expire_lease(A_RUN)
    harness.claimed()
    run._lease._renew()
    run.ensure_held()


def test_the_works_own_writes_are_one_commit_with_its_completion(transactional: Harness) -> None:
    """on_commit works in a resumed run as in any."""
    claim = handed_over(transactional)
    with resume(transactional, claim) as run:
        run.on_commit(transactional.count_one)
    assert (transactional.record().status, transactional.counted()) == (Status.COMPLETED, 1)


@pytest.mark.parametrize(("task_attempt", "status"), [(0, Status.IN_PROGRESS), (3, Status.FAILED)])
def test_own_writes_that_fail(transactional: Harness, task_attempt: int, status: Status) -> None:
    """What on_commit's function raises is the work's exception: the run stays for the next task, or has failed."""
    claim = handed_over(transactional)

    def effects(transaction: Any) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), resume(transactional, claim, task_attempt=task_attempt) as run:
        run.on_commit(effects)
    assert transactional.record().status is status


def test_own_writes_of_a_run_that_is_lost(transactional: Harness) -> None:
    """Where the run was taken over, the work's own writes aren't there, and it is told."""
    claim = handed_over(transactional)
    with pytest.raises(LeaseLost), resume(transactional, claim) as run:
        _count_and_lose(transactional, run)
    assert transactional.counted() == 0


def _count_and_lose(harness: Harness, run: dedup.Run) -> None:
    """Asks for own writes, and lets a rival take the run over."""
    run.on_commit(harness.count_one)
    harness.expire_lease(A_RUN)
    harness.claimed()


def test_a_release_between_two_renewals_of_the_work(harness: Harness) -> None:
    """The job's release never removes the record under the work, however often it is tried."""
    claim = handed_over(harness)
    with resume(harness, claim):
        for _ in range(3):
            Attempt(harness.store, claim, lease_of(harness.store, claim), 10.0).give_up(ZeroDivisionError())
            assert harness.record().is_held_by(claim.attempt_id)


@pytest.fixture
def firestore(request: pytest.FixtureRequest) -> Any:
    """Firestore, whose acknowledgements can be lost."""
    harness = FirestoreHarness(request)
    yield harness
    harness.close()


@pytest.mark.store("firestore")
@pytest.mark.parametrize("arrives", [True, False])
def test_an_unclear_hand_over(firestore: FirestoreHarness, arrives: bool) -> None:
    """A hand-over that went unacknowledged is found, or sent again."""
    claim = firestore.claimed()
    firestore.spy.fail("commit", google.DeadlineExceeded("injected"), arrives=arrives)
    lease_of(firestore.store, claim).hand_over(LONG)
    assert firestore.record().lease_seconds == LONG
    assert claim.token == firestore.record().updated_at


@pytest.mark.store("firestore")
def test_an_unclear_renewal_is_not_taken_for_the_hand_over(firestore: FirestoreHarness) -> None:
    """A renewal of the shorter lease that arrives before the hand-over doesn't pass for it."""
    claim = firestore.claimed()
    firestore.spy.fail("commit", google.DeadlineExceeded("injected"), times=1)
    with_late_renewal = firestore.spy

    def arrive() -> None:
        if with_late_renewal.methods.count("commit") == 3:
            with_late_renewal.before_write = lambda: None
            with_late_renewal.resend(with_late_renewal.rpcs[1])

    assert firestore.store._renew(claim, claim.token, firestore.store._tries(5)).name == "UNCLEAR"
    with_late_renewal.before_write = arrive
    lease_of(firestore.store, claim).hand_over(LONG)
    assert firestore.record().lease_seconds == LONG
    assert claim.token == firestore.record().updated_at
