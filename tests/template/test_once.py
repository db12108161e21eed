"""What is made at its first use is made once."""

from __future__ import annotations

import threading

import pytest

from dedup.stores.once import Once
from tests.template.contract.threads import at_once


def test_it_is_made_once_for_all_threads() -> None:
    """Threads that want it at the same moment are given one and the same."""
    once: Once[object] = Once()
    made: list[object] = []

    def make() -> object:
        made.append(object())
        return made[-1]

    assert once.made is None
    assert at_once(lambda _: once.get(make), range(20)) == made * 20
    assert once.made is made[0]


def test_it_is_made_again_where_making_it_failed() -> None:
    """What couldn't be made is tried again by whoever wants it next."""
    once: Once[str] = Once()

    def fail() -> str:
        raise OSError("injected")

    with pytest.raises(OSError, match="injected"):
        once.get(fail)
    assert once.get(lambda: "made", 0.1) == "made"


def test_another_thread_is_waited_for_as_long_as_one_may() -> None:
    """Whoever has waited for another thread's making as long as it may is told so."""
    once: Once[str] = Once()
    begun, go = threading.Event(), threading.Event()

    def make() -> str:
        begun.set()
        go.wait(10)
        return "made"

    other = threading.Thread(target=once.get, args=(make,))
    other.start()
    begun.wait(10)
    with pytest.raises(TimeoutError, match="another thread is still connecting"):
        once.get(make, 0.01)
    go.set()
    assert once.get(make) == "made"
    other.join()
