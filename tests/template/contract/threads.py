"""Many attempts at the same moment."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

A = TypeVar("A")
T = TypeVar("T")


def at_once(call: Callable[[A], T], arguments: Sequence[A]) -> list[T]:
    """Calls once for each argument, each in a thread of its own that waits for all the others before it starts."""
    barrier = threading.Barrier(len(arguments))

    def start(argument: A) -> T:
        barrier.wait(30)
        return call(argument)

    with ThreadPoolExecutor(len(arguments)) as threads:
        return list(threads.map(start, arguments))
