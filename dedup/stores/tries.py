"""How long an operation on a server goes on, what it waits between its tries, and what is known of each."""

from __future__ import annotations

import random
from collections.abc import Callable
from enum import Enum, auto


class Fate(Enum):
    """What is known of one try of a write."""

    WRITTEN = auto()
    REFUSED = auto()
    """Its condition didn't hold; it wrote nothing."""
    UNCLEAR = auto()
    """It may have been written, or be written yet: read the run before anything else."""


class Tries:
    """A deadline, and the waits between the tries that fit before it.

    Args:
        seconds: for all tries together.
        try_seconds: for one.
        monotonic: a clock in seconds.
        sleep: waits between two tries.
        unavailable: makes of a fault what is raised when no time is left.
    """

    def __init__(
        self,
        seconds: float,
        try_seconds: float,
        *,
        monotonic: Callable[[], float],
        sleep: Callable[[float], None],
        unavailable: Callable[[Exception], Exception],
    ) -> None:
        self._try_seconds = try_seconds
        self._monotonic = monotonic
        self._sleep = sleep
        self._unavailable = unavailable
        self._ends_at = monotonic() + seconds
        self._wait = 0.05

    def next_timeout(self) -> float:
        """Seconds that the next try may take.

        Raises:
            StoreUnavailable: none are left.
        """
        left = self._ends_at - self._monotonic()
        if left <= 0:
            raise self._unavailable(TimeoutError("no time left for another try"))
        return min(self._try_seconds, left)

    def failed(self, fault: Exception) -> None:
        """Waits before the next try, twice as long as the last time.

        Raises:
            StoreUnavailable: there is no time for another try.
        """
        self._wait = min(1.0, self._wait * 2)
        wait = self._wait * random.uniform(0.5, 1.0)
        if self._monotonic() + wait >= self._ends_at:
            raise self._unavailable(fault) from fault
        self._sleep(wait)
