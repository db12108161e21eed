"""Keeps a claim alive while its job runs, and says when it is lost."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from dedup.stores import Claim, RunStore, StoreUnavailable, monotonic

RENEWAL_SECONDS = 6.0
"""How long the end of a job waits for a renewal in flight: a little more than a store takes for one."""
ABORT_SECONDS = 0.5
"""The same when the worker is being aborted, which gunicorn follows up with SIGKILL a second later."""

log = logging.getLogger("dedup")


class LeaseLost(Exception):
    """The run may be another attempt's by now: stop, and change nothing more."""


class Clock:
    """The process's clocks, and its one thread that hands out what is due.

    The thread starts with the first call, so after the server has forked. What is due runs in a thread of its own: one that
    waits for the store holds up no other.
    """

    def __init__(self) -> None:
        self._due: dict[Callable[[], None], float] = {}
        self._wakes_at = float("inf")
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def monotonic(self) -> float:
        """Seconds that only go forward; what leases and deadlines are measured by."""
        return monotonic()

    def utcnow(self) -> datetime:
        """This instance's idea of the time, for people; it grants nothing."""
        return datetime.now(UTC)

    def call_at(self, when: float, call: Callable[[], None]) -> None:
        """Calls once, when the monotonic clock says `when`, or as soon afterwards as there is a thread for it."""
        self._due[call] = when
        if self._thread is None or when < self._wakes_at:  # a run that is due after others takes no lock
            with self._changed:
                if self._thread is None:
                    self._start()
                self._changed.notify()

    def cancel(self, call: Callable[[], None]) -> None:
        """Takes back what `call_at` was given, if it isn't under way yet."""
        self._due.pop(call, None)

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="dedup-clock", daemon=True)
        try:
            thread.start()
        except RuntimeError as fault:  # no thread to be had just now; the next call tries again
            log.error("leases can't be renewed: %s", fault)
        else:
            self._thread = thread

    def _run(self) -> None:
        while True:
            with self._changed:
                self._wakes_at = float("inf")  # whoever comes after this look waits for the lock, and then wakes us
                now = self.monotonic()
                waiting = list(self._due.items())  # in one step: others come and go meanwhile
                due = [call for call, when in waiting if when <= now and self._due.pop(call, None) is not None]
                if not due:
                    self._wakes_at = min((when for _, when in waiting), default=float("inf"))
                    self._changed.wait(self._wakes_at - now if waiting else None)
            for call in due:
                try:
                    threading.Thread(target=call, name="dedup-renewal", daemon=True).start()
                except RuntimeError as fault:  # no thread to be had just now
                    log.warning("renewal not started, trying again: %s", fault)
                    self.call_at(self.monotonic() + 1, call)


class Lease:
    """One attempt's lease, renewed every third of it between `with` and its end.

    A job that is shorter than that costs no RPC. Renewal goes on while a server drains after SIGTERM, because the job does.

    Args:
        store: where the claim was made.
        claim: what was claimed.
        renews: False leaves the lease as it is.
        ends_at: monotonic time at which renewal ends. A request's timeout doesn't stop its thread, and a job that hangs must
            not hold its run for ever.
        clock: the process's.
    """

    def __init__(self, store: RunStore, claim: Claim, *, renews: bool, ends_at: float, clock: Clock) -> None:
        self._store = store
        self._claim = claim
        self._renews = renews
        self._ends_at = ends_at
        self._clock = clock
        self._renewing = threading.Lock()
        self._stopped = False
        self._lost = False

    @property
    def lost(self) -> bool:
        """Whether the run may be another attempt's by now. Once true, it stays so."""
        if not self._claim.is_trusted(self._clock.monotonic()):
            self._lost = True
        return self._lost

    def ensure_held(self) -> None:
        """Returns while the run is this attempt's alone.

        Raises:
            LeaseLost: it may not be any more.
        """
        if self.lost:
            raise LeaseLost(f"the lease of run {self._claim.run_id} was lost: another attempt may have it")

    def __enter__(self) -> Self:
        if self._renews:
            self._renew_in(self._claim.lease_seconds / 3)
        return self

    def __exit__(self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None) -> None:
        """Ends renewal, and waits for one in flight: it would move the token under the finish."""
        aborted = kind is not None and not issubclass(kind, Exception)
        self._stop(ABORT_SECONDS if aborted else RENEWAL_SECONDS)

    def hand_over(self, lease_seconds: int) -> None:
        """Renews the lease a last time, for so long: whoever goes on under this attempt's id renews it from there.

        Raises:
            LeaseLost: the run may be another attempt's by now.
            StoreUnavailable: the store can't be asked.
        """
        self._stop(RENEWAL_SECONDS)
        self.ensure_held()
        self._claim.lease_seconds = lease_seconds
        if not self._store.renew_run(self._claim):
            self._lost = True
            self.ensure_held()
        self._claim.handed_over = True

    def _stop(self, seconds: float) -> None:
        self._stopped = True
        self._clock.cancel(self._renew)
        if self._renewing.acquire(timeout=seconds):
            self._renewing.release()

    def _renew_in(self, seconds: float) -> None:
        when = self._clock.monotonic() + seconds
        if when < self._ends_at and not self._stopped:
            self._clock.call_at(when, self._renew)

    def _renew(self) -> None:
        if not self._renewing.acquire(blocking=False):  # the job has ended, and holds it while it makes sure of that
            return
        try:
            if self._stopped or self.lost:
                return
            held = self._store.renew_run(self._claim)
        except Exception as fault:
            told = isinstance(fault, StoreUnavailable)
            log.warning(
                "lease not renewed, trying again: %s",
                fault,
                exc_info=None if told else fault,
                extra={"run_id": self._claim.run_id},
            )
            self._renew_in(min(2.0, self._claim.lease_seconds / 10))
        else:
            if held:
                self._renew_in(self._claim.lease_seconds / 3)
            else:
                self._lost = True
                log.error("lease lost: the run is not this attempt's any more", extra={"run_id": self._claim.run_id})
        finally:
            self._renewing.release()
