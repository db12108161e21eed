"""Stands on the wire to a store: counts what passes, and lets each round trip take longer."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any
from unittest import mock

import grpc
from google.cloud import firestore
from google.cloud.firestore_v1.services.firestore import FirestoreClient
from google.cloud.firestore_v1.services.firestore.transports.grpc import FirestoreGrpcTransport


@dataclass
class Tally:
    """What has passed. A write that was refused is a round trip, and no write."""

    round_trips: Counter[str] = field(default_factory=Counter)
    reads: int = 0
    writes: int = 0
    deletes: int = 0

    def as_dict(self) -> dict[str, Any]:
        """For JSON, with the sum of the round trips."""
        return {**asdict(self), "round_trips": dict(sorted(self.round_trips.items())), "total": self.round_trips.total()}


class Wire(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):
    """Every round trip of one client to Firestore, or to Redis.

    Args:
        added_seconds: what each takes longer.
    """

    def __init__(self, added_seconds: float = 0.0) -> None:
        self.added_seconds = added_seconds
        self.tally = Tally()

    def count(self) -> Tally:
        """Gives what has passed, and begins anew."""
        counted, self.tally = self.tally, Tally()
        return counted

    def passes(self, what: str) -> None:
        """Lets a round trip begin."""
        self.tally.round_trips[what] += 1
        if self.added_seconds:
            time.sleep(self.added_seconds)

    def intercept_unary_unary(self, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
        """For commits, and the beginning and end of transactions."""
        method = details.method.rpartition("/")[2]
        self.passes(method)
        call = continuation(details, request)
        if method == "Commit" and call.exception() is None:
            deletes = sum("delete" in write for write in request.writes)
            self.tally.deletes += deletes
            self.tally.writes += len(request.writes) - deletes
        return call

    def intercept_unary_stream(self, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
        """For reads: a missing document is billed as well."""
        self.passes(details.method.rpartition("/")[2])
        self.tally.reads += len(request.documents)
        return continuation(details, request)


def firestore_client(project: str, wire: Wire | None = None) -> firestore.Client:
    """A client of the emulator with an open channel, through a wire if there is one.

    Args:
        project: keeps apart what one peer, or one measure, writes.
        wire: None: nothing stands between.
    """
    client = firestore.Client(project=project)
    if wire is None:
        _ = client._firestore_api
    else:
        channel = grpc.intercept_channel(client._emulator_channel(FirestoreGrpcTransport), wire)
        transport = FirestoreGrpcTransport(host=client._target, channel=channel)
        client._firestore_api_internal = FirestoreClient(transport=transport)
    return client


@contextmanager
def redis_through(wire: Wire) -> Iterator[None]:
    """Lets every Redis client of this process pass the wire, whoever makes it; a script is one round trip."""
    import redis.connection

    send = redis.connection.AbstractConnection.send_packed_command

    def through_wire(connection: Any, command: Any, check_health: bool = True) -> Any:
        wire.passes(_redis_command(command))
        return send(connection, command, check_health)

    with mock.patch.object(redis.connection.AbstractConnection, "send_packed_command", through_wire):
        yield


def _redis_command(packed: Any) -> str:
    r"""The name in `*3\r\n$3\r\nSET\r\n...`."""
    first = packed if isinstance(packed, bytes) else next(iter(packed))
    return first.split(b"\r\n", 3)[2].decode()
