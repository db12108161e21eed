"""A clock that stands still until a test moves it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from dedup.lease import Clock

STARTS_AT = datetime(2026, 10, 16, 12, 0, 5, tzinfo=UTC)


class ManualClock(Clock):
    """Stands in for the process's clock; what is due is called by `advance`, in the test's own thread."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.due: dict[Callable[[], None], float] = {}

    def monotonic(self) -> float:
        """Seconds since some moment."""
        return self.now

    def utcnow(self) -> datetime:
        """The time of day that goes with it."""
        return STARTS_AT + timedelta(seconds=self.now - 1000.0)

    def timestamp(self) -> float:
        """The same time, as SQLite's store takes it."""
        return self.utcnow().timestamp()

    def call_at(self, when: float, call: Callable[[], None]) -> None:
        """Keeps the call for `advance`."""
        self.due[call] = when

    def cancel(self, call: Callable[[], None]) -> None:
        """Forgets the call."""
        self.due.pop(call, None)

    def advance(self, seconds: float) -> None:
        """Lets time go by, and calls what becomes due on the way, each at its time."""
        until = self.now + seconds
        while self.due and min(self.due.values()) <= until:
            call = min(self.due, key=self.due.__getitem__)
            self.now = max(self.now, self.due.pop(call))
            call()
        self.now = max(self.now, until)

    def pause(self, seconds: float) -> None:
        """Lets time go by with nobody at work, as a frozen instance has it."""
        self.now += seconds
