"""The record, and the rule of a claim."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup.record import LONGEST_LEASE_SECONDS, MALFORMED_LIVES_FOR, Decision, RunRecord, Status, decide

WRITTEN = datetime(2026, 10, 16, 12, 0, tzinfo=UTC)
OURS = "a" * 32
THEIRS = "b" * 32
TICK = timedelta(microseconds=1)
NAN, INFINITY = float("nan"), float("inf")
NAIVE = WRITTEN.replace(tzinfo=None)


def record(**fields: Any) -> RunRecord:
    """A record as a store reads it: in progress in another attempt's name, for a lease of 300 s, but for what is given."""
    usual = {"status": "in_progress", "attempt_id": THEIRS, "lease_seconds": 300}
    return RunRecord.from_fields({name: value for name, value in (usual | fields).items() if value != "ABSENT"}, WRITTEN)


def seconds(count: float) -> datetime:
    """That long after the record's last write."""
    return WRITTEN + timedelta(seconds=count)


DOCUMENTED = {"lease_seconds": "ABSENT", "lease_expires": seconds(300), "expire_at": seconds(86400)}
"""How the documented example's record differs: it has no lease_seconds."""


@pytest.mark.parametrize(
    ("held", "attempt_id", "now", "decision"),
    [
        pytest.param(None, OURS, WRITTEN, Decision.CLAIM, id="none"),
        pytest.param(record(status="completed"), OURS, seconds(1), Decision.COMPLETED, id="completed"),
        pytest.param(record(status="completed"), OURS, seconds(10**8), Decision.COMPLETED, id="completed, long ago"),
        pytest.param(record(status="completed"), THEIRS, seconds(1), Decision.COMPLETED, id="completed, by this attempt"),
        pytest.param(record(status="failed"), OURS, seconds(1), Decision.FAILED, id="failed"),
        pytest.param(record(status="failed"), OURS, seconds(10**8), Decision.FAILED, id="failed, long ago"),
        pytest.param(record(), THEIRS, seconds(299), Decision.HELD, id="live, this attempt's"),
        pytest.param(record(), THEIRS, seconds(301), Decision.CLAIM, id="expired, this attempt's"),
        pytest.param(record(), OURS, seconds(299), Decision.IN_PROGRESS, id="live, another's"),
        pytest.param(record(), OURS, seconds(301), Decision.CLAIM, id="expired, another's"),
        pytest.param(record(**DOCUMENTED), OURS, seconds(299), Decision.IN_PROGRESS, id="documented, live"),
        pytest.param(record(**DOCUMENTED), OURS, seconds(301), Decision.CLAIM, id="documented, expired"),
        pytest.param(record(**DOCUMENTED), THEIRS, seconds(299), Decision.HELD, id="documented, live, this attempt's"),
        pytest.param(
            record(**DOCUMENTED | {"status": "completed"}), OURS, seconds(301), Decision.COMPLETED, id="documented, completed"
        ),
        pytest.param(
            record(lease_expires=seconds(5)), OURS, seconds(299), Decision.IN_PROGRESS, id="lease_expires early, lease live"
        ),
        pytest.param(
            record(lease_expires=seconds(9999)), OURS, seconds(301), Decision.CLAIM, id="lease_expires late, lease expired"
        ),
        pytest.param(record(expire_at=seconds(5)), OURS, seconds(299), Decision.IN_PROGRESS, id="TTL past, lease live"),
        pytest.param(record(expire_at=seconds(9999)), OURS, seconds(301), Decision.CLAIM, id="TTL ahead, lease expired"),
    ],
)
def test_decides_by_the_table(held: RunRecord | None, attempt_id: str, now: datetime, decision: Decision) -> None:
    """Each row of DESIGN's table decides as it says."""
    assert decide(held, attempt_id, now) is decision


@pytest.mark.parametrize(
    ("held", "end"),
    [
        pytest.param(record(), seconds(300), id="lease_seconds"),
        pytest.param(record(lease_seconds=0.5), seconds(0.5), id="half a second"),
        pytest.param(record(lease_seconds=0), WRITTEN, id="released by an update: lease_seconds 0"),
        pytest.param(record(lease_seconds=LONGEST_LEASE_SECONDS), seconds(LONGEST_LEASE_SECONDS), id="the longest lease"),
        pytest.param(record(**DOCUMENTED), seconds(300), id="lease_expires"),
        pytest.param(record(status="odd", expire_at=seconds(7)), seconds(7), id="malformed: expire_at"),
        pytest.param(record(status="odd"), WRITTEN + MALFORMED_LIVES_FOR, id="malformed: a day"),
    ],
)
def test_a_lease_is_over_at_its_end(held: RunRecord, end: datetime) -> None:
    """A run is held until a microsecond before the end of its lease, and free at the end itself."""
    assert decide(held, OURS, end - TICK) is Decision.IN_PROGRESS
    assert decide(held, OURS, end) is Decision.CLAIM


@pytest.mark.parametrize(
    "fault",
    [
        *({"status": status} for status in ("ABSENT", None, "", "IN_PROGRESS", "done", 1, True, b"completed", ["completed"])),
        *({"attempt_id": attempt_id} for attempt_id in ("ABSENT", None, "", 7, THEIRS.encode())),
        *(
            {"lease_seconds": lease}
            for lease in (
                "ABSENT",
                None,
                "300",
                True,
                False,
                -1,
                -0.001,
                10**9 + 1,
                10**400,
                1e300,
                INFINITY,
                NAN,
                [300],
                NAIVE,
            )
        ),
        *({"lease_seconds": lease, "lease_expires": seconds(1)} for lease in ("300", True, -1, NAN, 10**400)),
        *(DOCUMENTED | {"lease_expires": expires} for expires in ("ABSENT", None, NAIVE, "2026-10-16T12:05:00Z", 300)),
    ],
    ids=lambda fault: repr(fault)[:80],
)
def test_fails_closed_on_a_malformed_record(fault: dict[str, Any]) -> None:
    """A record that nobody can read gives its run to nobody, not even to the attempt it names, until expire_at."""
    held = record(**fault | {"expire_at": seconds(7)})
    assert held.malformed
    assert {decide(held, attempt_id, seconds(7) - TICK) for attempt_id in (OURS, THEIRS)} == {Decision.IN_PROGRESS}
    assert {decide(held, attempt_id, seconds(7)) for attempt_id in (OURS, THEIRS)} == {Decision.CLAIM}


@pytest.mark.parametrize("expire_at", ["ABSENT", None, NAIVE, "2026-10-16T12:00:07Z", 0, True], ids=repr)
def test_a_malformed_record_without_expiry_holds_its_run_for_a_day(expire_at: Any) -> None:
    """Where expire_at can't be read either, a malformed record lives for a day after its last write."""
    held = record(status="odd", expire_at=expire_at)
    assert decide(held, THEIRS, WRITTEN + timedelta(days=1) - TICK) is Decision.IN_PROGRESS
    assert decide(held, THEIRS, WRITTEN + timedelta(days=1)) is Decision.CLAIM


@pytest.mark.parametrize("status", ["completed", "failed"])
def test_a_finished_record_needs_no_more_than_its_status(status: str) -> None:
    """What says that a run is over is believed, whatever else is missing or wrong."""
    held = RunRecord.from_fields({"status": status, "lease_seconds": "?", "expire_at": NAIVE, "attempt_id": None}, WRITTEN)
    assert not held.malformed
    assert decide(held, OURS, WRITTEN) is Decision[status.upper()]


def test_times_of_any_zone_are_compared_as_instants() -> None:
    """A lease_expires in another time zone ends when it ends."""
    end = datetime(2026, 10, 16, 5, 5, tzinfo=timezone(timedelta(hours=-7)))
    held = record(**DOCUMENTED | {"lease_expires": end})
    assert decide(held, OURS, seconds(300) - TICK) is Decision.IN_PROGRESS
    assert decide(held, OURS, seconds(300)) is Decision.CLAIM


@pytest.mark.parametrize(
    ("status", "attempt_id", "held"),
    [("in_progress", THEIRS, False), ("in_progress", OURS, True), ("completed", OURS, False), ("failed", OURS, False),
     (None, OURS, False), ("in_progress", None, False)],
)  # fmt: skip
def test_is_held_by(status: str | None, attempt_id: str | None, held: bool) -> None:
    """A run is held by the attempt that its record names, only while it is in progress, and also after its lease."""
    assert record(status=status, attempt_id=attempt_id, lease_seconds=0).is_held_by(OURS) is held


@pytest.mark.parametrize(
    ("stored", "attempts"), [(3, 3), ("ABSENT", 1), (None, 1), (0, 1), (-2, 1), ("3", 1), (2.5, 1), (True, 1)]
)
def test_counts_attempts_from_one(stored: Any, attempts: int) -> None:
    """A record that doesn't count its attempts, as the documented example's, was claimed once."""
    read = record(attempts=stored).attempts
    assert (read, type(read)) == (attempts, int)


def test_reads_every_field_and_passes_over_others() -> None:
    """What a store holds is read whole; a field that a later version wrote is no fault."""
    times = dict.fromkeys(
        ("lease_expires", "renewed_at", "expire_at", "schedule_time", "claimed_at", "finished_at"), seconds(1)
    )
    texts = {"job_name": "nightly", "scope": "p/l", "result": "r", "error": "e", "attempt_id": OURS}
    held = RunRecord.from_fields({"status": "failed", "lease_seconds": 5, "attempts": 2, "new": 1, **times, **texts}, WRITTEN)
    assert held == RunRecord(updated_at=WRITTEN, status=Status.FAILED, lease_seconds=5, attempts=2, **times, **texts)


FIELDS = list(RunRecord.__dataclass_fields__)
ZONES = st.sampled_from([UTC, timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))])
MOMENTS = st.datetimes(NAIVE.replace(year=1971), NAIVE.replace(year=2900), timezones=ZONES)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=8)
    | st.datetimes()
    | MOMENTS
    | st.sampled_from(["in_progress", "completed", "failed", OURS, THEIRS, 0, 300, 10**400]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
RECORDS = st.builds(
    RunRecord.from_fields, st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=5), VALUES, max_size=len(FIELDS)), MOMENTS
)
LIKELY_RECORDS = st.builds(
    lambda updated_at, **fields: RunRecord.from_fields(fields, updated_at),
    MOMENTS,
    status=st.sampled_from(["in_progress"] * 4 + ["completed", "failed", None, "odd"]),
    attempt_id=st.sampled_from([OURS, THEIRS, None]),
    lease_seconds=st.none() | st.floats(0, 10**6) | st.integers(-1, 10**6) | st.just("?"),
    lease_expires=st.none() | MOMENTS,
    expire_at=st.none() | MOMENTS,
)


@given(RECORDS | LIKELY_RECORDS, st.sampled_from([OURS, THEIRS, ""]), MOMENTS)
def test_anything_stored_is_read_and_decided(held: RunRecord, attempt_id: str, now: datetime) -> None:
    """Whatever the fields hold, reading and deciding end with a decision, never with an exception."""
    assert decide(held, attempt_id, now) in Decision


@given(LIKELY_RECORDS, st.sampled_from([OURS, THEIRS]), MOMENTS)
def test_two_attempts_never_hold_one_run(held: RunRecord, attempt_id: str, now: datetime) -> None:
    """While a record says HELD to the attempt that it names, it says IN_PROGRESS to every other."""
    other = THEIRS if attempt_id == OURS else OURS
    if decide(held, attempt_id, now) is Decision.HELD:
        assert held.attempt_id == attempt_id
        assert decide(held, other, now) is Decision.IN_PROGRESS


@given(LIKELY_RECORDS, MOMENTS, MOMENTS)
def test_time_only_ever_frees_a_run(held: RunRecord, one: datetime, other: datetime) -> None:
    """Once a record lets a run be claimed, it does so at every later time, and to everybody."""
    earlier, later = sorted((one, other))
    if decide(held, OURS, earlier) is Decision.CLAIM:
        assert {decide(held, OURS, later), decide(held, THEIRS, later)} == {Decision.CLAIM}


@given(LIKELY_RECORDS, MOMENTS)
def test_a_run_that_is_over_stays_over(held: RunRecord, now: datetime) -> None:
    """Completed and failed are decided by the status alone, at any time."""
    over = {Status.COMPLETED: Decision.COMPLETED, Status.FAILED: Decision.FAILED}
    decision = decide(held, OURS, now)
    assert (decision in over.values()) is (held.status in over)
    assert held.status not in over or decision is over[held.status]
