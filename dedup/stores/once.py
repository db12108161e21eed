"""What is made at its first use, once for all threads: nothing is connected before a server has forked."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Once(Generic[T]):
    """A thing that isn't there until it is wanted. Where making it raises, the next one to want it tries again."""

    def __init__(self) -> None:
        self.made: T | None = None
        self._making = threading.Lock()

    def get(self, make: Callable[[], T], wait_seconds: float = -1) -> T:
        """The thing, made by the first thread that asks.

        Args:
            make: makes it.
            wait_seconds: how long to wait for another thread that is at it; -1: as long as it takes.

        Raises:
            TimeoutError: that one still is.
        """
        if self.made is None:
            if not self._making.acquire(timeout=wait_seconds):
                raise TimeoutError("another thread is still connecting")
            try:
                if self.made is None:
                    self.made = make()
            finally:
                self._making.release()
        return self.made
