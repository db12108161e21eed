"""redis-py within a time: the one place that knows something private of it.

Its time-outs are of one wait for the server, where a new connection has several, and none covers looking up a name
(redis/redis-py issue 778: a time-out of connecting is the socket's alone). So each wait here ends with the operation that it
is part of, and `_connect`, where redis-py looks the name up and connects, is called in a thread that can be left behind.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

import redis
from google.auth.exceptions import GoogleAuthError, TransportError
from redis.backoff import NoBackoff
from redis.retry import Retry

from dedup.stores import StoreUnavailable
from dedup.stores.tries import Tries

TRY_SECONDS = 2.0
"""One wait for the server: a try that has to connect, and to say who it is, has several."""
MOST_CONNECTIONS = 10_000
"""As many as there are threads, in effect: a thread never waits for another's connection."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Where the server is, and how one gets in."""

    host: str
    port: int = 6379
    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    ca: str | None = None
    """The file of the certificate authority that the server's certificate is of; None: those that this machine trusts."""
    ca_data: str | None = field(default=None, repr=False)
    """The same as PEM text, in place of a file."""
    iam: bool = False
    """The password is an access token of this service account's."""

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{self.db}"


def open_client(server: Server) -> Client:
    """Makes a client; it has connected to nothing yet."""
    secrets: dict[str, Any] = {"username": server.username, "password": server.password}
    if server.iam:
        secrets = {"credential_provider": _AccessToken()}
    if server.ca is not None and not Path(server.ca).is_file():  # the library would take it for a server out of reach
        raise StoreUnavailable(f"Redis at {server}: there is no file {server.ca}, which DEDUP_STORE names as its ca")
    tls: dict[str, Any] = {"ssl_ca_certs": server.ca, "ssl_ca_data": server.ca_data} if server.tls else {}
    pool = redis.ConnectionPool(
        connection_class=_BoundedTLSConnection if server.tls else _BoundedConnection,
        max_connections=MOST_CONNECTIONS,
        host=server.host,
        port=server.port,
        db=server.db,
        socket_timeout=TRY_SECONDS,
        socket_connect_timeout=TRY_SECONDS,
        retry=Retry(NoBackoff(), 0),  # a try that the library repeats by itself is one that we don't know of
        protocol=2,  # no HELLO, and no CLIENT SETINFO: a new connection is ready a round trip sooner
        driver_info=None,
        decode_responses=True,
        encoding_errors="replace",
        **secrets,
        **tls,
    )
    return Client(connection_pool=pool)


class _AccessToken(redis.CredentialProvider):
    """Signs in by IAM. A token lives for an hour, and each new connection is made with one that still does."""

    def __init__(self) -> None:
        self._credentials: Any = None
        self._refreshing = threading.Lock()

    def get_credentials(self) -> tuple[str]:
        import google.auth
        from google.auth.transport.requests import Request

        def refresh() -> str:
            with self._refreshing:
                if self._credentials is None:
                    self._credentials, _ = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
                if not self._credentials.valid:
                    self._credentials.refresh(Request())
                return str(self._credentials.token)

        try:
            return (within_bounds(refresh),)
        # As the library's own errors: after any other it keeps the connection, which nobody has signed in on.
        except GoogleAuthError as fault:
            may_pass = isinstance(fault, TransportError) or fault.retryable
            raise (redis.ConnectionError if may_pass else redis.AuthenticationError)(f"no access token: {fault}") from fault


class _Bounds(threading.local):
    """The tries of the operation that this thread is at."""

    tries: Tries | None = None


_bounds = _Bounds()


class bounded_by:  # noqa: N801 - reads as the sentence that it stands in
    """Lets every wait of this thread's connections end with the operation's own deadline."""

    def __init__(self, tries: Tries) -> None:
        self._tries = tries

    def __enter__(self) -> None:
        _bounds.tries = self._tries

    def __exit__(self, *_: object) -> None:
        _bounds.tries = None


def within_bounds(call: Callable[[], T], abandon: Callable[[T], None] = lambda _: None) -> T:
    """Calls in a thread of its own, and waits as long as a try may take: no time-out of a socket covers looking up a name.

    Args:
        call: what may take long.
        abandon: is given what it returns when nobody waits for that any more.
    """
    seconds = _bounds.tries.next_timeout() if _bounds.tries is not None else TRY_SECONDS
    called: Future[T] = Future()

    def run() -> None:
        try:
            returned = call()
        except BaseException as raised:
            with suppress(InvalidStateError):
                called.set_exception(raised)
            return
        try:
            called.set_result(returned)
        except InvalidStateError:
            abandon(returned)

    try:
        Thread(target=run, name="dedup-redis", daemon=True).start()
    except RuntimeError as fault:  # no thread to be had just now
        raise redis.ConnectionError(str(fault)) from fault
    try:
        return called.result(seconds)
    except FutureTimeoutError:
        if called.cancel():
            raise redis.TimeoutError("the server's name, the way to it, or an access token took too long") from None
        return called.result()


class _BoundedConnection(redis.Connection):
    """The library would wait as long for each reply, and a new connection waits for several."""

    def _connect(self) -> Any:
        if _bounds.tries is not None:
            self.socket_connect_timeout = _bounds.tries.next_timeout()
        return within_bounds(super()._connect, abandon=lambda connected: connected.close())

    def read_response(self, *args: Any, **options: Any) -> Any:
        if _bounds.tries is not None:
            try:
                left = _bounds.tries.next_timeout()
                if left < TRY_SECONDS:  # else it is the connection's own time-out
                    options["timeout"] = left
            except StoreUnavailable:
                # Nobody waits for the reply any more, and it must not be the next command's.
                self.disconnect()  # type: ignore[no-untyped-call]
                raise
        return super().read_response(*args, **options)


class _BoundedTLSConnection(_BoundedConnection, redis.SSLConnection):
    pass


class Client(redis.Redis):
    """A client that sends each command once. The library's would give the next one the reply that an abort left unread."""

    def execute_command(self, *command: Any, **options: Any) -> Any:
        """Sends a command, and reads its reply."""
        connection: Any = self.connection_pool.get_connection()
        try:
            connection.send_command(*command, **options)
            return self.parse_response(connection, command[0], **options)  # type: ignore[no-untyped-call]
        except redis.ResponseError:
            raise
        except BaseException:
            connection.disconnect()  # the reply may still come, and must not be the next command's
            raise
        finally:
            self.connection_pool.release(connection)
