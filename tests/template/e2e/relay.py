"""A relay between the instances and the Firestore emulator that lets the network fail: for a while, and never for good."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Coroutine
from contextlib import suppress
from enum import StrEnum
from types import TracebackType
from typing import Any, Self

CHUNK = 65536


class Fault(StrEnum):
    """What the network does."""

    DROP = "dropped connections"
    """All connections end in the middle of whatever they carry."""
    MUTE = "lost acknowledgements"
    """Requests pass and answers don't, for a while; then all connections end."""
    DELAY = "delays"
    """Every piece takes a while longer."""
    FREEZE = "freezes"
    """Nothing passes for a while; then all that was held up does."""


class Relay:
    """Listens on a port of 127.0.0.1 and passes on what comes, for as long as the `with` lasts.

    Args:
        target: `HOST:PORT` to pass it on to.
    """

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relay", daemon=True)
        self._writers: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self._passes_at = {"request": 0.0, "answer": 0.0}
        self._delay = 0.0
        self._delayed_until = 0.0
        self.faults: Counter[str] = Counter()
        self.host = ""
        """`127.0.0.1:PORT`, where it listens."""

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = self._call(asyncio.start_server(self._connected, "127.0.0.1", 0, limit=CHUNK))
        self.host = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    def __exit__(self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def fail(self, fault: Fault, seconds: float) -> None:
        """Lets the network fail; returns when it works again.

        Args:
            fault: in which way.
            seconds: for how long; a delay is a tenth of it for each piece.
        """
        self._call(self._fail(fault, seconds))

    async def _fail(self, fault: Fault, seconds: float) -> None:
        until = time.monotonic() + seconds
        match fault:
            case Fault.DELAY:
                self._delay, self._delayed_until = seconds / 10, until
            case Fault.FREEZE:
                self._passes_at = dict.fromkeys(self._passes_at, until)
            case Fault.MUTE:
                self._passes_at["answer"] = float("inf")
        self.faults[fault] += 1
        await asyncio.sleep(seconds)
        if fault in (Fault.DROP, Fault.MUTE):
            self._drop_all()
            self._passes_at["answer"] = 0.0

    def _drop_all(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        for pump in self._pumps:  # what they hold back must not pass after all
            pump.cancel()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            target_reader, target_writer = await asyncio.open_connection(*self._target, limit=CHUNK)
        except OSError:
            writer.transport.abort()
            self._writers.discard(writer)
            return
        self._writers.add(target_writer)
        pumps = {
            asyncio.create_task(self._pump("request", reader, target_writer)),
            asyncio.create_task(self._pump("answer", target_reader, writer)),
        }
        self._pumps |= pumps
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for one in (writer, target_writer):
            one.transport.abort()
        for pump in pumps:
            pump.cancel()
        await asyncio.wait(pumps)
        self._pumps -= pumps
        self._writers -= {writer, target_writer}

    async def _pump(self, direction: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while piece := await reader.read(CHUNK):
                if time.monotonic() < self._delayed_until:
                    await asyncio.sleep(self._delay)
                while time.monotonic() < self._passes_at[direction]:
                    await asyncio.sleep(0.01)
                writer.write(piece)
                await writer.drain()

    async def _close(self) -> None:
        self._server.close()
        self._drop_all()
        while self._pumps:
            await asyncio.sleep(0.01)

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
