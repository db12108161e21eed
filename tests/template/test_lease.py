"""A claim, kept alive while its job runs; and the clock whose thread does it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import dedup.lease
from dedup.lease import Clock, Lease, LeaseLost
from dedup.record import Decision
from dedup.stores import Claim, StoreUnavailable
from dedup.stores.sqlite import SQLiteRunStore
from tests.template.clock import ManualClock

NOON = datetime(2026, 10, 16, 12, tzinfo=UTC)
SOON = 5.0
"""Seconds that a test waits for what happens at once."""

HELD, REFUSED, UNAVAILABLE, BROKEN = "held", "refused", "unavailable", "broken"


class Store:
    """Renews as it is told: by one answer after the other, and then as ever; notes when it was asked."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.answers: list[str] = []
        self.renewals: list[float] = []
        self.during: Callable[[], Any] = lambda: None

    def renew_run(self, claim: Claim) -> bool:
        """Answers as told."""
        tried_at = self.clock.monotonic()
        self.renewals.append(tried_at)
        self.during()
        match self.answers.pop(0) if self.answers else HELD:
            case "unavailable":
                raise StoreUnavailable("silence")
            case "broken":
                raise MemoryError
            case "refused":
                return False
        claim.wrote(NOON, tried_at)
        return True


@pytest.fixture
def clock() -> ManualClock:
    """A clock that starts at 0."""
    clock = ManualClock()
    clock.now = 0.0
    return clock


@pytest.fixture
def store(clock: ManualClock) -> Store:
    """A store that renews."""
    return Store(clock)


def claimed(clock: Clock, lease_seconds: int = 30) -> Claim:
    """A claim that was made just now."""
    claim = Claim(
        run_id="a" * 64,
        attempt_id="b" * 32,
        lease_seconds=lease_seconds,
        retention_seconds=86400,
        job_name="nightly",
        schedule_time=NOON,
    )
    claim.wrote(NOON, clock.monotonic())
    return claim


def lease_of(store: Store, lease_seconds: int = 30, *, renews: bool = True, ends_at: float = 3600) -> Lease:
    """A lease on a claim that was made just now."""
    claim = claimed(store.clock, lease_seconds)
    return Lease(store, claim, renews=renews, ends_at=ends_at, clock=store.clock)  # type: ignore[arg-type]


# When it is renewed.


@pytest.mark.parametrize("lease_seconds", [1, 3, 30, 300])
def test_is_renewed_every_third_of_it(clock: ManualClock, store: Store, lease_seconds: int) -> None:
    """While the job runs the lease is renewed each third of it, and is never lost."""
    third = lease_seconds / 3
    with lease_of(store, lease_seconds) as lease:
        for _ in range(5):
            clock.advance(third * 1.001)
            lease.ensure_held()
    assert store.renewals == pytest.approx([third, 2 * third, 3 * third, 4 * third, 5 * third])


def test_a_short_job_costs_no_renewal(clock: ManualClock, store: Store) -> None:
    """A job that is over before a third of its lease is renewed neither then nor later."""
    with lease_of(store):
        clock.advance(9.9)
    assert clock.due == {}
    clock.advance(3600)
    assert store.renewals == []


def test_nothing_is_renewed_after_the_job(clock: ManualClock, store: Store) -> None:
    """The end of the job is the end of renewal, also of what was due already."""
    with lease_of(store):
        clock.advance(25)
    clock.advance(3600)
    assert store.renewals == [10, 20]


def test_a_job_that_raises_ends_renewal_too(clock: ManualClock, store: Store) -> None:
    """An exception passes through, and nothing is renewed for a job that is dead."""
    with pytest.raises(ZeroDivisionError), lease_of(store):
        raise ZeroDivisionError
    clock.advance(3600)
    assert store.renewals == []


def test_without_renewal_the_lease_just_ends(clock: ManualClock, store: Store) -> None:
    """With renewal off nothing is renewed, and the lease is lost at its end."""
    with lease_of(store, renews=False) as lease:
        clock.advance(28.9)
        lease.ensure_held()
        clock.advance(0.2)
        assert lease.lost
    assert (store.renewals, clock.due) == ([], {})


@pytest.mark.parametrize(("ends_at", "renewals"), [(10, []), (10.1, [10]), (30, [10, 20]), (45, [10, 20, 30, 40])])
def test_renewal_ends_with_the_requests_time(clock: ManualClock, store: Store, ends_at: float, renewals: list[float]) -> None:
    """A job that hangs holds its run until the request's time is over and the last lease has run out, and no longer."""
    with lease_of(store, ends_at=ends_at) as lease:
        clock.advance(3600)
        assert store.renewals == renewals
        assert lease.lost


# When renewing fails.


@pytest.mark.parametrize(("lease_seconds", "again"), [(300, 2.0), (30, 2.0), (10, 1.0), (1, 0.1)])
def test_a_failing_renewal_is_tried_again_soon(clock: ManualClock, store: Store, lease_seconds: int, again: float) -> None:
    """A store that is silent or broken for a while is asked again within seconds, and then by thirds as before."""
    third = lease_seconds / 3
    store.answers = [UNAVAILABLE, BROKEN, HELD]
    with lease_of(store, lease_seconds) as lease:
        clock.advance(2 * third + 2 * again + again / 2)
        assert not lease.lost
    assert store.renewals == pytest.approx([third, third + again, third + 2 * again, 2 * third + 2 * again])


def test_a_store_that_stays_silent_loses_the_lease(clock: ManualClock, store: Store) -> None:
    """Renewal is tried until the trust in the lease is over, and not after: it is another attempt's by then."""
    store.answers = [UNAVAILABLE] * 100
    with lease_of(store) as lease:
        clock.advance(28.9)
        assert not lease.lost
        clock.advance(3600)
        assert lease.lost
    assert store.renewals == pytest.approx(range(10, 29, 2))


def test_a_refused_renewal_loses_the_lease_at_once(clock: ManualClock, store: Store) -> None:
    """Where the store says that the run is another's, the lease is lost for good though its time isn't over."""
    store.answers = [REFUSED]
    with lease_of(store) as lease:
        clock.advance(10)
        assert lease.lost
        with pytest.raises(LeaseLost, match="a" * 64):
            lease.ensure_held()
        clock.advance(3600)
    assert store.renewals == [10]
    assert lease.lost


@pytest.mark.parametrize(("lease_seconds", "trusted"), [(300, 299), (30, 29), (10, 9), (5, 4.5), (1, 0.9)])
def test_trust_ends_before_the_lease(clock: ManualClock, store: Store, lease_seconds: int, trusted: float) -> None:
    """An attempt trusts its lease for its length less a margin, a tenth of it and at most a second, and then no more."""
    lease = lease_of(store, lease_seconds)
    clock.advance(trusted - 0.001)
    lease.ensure_held()
    clock.advance(0.002)
    with pytest.raises(LeaseLost):
        lease.ensure_held()


def test_trust_ends_at_its_end(clock: ManualClock) -> None:
    """At the very moment when its trust is over, a claim isn't trusted any more."""
    claim = claimed(clock)
    assert claim.is_trusted(claim.trusted_until - 0.001)
    assert not claim.is_trusted(claim.trusted_until)


def test_what_was_lost_stays_lost(clock: ManualClock, store: Store) -> None:
    """Once a job was told that its lease is lost, a renewal that arrives late takes nothing back."""
    claim = claimed(clock)
    lease = Lease(store, claim, renews=True, ends_at=3600, clock=clock)  # type: ignore[arg-type]
    clock.pause(29.5)
    assert lease.lost
    claim.wrote(NOON, clock.monotonic())
    assert claim.is_trusted(clock.monotonic())
    assert lease.lost
    with pytest.raises(LeaseLost):
        lease.ensure_held()


def test_a_paused_instance_does_not_renew_what_it_lost(clock: ManualClock, store: Store) -> None:
    """A renewal that comes due after a pause beyond the lease isn't sent: nobody knows whose the run is."""
    with lease_of(store) as lease:
        clock.pause(60)
        clock.advance(3600)
    assert store.renewals == []
    assert lease.lost


def test_trust_is_counted_from_before_the_renewal(clock: ManualClock, store: Store) -> None:
    """A renewal that takes long grants trust from when it was sent, not from when it was answered."""
    store.during = lambda: clock.pause(8)
    with lease_of(store) as lease:
        clock.advance(10)
        store.during = lambda: pytest.fail("renewed")
        clock.due.clear()
        clock.pause(39 - 18 - 0.1)
        assert not lease.lost
        clock.pause(0.2)
        assert lease.lost


# The end of the job, and a renewal in flight.


def test_the_end_waits_for_a_renewal_in_flight(clock: ManualClock, store: Store) -> None:
    """A renewal would move the token under the finish: the job's end waits until it is answered."""
    asked, answer, left = threading.Event(), threading.Event(), threading.Event()

    def hang() -> None:
        asked.set()
        assert answer.wait(SOON)

    store.during = hang
    lease = lease_of(store)

    def job() -> None:
        with lease:
            renewal.start()
            assert asked.wait(SOON)
        left.set()

    renewal = threading.Thread(target=lambda: clock.advance(10))
    worker = threading.Thread(target=job)
    worker.start()
    assert asked.wait(SOON)
    assert not left.wait(0.05)
    answer.set()
    assert left.wait(SOON)
    worker.join()
    renewal.join()
    clock.advance(3600)
    assert store.renewals == [10]


@pytest.mark.parametrize(
    ("raised", "constant"),
    [(None, "RENEWAL_SECONDS"), (ZeroDivisionError, "RENEWAL_SECONDS"), (SystemExit, "ABORT_SECONDS")],
)
def test_the_end_does_not_wait_for_ever(
    clock: ManualClock, store: Store, monkeypatch: pytest.MonkeyPatch, raised: type[BaseException] | None, constant: str
) -> None:
    """A renewal that never ends holds the job's end up for a while: RENEWAL_SECONDS, or ABORT_SECONDS under an abort."""
    for name in ("RENEWAL_SECONDS", "ABORT_SECONDS"):
        monkeypatch.setattr(dedup.lease, name, 0.05 if name == constant else SOON)
    asked, answer = threading.Event(), threading.Event()

    def hang() -> None:
        asked.set()
        answer.wait()

    store.during = hang
    renewal = threading.Thread(target=lambda: clock.advance(10), daemon=True)
    with suppress(ZeroDivisionError, SystemExit), lease_of(store):
        renewal.start()
        assert asked.wait(SOON)
        began = time.monotonic()
        if raised is not None:
            raise raised
    assert 0.05 <= time.monotonic() - began < SOON
    answer.set()
    renewal.join()
    assert clock.due == {}  # the renewal that outlasted it has asked for no other


def test_a_renewal_that_finds_the_end_under_way_gives_way(clock: ManualClock, store: Store) -> None:
    """A renewal that is due while the job's end waits renews nothing, and waits for nothing."""
    lease = lease_of(store)
    with lease, lease._renewing:
        renewal = threading.Thread(target=lease._renew, daemon=True)
        renewal.start()
        renewal.join(SOON)
        assert not renewal.is_alive()
    assert store.renewals == []


def test_an_abort_waits_for_less() -> None:
    """A worker that is being aborted is killed a second later: its end waits for less than that."""
    assert dedup.lease.ABORT_SECONDS < 1 < dedup.lease.RENEWAL_SECONDS


# The process's clock.


@pytest.fixture
def real_clock() -> Clock:
    """A real clock. Its thread is a daemon, and sleeps for as long as the tests go on."""
    return Clock()


def call_and_wait(clock: Clock, delays: list[float]) -> list[float]:
    """Has the clock call after each delay, and tells the delays in the order in which they were called."""
    called: list[float] = []
    all_called = threading.Event()

    def call(delay: float) -> None:
        called.append(delay)
        if len(called) == len(delays):
            all_called.set()

    now = clock.monotonic()
    for delay in delays:
        clock.call_at(now + delay, lambda delay=delay: call(delay))  # type: ignore[misc]
    assert all_called.wait(SOON)
    return called


def test_the_clock_calls_in_order_of_time(real_clock: Clock) -> None:
    """What is due earlier is called earlier, in whatever order it was asked for."""
    assert call_and_wait(real_clock, [0.15, 0.05, 0.2, 0.1]) == [0.05, 0.1, 0.15, 0.2]


def test_the_clock_calls_not_before_it_is_due(real_clock: Clock) -> None:
    """A call comes at its time or a little later; one that is overdue comes at once."""
    began = time.monotonic()
    call_and_wait(real_clock, [0.1])
    assert time.monotonic() - began >= 0.1
    call_and_wait(real_clock, [-5])
    assert time.monotonic() - began < 1


def test_the_clock_is_woken_for_an_earlier_call(real_clock: Clock) -> None:
    """A thread that sleeps until something far off wakes for what comes before it."""
    real_clock.call_at(real_clock.monotonic() + 3600, lambda: pytest.fail("called"))
    time.sleep(0.02)
    assert call_and_wait(real_clock, [0.01]) == [0.01]


def test_a_call_that_hangs_holds_up_no_other(real_clock: Clock) -> None:
    """One lease's store may be silent: the others are renewed in time."""
    hanging, let_go = threading.Event(), threading.Event()

    def hang() -> None:
        hanging.set()
        let_go.wait()

    real_clock.call_at(real_clock.monotonic(), hang)
    assert hanging.wait(SOON)
    try:
        call_and_wait(real_clock, [0.01, 0.02])
    finally:
        let_go.set()


def test_what_is_due_runs_in_a_daemon(real_clock: Clock) -> None:
    """A renewal's thread is a daemon, which no exit waits for, and tells its name where threads are listed."""
    threads: list[threading.Thread] = []
    called = threading.Event()
    real_clock.call_at(real_clock.monotonic(), lambda: threads.append(threading.current_thread()) or called.set())  # type: ignore[func-returns-value]
    assert called.wait(SOON)
    assert [(thread.name, thread.daemon) for thread in threads] == [("dedup-renewal", True)]


def test_a_cancelled_call_is_not_made(real_clock: Clock) -> None:
    """What was taken back in time isn't called, and taking back what isn't there is no fault."""
    cancelled = threading.Event()
    real_clock.cancel(cancelled.set)
    real_clock.call_at(real_clock.monotonic() + 0.05, cancelled.set)
    real_clock.cancel(cancelled.set)
    call_and_wait(real_clock, [0.1])
    assert not cancelled.is_set()


def test_a_run_that_is_due_later_takes_no_lock(real_clock: Clock) -> None:
    """A run whose renewal is due after another's begins and ends while the clock's thread, or any other run, is at the lock."""
    real_clock.call_at(real_clock.monotonic() + 60, lambda: None)
    while real_clock._wakes_at == float("inf"):  # until the thread has seen it
        time.sleep(0.001)
    ended = threading.Event()

    def begin_and_end() -> None:
        real_clock.call_at(real_clock.monotonic() + 100, ended.set)
        real_clock.cancel(ended.set)
        ended.set()

    with real_clock._changed:
        threading.Thread(target=begin_and_end, daemon=True).start()
        assert ended.wait(SOON)


def test_the_clocks_thread_begins_with_the_first_call() -> None:
    """No thread is there before the server forks; then there is one for all calls, a daemon, which no exit waits for."""
    before = set(threading.enumerate())
    clock = Clock()
    assert set(threading.enumerate()) == before
    for _ in range(3):
        clock.call_at(clock.monotonic() + 3600, lambda: None)
    [thread] = set(threading.enumerate()) - before
    assert thread.daemon
    assert thread.name == "dedup-clock"


def test_the_clock_survives_a_call_that_can_get_no_thread(real_clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """An instance at its limit of threads makes the call a second later, and all others in time."""
    start = threading.Thread.start
    refused = threading.Event()

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "dedup-renewal" and not refused.is_set():
            refused.set()
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    called = threading.Event()
    real_clock.call_at(real_clock.monotonic(), called.set)
    assert refused.wait(SOON)
    call_and_wait(real_clock, [0.01])
    assert not called.is_set()
    assert 0.5 < real_clock._due[called.set] - real_clock.monotonic() <= 1
    assert called.wait(SOON)


def test_the_clock_begins_when_there_is_a_thread_for_it(real_clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the clock's own thread can't be started, the caller goes on, and the next call starts it for both."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    called = threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        real_clock.call_at(real_clock.monotonic(), called.set)
    assert not called.is_set()
    call_and_wait(real_clock, [0.01])
    assert called.wait(SOON)


def test_the_clock_tells_utc(real_clock: Clock) -> None:
    """The time for people is aware, and in UTC."""
    assert real_clock.utcnow().tzinfo is UTC


def test_a_real_clock_renews_a_real_lease(real_clock: Clock) -> None:
    """Together: a job of several thirds of its lease keeps it, and its end ends renewal."""
    store = Store(real_clock)
    enough = threading.Event()
    store.during = lambda: enough.set() if len(store.renewals) == 2 else None
    with lease_of(store, 1, ends_at=real_clock.monotonic() + 3600) as lease:
        assert enough.wait(SOON)
        lease.ensure_held()
    time.sleep(0.4)
    assert len(store.renewals) == 2


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="only on Linux does the monotonic clock leave out a suspension")
def test_a_suspended_machine_trusts_no_old_lease(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine that was suspended past the lease finds it lost, though the kernel's monotonic clock stood still meanwhile."""
    asleep = 0.0
    real = time.clock_gettime
    monkeypatch.setattr(time, "clock_gettime", lambda clock: real(clock) + (asleep if clock == time.CLOCK_BOOTTIME else 0))
    store = SQLiteRunStore(tmp_path / "runs.db")
    claim = Claim(
        run_id="a" * 64, attempt_id="b" * 32, lease_seconds=60, retention_seconds=86400, job_name="nightly", schedule_time=NOON
    )
    assert store.claim_run(claim) is Decision.CLAIM
    lease = Lease(store, claim, renews=False, ends_at=float("inf"), clock=Clock())
    assert not lease.lost
    asleep = 61
    assert lease.lost
