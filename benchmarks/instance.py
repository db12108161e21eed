"""A peer as it is deployed: functions-framework as a process, requests from outside, memory by the kernel's count."""

from __future__ import annotations

import asyncio
import compileall
import os
import re
import shutil
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from py_compile import PycInvalidationMode

from benchmarks.peers import NOON
from dedup.delivery import JOB_NAME_HEADER, SCHEDULE_TIME_HEADER
from tests.template.e2e.server import ROOT, Server, await_answer, start

SERVERS = Path(__file__).parent / "servers"
CONNECTIONS = 16
"""Twice the framework's threads on two cores: none of them waits for the next request."""
START_SECONDS = 60
IMAGE_TIME = 315532801
"""1980-01-01T00:00:01Z, which Cloud Native Buildpacks give every file of an image."""

_NEEDS = {
    "ours": {"dedup": ROOT / "dedup"},
    "documented": {"example.py": ROOT / "tests" / "template" / "documented.py"},
    "limit": {"commits.py": SERVERS / "commits.py"},
    "bare": {},
}


def deploy(peer: str, folder: Path, *, compiled: bool = True) -> Path:
    """Lays out what a deployment of a peer has, and nothing else. Gives its main.py.

    Args:
        peer: `ours`, `documented`, `limit` or `bare`.
        folder: takes the deployment.
        compiled: whether the bytecode of its own source counts. Google's buildpack compiles it by time stamps, and an image
            then gives every file the same one, so that it doesn't; with SOURCE_DATE_EPOCH set, it compiles by hashes.
    """
    source = folder / f"{peer}-{'compiled' if compiled else 'stale'}"
    if not source.exists():
        source.mkdir(parents=True)
        for name, origin in {"main.py": SERVERS / f"{peer}.py", "job.py": SERVERS / "job.py", **_NEEDS[peer]}.items():
            if origin.is_dir():
                shutil.copytree(origin, source / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(origin, source / name)
        mode = PycInvalidationMode.CHECKED_HASH if compiled else PycInvalidationMode.TIMESTAMP
        compileall.compile_dir(source, quiet=1, invalidation_mode=mode)
        for file in source.rglob("*.py"):
            os.utime(file, (IMAGE_TIME, IMAGE_TIME))
    return source / "main.py"


class Deployment:
    """Starts instances of one peer.

    Args:
        peer: which.
        folder: for the deployment, and the instances' output.
        environ: what it is configured by.
        compiled: whether the bytecode of its own source counts.
    """

    def __init__(self, peer: str, folder: Path, environ: dict[str, str], *, compiled: bool = True) -> None:
        self._main = deploy(peer, folder, compiled=compiled)
        self._log = folder / f"{peer}.log"
        # No instance compiles for the next one: a container's first start is what every one of its starts is like.
        self._environ = {"PYTHONPATH": str(self._main.parent), "PYTHONDONTWRITEBYTECODE": "1", **environ}

    @contextmanager
    def serving(self, **environ: str) -> Iterator[Server]:
        """An instance that answers, for as long as the `with` lasts."""
        server = self.start(**environ)
        try:
            await_answer(server)
            yield server
        finally:
            server.kill()

    def start(self, **environ: str) -> Server:
        """Starts an instance and waits for nothing; the caller ends it."""
        return start({**self._environ, **environ}, self._log, self._main)


@dataclass(frozen=True)
class Start:
    """How an instance started.

    Args:
        open_seconds: from the start of its process until its port took a connection.
        answer_seconds: from there until its first delivery was answered.
    """

    open_seconds: float
    answer_seconds: float


def time_start(deployment: Deployment, job_name: str, **environ: str) -> Start:
    """Starts an instance, delivers a run as soon as it can be reached, and ends it."""
    began = time.perf_counter()
    server = deployment.start(**environ)
    try:
        with _connected(server) as connection:
            opened = time.perf_counter()
            connection.sendall(request_bytes(job_name))
            answer = connection.recv(65536)
            answered = time.perf_counter()
        if not answer.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"the first delivery was answered {answer[:200]!r}:\n{server.output}")
        return Start(opened - began, answered - opened)
    finally:
        server.kill()


def _connected(server: Server) -> socket.socket:
    give_up_at = time.monotonic() + START_SECONDS
    while time.monotonic() < give_up_at and server.process.poll() is None:
        try:
            return socket.create_connection(("127.0.0.1", server.port), timeout=START_SECONDS)
        except ConnectionRefusedError:
            time.sleep(0.002)
    raise RuntimeError(f"functions-framework did not open its port within {START_SECONDS} s:\n{server.output}")


def memory_of(server: Server) -> int:
    """Bytes of the master and its workers, what they share counted once (Linux's PSS)."""
    return sum(_pss(pid) for pid in (server.process.pid, *server.workers))


def _pss(pid: int) -> int:
    match = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    assert match is not None
    return int(match[1]) * 1024


# Deliveries from outside.


@dataclass(frozen=True)
class Reply:
    """What came back for one delivery."""

    status: int
    seconds: float


def request_bytes(job_name: str) -> bytes:
    """A delivery on the wire."""
    headers = {"Host": "127.0.0.1", JOB_NAME_HEADER: job_name, SCHEDULE_TIME_HEADER: NOON, "Content-Length": "0"}
    return "\r\n".join(["POST / HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]).encode()


def burst(port: int, job_name: str, deliveries: int, timeout: float) -> list[Reply]:
    """Delivers one run many times at once, each time on a connection of its own.

    Args:
        port: the instance's.
        job_name: the run's.
        deliveries: how many.
        timeout: seconds after which a delivery counts as unanswered, with status 0.
    """

    async def one(connection: _Connection) -> Reply:
        began = time.perf_counter()
        try:
            async with asyncio.timeout(timeout):
                status = await connection.deliver(job_name)
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            status = 0
        finally:
            connection.close()
        return Reply(status, time.perf_counter() - began)

    async def all_at_once() -> list[Reply]:
        connections = [await _Connection.to(port) for _ in range(deliveries)]
        return await asyncio.gather(*map(one, connections))

    return asyncio.run(all_at_once())


def deliver_distinct(
    port: int, prefix: str, *, runs: int | None = None, seconds: float = float("inf")
) -> tuple[float, Counter[int]]:
    """Delivers one run after the other on a few connections, until there were enough of them or the time is over.

    Args:
        port: the instance's.
        prefix: of the jobs' names.
        runs: how many.
        seconds: how long.

    Returns:
        Runs per second, and how often which status came.
    """
    statuses: Counter[int] = Counter()
    numbers = iter(range(runs)) if runs is not None else count()

    async def one_after_the_other() -> None:
        connection = await _Connection.to(port)
        for number in numbers:  # all connections take from the same
            if time.perf_counter() >= ends_at:
                break
            statuses[await connection.deliver(f"{prefix}-{number}")] += 1
        connection.close()

    async def all_connections() -> None:
        await asyncio.gather(*(one_after_the_other() for _ in range(CONNECTIONS)))

    began = time.perf_counter()
    ends_at = began + seconds
    asyncio.run(all_connections())
    return statuses.total() / (time.perf_counter() - began), statuses


class _Connection:
    """HTTP as far as it is needed, so that the one that asks takes little of the machine from the one that answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def to(cls, port: int) -> _Connection:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def deliver(self, job_name: str) -> int:
        self._writer.write(request_bytes(job_name))
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"\r\ncontent-length: (\d+)", head, re.IGNORECASE)
        await self._reader.readexactly(int(length[1]) if length else 0)
        return int(head.split(b" ", 2)[1])

    def close(self) -> None:
        self._writer.close()
