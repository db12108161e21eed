"""Runs in a Spanner table.

A new run is claimed by one insert, which Spanner refuses where there is a row. Everything else that is written is DML in a
read-write transaction, conditional on the time of the last write, so that nothing is judged here and written later. In round
trips: a claim 1, a duplicate 2 (the insert that is refused, a read without locks), a take-over 4 (these, the update, its
commit), a renewal and a finish 2 each. To read inside the transaction would save a take-over one, and cost each duplicate one,
and a lock.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Unpack
from urllib.parse import urlsplit

from google.api_core import exceptions as google
from google.auth.exceptions import GoogleAuthError
from google.cloud import spanner
from google.cloud.spanner_v1 import param_types

from dedup.record import RunRecord
from dedup.stores import Claim, Effects, EffectsRaised, SeenRun, StoreUnavailable, read_record
from dedup.stores.conditional import CLAIM_SECONDS, FINAL, SERVER_TIME, Clocks, ConditionalStore, Refused, name_in
from dedup.stores.once import Once
from dedup.stores.selection import EVERY_RUN, Selection
from dedup.stores.spanner_client import BoundedDatabase, open_database
from dedup.stores.tries import Tries

SCHEMA_SECONDS = 120.0
PAGE = 10_000
"""Runs of a listing that are held at once."""
PAGE_SECONDS = 60.0
"""How long one page may take."""

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
    **dict.fromkeys(("token", "since", "until", "last_time"), param_types.TIMESTAMP),
    "last_run": param_types.STRING,
}
"""What statements are given."""
_NO_TIME = datetime.min.replace(tzinfo=UTC)
"""The clock that comes with no row: there is no lease to measure by it."""
_REMEDIES: dict[type[Exception], str] = {
    google.PermissionDenied: "its service account needs roles/spanner.databaseUser on this database",
    google.NotFound: "create what is missing (the table: python -m dedup store create), or let DEDUP_STORE name another",
    google.InvalidArgument: "is the table as python -m dedup store create makes it?",
    google.FailedPrecondition: "the database must have the GoogleSQL dialect",
    GoogleAuthError: "set SPANNER_EMULATOR_HOST, run gcloud auth application-default login, or use DEDUP_STORE=sqlite:///PATH",
    OSError: "name the project: DEDUP_STORE=spanner://PROJECT/INSTANCE/DATABASE",
}


class SpannerRunStore(ConditionalStore):
    """Runs in one table of a Spanner database.

    Args:
        project: the project's id; None: what the environment says.
        instance: the instance's id.
        database: the database's id.
        table: the table's name.
        clocks: other than this machine's.
    """

    lists_by_index = False
    service = "Spanner"
    refused = (Refused, google.AlreadyExists)
    final = (*FINAL, google.NotFound)
    refused_effects = (
        google.AlreadyExists,
        google.FailedPrecondition,
        google.InvalidArgument,
        google.NotFound,
        google.OutOfRange,
    )
    remedies = _REMEDIES

    def __init__(
        self,
        project: str | None,
        instance: str,
        database: str,
        table: str = "scheduler_runs",
        **clocks: Unpack[Clocks],
    ) -> None:
        super().__init__(**clocks)
        self.project = project
        self.instance = instance
        self.database = database
        self.table = table
        self._made: Once[BoundedDatabase] = Once()

    def list_runs(self, selection: Selection = EVERY_RUN) -> Iterator[SeenRun]:
        """Lists runs, newest first. Each page reads the whole table: an index on times that rise would be its one hot spot."""
        condition, given = selection.sql()
        older = ""
        for size in selection.page_sizes(PAGE):
            where = f"WHERE {condition}{older} ORDER BY schedule_time DESC, run_id DESC LIMIT {size}"
            rows = self._select(where, given, self._tries(PAGE_SECONDS, PAGE_SECONDS))
            page = [SeenRun(run_id, record, now) for run_id, record, now in rows]
            yield from page
            if len(page) < size:
                return
            older = " AND (schedule_time < @last_time OR (schedule_time = @last_time AND run_id < @last_run))"
            given |= {"last_time": page[-1].record.schedule_time, "last_run": page[-1].run_id}

    def look_up(self, run_id: str) -> tuple[RunRecord | None, datetime]:
        """Reads one run, and the server's clock, within 10 s."""
        tries = self._tries(CLAIM_SECONDS)
        record, now = self._read(run_id, tries)
        if record is None:
            [[now]] = self._query("SELECT CURRENT_TIMESTAMP()", {}, tries)
        return record, now

    # What the server does. Each write is one transaction.

    def _connect(self, tries: Tries) -> None:
        self._database(tries)

    def _now(self) -> object:
        return SERVER_TIME

    def _read(self, run_id: str, tries: Tries) -> tuple[RunRecord | None, datetime]:
        """Reads a run and the server's clock, without a lock."""
        for _, record, now in self._select("WHERE run_id = @run_id", {"run_id": run_id}, tries):
            return record, now
        return None, _NO_TIME

    def _create(self, run_id: str, fields: Mapping[str, Any], tries: Tries) -> datetime:
        row = {"run_id": run_id, "updated_at": SERVER_TIME, **fields}
        values = [spanner.COMMIT_TIMESTAMP if value is SERVER_TIME else value for value in row.values()]
        # No tries of the library's own.
        with self._database(tries).bounded_by(tries) as database, database.batch(timeout_secs=0) as batch:  # type: ignore[no-untyped-call]
            batch.insert(self.table, list(row), [values])
        committed: datetime = batch.committed
        return committed

    def _change(
        self, run_id: str, fields: Mapping[str, Any], token: datetime, tries: Tries, effects: Effects | None = None
    ) -> datetime:
        changed = {"updated_at": SERVER_TIME, **fields}
        changes = [
            f"{name} = {'PENDING_COMMIT_TIMESTAMP()' if value is SERVER_TIME else f'@{name}'}"
            for name, value in changed.items()
        ]
        given = {name: value for name, value in changed.items() if value is not SERVER_TIME}
        return self._write_row(f"UPDATE {self.table} SET {', '.join(changes)}", run_id, given, token, tries, effects)

    def _change_with(self, effects: Effects, claim: Claim, fields: Mapping[str, Any], tries: Tries) -> datetime:
        assert claim.token is not None
        try:
            return self._change(claim.run_id, fields, claim.token, tries, effects)
        except self.refused_effects as fault:
            raise self._unavailable(fault) from fault

    def _delete(self, run_id: str, token: datetime, tries: Tries) -> datetime:
        return self._write_row(f"DELETE FROM {self.table}", run_id, {}, token, tries)

    def _write_row(
        self, sql: str, run_id: str, given: dict[str, Any], token: datetime, tries: Tries, effects: Effects | None = None
    ) -> datetime:
        """Changes the one row, if nobody has written it since."""
        given = {**given, "run_id": run_id, "token": token}
        types = {name: _GIVEN[name] for name in given}

        def write(transaction: Any) -> None:
            # The run first: what isn't ours is left alone before the job's own writes are begun.
            condition = "WHERE run_id = @run_id AND updated_at = @token"
            if not transaction.execute_update(f"{sql} {condition}", params=given, param_types=types):
                raise Refused
            if effects is not None:
                _apply(effects, transaction)

        with self._database(tries).bounded_by(tries) as database:
            return database.commit_once(write)

    def _select(self, where: str, given: dict[str, Any], tries: Tries) -> Iterator[tuple[str, RunRecord, datetime]]:
        """Reads the runs that a clause is true of: their ids, their records, and the server's clock with each."""
        sql = f"SELECT {', '.join(_TYPES)}, CURRENT_TIMESTAMP() FROM {self.table} {where}"
        for *values, now in self._query(sql, given, tries):
            fields = {name: value for name, value in zip(_TYPES, values, strict=True) if value is not None}
            yield fields["run_id"], read_record(fields["run_id"], fields, fields["updated_at"]), now

    def _query(self, sql: str, given: dict[str, Any], tries: Tries) -> list[list[Any]]:
        types = {name: _GIVEN[name] for name in given}

        def query() -> list[list[Any]]:
            with self._database(tries).bounded_by(tries) as database, database.snapshot() as snapshot:  # type: ignore[no-untyped-call]
                return list(snapshot.execute_sql(sql, params=given, param_types=types))

        return self._answer(query, tries)

    # How the server is reached.

    def _database(self, tries: Tries) -> BoundedDatabase:
        """The database, made with its session at the first use: gRPC must not be started before the server forks."""
        if self._made.made is not None:
            return self._made.made
        try:
            return self._made.get(partial(self._make, tries), tries.next_timeout())
        except TimeoutError as fault:
            raise self._unavailable(fault) from fault

    def _make(self, tries: Tries) -> BoundedDatabase:
        database = self._opened(partial(open_database, self.project, self.instance, self.database))
        return self._answer(partial(database.make_session, tries), tries)

    def _where(self) -> str:
        return f"Spanner, table {self.table} of {self.instance}/{self.database}, {self._project_text()}"


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
    table = name_in(urlsplit(url).query, "table", form)
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,127}", table):
        raise ValueError(f"{table!r} is not a table's name; the form is {form}")
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


def _apply(effects: Effects, transaction: Any) -> None:
    try:
        effects(transaction)
    except (google.Aborted, StoreUnavailable):  # Spanner's own, in the job's reads and writes: the whole is tried again
        raise
    except Exception as raised:
        raise EffectsRaised(raised) from raised
