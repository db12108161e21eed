"""Runs in a Spanner table.

A new run is claimed by one insert, which Spanner refuses where there is a row. Everything else that is written is conditional
DML in a read-write transaction, on the attempt or on the time of the last write, so that nothing is judged here and written
later. In round trips: a claim 1, a duplicate 2 (the insert that is refused, a read without locks), a take-over 4 (these, the
update, its commit), a renewal and a finish 2 each. To read inside the transaction would save a take-over one, and cost each
duplicate one, and a lock.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from google.api_core import exceptions as google
from google.auth.exceptions import GoogleAuthError
from google.cloud import spanner
from google.cloud.spanner_v1 import param_types
from google.cloud.spanner_v1.database import Database
from google.cloud.spanner_v1.database_sessions_manager import TransactionType

from dedup.record import Decision, Ending, RunRecord, Status, decide
from dedup.stores import Claim, EffectsRaised, SeenRun, StoreUnavailable, deleted_unseen, read_record
from dedup.stores.tries import Fate, Tries

CLAIM_SECONDS = 9.0
"""A delivery is answered within 10 s of the store's silence; the rest is for the answer."""
RENEW_SECONDS = 5.0
RPC_SECONDS = 3.0
"""One try."""
ROLLBACK_SECONDS = 1.0
"""A transaction that isn't rolled back keeps its locks for 10 s, and that is all: it needn't be waited for."""
SCHEMA_SECONDS = 120.0
PAGE = 10_000
"""Runs of a listing that are held at once."""
PAGE_SECONDS = 60.0
"""How long one page may take."""
SESSIONS = 100
"""Where the library doesn't share one session among all threads, as on the emulator: how many are kept."""
CONTENDED_CLAIMS = 5
"""How often another attempt may be faster before a claim gives the run up to it."""
REFUSED_FINISHES = 3
"""How often a finish is tried again that was refused though the run is still its own."""

_DEFINITE = (
    google.InvalidArgument,
    google.MethodNotImplemented,
    google.NotFound,
    google.PermissionDenied,
    google.Unauthenticated,
)
"""The server's answer, and the next one would be the same. Any other fault leaves unclear what was written."""
_REFUSED_EFFECTS = (google.AlreadyExists, google.FailedPrecondition, google.InvalidArgument, google.NotFound, google.OutOfRange)
"""The server refuses what the job's effects wrote, such as a row that exists already; nothing is written."""
_FAULTS = (google.GoogleAPIError, GoogleAuthError)

_TYPES = {
    "run_id": param_types.STRING,
    "updated_at": param_types.TIMESTAMP,
    "status": param_types.STRING,
    "attempt_id": param_types.STRING,
    "lease_seconds": param_types.INT64,
    "lease_expires": param_types.TIMESTAMP,
    "renewed_at": param_types.TIMESTAMP,
    "expire_at": param_types.TIMESTAMP,
    "job_name": param_types.STRING,
    "schedule_time": param_types.TIMESTAMP,
    "scope": param_types.STRING,
    "attempts": param_types.INT64,
    "claimed_at": param_types.TIMESTAMP,
    "finished_at": param_types.TIMESTAMP,
    "result": param_types.STRING,
    "error": param_types.STRING,
}
"""The columns; a test holds them and spanner.sql together."""
_GIVEN = {
    **_TYPES,
    **dict.fromkeys(("read_at", "since", "until", "last_time"), param_types.TIMESTAMP),
    **dict.fromkeys(("held_by", "last_run"), param_types.STRING),
}
"""What statements are given."""
_NOW = spanner.COMMIT_TIMESTAMP
"""Stands for the time of the commit, in a mutation and here."""
_NOW_IN_DML = "PENDING_COMMIT_TIMESTAMP()"
_NO_TIME = datetime.min.replace(tzinfo=UTC)
"""The clock that comes with no row: there is no lease to measure by it."""
_HELD = "attempt_id = @held_by AND status = 'in_progress'"

log = logging.getLogger("dedup")


class SpannerRunStore:
    """Runs in one table of a Spanner database.

    Args:
        project: the project's id; None: what the environment says.
        instance: the instance's id.
        database: the database's id.
        table: the table's name.
        monotonic: a clock in seconds, for deadlines and for how long an attempt trusts its lease.
        utcnow: this machine's clock; it writes times for people, and for row deletion, and decides nothing.
        sleep: waits between two tries.
    """

    supports_effects = True
    lists_by_index = False

    def __init__(
        self,
        project: str | None,
        instance: str,
        database: str,
        table: str = "scheduler_runs",
        *,
        monotonic: Callable[[], float] = time.monotonic,
        utcnow: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.project = project
        self.instance = instance
        self.database = database
        self.table = table
        self._monotonic = monotonic
        self._utcnow = utcnow
        self._sleep = sleep
        self._made_database: _BoundedDatabase | None = None
        self._making_database = threading.Lock()

    def claim_run(self, claim: Claim) -> Decision:
        """Claims a run by an insert. Where there is a row: reads it, decides, and takes over by a conditional update."""
        tries = self._tries(CLAIM_SECONDS)
        record: RunRecord | None = None
        decision = Decision.CLAIM  # the usual run has no row; where there is one, the insert is refused
        contended = 0
        while contended < CONTENDED_CLAIMS:
            match decision:
                case Decision.CLAIM:
                    fate = self._insert(claim, tries) if record is None else self._take_over(claim, record, tries)
                case Decision.HELD:
                    assert record is not None
                    claim.attempts = record.attempts
                    fate = self._renew(claim, tries)  # what an earlier try has written is trusted from here on, not from then
                case _:
                    return decision
            if fate is Fate.WRITTEN:
                return Decision.CLAIM
            if fate is Fate.REFUSED:
                contended += 1
            record, now = self._read(claim.run_id, tries)
            decision = decide(record, claim.attempt_id, now)
        return Decision.IN_PROGRESS

    def renew_run(self, claim: Claim) -> bool:
        """Lets the lease begin anew where the run is still this attempt's; an unclear renewal is renewed again."""
        tries = self._tries(RENEW_SECONDS)
        while (fate := self._renew(claim, tries)) is Fate.UNCLEAR:
            pass
        return fate is Fate.WRITTEN

    def finish_run(
        self,
        claim: Claim,
        ending: Ending,
        *,
        result: str | None = None,
        error: str | None = None,
        effects: Callable[[Any], None] | None = None,
        within_seconds: float = 10.0,
    ) -> bool:
        """Ends the attempt where the run is still its own. An unclear or refused finish is judged by reading the run again."""
        for_reading = min(RPC_SECONDS, within_seconds / 3)
        tries = self._tries(within_seconds - for_reading)
        applied = effects if ending is Ending.COMPLETED else None
        refused = 0
        while refused < REFUSED_FINISHES:
            try:
                fate: Fate | StoreUnavailable = self._finish(claim, ending, result, error, applied, tries)
            except StoreUnavailable as unavailable:  # time is up, and the last commit may have been applied unseen
                fate = unavailable
            if fate is not Fate.WRITTEN:
                record, _ = self._read(claim.run_id, self._tries(for_reading))
                if not claim.has_ended(record, ending):
                    if record is None or not claim.may_finish(record):
                        return False
                    if isinstance(fate, StoreUnavailable):
                        raise fate
                    refused += fate is Fate.REFUSED
                    continue
            claim.token = None
            return True
        return False

    def get_run(self, run_id: str) -> RunRecord | None:
        """Reads one run, within 10 s."""
        record, _ = self._read(run_id, self._tries(CLAIM_SECONDS))
        return record

    def list_runs(
        self,
        *,
        job_name: str | None = None,
        status: Status | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
    ) -> Iterator[SeenRun]:
        """Lists runs, newest first. Each page reads the whole table: an index on times that rise would be its one hot spot."""
        filters: dict[str, Any] = {
            "job_name = @job_name": job_name,
            "status = @status": status.value if status is not None else None,
            "schedule_time >= @since": since,
            "schedule_time < @until": until,
        }
        where = ["schedule_time IS NOT NULL", *(text for text, value in filters.items() if value is not None)]
        given = {text.rpartition("@")[2]: value for text, value in filters.items() if value is not None}
        left = float("inf") if limit is None else limit
        while left > 0:
            size = int(min(PAGE, left))
            order = f"ORDER BY schedule_time DESC, run_id DESC LIMIT {size}"
            rows = self._select(f"WHERE {' AND '.join(where)} {order}", given, self._tries(PAGE_SECONDS, PAGE_SECONDS))
            page = [SeenRun(run_id, record, now) for run_id, record, now in rows]
            yield from page
            if len(page) < size:
                return
            left -= size
            if "last_run" not in given:
                where.append("(schedule_time < @last_time OR (schedule_time = @last_time AND run_id < @last_run))")
            given |= {"last_time": page[-1].record.schedule_time, "last_run": page[-1].run_id}

    def look_up(self, run_id: str) -> tuple[RunRecord | None, datetime]:
        """Reads one run, and the server's clock, within 10 s."""
        tries = self._tries(CLAIM_SECONDS)
        record, now = self._read(run_id, tries)
        if record is None:
            [[now]] = self._query("SELECT CURRENT_TIMESTAMP()", {}, tries)
        return record, now

    def delete_run(self, run_id: str, updated_at: datetime) -> bool:
        """Deletes a run's record in one transaction, if it is as it was at `updated_at`."""
        tries = self._tries(CLAIM_SECONDS)
        delete = self._conditionally(
            f"DELETE FROM {self.table} WHERE run_id = @run_id AND updated_at = @read_at",
            {"run_id": run_id, "read_at": updated_at},
        )
        unclear = False
        while (fate := self._send(run_id, tries, delete)) is Fate.UNCLEAR:
            unclear = True
        return fate is not Fate.REFUSED or (unclear and deleted_unseen(self._read(run_id, tries)[0]))

    # What is written. Each is one transaction.

    def _insert(self, claim: Claim, tries: Tries) -> Fate:
        row = {"run_id": claim.run_id, **self._claim_fields(claim, attempts=1)}
        was_unclear, claim.create_unclear = claim.create_unclear, True

        def insert(database: Database) -> datetime:
            with database.batch(timeout_secs=0) as batch:  # no tries of the library's own
                batch.insert(self.table, list(row), [list(row.values())])
            committed: datetime = batch.committed
            return committed

        fate = self._write(claim, tries, insert)
        if fate is not Fate.UNCLEAR:
            claim.create_unclear = was_unclear
        if fate is Fate.WRITTEN:
            claim.attempts = 1
        return fate

    def _take_over(self, claim: Claim, record: RunRecord, tries: Tries) -> Fate:
        left_by_the_dead = dict.fromkeys(("renewed_at", "finished_at", "result", "error"))
        fields = left_by_the_dead | self._claim_fields(claim, attempts=record.attempts + 1)
        fate = self._update(claim, tries, fields, "updated_at = @read_at", read_at=record.updated_at)
        if fate is Fate.WRITTEN:
            claim.attempts = record.attempts + 1
        return fate

    def _renew(self, claim: Claim, tries: Tries) -> Fate:
        return self._update(claim, tries, {"renewed_at": _NOW, **self._lease_fields(claim)}, _HELD, held_by=claim.attempt_id)

    def _finish(
        self,
        claim: Claim,
        ending: Ending,
        result: str | None,
        error: str | None,
        effects: Callable[[Any], None] | None,
        tries: Tries,
    ) -> Fate:
        held: str = _HELD
        given: dict[str, Any] = {"held_by": claim.attempt_id}
        if claim.handed_over:  # and the work it was handed to hasn't begun: that writes in the same name
            held, given = f"{_HELD} AND updated_at = @read_at", {**given, "read_at": claim.token}
        if ending is Ending.RELEASED and not claim.create_unclear:
            delete = f"DELETE FROM {self.table} WHERE run_id = @run_id AND {held}"
            return self._change(claim, tries, delete, {"run_id": claim.run_id, **given})
        fields: dict[str, Any] = {"status": ending.value, "finished_at": _NOW, "result": result, "error": error}
        if ending is Ending.RELEASED:
            # That insert may still arrive: after a delete, it would hold the run for a lease with nobody at work.
            fields = {"lease_seconds": 0, "lease_expires": datetime.fromtimestamp(0, UTC)}
        return self._update(claim, tries, fields, held, effects, **given)

    def _update(
        self,
        claim: Claim,
        tries: Tries,
        fields: dict[str, Any],
        condition: str,
        effects: Callable[[Any], None] | None = None,
        **given: Any,
    ) -> Fate:
        fields = {"updated_at": _NOW, **fields}
        changes = [f"{name} = {_NOW_IN_DML if value is _NOW else f'@{name}'}" for name, value in fields.items()]
        sql = f"UPDATE {self.table} SET {', '.join(changes)} WHERE run_id = @run_id AND {condition}"
        values = {name: value for name, value in fields.items() if value is not _NOW}
        return self._change(claim, tries, sql, {"run_id": claim.run_id, **values, **given}, effects)

    def _change(
        self,
        claim: Claim,
        tries: Tries,
        sql: str,
        given: dict[str, Any],
        effects: Callable[[Any], None] | None = None,
    ) -> Fate:
        return self._write(claim, tries, self._conditionally(sql, given, effects), with_effects=effects is not None)

    def _conditionally(
        self, sql: str, given: dict[str, Any], effects: Callable[[Any], None] | None = None
    ) -> Callable[[Database], datetime]:
        """A transaction that changes the one row, if it is as the statement wants it."""
        types = {name: _GIVEN[name] for name in given}

        def change(database: Database) -> datetime:
            transactions = []

            def conditionally(transaction: Any) -> None:
                transactions.append(transaction)
                # The run first: what isn't ours is left alone before the job's own writes are begun.
                if not transaction.execute_update(sql, params=given, param_types=types):
                    raise _NotSo
                if effects is not None:
                    _apply(effects, transaction)

            # Not by the database's own run_in_transaction: where it gets no session, its thread never gets a transaction again.
            sessions = database.sessions_manager
            session = sessions.get_session(TransactionType.READ_WRITE)
            try:
                session.run_in_transaction(conditionally, timeout_secs=0)  # aborted, it is for our own tries to try again
            finally:
                sessions.put_session(session)
            committed: datetime = transactions[-1].committed
            return committed

        return change

    def _write(self, claim: Claim, tries: Tries, send: Callable[[Database], datetime], *, with_effects: bool = False) -> Fate:
        """Sends one transaction once, and notes in the claim what is known of it afterwards."""
        self._database(tries)  # its making, at the first use, is no part of the lease
        tried_at = self._monotonic()
        token = self._send(claim.run_id, tries, send, with_effects=with_effects)
        if isinstance(token, Fate):
            return token
        claim.wrote(token, tried_at)
        return Fate.WRITTEN

    def _send(
        self, run_id: str, tries: Tries, send: Callable[[Database], datetime], *, with_effects: bool = False
    ) -> datetime | Fate:
        """Sends one transaction once: the time of its commit, or what else is known of it."""
        database = self._database(tries)
        try:
            with database.bounded_by(tries):
                return send(database)
        except _NotSo:
            return Fate.REFUSED
        except _FAULTS as fault:
            if with_effects and isinstance(fault, _REFUSED_EFFECTS):
                raise EffectsRaised(fault) from fault
            if isinstance(fault, google.AlreadyExists):  # by class, not by code: 409 is Aborted as well
                return Fate.REFUSED
            if isinstance(fault, _DEFINITE):
                raise self._unavailable(fault) from fault
            log.warning("Spanner write unclear, reading the run again: %s", fault, extra={"run_id": run_id})
            tries.failed(fault)
            return Fate.UNCLEAR

    def _claim_fields(self, claim: Claim, attempts: int) -> dict[str, Any]:
        return {
            "updated_at": _NOW,
            "status": Status.IN_PROGRESS.value,
            "attempt_id": claim.attempt_id,
            "job_name": claim.job_name,
            "schedule_time": claim.schedule_time,
            "scope": claim.scope or None,
            "attempts": attempts,
            "claimed_at": _NOW,
            **self._lease_fields(claim),
        }

    def _lease_fields(self, claim: Claim) -> dict[str, Any]:
        now = self._utcnow()
        return {
            "lease_seconds": claim.lease_seconds,
            "lease_expires": now + timedelta(seconds=claim.lease_seconds),
            "expire_at": now + timedelta(seconds=claim.retention_seconds),
        }

    # What is read.

    def _read(self, run_id: str, tries: Tries) -> tuple[RunRecord | None, datetime]:
        """Reads a run and the server's clock, without a lock."""
        for _, record, now in self._select("WHERE run_id = @run_id", {"run_id": run_id}, tries):
            return record, now
        return None, _NO_TIME

    def _select(self, where: str, given: dict[str, Any], tries: Tries) -> Iterator[tuple[str, RunRecord, datetime]]:
        """Reads the runs that a clause is true of: their ids, their records, and the server's clock with each."""
        sql = f"SELECT {', '.join(_TYPES)}, CURRENT_TIMESTAMP() FROM {self.table} {where}"
        for *values, now in self._query(sql, given, tries):
            fields = {name: value for name, value in zip(_TYPES, values, strict=True) if value is not None}
            yield fields["run_id"], read_record(fields["run_id"], fields, fields["updated_at"]), now

    def _query(self, sql: str, given: dict[str, Any], tries: Tries) -> list[list[Any]]:
        types = {name: _GIVEN[name] for name in given}
        while True:
            database = self._database(tries)
            try:
                with database.bounded_by(tries), database.snapshot() as snapshot:  # type: ignore[no-untyped-call]
                    return list(snapshot.execute_sql(sql, params=given, param_types=types))
            except _DEFINITE as fault:
                raise self._unavailable(fault) from fault
            except _FAULTS as fault:
                tries.failed(fault)

    # How the server is reached.

    def _database(self, tries: Tries) -> _BoundedDatabase:
        """The database, made at the first use: gRPC must not be started before the server forks.

        Its one session is made with it. The library would make the first waiting thread wait for all the others.
        """
        if self._made_database is None:
            if not self._making_database.acquire(timeout=tries.next_timeout()):
                raise self._unavailable(TimeoutError("no session yet"))
            try:
                if self._made_database is None:
                    self._made_database = self._make_database(tries)
            finally:
                self._making_database.release()
        return self._made_database

    def _make_database(self, tries: Tries) -> _BoundedDatabase:
        try:
            client = spanner.Client(project=self.project, disable_builtin_metrics=True)
            sessions = spanner.BurstyPool(target_size=SESSIONS)
            database = _BoundedDatabase(self.database, client.instance(self.instance), pool=sessions)
            sessions.bind(database)
        except Exception as fault:  # credentials, a project, a universe domain: whatever the environment lacks
            raise self._unavailable(fault) from fault
        while True:
            try:
                with database.bounded_by(tries):
                    database.sessions_manager.get_session(TransactionType.READ_ONLY)
                return database
            except _DEFINITE as fault:
                raise self._unavailable(fault) from fault
            except _FAULTS as fault:
                tries.failed(fault)

    def _unavailable(self, fault: Exception) -> StoreUnavailable:
        project = f"project {self.project}" if self.project is not None else "the environment's project"
        where = f"Spanner, table {self.table} of {self.instance}/{self.database}, {project}"
        remedy = next((text for kind, text in _REMEDIES.items() if isinstance(fault, kind)), "see the Spanner status page")
        return StoreUnavailable(f"{where}: {fault} ({remedy})")

    def _tries(self, seconds: float, rpc_seconds: float = RPC_SECONDS) -> Tries:
        return Tries(seconds, rpc_seconds, monotonic=self._monotonic, sleep=self._sleep, unavailable=self._unavailable)


def from_url(url: str) -> SpannerRunStore:
    """Makes the store of `spanner://PROJECT/INSTANCE/DATABASE?table=NAME`; PROJECT and the table may be left out.

    Raises:
        ValueError: what is wrong with the URL.
    """
    form = "spanner://PROJECT/INSTANCE/DATABASE?table=scheduler_runs"
    match = re.fullmatch(
        r"spanner://([a-z0-9.:-]*)/([a-z][a-z0-9-]{0,62}[a-z0-9])/([a-z][a-z0-9_-]{0,28}[a-z0-9])(\?[^#]*)?", url
    )
    if match is None:
        raise ValueError(f"it is not of the form {form}")
    options = dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))
    table = options.pop("table", "scheduler_runs")
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,127}", table):
        raise ValueError(f"{table!r} is not a table's name; the form is {form}")
    if options:
        raise ValueError(f"it has an option other than table; the form is {form}")
    return SpannerRunStore(match[1] or None, match[2], match[3], table)


def create_schema(url: str) -> None:
    """Makes the table of spanner.sql in the database that a URL names; one that is there is left as it is.

    Raises:
        ValueError: what is wrong with the URL.
        StoreUnavailable: the table could not be made.
    """
    store = from_url(url)
    try:
        client = spanner.Client(project=store.project, disable_builtin_metrics=True)
        request = {
            "database": client.instance(store.instance).database(store.database).name,
            "statements": [schema(store.table)],
        }
        making = client.database_admin_api.update_database_ddl(request=request, timeout=SCHEMA_SECONDS, retry=None)
        making.result(timeout=SCHEMA_SECONDS)
    except Exception as fault:  # credentials and projects too, and what an operation ends with
        raise store._unavailable(fault) from fault


def schema(table: str) -> str:
    """The statement that makes the table, in its name."""
    text = Path(__file__).with_suffix(".sql").read_text()
    return re.sub(r"^\s*--.*\n", "", text, flags=re.MULTILINE).replace("scheduler_runs", table).strip()


_REMEDIES: dict[type[Exception], str] = {
    google.PermissionDenied: "its service account needs roles/spanner.databaseUser on this database",
    google.Unauthenticated: "its credentials are refused: gcloud auth application-default login",
    google.NotFound: "create what is missing (the table: python -m dedup store create), or let DEDUP_STORE name another",
    google.InvalidArgument: "is the table as python -m dedup store create makes it?",
    google.FailedPrecondition: "the database must have the GoogleSQL dialect",
    google.DeadlineExceeded: "the server didn't answer in time",
    google.ServiceUnavailable: "the server can't be reached",
    TimeoutError: "the server didn't answer in time",
    GoogleAuthError: "set SPANNER_EMULATOR_HOST, run gcloud auth application-default login, or use DEDUP_STORE=sqlite:///PATH",
    OSError: "name the project: DEDUP_STORE=spanner://PROJECT/INSTANCE/DATABASE",
}


class _NotSo(Exception):
    """The row isn't as the statement wants it."""


def _apply(effects: Callable[[Any], None], transaction: Any) -> None:
    try:
        effects(transaction)
    except (google.Aborted, StoreUnavailable):  # Spanner's own, in the job's reads and writes: the whole is tried again
        raise
    except Exception as raised:
        raise EffectsRaised(raised) from raised


class _BoundedDatabase(Database):
    """A database whose RPCs all end with the operation that sends them: the library's own go on for an hour."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)  # type: ignore[no-untyped-call]
        self._bounds = threading.local()

    def bounded_by(self, tries: Tries) -> _BoundedBy:
        """Lets this thread's RPCs end with these tries, for as long as the `with` lasts."""
        return _BoundedBy(self._bounds, tries)

    @property
    def spanner_api(self) -> Any:
        """What sends the RPCs."""
        tries: Tries | None = getattr(self._bounds, "tries", None)
        api = super().spanner_api
        return _BoundedApi(api, tries) if tries is not None else api


class _BoundedBy:
    def __init__(self, bounds: threading.local, tries: Tries) -> None:
        self._bounds = bounds
        self._tries = tries

    def __enter__(self) -> None:
        self._bounds.tries = self._tries

    def __exit__(self, *_: object) -> None:
        self._bounds.tries = None


class _BoundedApi:
    """Sends each RPC once, and no longer than there is time.

    The library repeats some by itself: a stream that is unavailable at once and for ever, an internal error after 2, 4, 8, 16
    and 32 s. A stream waits here before it is repeated; an internal error comes back as one that the library leaves alone.
    """

    def __init__(self, api: Any, tries: Tries) -> None:
        self._api = api
        self._tries = tries

    def __getattr__(self, method: str) -> Any:
        rpc = getattr(self._api, method)
        if method == "rollback":
            return lambda *request, **options: _roll_back(rpc, request, options)

        def bounded(*request: Any, **options: Any) -> Any:
            try:
                answer = rpc(*request, **{**options, "timeout": self._tries.next_timeout(), "retry": None})
                return self._stream(answer) if method in _STREAMS else answer
            except google.ServiceUnavailable as fault:
                if method in _STREAMS:
                    self._tries.failed(fault)
                raise
            except google.InternalServerError as fault:
                raise google.Unknown(str(fault)) from fault

        return bounded

    def _stream(self, answer: Any) -> Iterator[Any]:
        try:
            yield from answer
        except google.InternalServerError as fault:
            raise google.Unknown(str(fault)) from fault


_STREAMS = ("execute_streaming_sql", "streaming_read")


def _roll_back(rpc: Callable[..., Any], request: tuple[Any, ...], options: dict[str, Any]) -> None:
    try:
        rpc(*request, **{**options, "timeout": ROLLBACK_SECONDS, "retry": None})
    except _FAULTS as fault:
        log.debug("Spanner ends the abandoned transaction by itself: %s", fault)
