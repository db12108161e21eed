"""Runs in Firestore: every change of state is one conditional commit.

A new run costs two RPCs: the create that claims it and the update that finishes it. The documented example's two transactions
cost six. Google's page "Deduplicate job requests" allows either: "transactions or atomic conditional writes".
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from google.api_core import exceptions as google
from google.auth.exceptions import GoogleAuthError
from google.cloud import firestore
from google.cloud.firestore_v1 import types
from google.cloud.firestore_v1.base_query import FieldFilter

from dedup.record import Decision, Ending, RunRecord, Status, decide
from dedup.stores import Claim, EffectsRaised, SeenRun, StoreUnavailable, deleted_unseen, firestore_write, read_record
from dedup.stores.tries import Fate, Tries

CLAIM_SECONDS = 9.0
"""A delivery is answered within 10 s of the store's silence; the rest is for the answer."""
RENEW_SECONDS = 5.0
RPC_SECONDS = 3.0
"""One try. The first one on a cold connection, its token included, takes less than two."""
CONTENDED_CLAIMS = 5
"""How often another attempt may be faster before a claim gives the run up to it."""
REFUSED_FINISHES = 3
"""How often a finish is tried again whose precondition was refused though the run is still its own."""
LISTED_BY = ((), ("job_name",), ("status",), ("job_name", "status"))
"""What runs are filtered by when they are listed, newest schedule_time first; terraform/firestore.tf indexes just these."""

PAGE = 300
"""How many runs one query of a listing reads."""
PAGE_SECONDS = 10.0

_REFUSED = (google.AlreadyExists, google.FailedPrecondition, google.NotFound)
"""The precondition didn't hold: this try wrote nothing. Classes, not codes: 409 is AlreadyExists as well as Aborted."""
_DEFINITE = (*_REFUSED, google.PermissionDenied, google.Unauthenticated, google.InvalidArgument, google.MethodNotImplemented)
"""The server's answer, and the next one would be the same. Any other fault leaves unclear what was written."""
_REFUSED_EFFECTS = (*_REFUSED, google.InvalidArgument)
"""Where the run stands as before, the server refused what the job's effects wrote, such as a document that exists already."""
_FAULTS = (google.GoogleAPIError, GoogleAuthError)

log = logging.getLogger("dedup")


class FirestoreRunStore:
    """Runs in one collection of a Firestore database.

    Args:
        project: the project's id; None: what the environment says.
        database: the database's id.
        collection: the collection's id.
        monotonic: a clock in seconds, for deadlines and for how long an attempt trusts its lease.
        utcnow: this machine's clock; it writes times for people, and for TTL, and decides nothing.
        sleep: waits between two tries.
    """

    supports_effects = True
    lists_by_index = True

    def __init__(
        self,
        project: str | None = None,
        database: str = "(default)",
        collection: str = "scheduler_runs",
        *,
        monotonic: Callable[[], float] = time.monotonic,
        utcnow: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.project = project
        self.database = database
        self.collection = collection
        self._monotonic = monotonic
        self._utcnow = utcnow
        self._sleep = sleep
        self._made_client: firestore.Client | None = None
        self._making_client = threading.Lock()

    def claim_run(self, claim: Claim) -> Decision:
        """Claims a run by a create. Where there is a record: reads it, decides, and takes over by a conditional update."""
        tries = self._tries(CLAIM_SECONDS)
        record: RunRecord | None = None
        decision = Decision.CLAIM  # the usual run has no record; where there is one, the create is refused
        contended = 0
        while contended < CONTENDED_CLAIMS:
            match decision:
                case Decision.CLAIM:
                    fate = self._create(claim, tries) if record is None else self._take_over(claim, record, tries)
                case Decision.HELD:
                    assert record is not None
                    claim.found(record)
                    fate = Fate.WRITTEN if self._is_trusted(claim) else self._renew(claim, record.updated_at, tries)
                case _:
                    return decision
            if fate is Fate.WRITTEN and self._is_trusted(claim):
                return Decision.CLAIM
            if fate is not Fate.UNCLEAR:
                contended += 1
            record, now = self._read(claim.run_id, tries)
            decision = decide(record, claim.attempt_id, now)
        return Decision.IN_PROGRESS

    def renew_run(self, claim: Claim) -> bool:
        """Lets the lease begin anew by a conditional update; an unclear or refused one is judged by reading the run again."""
        tries = self._tries(RENEW_SECONDS)
        while (token := claim.token) is not None:
            if self._renew(claim, token, tries) is Fate.WRITTEN:
                return True
            record, _ = self._read(claim.run_id, tries)
            if record is None or not record.is_held_by(claim.attempt_id):
                return False
            claim.found(record)
            arrived = record.updated_at != token and record.lease_seconds == claim.lease_seconds
            if arrived:  # an earlier try of ours
                return True
        return False

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
        """Ends the attempt by an update, or a delete, that is conditional on the time of our last write.

        An unclear or refused one is judged by the attempt_id *and* the status of a fresh read. With no fault at all, a renewal
        that is applied while the job ends makes the precondition fail; by attempt_id alone, that run would pass for recorded.
        """
        if effects is not None and ending is Ending.COMPLETED:
            return self._complete_with(effects, claim, result, within_seconds)
        tries = self._tries(within_seconds)
        refused = 0
        while refused <= REFUSED_FINISHES:
            if claim.token is not None:
                fate = self._finish(claim, claim.token, ending, result, error, tries)
                if fate is Fate.WRITTEN:
                    claim.token = None  # it opens a record that is nobody's now: a late renewal must not write with it
                    return True
                if fate is Fate.REFUSED:
                    refused += 1
            record, _ = self._read(claim.run_id, tries)
            if claim.has_ended(record, ending):
                claim.token = None
                return True
            if record is None or not claim.may_finish(record):
                return False
            claim.found(record)
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
        """Lists runs, newest first, a page at a time; reads no more documents than it yields."""
        filters = {"job_name": job_name, "status": status.value if status is not None else None}
        query = self._client().collection(self.collection).order_by("schedule_time", direction=firestore.Query.DESCENDING)
        for name, value in filters.items():
            if value is not None:
                query = query.where(filter=FieldFilter(name, "==", value))
        if since is not None:
            query = query.where(filter=FieldFilter("schedule_time", ">=", since))
        if until is not None:
            query = query.where(filter=FieldFilter("schedule_time", "<", until))
        left = float("inf") if limit is None else limit
        while left > 0:
            size = int(min(PAGE, left))
            page = self._page(query.limit(size))
            for snapshot in page:
                record = read_record(snapshot.id, snapshot.to_dict(), snapshot.update_time)
                if record.schedule_time is not None:  # else it was edited by hand, and is no time
                    yield SeenRun(snapshot.id, record, snapshot.read_time)
            if len(page) < size:
                return
            left -= size
            query = query.start_after(page[-1])

    def look_up(self, run_id: str) -> tuple[RunRecord | None, datetime]:
        """Reads one run, and the server's clock, within 10 s."""
        return self._read(run_id, self._tries(CLAIM_SECONDS))

    def delete_run(self, run_id: str, updated_at: datetime) -> bool:
        """Deletes a run's record by one commit that is conditional on `updated_at`."""
        tries = self._tries(CLAIM_SECONDS)
        commit = firestore_write.delete(self._name(run_id), updated_at)
        unclear = False
        while True:
            try:
                self._commit(commit, tries.next_timeout())
            except _REFUSED:
                return unclear and deleted_unseen(self._read(run_id, tries)[0])
            except _DEFINITE as fault:
                raise self._unavailable(fault) from fault
            except _FAULTS as fault:
                unclear = True
                tries.failed(fault)
            else:
                return True

    # What is written. Each is one try of one commit.

    def _create(self, claim: Claim, tries: Tries) -> Fate:
        fields = self._claim_fields(claim, attempts=1)
        was_unclear, claim.create_unclear = claim.create_unclear, True
        fate = self._write(claim, tries, firestore_write.create(self._name(claim.run_id), fields))
        if fate is not Fate.UNCLEAR:
            claim.create_unclear = was_unclear
        if fate is Fate.WRITTEN:
            claim.attempts = 1
        return fate

    def _take_over(self, claim: Claim, record: RunRecord, tries: Tries) -> Fate:
        left_by_the_dead = dict.fromkeys(("renewed_at", "finished_at", "result", "error"), firestore.DELETE_FIELD)
        fields = left_by_the_dead | self._claim_fields(claim, attempts=record.attempts + 1)
        fate = self._update(claim, record.updated_at, tries, fields)
        if fate is Fate.WRITTEN:
            claim.attempts = record.attempts + 1
        return fate

    def _renew(self, claim: Claim, token: datetime, tries: Tries) -> Fate:
        # renewed_at makes the write change something: one that doesn't leaves update_time, and so the lease, as it is.
        return self._update(claim, token, tries, {"renewed_at": firestore.SERVER_TIMESTAMP} | self._lease_fields(claim))

    def _finish(
        self, claim: Claim, token: datetime, ending: Ending, result: str | None, error: str | None, tries: Tries
    ) -> Fate:
        if ending is not Ending.RELEASED:
            return self._update(claim, token, tries, self._end_fields(ending, result, error))
        if claim.create_unclear:
            # That create may still arrive: after a delete, it would hold the run for a lease with nobody at work.
            over = {"lease_seconds": 0, "lease_expires": datetime.fromtimestamp(0, UTC)}
            return self._update(claim, token, tries, over)
        return self._write(claim, tries, firestore_write.delete(self._name(claim.run_id), token))

    def _update(self, claim: Claim, token: datetime, tries: Tries, fields: dict[str, Any]) -> Fate:
        return self._write(claim, tries, firestore_write.update(self._name(claim.run_id), fields, token))

    def _write(self, claim: Claim, tries: Tries, commit: types.CommitRequest) -> Fate:
        """Sends one commit once, and notes in the claim what is known of it afterwards."""
        timeout = tries.next_timeout()
        tried_at = self._monotonic()
        unsettled_before = claim.unsettled_since
        if unsettled_before is None:
            claim.unsettled_since = tried_at
        try:
            token = self._commit(commit, timeout)
        except _REFUSED:
            claim.unsettled_since = unsettled_before
            return Fate.REFUSED
        except _DEFINITE as fault:
            claim.unsettled_since = unsettled_before
            raise self._unavailable(fault) from fault
        except _FAULTS as fault:
            log.warning("Firestore write unclear, reading the run again: %s", fault, extra={"run_id": claim.run_id})
            tries.failed(fault)
            return Fate.UNCLEAR
        if token == claim.token:
            claim.unsettled_since = unsettled_before
            return Fate.UNCLEAR
        claim.wrote(token, tried_at)
        return Fate.WRITTEN

    def _commit(self, commit: types.CommitRequest, timeout: float) -> datetime:
        client = self._client()
        answer = client._firestore_api.commit(request=commit, metadata=client._rpc_metadata, timeout=timeout, retry=None)
        return firestore_write.time_of(answer)

    def _claim_fields(self, claim: Claim, attempts: int) -> dict[str, Any]:
        scope = {"scope": claim.scope} if claim.scope else {}
        return {
            "status": Status.IN_PROGRESS.value,
            "attempt_id": claim.attempt_id,
            "job_name": claim.job_name,
            "schedule_time": claim.schedule_time,
            "attempts": attempts,
            "claimed_at": self._utcnow(),
            **scope,
            **self._lease_fields(claim),
        }

    def _lease_fields(self, claim: Claim) -> dict[str, Any]:
        now = self._utcnow()
        return {
            "lease_seconds": claim.lease_seconds,
            "lease_expires": now + timedelta(seconds=claim.lease_seconds),
            "expire_at": now + timedelta(seconds=claim.retention_seconds),
        }

    def _end_fields(self, ending: Ending, result: str | None, error: str | None) -> dict[str, Any]:
        fields = {"status": ending.value, "finished_at": self._utcnow(), "result": result, "error": error}
        return {name: value for name, value in fields.items() if value is not None}

    # A finish with the job's own writes: the one place where a transaction is needed.

    def _complete_with(self, effects: Callable[[Any], None], claim: Claim, result: str | None, within_seconds: float) -> bool:
        for_reading = min(RPC_SECONDS, within_seconds / 3)
        tries = self._tries(within_seconds - for_reading)
        run = self._document(claim.run_id)
        fields = self._end_fields(Ending.COMPLETED, result, None)

        def complete(transaction: firestore.Transaction) -> None:
            snapshot = run.get(transaction=transaction, timeout=tries.next_timeout(), retry=None)
            record = self._record(snapshot)
            # The status too: with attempt_id alone, a commit that was applied unseen would be applied again here.
            if record is None or not record.is_held_by(claim.attempt_id):
                raise _NotOurs
            try:
                effects(transaction)
            except Exception as raised:
                raise EffectsRaised(raised) from raised
            transaction.update(run, fields)

        try:
            # Made anew for each call: the decorator keeps state of its transaction, and threads would share it.
            firestore.transactional(complete)(_BoundedTransaction(self._client(), tries))
        except (_NotOurs, StoreUnavailable, ValueError, *_FAULTS) as fault:  # ValueError: its attempts are used up
            record, _ = self._read(claim.run_id, self._tries(for_reading))
            if not claim.has_ended(record, Ending.COMPLETED):
                if record is None or not record.is_held_by(claim.attempt_id):
                    return False
                if isinstance(fault, _REFUSED_EFFECTS):
                    raise EffectsRaised(fault) from fault
                raise self._unavailable(fault) from fault
        claim.token = None
        return True

    # What is read.

    def _read(self, run_id: str, tries: Tries) -> tuple[RunRecord | None, datetime]:
        """Reads a run and the store's clock, which Firestore gives with a missing document too."""
        run = self._document(run_id)
        while True:
            try:
                snapshot = run.get(timeout=tries.next_timeout(), retry=None)
            except _DEFINITE as fault:
                raise self._unavailable(fault) from fault
            except _FAULTS as fault:
                tries.failed(fault)
                continue
            if not isinstance(snapshot.read_time, datetime):
                # An empty answer says nothing of the run; the client makes a missing document of it, read at its own clock.
                tries.failed(TimeoutError("the answer was empty"))
                continue
            return self._record(snapshot), snapshot.read_time

    def _page(self, query: firestore.Query) -> list[Any]:
        """Runs a query, whose runs come all at once: one that is cut off is asked again from its start."""
        tries = self._tries(PAGE_SECONDS)
        while True:
            try:
                return list(query.stream(timeout=tries.next_timeout(), retry=None))
            except google.FailedPrecondition as fault:  # only an index can be missing: the query has no other condition
                raise StoreUnavailable(f"Firestore: {fault} (apply terraform/, whose firestore.tf has the index)") from fault
            except _DEFINITE as fault:
                raise self._unavailable(fault) from fault
            except _FAULTS as fault:
                tries.failed(fault)

    def _record(self, snapshot: Any) -> RunRecord | None:
        if not snapshot.exists:
            return None
        return read_record(snapshot.id, snapshot.to_dict(), snapshot.update_time)

    # How the server is reached.

    def _document(self, run_id: str) -> firestore.DocumentReference:
        return self._client().collection(self.collection).document(run_id)

    def _name(self, run_id: str) -> str:
        return f"{self._client()._database_string}/documents/{self.collection}/{run_id}"

    def _client(self) -> firestore.Client:
        """The client, made at the first use: gRPC must not be started before the server forks."""
        if self._made_client is None:
            with self._making_client:
                if self._made_client is None:
                    self._made_client = self._make_client()
        return self._made_client

    def _make_client(self) -> firestore.Client:
        try:
            client = firestore.Client(project=self.project, database=self.database)
            _ = client._firestore_api  # opens the channel while we hold the lock: 30 threads opened 30 otherwise
        except Exception as fault:  # credentials, a project, a universe domain: whatever the environment lacks
            raise self._unavailable(fault) from fault
        return client

    def _unavailable(self, fault: Exception) -> StoreUnavailable:
        project = f"project {self.project}" if self.project is not None else "the environment's project"
        where = f"Firestore, database {self.database} of {project}"
        remedy = next((text for kind, text in _REMEDIES.items() if isinstance(fault, kind)), "see the Firestore status page")
        return StoreUnavailable(f"{where}: {fault} ({remedy})")

    def _tries(self, seconds: float) -> Tries:
        return Tries(seconds, RPC_SECONDS, monotonic=self._monotonic, sleep=self._sleep, unavailable=self._unavailable)

    def _is_trusted(self, claim: Claim) -> bool:
        return claim.is_trusted(self._monotonic())


def from_url(url: str) -> FirestoreRunStore:
    """Makes the store of `firestore://PROJECT/DATABASE?collection=NAME`; every part may be left out.

    Raises:
        ValueError: what is wrong with the URL.
    """
    form = "firestore://PROJECT/DATABASE?collection=scheduler_runs"
    if not re.fullmatch(r"firestore(:|://[^\[\]#]*)?", url):
        raise ValueError(f"it is not of the form {form}")
    parts = urlsplit(re.sub("^firestore:?", "", url))
    project = parts.netloc
    database = parts.path.removeprefix("/") or "(default)"
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    collection = options.pop("collection", "scheduler_runs")
    if project and not re.fullmatch(r"[a-z0-9.:-]+", project):
        raise ValueError(f"the project's id in it is none; the form is {form}")
    if not re.fullmatch(r"\(default\)|[a-z][a-z0-9-]{2,61}[a-z0-9]", database):
        raise ValueError(
            f"{database!r} is not a database's id; the form is {form}, DATABASE such as (default) or scheduler-runs"
        )
    if not collection or "/" in collection:
        raise ValueError(f"{collection!r} is not a collection's id; the form is {form}")
    if options:
        raise ValueError(f"it has an option other than collection; the form is {form}")
    return FirestoreRunStore(project or None, database, collection)


def create_schema(url: str) -> str:
    """Makes nothing: a collection is there with its first document. Says what Terraform makes around it."""
    store = from_url(url)
    project = f" --project={store.project}" if store.project is not None else ""
    database = f" --database='{store.database}'{project}"
    return (
        f"Firestore makes the collection {store.collection} with its first run; terraform/ makes the database, its TTL policy "
        f"and its indexes. By hand, the TTL policy is: gcloud firestore fields ttls update expire_at --enable-ttl "
        f"--collection-group={store.collection}{database}"
    )


def sees_ttl_policy(url: str) -> bool:
    """Whether the collection has a TTL policy on `expire_at`: one call of the Admin API, within 10 s.

    Raises:
        StoreUnavailable: it can't be asked, or we may not see it.
    """
    from google.cloud.firestore_admin_v1 import Field, FirestoreAdminClient

    store = from_url(url)
    project = store._client().project
    field = f"projects/{project}/databases/{store.database}/collectionGroups/{store.collection}/fields/expire_at"
    try:
        found = FirestoreAdminClient().get_field(name=field, timeout=CLAIM_SECONDS, retry=None)
    except _FAULTS as fault:
        raise store._unavailable(fault) from fault
    return found.ttl_config.state in (Field.TtlConfig.State.CREATING, Field.TtlConfig.State.ACTIVE)


_REMEDIES: dict[type[Exception], str] = {
    google.PermissionDenied: "its service account needs roles/datastore.user on this database",
    google.Unauthenticated: "its credentials are refused: gcloud auth application-default login",
    google.NotFound: "create the database, or set DEDUP_STORE=firestore://PROJECT/DATABASE",
    google.FailedPrecondition: "the database must be in Native mode",
    google.DeadlineExceeded: "the server didn't answer in time",
    google.ServiceUnavailable: "the server can't be reached",
    TimeoutError: "the server didn't answer in time",
    GoogleAuthError: "set FIRESTORE_EMULATOR_HOST, run gcloud auth application-default login, or use DEDUP_STORE=sqlite:///PATH",
    OSError: "set GOOGLE_CLOUD_PROJECT, or DEDUP_STORE=firestore://PROJECT/DATABASE",
}


class _NotOurs(Exception):
    """The run that the transaction has read isn't this attempt's."""


class _BoundedTransaction(firestore.Transaction):
    """A transaction whose own RPCs end in time too: the client's defaults go on for minutes."""

    def __init__(self, client: firestore.Client, tries: Tries) -> None:
        super().__init__(client)
        self._tries = tries

    def _begin(self, retry_id: bytes | None = None) -> None:
        options = self._options_protobuf(retry_id)
        self._id = self._call("begin_transaction", {"options": options}).transaction

    def _commit(self) -> list[Any]:
        response = self._call("commit", {"writes": self._write_pbs, "transaction": self._id})
        self._clean_up()
        self.write_results = list(response.write_results)
        self.commit_time = response.commit_time
        return self.write_results

    def _rollback(self) -> None:
        if not self.in_progress:  # it never began: the fault that kept it from that is on its way up
            return
        try:
            self._call("rollback", {"transaction": self._id})
        except (StoreUnavailable, *_FAULTS) as fault:
            log.debug("Firestore ends the abandoned transaction by itself: %s", fault)
        finally:
            self._clean_up()

    def _call(self, method: str, request: dict[str, Any]) -> Any:
        rpc = getattr(self._client._firestore_api, method)
        return rpc(
            request={"database": self._client._database_string, **request},
            metadata=self._client._rpc_metadata,
            timeout=self._tries.next_timeout(),
            retry=None,
        )
