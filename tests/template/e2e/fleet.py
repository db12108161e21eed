"""Instances that are killed all the time, and replaced at once."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from itertools import count
from pathlib import Path
from typing import Any

from tests.template.e2e.server import Server, await_answer, start, structured

DRAIN_SECONDS = 20


class Blow(StrEnum):
    """What may happen to an instance."""

    WORKER = "workers killed"
    """kill -9 of the worker; its master starts another."""
    MACHINE = "instances killed"
    """kill -9 of all; a new instance takes its place."""
    TERM = "instances terminated"
    """SIGTERM: it drains beside the new instance that takes its place."""
    PAUSE = "workers paused"
    """SIGSTOP, and SIGCONT when its lease is over: it goes on, and believes to be the owner still."""


class Fleet:
    """A few instances on one store.

    Args:
        size: how many.
        environ: of each.
        folder: for their output.
    """

    def __init__(self, size: int, environ: Mapping[str, str], folder: Path) -> None:
        self.blows: Counter[Blow] = Counter()
        self._environ = environ
        self._folder = folder
        self._numbers = count()
        self._leaving: list[Server] = []
        self._resumed: list[threading.Thread] = []
        self._serving = [self._start() for _ in range(size)]

    @property
    def ports(self) -> list[int]:
        """Where deliveries go, a place for each instance; one that is starting takes them when it has."""
        return [server.port for server in self._serving]

    @property
    def kills(self) -> int:
        """How often an instance, or its worker, was killed or terminated."""
        return sum(number for blow, number in self.blows.items() if blow is not Blow.PAUSE)

    def strike(self, blow: Blow, draw: random.Random, *, pause: float) -> None:
        """Does it to one of them, once that one answers: on a slow machine, none would ever get to do anything otherwise.

        Args:
            blow: what is done.
            draw: says to which.
            pause: seconds until a paused worker goes on.
        """
        place = draw.randrange(len(self._serving))
        server = self._serving[place]
        await_answer(server)
        match blow:
            case Blow.WORKER:
                if not server.kill_worker():
                    return
            case Blow.MACHINE:
                server.kill()
                self._serving[place] = self._start()
            case Blow.TERM:
                self._serving[place] = self._start()
                server.terminate()
                self._leaving.append(server)
            case Blow.PAUSE:
                if not server.kill_worker(signal.SIGSTOP):
                    return
                thread = threading.Thread(target=_resume_after, args=(server, pause))
                thread.start()
                self._resumed.append(thread)
        self.blows[blow] += 1

    def await_all(self) -> None:
        """Waits until nobody is paused, and those that serve answer."""
        for thread in self._resumed:
            thread.join()
        for server in self._serving:
            await_answer(server)

    def drain(self) -> list[int]:
        """Terminates all, and waits for what they have under way. Gives their exit codes."""
        for server in self._serving:
            server.terminate()
        give_up_at = time.monotonic() + DRAIN_SECONDS
        return [server.process.wait(max(0.1, give_up_at - time.monotonic())) for server in [*self._leaving, *self._serving]]

    def log_lines(self) -> Iterator[dict[str, Any]]:
        """The structured lines of all that have ever served."""
        for log in sorted(self._folder.glob("instance-*.log")):
            yield from structured(log.read_text(errors="replace"))

    def kill(self) -> None:
        """Leaves nothing behind."""
        for thread in self._resumed:
            thread.join()
        for server in [*self._leaving, *self._serving]:
            server.kill()

    def _start(self) -> Server:
        return start(self._environ, self._folder / f"instance-{next(self._numbers)}.log")


@contextmanager
def fleet_of(size: int, environ: Mapping[str, str], folder: Path) -> Iterator[Fleet]:
    """Instances that answer, for as long as the `with` lasts."""
    fleet = Fleet(size, environ, folder)
    try:
        fleet.await_all()
        yield fleet
    finally:
        fleet.kill()


def _resume_after(server: Server, seconds: float) -> None:
    time.sleep(seconds)
    server.kill_worker(signal.SIGCONT)
