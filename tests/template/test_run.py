"""What the job is given."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import dedup
from dedup.lease import Lease
from dedup.run import Run
from dedup.stores import Claim
from tests.template.clock import ManualClock

NOON = datetime(2026, 10, 16, 12, tzinfo=UTC)
DEADLINE = NOON + timedelta(hours=1)


@pytest.fixture
def clock() -> ManualClock:
    """A clock that a test moves."""
    return ManualClock()


@pytest.fixture
def claim(clock: ManualClock) -> Claim:
    """A claim that was made just now, for 300 s."""
    claim = Claim(
        run_id="a" * 64,
        attempt_id="b" * 32,
        lease_seconds=300,
        retention_seconds=86400,
        job_name="nightly",
        schedule_time=NOON,
        scope="prod/eu",
        attempts=2,
    )
    claim.wrote(NOON, clock.monotonic())
    return claim


def make_run(claim: Claim, clock: ManualClock, body: bytes = b"", *, supports_effects: bool = True) -> Run:
    """The run of a claim."""
    lease = Lease(None, claim, renews=False, ends_at=clock.monotonic() + 3600, clock=clock)  # type: ignore[arg-type]
    return Run(claim, lease, body=body, deadline=DEADLINE, supports_effects=supports_effects)


def test_tells_what_was_claimed(claim: Claim, clock: ManualClock) -> None:
    """The job reads from its run which one it is, what was sent, and until when it has time."""
    run = make_run(claim, clock, b"sent")
    assert (run.id, run.job_name, run.schedule_time, run.scope) == ("a" * 64, "nightly", NOON, "prod/eu")
    assert (run.attempt, run.body, run.deadline, run.lost) == (2, b"sent", DEADLINE, False)
    assert run.attempt_id == "b" * 32


@pytest.mark.parametrize("name", ["id", "job_name", "schedule_time", "scope", "attempt", "attempt_id", "handed_over", "lost"])
def test_what_was_claimed_is_not_the_jobs_to_change(claim: Claim, clock: ManualClock, name: str) -> None:
    """A job can't turn its run into another one by mistake."""
    with pytest.raises(AttributeError):
        setattr(make_run(claim, clock), name, None)


@pytest.mark.parametrize(
    ("body", "value"),
    [(b'{"a": [1, null]}', {"a": [1, None]}), (b'"\xc3\xa9"', "é"), (b"0", 0), (b"null", None), (b"\xef\xbb\xbf[]", [])],
)
def test_json_reads_the_body(claim: Claim, clock: ManualClock, body: bytes, value: Any) -> None:
    """json() is the body's value, whatever content type was sent."""
    assert make_run(claim, clock, body).json() == value


@pytest.mark.parametrize("body", [b"", b"{", b"a=1", b"\xff\xfe\xfd"])
def test_json_of_anything_else_is_a_value_error(claim: Claim, clock: ManualClock, body: bytes) -> None:
    """A body that isn't JSON raises ValueError, an empty one too."""
    with pytest.raises(ValueError):  # noqa: PT011 - JSONDecodeError and UnicodeDecodeError are both
        make_run(claim, clock, body).json()


def test_ensure_held_returns_until_the_lease_is_lost(claim: Claim, clock: ManualClock) -> None:
    """While the lease is trusted ensure_held returns, and afterwards it raises and `lost` says so, for good."""
    run = make_run(claim, clock)
    clock.advance(298.9)
    run.ensure_held()
    clock.advance(0.2)
    with pytest.raises(dedup.LeaseLost, match="a" * 64):
        run.ensure_held()
    claim.wrote(NOON, clock.monotonic())
    assert run.lost


def test_on_commit_keeps_the_effects(claim: Claim, clock: ManualClock) -> None:
    """What on_commit is given is kept for the completion, and not called before."""
    run = make_run(claim, clock)
    assert run.effects is None
    run.on_commit(effects := lambda transaction: pytest.fail("called too early"))
    assert run.effects is effects


def test_on_commit_takes_one_function(claim: Claim, clock: ManualClock) -> None:
    """A second on_commit is a mistake of the job, and changes nothing."""
    run = make_run(claim, clock)
    run.on_commit(first := lambda transaction: None)
    with pytest.raises(RuntimeError, match="put both into one function"):
        run.on_commit(lambda transaction: None)
    assert run.effects is first


def test_on_commit_says_where_it_is_not_supported(claim: Claim, clock: ManualClock) -> None:
    """A store without transactions says so where the job asks, not when the job is done."""
    run = make_run(claim, clock, supports_effects=False)
    with pytest.raises(dedup.Unsupported, match="on_commit"):
        run.on_commit(lambda transaction: None)
    assert run.effects is None


class Renewed:
    """A store that renews, or says that the run is lost."""

    def __init__(self, held: bool) -> None:
        self.held = held
        self.renewed: list[int] = []

    def renew_run(self, claim: Claim) -> bool:
        """Notes the lease's length."""
        self.renewed.append(claim.lease_seconds)
        return self.held


def handing_over(claim: Claim, clock: ManualClock, store: Renewed) -> Run:
    """The run of a claim whose lease can be lengthened."""
    lease = Lease(store, claim, renews=True, ends_at=clock.monotonic() + 3600, clock=clock)  # type: ignore[arg-type]
    lease.__enter__()
    return Run(claim, lease, body=b"", deadline=DEADLINE, supports_effects=True)


def test_hand_over_ends_renewal(claim: Claim, clock: ManualClock) -> None:
    """A hand-over renews the lease once, for so long, and then leaves renewal to the work."""
    store = Renewed(held=True)
    run = handing_over(claim, clock, store)
    assert not run.handed_over
    run.hand_over(600)
    clock.advance(3000)
    assert (store.renewed, run.handed_over) == ([600], True)


def test_hand_over_of_a_run_that_is_lost(claim: Claim, clock: ManualClock) -> None:
    """A run that isn't this attempt's any more can't be handed over: neither where the store says so, nor after its lease."""
    run = handing_over(claim, clock, Renewed(held=False))
    with pytest.raises(dedup.LeaseLost):
        run.hand_over(600)
    assert run.lost
    store = Renewed(held=True)
    late = handing_over(claim, clock, store)
    clock.pause(300)
    with pytest.raises(dedup.LeaseLost):
        late.hand_over(600)
    assert (run.handed_over, late.handed_over, store.renewed) == (False, False, [])


@pytest.mark.parametrize("seconds", [0, -1, 86401, 1.5, "600", True, None])
def test_hand_over_takes_whole_seconds(claim: Claim, clock: ManualClock, seconds: Any) -> None:
    """A lease that isn't whole seconds, or would outlive its record, is told."""
    store = Renewed(held=True)
    with pytest.raises(ValueError, match="1 to 86400 whole seconds"):
        handing_over(claim, clock, store).hand_over(seconds)
    assert store.renewed == []


def test_hand_over_for_a_second(claim: Claim, clock: ManualClock) -> None:
    """The shortest lease is one second."""
    run = handing_over(claim, clock, Renewed(held=True))
    run.hand_over(1)
    assert run.handed_over


def test_hand_over_and_on_commit_exclude_each_other(claim: Claim, clock: ManualClock) -> None:
    """A run is completed by its job or by the work that it was handed over to: on_commit belongs to the one that does."""
    run = handing_over(claim, clock, Renewed(held=True))
    run.hand_over(86400)
    with pytest.raises(RuntimeError, match="after hand_over"):
        run.on_commit(lambda transaction: None)
    other = handing_over(claim, clock, Renewed(held=True))
    claim.handed_over = False
    other.on_commit(lambda transaction: None)
    with pytest.raises(RuntimeError, match="after on_commit"):
        other.hand_over(600)


def test_public_names() -> None:
    """A fork needs nothing but the package's own names."""
    assert set(dedup.__all__) == {
        "LeaseLost",
        "PermanentError",
        "Run",
        "Unsupported",
        "__version__",
        "from_idempotency_key",
        "handle",
        "resume",
    }
    assert all(hasattr(dedup, name) for name in dedup.__all__)
    assert dedup.Run is Run
    assert issubclass(dedup.PermanentError, Exception)
