"""Runs in Redis or Valkey: every operation is one script on one hash, in one round trip.

The scripts are in lua/, beside this file. A script is alone on its server while it runs, so reading, deciding and writing are
one there; from here they never could be. What Redis can't promise is in docs/choosing-a-store.md: a server that is lost, or
fails over, may forget a claim that it has acknowledged.
"""

from __future__ import annotations

import logging
import os
import re
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha1
from pathlib import Path
from typing import Any, Unpack
from urllib.parse import parse_qsl, unquote, urlsplit

import redis

from dedup.record import Decision, Ending, RunRecord
from dedup.stores import (
    FINISH_SECONDS,
    Claim,
    Details,
    SeenRun,
    StoreUnavailable,
    Unsupported,
    deleted_unseen,
    monotonic,
    read_record,
)
from dedup.stores.once import Once
from dedup.stores.redis_client import TRY_SECONDS, Client, Server, bounded_by, open_client
from dedup.stores.selection import EVERY_RUN, Selection
from dedup.stores.tries import Tries

CLAIM_SECONDS = 9.0
"""A delivery is answered within 10 s of the store's silence; the rest is for the answer."""
RENEW_SECONDS = 5.0
PAGE = 500
"""Runs of a listing that are read in one round trip."""

_LUA = Path(__file__).with_name("lua")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIMES = ("updated_at", "lease_expires", "renewed_at", "expire_at", "schedule_time", "claimed_at", "finished_at")
_NUMBERS = ("lease_seconds", "attempts")

_UNSENT = (redis.AuthenticationError, redis.exceptions.AuthorizationError)
"""The server has refused us, or there was nothing to say to it: no script has run, and none will."""
_NOT_NOW = (
    redis.exceptions.BusyLoadingError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.TryAgainError,
)
"""The server's answer while it starts or fails over: the script hasn't run, and the next try may find another server."""
_UNCLEAR = (redis.ConnectionError, redis.TimeoutError, OSError)

log = logging.getLogger("dedup")


class RedisRunStore:
    """Runs in one hash each, whose key is `PREFIX:RUN_ID`: a cluster may keep each where it likes.

    Args:
        server: where it is.
        prefix: of all keys.
        monotonic: a clock in seconds, for deadlines and for how long an attempt trusts its lease.
        sleep: waits between two tries.
    """

    supports_effects = False
    lists_by_index = False

    def __init__(
        self,
        server: Server,
        prefix: str = "scheduler_runs",
        *,
        monotonic: Callable[[], float] = monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.server = server
        self.prefix = prefix
        self._monotonic = monotonic
        self._sleep = sleep
        self._scripts = {name: _Script.read(name) for name in ("claim", "renew", "finish", "delete")}
        self._opened: Once[Client] = Once()

    def claim_run(self, claim: Claim) -> Decision:
        """Reads, decides and claims in one script. One that is sent again finds what the first has done."""
        fields: dict[str, str] = {"job_name": claim.job_name, "schedule_time": _digits(claim.schedule_time)}
        if claim.scope:
            fields["scope"] = claim.scope
        tries = self._tries(CLAIM_SECONDS)
        was_unclear, claim.create_unclear = claim.create_unclear, True
        reply, tried_at, unclear = self._run(
            "claim", claim.run_id, tries, claim.attempt_id, claim.lease_seconds, claim.retention_seconds, *_flat(fields)
        )
        claim.create_unclear = was_unclear or unclear
        decision, now = Decision(reply[0]), _moment(reply[1])
        if decision not in (Decision.CLAIM, Decision.HELD):
            pairs = reply[2]
            _record(claim.run_id, dict(zip(pairs[::2], pairs[1::2], strict=True)), now)  # tells of one that can't be read
            return decision
        claim.wrote(now, tried_at)
        claim.attempts = reply[2]
        return Decision.CLAIM

    def renew_run(self, claim: Claim) -> bool:
        """Lets the lease begin anew where the run is still this attempt's, in one script."""
        tries = self._tries(RENEW_SECONDS)
        reply, tried_at, _ = self._run(
            "renew", claim.run_id, tries, claim.attempt_id, claim.lease_seconds, claim.retention_seconds
        )
        if reply is None:
            return False
        claim.wrote(_moment(reply), tried_at)
        return True

    def finish_run(self, claim: Claim, ending: Ending, **details: Unpack[Details]) -> bool:
        """Ends the attempt where the run is still its own, in one script.

        Raises:
            Unsupported: there are effects. What a job writes elsewhere can't be one with a script.
        """
        if details.get("effects") is not None:
            raise Unsupported("Redis has no transaction to put a job's own writes in: on_commit needs Firestore or Spanner")
        told = {"result": details.get("result"), "error": details.get("error")}
        fields = {name: text for name, text in told.items() if text is not None}
        late = "late" if claim.create_unclear else ""
        handed_over = _digits(claim.token) if claim.handed_over and claim.token is not None else ""
        tries = self._tries(details.get("within_seconds", FINISH_SECONDS))
        reply, _, _ = self._run(
            "finish", claim.run_id, tries, claim.attempt_id, ending.value, late, handed_over, *_flat(fields)
        )
        if not reply:
            return False
        claim.token = None
        return True

    def get_run(self, run_id: str) -> RunRecord | None:
        """Reads one run, within 10 s."""
        return self.look_up(run_id)[0]

    def list_runs(self, selection: Selection = EVERY_RUN) -> Iterator[SeenRun]:
        """Lists runs, newest first. Reads every key of this prefix, some at a time: an index would cost each claim a write."""
        found = {seen.run_id: seen for seen in self._scan() if selection.fits(seen.record)}  # a scan may come upon a key twice
        yield from sorted(found.values(), key=_newest_last, reverse=True)[: selection.limit]

    def look_up(self, run_id: str) -> tuple[RunRecord | None, datetime]:
        """Reads one run, and the server's clock, within 10 s."""
        [fields], now = self._hashes([self._key(run_id)])
        return _record(run_id, fields, now) if fields else None, now

    def delete_run(self, run_id: str, updated_at: datetime) -> bool:
        """Deletes a run's record in one script, if it is as it was at `updated_at`."""
        reply, _, unclear = self._run("delete", run_id, self._tries(CLAIM_SECONDS), _digits(updated_at))
        return reply == "deleted" or (unclear and deleted_unseen(None if reply == "gone" else self.get_run(run_id)))

    def _scan(self) -> Iterator[SeenRun]:
        every_run = re.sub(r"([*?\[\]\\])", r"\\\1", self._key("")) + "*"
        cursor = 0
        while True:
            scan = partial(redis.Redis.scan, cursor=cursor, match=every_run, count=PAGE)
            (cursor, keys), _, _ = self._ask("", scan, self._tries(CLAIM_SECONDS))
            run_ids = [key.removeprefix(self._key("")) for key in keys]
            run_ids = [run_id for run_id in run_ids if re.fullmatch(r"[0-9a-f]{64}", run_id)]  # others are of longer prefixes
            hashes, now = self._hashes([self._key(run_id) for run_id in run_ids], pass_over_others=True)
            for run_id, fields in zip(run_ids, hashes, strict=True):
                if fields:  # else it has ended meanwhile
                    yield SeenRun(run_id, _record(run_id, fields, now), now)
            if cursor == 0:
                return

    def _hashes(self, keys: list[str], *, pass_over_others: bool = False) -> tuple[list[dict[str, str]], datetime]:
        def send(client: redis.Redis) -> list[Any]:
            pipeline = client.pipeline(transaction=False)
            for key in keys:
                pipeline.hgetall(key)
            pipeline.time()
            replies: list[Any] = pipeline.execute(raise_on_error=False)
            for fault in replies:
                if isinstance(fault, redis.RedisError) and not (pass_over_others and str(fault).startswith("WRONGTYPE")):
                    raise fault
            return replies

        (*replies, (seconds, micros)), _, _ = self._ask("", send, self._tries(CLAIM_SECONDS))
        hashes = [reply if isinstance(reply, dict) else {} for reply in replies]
        return hashes, _EPOCH + timedelta(seconds=seconds, microseconds=micros)

    def _run(self, name: str, run_id: str, tries: Tries, *arguments: str | int) -> tuple[Any, float, bool]:
        script, given = self._scripts[name], (self._key(run_id), *arguments)

        def send(client: redis.Redis) -> Any:
            try:
                return client.evalsha(script.sha, 1, *given)
            except redis.exceptions.NoScriptError:
                # The server has started, or taken over, since the last script. From here on it keeps the text.
                return client.eval(script.text, 1, *given)

        return self._ask(run_id, send, tries)

    def _ask(self, run_id: str, send: Callable[[redis.Redis], Any], tries: Tries) -> tuple[Any, float, bool]:
        """Sends until there is a reply; gives it, the monotonic time before its try, and whether a try before had none."""
        unclear = False
        while True:
            tries.next_timeout()
            tried_at = self._monotonic()
            try:
                with bounded_by(tries):
                    return send(self._client()), tried_at, unclear
            except _UNSENT as fault:
                raise self._unavailable(fault) from fault
            except _NOT_NOW as fault:
                self._client().connection_pool.disconnect(inuse_connections=False)  # the name may lead to another server by now
                tries.failed(fault)
            except _UNCLEAR as fault:
                if isinstance(fault.__context__, ssl.SSLCertVerificationError):
                    raise self._unavailable(fault) from fault  # the next try would meet the same certificate
                log.warning("no reply from Redis, asking again: %s", fault, extra={"run_id": run_id})
                unclear = True
                tries.failed(fault)
            except redis.RedisError as fault:
                raise self._unavailable(fault) from fault

    def _key(self, run_id: str) -> str:
        return f"{self.prefix}:{run_id}"

    def _client(self) -> Client:
        """The client, made at the first use: its connections must not be shared with what the server forks."""
        return self._opened.get(partial(open_client, self.server))

    def _unavailable(self, fault: Exception) -> StoreUnavailable:
        remedy = next(
            (text for kind, text in _REMEDIES.items() if isinstance(fault, kind)),
            "does it want a password? Else see the server's own log",
        )
        return StoreUnavailable(f"Redis at {self.server}: {fault} ({remedy})")

    def _tries(self, seconds: float) -> Tries:
        return Tries(seconds, TRY_SECONDS, monotonic=self._monotonic, sleep=self._sleep, unavailable=self._unavailable)


def from_url(url: str) -> RedisRunStore:
    """Makes the store of `redis://USER:PASSWORD@HOST:PORT/DB?prefix=NAME`, or `rediss://` for TLS.

    Options: `prefix` of the keys, `auth=iam`, and with TLS `ca`, the file of the server's certificate authority, or `env:NAME`
    for the environment variable that holds it as PEM.

    Raises:
        ValueError: what is wrong with the URL, which may hold a password and isn't shown.
    """
    form = "redis://HOST:PORT/DB, or rediss://HOST:PORT/DB?ca=FILE&auth=iam for TLS and IAM"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError(f"its host or port can't be read; the form is {form}") from None
    if parts.scheme not in ("redis", "rediss") or not url.startswith(f"{parts.scheme}://") or not host or parts.fragment:
        raise ValueError(f"it is not of the form {form}")
    if port == 0 or not re.fullmatch(r"/?|/[0-9]{1,5}", parts.path):
        raise ValueError(f"its port or its database is no number; the form is {form}")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    prefix, auth, ca = options.pop("prefix", "scheduler_runs"), options.pop("auth", None), options.pop("ca", None)
    tls = parts.scheme == "rediss"
    if options:
        raise ValueError(f"it has an option other than prefix, auth and ca; the form is {form}")
    if not prefix:
        raise ValueError("its prefix is blank: leave it out, or give one such as scheduler_runs")
    if auth not in (None, "iam") or (auth and (parts.username or parts.password)):
        raise ValueError("its auth is something other than iam, or there is a password beside it: it is one or the other")
    if ca is not None and not (tls and ca):
        raise ValueError("its ca is blank, or without TLS: write rediss://HOST:PORT?ca=FILE")
    ca_data = _authority(ca.removeprefix("env:")) if ca is not None and ca.startswith("env:") else None
    server = Server(
        host=host,
        port=port or 6379,
        db=int(parts.path.strip("/") or 0),
        username=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        tls=tls,
        ca=None if ca_data is not None else ca,
        ca_data=ca_data,
        iam=auth == "iam",
    )
    return RedisRunStore(server, prefix)


def _authority(variable: str) -> str:
    """Reads certificates out of an environment variable. If they are none, later the server would seem to be at fault."""
    pem = os.environ.get(variable, "")
    if not pem.strip():
        raise ValueError(
            f"its ca names the environment variable {variable!r}, which is missing or empty: it needs the PEM text"
        )
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem)
    except (ssl.SSLError, TypeError, ValueError):
        raise ValueError(f"its ca names the environment variable {variable!r}, which holds no certificate as PEM") from None
    return pem


_REMEDIES: dict[type[Exception], str] = {
    redis.AuthenticationError: "mend the password in DEDUP_STORE; with auth=iam, its account needs the role to connect",
    redis.exceptions.AuthorizationError: "its user may not do this",
    redis.exceptions.NoPermissionError: "its user needs +@scripting, +@hash, +@keyspace, +time and +select on these keys",
    redis.exceptions.OutOfMemoryError: "the server is full: a larger one, or a shorter DEDUP_RETENTION_SECONDS",
    redis.exceptions.MovedError: "DEDUP_STORE must name an instance whose cluster mode is disabled",
    redis.exceptions.ReadOnlyError: "this is a replica: DEDUP_STORE must name the primary endpoint",
    redis.exceptions.BusyLoadingError: "the server is still starting",
    redis.TimeoutError: "the server didn't answer in time: is there a way to it by the VPC, is TLS as the URL says?",
    redis.ConnectionError: "the server can't be reached: is it up, does DEDUP_STORE name it, is there a way to it by the VPC?",
    TimeoutError: "the server didn't answer in time: is there a way to it, by the VPC?",
}


@dataclass(frozen=True, slots=True)
class _Script:
    """A script's text, and the name that the server knows it by."""

    text: str
    sha: str

    @classmethod
    def read(cls, name: str) -> _Script:
        text = (_LUA / "record.lua").read_text() + (_LUA / f"{name}.lua").read_text()
        return cls(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


def _record(run_id: str, fields: dict[str, str], now: datetime) -> RunRecord:
    """Reads a hash, whose values are all text; what isn't of its type stays text, and so can't be read."""
    values: dict[str, Any] = dict(fields)
    for name in _NUMBERS:
        if (number := _number(fields.get(name))) is not None:
            values[name] = number
    for name in _TIMES:
        values[name] = _time(fields.get(name))
    updated_at = values["updated_at"] or now  # edited by hand, beyond reading: as if written just now
    return read_record(run_id, values, updated_at)


def _newest_last(seen: SeenRun) -> tuple[datetime, str]:
    assert seen.record.schedule_time is not None  # or it would fit no selection
    return seen.record.schedule_time, seen.run_id


def _number(text: object) -> int | None:
    return int(text) if isinstance(text, str) and re.fullmatch(r"[0-9]{1,16}", text) else None


def _time(text: object) -> datetime | None:
    number = _number(text)
    return _moment(number) if number is not None else None


def _moment(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def _digits(moment: datetime) -> str:
    return str((moment - _EPOCH) // timedelta(microseconds=1))


def _flat(fields: dict[str, str]) -> list[str]:
    return [part for pair in fields.items() for part in pair]
