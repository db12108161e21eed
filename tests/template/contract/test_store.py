"""What every store promises. One suite: a store is added by one entry in harness.HARNESSES, nothing here is copied."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dedup.record import Decision, Ending, Status
from dedup.stores import EffectsRaised, RunStore
from tests.template.contract.harness import A_RUN, LEASE, RETENTION, SCHEDULE_TIME, FirestoreHarness, Harness, a_claim
from tests.template.contract.threads import at_once
from tests.template.size import WHOLE

MANY = 50
NEAR = timedelta(seconds=30)
"""How far a time may be from the one that a test has in mind, on a busy machine; leases here are longer."""

# Claim.


def test_new_run_is_claimed(store: RunStore) -> None:
    """A run that nobody has is claimed, as its first attempt."""
    claim = a_claim()
    assert store.claim_run(claim) is Decision.CLAIM
    assert claim.attempts == 1


def test_claim_is_written(harness: Harness) -> None:
    """A claim is a record in progress in the name of its attempt."""
    claim = harness.claimed()
    record = harness.record()
    assert record.status is Status.IN_PROGRESS
    assert record.attempt_id == claim.attempt_id
    assert record.updated_at == claim.token


@pytest.mark.parametrize(
    ("ending", "decision"),
    [(Ending.COMPLETED, Decision.COMPLETED), (Ending.FAILED, Decision.FAILED)],
    ids=["completed", "failed"],
)
def test_ended_run_is_not_claimed(harness: Harness, ending: Ending, decision: Decision) -> None:
    """A run that is completed, or failed for good, is not claimed again, and stays as it is."""
    assert harness.store.finish_run(harness.claimed(), ending)
    before = harness.raw(A_RUN)
    assert harness.store.claim_run(a_claim()) is decision
    assert harness.raw(A_RUN) == before


@pytest.mark.parametrize("ending", [Ending.COMPLETED, Ending.FAILED], ids=["completed", "failed"])
def test_ended_run_has_no_lease(harness: Harness, ending: Ending) -> None:
    """A run that has ended stays ended after what was its lease."""
    assert harness.store.finish_run(harness.claimed(), ending)
    harness.expire_lease(A_RUN)
    assert harness.store.claim_run(a_claim()).name == ending.name


def test_held_run_is_not_claimed(harness: Harness) -> None:
    """A run that another attempt holds is in progress, and stays as it is."""
    harness.claimed()
    before = harness.raw(A_RUN)
    assert harness.store.claim_run(a_claim()) is Decision.IN_PROGRESS
    assert harness.raw(A_RUN) == before


def test_released_run_is_claimed(harness: Harness) -> None:
    """A run whose attempt gave it up is claimed by the next one, without waiting for the lease."""
    assert harness.store.finish_run(harness.claimed(), Ending.RELEASED)
    claim = a_claim()
    assert harness.store.claim_run(claim) is Decision.CLAIM
    assert claim.attempts == 1


def test_runs_are_apart(harness: Harness) -> None:
    """Holding one run holds no other."""
    harness.claimed("a" * 64)
    assert harness.store.claim_run(a_claim("b" * 64)) is Decision.CLAIM


def test_claim_finds_itself(harness: Harness) -> None:
    """An attempt that claims again holds what it has claimed before: attempts is as it was, and its trust begins anew."""
    first = harness.claimed()
    again = a_claim(attempt_id=first.attempt_id)
    assert harness.store.claim_run(again) is Decision.CLAIM
    assert again.attempts == 1
    assert harness.record().attempts == 1
    assert again.is_trusted(harness.monotonic())
    assert harness.record().updated_at == again.token


# Take-over.


def test_take_over(harness: Harness) -> None:
    """A run whose lease is over is taken over, as its second attempt."""
    harness.claimed()
    harness.expire_lease(A_RUN)
    successor = a_claim()
    assert harness.store.claim_run(successor) is Decision.CLAIM
    assert successor.attempts == 2
    record = harness.record()
    assert (record.attempt_id, record.attempts, record.status) == (successor.attempt_id, 2, Status.IN_PROGRESS)


def test_taken_over_run_is_held(harness: Harness) -> None:
    """A run that was taken over has a whole lease again."""
    harness.claimed()
    harness.expire_lease(A_RUN)
    harness.claimed()
    assert harness.store.claim_run(a_claim()) is Decision.IN_PROGRESS


def test_take_over_from_itself(harness: Harness) -> None:
    """An attempt whose own lease is over takes the run over from itself."""
    claim = harness.claimed()
    harness.expire_lease(A_RUN)
    assert harness.store.claim_run(claim) is Decision.CLAIM
    assert claim.attempts == harness.record().attempts == 2


def test_take_over_clears(harness: Harness) -> None:
    """A take-over leaves nothing of what the dead attempt wrote."""
    now = harness.now()
    left = {"result": "half", "error": "half", "finished_at": now, "renewed_at": now}
    claim = harness.claimed(scope="project/region")
    fields = harness.raw(A_RUN)
    assert fields is not None
    harness.put(A_RUN, {**fields, **left})
    harness.expire_lease(A_RUN)
    successor = harness.claimed()
    fields = harness.raw(A_RUN)
    assert fields is not None
    assert not left.keys() & fields.keys()
    assert fields["attempt_id"] == successor.attempt_id != claim.attempt_id


def test_documented_record_is_held(harness: Harness) -> None:
    """A record of the documented example, which has no lease_seconds, holds its run until lease_expires."""
    harness.put_documented(A_RUN, "in_progress", timedelta(minutes=5))
    before = harness.raw(A_RUN)
    assert harness.store.claim_run(a_claim()) is Decision.IN_PROGRESS
    assert harness.raw(A_RUN) == before


def test_documented_record_is_taken_over(harness: Harness) -> None:
    """A record of the documented example whose lease_expires has passed is taken over, and counts as one attempt."""
    harness.put_documented(A_RUN, "in_progress", -timedelta(seconds=1))
    claim = a_claim()
    assert harness.store.claim_run(claim) is Decision.CLAIM
    assert claim.attempts == harness.record().attempts == 2
    assert harness.store.finish_run(claim, Ending.COMPLETED)


def test_documented_completion_counts(harness: Harness) -> None:
    """A run that the documented example has completed is completed."""
    harness.put_documented(A_RUN, "completed", -timedelta(hours=1))
    assert harness.store.claim_run(a_claim()) is Decision.COMPLETED


# Records that nobody can read.

MALFORMED: dict[str, dict[str, Any]] = {
    "no status": {"status": ""},
    "unknown status": {"status": "done"},
    "no owner": {"attempt_id": ""},
    "no lease": {"lease_seconds": None},
    "lease is text": {"lease_seconds": "soon"},
    "lease is negative": {"lease_seconds": -1},
}


def put_malformed(harness: Harness, fault: str, **other: Any) -> None:
    """Writes a record in progress whose lease is long over, or would be if it could be read."""
    usual = {"status": "in_progress", "attempt_id": "a" * 32, "lease_seconds": 0}
    fields = usual | MALFORMED[fault] | other
    harness.put(A_RUN, {name: value for name, value in fields.items() if value is not None})


@pytest.mark.parametrize("fault", MALFORMED)
def test_malformed_record_fails_closed(harness: Harness, fault: str, errors: list[str]) -> None:
    """A record that nobody can read holds its run, is left as it is, and is logged as an error that names the run."""
    put_malformed(harness, fault)
    before = harness.raw(A_RUN)
    assert harness.store.claim_run(a_claim()) is Decision.IN_PROGRESS
    assert harness.raw(A_RUN) == before
    assert [A_RUN in message for message in errors] == [True]


def test_malformed_record_ends(harness: Harness) -> None:
    """A record that nobody can read is let go of at its expire_at."""
    put_malformed(harness, "lease is text", expire_at=harness.now() - timedelta(seconds=1))
    assert harness.store.claim_run(a_claim()) is Decision.CLAIM


def test_malformed_record_is_nobodys(harness: Harness) -> None:
    """Whose status nobody can read, the attempt that is named in it can neither renew nor finish."""
    claim = harness.claimed()
    harness.put(A_RUN, {"status": "running", "attempt_id": claim.attempt_id, "lease_seconds": LEASE})
    before = harness.raw(A_RUN)
    assert not harness.store.renew_run(claim)
    assert not harness.store.finish_run(claim, Ending.COMPLETED)
    assert harness.raw(A_RUN) == before


# The record.


def test_record_in_progress(harness: Harness) -> None:
    """A claim writes DESIGN's fields, with their types."""
    before = harness.now()
    claim = harness.claimed(scope="project/region")
    fields = harness.raw(A_RUN)
    assert fields is not None
    moments = {name: fields.pop(name) for name in ("lease_expires", "expire_at", "claimed_at")}
    assert fields == {
        "status": "in_progress",
        "attempt_id": claim.attempt_id,
        "lease_seconds": LEASE,
        "job_name": "nightly",
        "schedule_time": SCHEDULE_TIME,
        "scope": "project/region",
        "attempts": 1,
    }
    assert type(fields["lease_seconds"]) is type(fields["attempts"]) is int
    for name, after in {"claimed_at": 0, "lease_expires": LEASE, "expire_at": RETENTION}.items():
        assert isinstance(moments[name], datetime)
        assert timedelta() <= moments[name] - before - timedelta(seconds=after) < NEAR, name


def test_record_without_scope(harness: Harness) -> None:
    """A run without a scope has no such field."""
    harness.claimed()
    assert "scope" not in (harness.raw(A_RUN) or {})


def test_record_completed(harness: Harness) -> None:
    """A completion adds when, and what the job returned; the rest stays."""
    claim = harness.claimed()
    before = harness.raw(A_RUN)
    now = harness.now()
    assert before is not None
    assert harness.store.finish_run(claim, Ending.COMPLETED, result="12 rows")
    fields = harness.raw(A_RUN)
    assert fields is not None
    finished_at = fields.pop("finished_at")
    assert timedelta() <= finished_at - now < NEAR
    assert fields == before | {"status": "completed", "result": "12 rows"}


def test_record_failed(harness: Harness) -> None:
    """A failure for good adds when, and what the job raised; the rest stays."""
    claim = harness.claimed()
    before = harness.raw(A_RUN)
    assert before is not None
    assert harness.store.finish_run(claim, Ending.FAILED, error="PermanentError: no such table")
    fields = harness.raw(A_RUN)
    assert fields is not None
    assert isinstance(fields.pop("finished_at"), datetime)
    assert fields == before | {"status": "failed", "error": "PermanentError: no such table"}


def test_record_released(harness: Harness) -> None:
    """Nothing is left of a run that its attempt gave up."""
    assert harness.store.finish_run(harness.claimed(), Ending.RELEASED)
    assert harness.raw(A_RUN) is None


def test_empty_result_is_kept(harness: Harness) -> None:
    """An empty result is a result; none at all is none."""
    assert harness.store.finish_run(harness.claimed(), Ending.COMPLETED, result="")
    assert harness.record().result == ""
    assert harness.store.finish_run(harness.claimed("b" * 64), Ending.COMPLETED)
    assert harness.record("b" * 64).result is None


def test_get_run(harness: Harness) -> None:
    """A run is read as a record, with times that are aware, and one that isn't there as None."""
    assert harness.store.get_run(A_RUN) is None
    claim = harness.claimed(scope="project/region")
    assert harness.store.renew_run(claim)
    assert harness.store.finish_run(claim, Ending.COMPLETED, result="12 rows")
    record = harness.record()
    fields = harness.raw(A_RUN)
    assert fields is not None
    assert {name: getattr(record, name) for name in fields} == fields
    assert {moment.tzinfo.utcoffset(moment) for moment in fields.values() if isinstance(moment, datetime)} == {timedelta()}
    assert record.updated_at.tzinfo is not None
    assert (record.error, record.malformed) == (None, False)


def test_get_run_shows_malformed(harness: Harness) -> None:
    """A record that nobody can read can still be looked at."""
    put_malformed(harness, "unknown status")
    assert harness.record().malformed


# Renewal.


def test_renewal_moves_the_lease(harness: Harness) -> None:
    """A renewal moves the lease and the expiry on, says when, and leaves everything else as it is."""
    claim = harness.claimed()
    before = harness.raw(A_RUN)
    token = claim.token
    assert before is not None
    assert token is not None
    time.sleep(0.01)
    assert harness.store.renew_run(claim)
    after = harness.raw(A_RUN)
    assert after is not None
    record = harness.record()
    assert token < record.updated_at == claim.token
    assert abs(after.pop("renewed_at") - record.updated_at) < NEAR
    for name in ("lease_expires", "expire_at"):
        assert after.pop(name) > before.pop(name)
    assert after == before


def test_renewal_extends_trust(harness: Harness) -> None:
    """An attempt trusts its renewed lease from the renewal on."""
    claim = harness.claimed()
    harness.monotonic.ahead += LEASE
    assert not claim.is_trusted(harness.monotonic())
    assert harness.store.renew_run(claim)
    assert claim.is_trusted(harness.monotonic())


def test_renewal_after_take_over(harness: Harness) -> None:
    """An attempt whose run was taken over can't renew, and changes nothing."""
    claim = harness.claimed()
    harness.expire_lease(A_RUN)
    harness.claimed()
    before, trusted_until = harness.raw(A_RUN), claim.trusted_until
    assert not harness.store.renew_run(claim)
    assert harness.raw(A_RUN) == before
    assert claim.trusted_until == trusted_until


@pytest.mark.parametrize("ending", Ending, ids=lambda ending: ending.value)
def test_renewal_after_finish(harness: Harness, ending: Ending) -> None:
    """An attempt that has finished can't renew, and changes nothing."""
    claim = harness.claimed()
    assert harness.store.finish_run(claim, ending)
    before = harness.raw(A_RUN)
    assert not harness.store.renew_run(claim)
    assert harness.raw(A_RUN) == before


@pytest.mark.parametrize("there", [True, False], ids=["held by another", "absent"])
def test_renewal_without_claim(harness: Harness, there: bool) -> None:
    """An attempt that has claimed nothing renews nothing, and changes nothing."""
    if there:
        harness.claimed()
    before = harness.raw(A_RUN)
    assert not harness.store.renew_run(a_claim())
    assert harness.raw(A_RUN) == before


def test_renewal_after_deletion(harness: Harness) -> None:
    """An attempt whose record was deleted by hand can't renew, and doesn't bring it back."""
    claim = harness.claimed()
    harness.delete(A_RUN)
    assert not harness.store.renew_run(claim)
    assert harness.raw(A_RUN) is None


# Finish: the fencing.


@pytest.mark.parametrize("ending", Ending, ids=lambda ending: ending.value)
def test_finish_after_take_over(harness: Harness, ending: Ending) -> None:
    """An attempt whose run was taken over can't end it, and changes nothing."""
    claim = harness.claimed()
    harness.expire_lease(A_RUN)
    harness.claimed()
    before = harness.raw(A_RUN)
    assert not harness.store.finish_run(claim, ending, result="late", error="late")
    assert harness.raw(A_RUN) == before


def test_finish_after_successor_finished(harness: Harness) -> None:
    """An attempt whose successor has completed the run can't end it, and changes nothing."""
    claim = harness.claimed()
    harness.expire_lease(A_RUN)
    assert harness.store.finish_run(harness.claimed(), Ending.COMPLETED, result="the successor's")
    before = harness.raw(A_RUN)
    for ending in Ending:
        assert not harness.store.finish_run(claim, ending, result="late")
    assert harness.raw(A_RUN) == before


def test_finish_after_successor_released(harness: Harness) -> None:
    """An attempt whose successor has given the run up can't complete it."""
    claim = harness.claimed()
    harness.expire_lease(A_RUN)
    assert harness.store.finish_run(harness.claimed(), Ending.RELEASED)
    assert not harness.store.finish_run(claim, Ending.COMPLETED)
    assert harness.raw(A_RUN) is None


def test_finish_after_deletion(harness: Harness) -> None:
    """An attempt whose record was deleted by hand can't complete it."""
    claim = harness.claimed()
    harness.delete(A_RUN)
    assert not harness.store.finish_run(claim, Ending.COMPLETED)
    assert harness.raw(A_RUN) is None


@pytest.mark.parametrize("ending", Ending, ids=lambda ending: ending.value)
def test_finish_after_lease(harness: Harness, ending: Ending) -> None:
    """An attempt whose lease is over, and whose run nobody else has, ends it as usual."""
    claim = harness.claimed()
    harness.expire_lease(A_RUN)
    assert harness.store.finish_run(claim, ending)
    next_one = Decision.CLAIM if ending is Ending.RELEASED else Decision[ending.name]
    assert harness.store.claim_run(a_claim()) is next_one


@pytest.mark.parametrize("ending", Ending)
def test_finish_after_expiry_by_hand(harness: Harness, ending: Ending) -> None:
    """A lease that somebody has set to nothing is still its attempt's, which ends its run as ever; a release leaves none."""
    claim = harness.claimed()
    harness.expire_lease(A_RUN)
    assert harness.store.finish_run(claim, ending)
    left = harness.store.get_run(A_RUN)
    assert (left.status.value if left is not None and left.status is not None else "released") == ending.value


@pytest.mark.parametrize("ending", [Ending.RELEASED, Ending.FAILED])
def test_effects_come_with_completion_only(transactional: Harness, ending: Ending) -> None:
    """A run that isn't completed has no effects."""
    claim = transactional.claimed()
    assert transactional.store.finish_run(claim, ending, effects=transactional.count_one)
    assert transactional.counted() == 0


def test_finish_after_renewal(harness: Harness) -> None:
    """An attempt ends its run with what it knows after a renewal."""
    claim = harness.claimed()
    for _ in range(3):
        assert harness.store.renew_run(claim)
    assert harness.store.finish_run(claim, Ending.COMPLETED)
    assert harness.record().status is Status.COMPLETED


def test_finish_beside_renewal(harness: Harness) -> None:
    """A renewal that was applied unseen while the job ended doesn't keep the run from being recorded."""
    claim = harness.claimed()
    assert harness.store.renew_run(dataclasses.replace(claim))
    assert harness.store.finish_run(claim, Ending.COMPLETED)
    assert harness.record().status is Status.COMPLETED


@pytest.mark.parametrize("first", [Ending.COMPLETED, Ending.FAILED], ids=["completed", "failed"])
@pytest.mark.parametrize("then", Ending, ids=lambda ending: ending.value)
def test_finish_after_finish(harness: Harness, first: Ending, then: Ending) -> None:
    """An attempt that has ended its run can't end it another way: the run stays as it was recorded."""
    claim = harness.claimed()
    assert harness.store.finish_run(claim, first, result="first", error="first")
    before = harness.raw(A_RUN)
    recorded = harness.store.finish_run(claim, then, result="first", error="first")
    after = harness.raw(A_RUN)
    assert after is not None
    assert before is not None
    assert after | {"finished_at": None} == before | {"finished_at": None}
    assert first is then or not recorded


# Trust.


@pytest.mark.parametrize("lease_seconds", [1, 5, 60])
def test_claim_is_trusted_from_before_its_write(harness: Harness, lease_seconds: int) -> None:
    """However long its write takes, an attempt trusts its lease from before it, less the margin."""
    harness.write_seconds = lease_seconds / 2
    began = harness.monotonic()
    claim = harness.claimed(lease_seconds=lease_seconds)
    assert harness.monotonic() - began >= harness.write_seconds
    assert claim.trusted_until < began + harness.write_seconds + lease_seconds - min(1.0, lease_seconds / 10)
    assert claim.trusted_until >= began + lease_seconds - min(1.0, lease_seconds / 10)


def test_take_over_and_renewal_are_trusted_from_before_their_write(harness: Harness) -> None:
    """A take-over, a renewal and finding oneself extend the trust no further than a first claim does."""
    harness.claimed()
    harness.expire_lease(A_RUN)
    harness.write_seconds = 2.0
    claim = a_claim()
    for write in (harness.store.claim_run, harness.store.renew_run, harness.store.claim_run):
        began = harness.monotonic()
        assert write(claim)
        writes = (harness.monotonic() - began) // harness.write_seconds  # Firestore's first is the create, which is refused
        assert claim.trusted_until - LEASE + 1.0 < began + writes * harness.write_seconds


def test_trust_ends_before_the_lease(harness: Harness) -> None:
    """By the store's clock, an attempt's trust has ended when the run can be taken over."""
    claim = harness.claimed()
    left = claim.trusted_until - harness.monotonic()
    assert harness.now() + timedelta(seconds=left) < harness.record().live_until


def test_lease_of_a_second(harness: Harness) -> None:
    """The shortest lease, in real time: held, renewed, held, and over; its owner's trust has ended by then."""
    if not WHOLE and not isinstance(harness, FirestoreHarness):
        pytest.skip("waits 2 s: WHOLE=0; on Firestore alone")
    claim = harness.claimed(lease_seconds=1)
    time.sleep(0.5)
    assert harness.store.claim_run(a_claim()) is Decision.IN_PROGRESS
    assert harness.store.renew_run(claim)
    time.sleep(0.7)
    assert harness.store.claim_run(a_claim()) is Decision.IN_PROGRESS
    time.sleep(0.35)
    assert not claim.is_trusted(harness.monotonic())
    assert harness.store.claim_run(a_claim()) is Decision.CLAIM
    assert not harness.store.finish_run(claim, Ending.COMPLETED)


def test_late_renewal(harness: Harness) -> None:
    """A renewal that comes after the lease, in real time, holds the run again if nobody has taken it."""
    claim = harness.claimed(lease_seconds=1)
    time.sleep(1.05)
    assert harness.store.renew_run(claim)
    assert harness.store.claim_run(a_claim()) is Decision.IN_PROGRESS


# Effects: the job's own writes, in one commit with the completion.


def test_effects_are_committed_with_completion(transactional: Harness) -> None:
    """A job's effects are there when its run is completed."""
    assert transactional.store.supports_effects
    claim = transactional.claimed()
    assert transactional.store.finish_run(claim, Ending.COMPLETED, result="12 rows", effects=transactional.count_one)
    assert transactional.counted() == 1
    assert (transactional.record().status, transactional.record().result) == (Status.COMPLETED, "12 rows")


def test_effects_that_raise(transactional: Harness) -> None:
    """Where a job's effects raise, neither they nor the completion are written, and what they raised is handed on."""
    raised = KeyError("no such account")

    def effects(transaction: Any) -> None:
        transactional.count_one(transaction)
        raise raised

    claim = transactional.claimed()
    before = transactional.raw(A_RUN)
    with pytest.raises(EffectsRaised) as caught:
        transactional.store.finish_run(claim, Ending.COMPLETED, effects=effects)
    assert caught.value.raised is raised
    assert str(caught.value) == repr(raised)
    assert transactional.raw(A_RUN) == before
    assert transactional.counted() == 0
    assert transactional.store.finish_run(claim, Ending.RELEASED)


def test_effects_of_a_superseded_attempt(transactional: Harness) -> None:
    """The effects of an attempt whose run was taken over are not applied."""
    claim = transactional.claimed()
    transactional.expire_lease(A_RUN)
    successor = transactional.claimed()
    assert not transactional.store.finish_run(claim, Ending.COMPLETED, effects=transactional.count_one)
    assert transactional.counted() == 0
    assert transactional.store.finish_run(successor, Ending.COMPLETED, effects=transactional.count_one)
    assert transactional.counted() == 1


def test_effects_are_applied_once(transactional: Harness) -> None:
    """The effects of an attempt that has completed its run are not applied again."""
    claim = transactional.claimed()
    assert transactional.store.finish_run(claim, Ending.COMPLETED, effects=transactional.count_one)
    before = transactional.raw(A_RUN)
    transactional.store.finish_run(claim, Ending.COMPLETED, effects=transactional.count_one)
    assert transactional.counted() == 1
    assert transactional.raw(A_RUN) == before


def test_effects_after_lease(transactional: Harness) -> None:
    """The effects of an attempt whose lease is over, and whose run nobody else has, are applied."""
    claim = transactional.claimed()
    transactional.expire_lease(A_RUN)
    assert transactional.store.finish_run(claim, Ending.COMPLETED, effects=transactional.count_one)
    assert transactional.counted() == 1


# Many at once.


def test_many_claim_one_run(harness: Harness) -> None:
    """Of 50 attempts at one run at the same moment, one gets it, and the others hear that it is in progress."""
    claims = [a_claim() for _ in range(MANY)]
    decisions = at_once(harness.store.claim_run, claims)
    assert Counter(decisions) == {Decision.CLAIM: 1, Decision.IN_PROGRESS: MANY - 1}
    assert harness.record().attempt_id == claims[decisions.index(Decision.CLAIM)].attempt_id


def test_many_take_over_one_run(harness: Harness) -> None:
    """Of 50 attempts at one run whose lease is over, one takes it over, and the others hear that it is in progress."""
    harness.claimed()
    harness.expire_lease(A_RUN)
    claims = [a_claim() for _ in range(MANY)]
    decisions = at_once(harness.store.claim_run, claims)
    assert Counter(decisions) == {Decision.CLAIM: 1, Decision.IN_PROGRESS: MANY - 1}
    record = harness.record()
    assert (record.attempt_id, record.attempts) == (claims[decisions.index(Decision.CLAIM)].attempt_id, 2)


def test_many_runs(harness: Harness) -> None:
    """Attempts at many runs at the same moment hold up none: each claims and finishes its own."""

    def whole(run_id: str) -> tuple[Decision, bool]:
        claim = a_claim(run_id)
        return harness.store.claim_run(claim), harness.store.finish_run(claim, Ending.COMPLETED)

    run_ids = [f"{n:064x}" for n in range(harness.runs_at_once)]
    assert at_once(whole, run_ids) == [(Decision.CLAIM, True)] * harness.runs_at_once
    assert {harness.record(run_id).status for run_id in run_ids} == {Status.COMPLETED}


def test_times_are_utc(harness: Harness) -> None:
    """A schedule time in another zone is the same moment when it is read again."""
    elsewhere = SCHEDULE_TIME.astimezone(datetime.strptime("-0700", "%z").tzinfo)
    harness.claimed(schedule_time=elsewhere)
    assert harness.record().schedule_time == SCHEDULE_TIME == SCHEDULE_TIME.astimezone(UTC)
