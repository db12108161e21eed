"""Runs in Firestore: every change of state is one conditional commit.

A new run costs two RPCs: the create that claims it and the update that finishes it. The documented example's two transactions
cost six. Google's page "Deduplicate job requests" allows either: "transactions or atomic conditional writes".
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Unpack
from urllib.parse import urlsplit

import grpc  # type: ignore[import-untyped]
from google import auth
from google.api_core import exceptions as google
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import GoogleAuthError
from google.cloud import firestore
from google.cloud.firestore_v1 import types
from google.cloud.firestore_v1.base_query import FieldFilter
from google.cloud.firestore_v1.services.firestore import FirestoreClient
from google.cloud.firestore_v1.services.firestore.transports.grpc import FirestoreGrpcTransport

from dedup.record import RunRecord
from dedup.stores import Claim, Effects, EffectsRaised, SeenRun, StoreUnavailable, firestore_read, firestore_write, read_record
from dedup.stores.conditional import CLAIM_SECONDS, FAULTS, FINAL, Clocks, ConditionalStore, Refused, name_in
from dedup.stores.firestore_transaction import run_in_transaction
from dedup.stores.once import Once
from dedup.stores.selection import EVERY_RUN, Selection
from dedup.stores.tries import Tries

LISTED_BY = ((), ("job_name",), ("status",), ("job_name", "status"))
"""What runs are filtered by when they are listed, newest schedule_time first; terraform/firestore.tf indexes just these."""

PAGE = 300
"""How many runs one query of a listing reads."""
PAGE_SECONDS = 10.0
CHANNEL_OPTIONS = [
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
]
"""Those of the library's own client."""

_REMEDIES: dict[type[Exception], str] = {
    google.PermissionDenied: "its service account needs roles/datastore.user on this database",
    google.NotFound: "create the database, or set DEDUP_STORE=firestore://PROJECT/DATABASE",
    google.FailedPrecondition: "the database must be in Native mode",
    GoogleAuthError: "set FIRESTORE_EMULATOR_HOST, run gcloud auth application-default login, or use DEDUP_STORE=sqlite:///PATH",
    OSError: "set GOOGLE_CLOUD_PROJECT, or DEDUP_STORE=firestore://PROJECT/DATABASE",
}


@dataclass(slots=True)
class Connection:
    """A way to a database: Google's generated client, and what its requests and the library's own client need besides."""

    api: Any
    project: str
    database: str
    """Its full name."""
    metadata: list[tuple[str, str]]
    credentials: Any


def connect(project: str | None, database: str) -> Connection:
    """Opens one channel, to the emulator where FIRESTORE_EMULATOR_HOST names one.

    Args:
        project: the project's id; None: what the environment says.
        database: the database's id.
    """
    emulator = os.environ.get("FIRESTORE_EMULATOR_HOST")
    credentials: Any = AnonymousCredentials()  # type: ignore[no-untyped-call]
    if emulator is None:
        credentials, found = auth.default(scopes=firestore.Client.SCOPE)
        project = project if project is not None else found
    project = str(firestore.Client(project=project, credentials=credentials).project)
    name = f"projects/{project}/databases/{database}"
    metadata = [("google-cloud-resource-prefix", name)]
    if emulator is not None:
        channel = grpc.insecure_channel(emulator, options=CHANNEL_OPTIONS)
        metadata.append(("authorization", "Bearer owner"))
    else:
        channel = FirestoreGrpcTransport.create_channel(credentials=credentials, options=CHANNEL_OPTIONS)
    return Connection(FirestoreClient(transport=FirestoreGrpcTransport(channel=channel)), project, name, metadata, credentials)


class FirestoreRunStore(ConditionalStore):
    """Runs in one collection of a Firestore database.

    Args:
        project: the project's id; None: what the environment says.
        database: the database's id.
        collection: the collection's id.
        clocks: other than this machine's.
    """

    lists_by_index = True
    service = "Firestore"
    refused = (Refused, google.AlreadyExists, google.FailedPrecondition, google.NotFound)
    final = (*refused, *FINAL)
    refused_effects = (google.AlreadyExists, google.FailedPrecondition, google.NotFound, google.InvalidArgument)
    remedies = _REMEDIES

    def __init__(
        self,
        project: str | None = None,
        database: str = "(default)",
        collection: str = "scheduler_runs",
        **clocks: Unpack[Clocks],
    ) -> None:
        super().__init__(**clocks)
        self.project = project
        self.database = database
        self.collection = collection
        self._connection: Once[Connection] = Once()

    def list_runs(self, selection: Selection = EVERY_RUN) -> Iterator[SeenRun]:
        """Lists runs, newest first, a page at a time; reads no more documents than it yields."""
        status = selection.status.value if selection.status is not None else None
        to = self._connected()
        client = firestore.Client(project=to.project, database=self.database, credentials=to.credentials)
        query = client.collection(self.collection).order_by("schedule_time", direction=firestore.Query.DESCENDING)
        for name, is_so, value in (
            ("job_name", "==", selection.job_name),
            ("status", "==", status),
            ("schedule_time", ">=", selection.since),
            ("schedule_time", "<", selection.until),
        ):
            if value is not None:
                query = query.where(filter=FieldFilter(name, is_so, value))
        for size in selection.page_sizes(PAGE):
            page = self._page(query.limit(size))
            for snapshot in page:
                record = read_record(snapshot.id, snapshot.to_dict(), snapshot.update_time)
                if record.schedule_time is not None:  # else it was edited by hand, and is no time
                    yield SeenRun(snapshot.id, record, snapshot.read_time)
            if len(page) < size:
                return
            query = query.start_after(page[-1])

    def look_up(self, run_id: str) -> tuple[RunRecord | None, datetime]:
        """Reads one run, and the server's clock, within 10 s."""
        return self._read(run_id, self._tries(CLAIM_SECONDS))

    # What the server does.

    def _connect(self, tries: Tries) -> None:
        self._connected()

    def _read(self, run_id: str, tries: Tries) -> tuple[RunRecord | None, datetime]:
        """Reads a run and the store's clock, which Firestore gives with a missing document too."""
        return self._answer(partial(self._read_once, run_id, tries), tries)

    def _read_once(self, run_id: str, tries: Tries, transaction: bytes = b"") -> tuple[RunRecord | None, datetime]:
        to = self._connected()
        request = firestore_read.request(to.database, self._name(run_id), transaction)
        read = firestore_read.answer(
            to.api.batch_get_documents(request=request, metadata=to.metadata, timeout=tries.next_timeout(), retry=None)
        )
        if read is None:  # it says nothing of the run, and must not pass for a missing record
            raise google.GoogleAPIError("the answer was empty")
        if read.fields is None or read.updated_at is None:
            return None, read.read_at
        return read_record(run_id, read.fields, read.updated_at), read.read_at

    def _create(self, run_id: str, fields: Mapping[str, Any], tries: Tries) -> datetime:
        return self._commit(firestore_write.create(self._name(run_id), fields), tries)

    def _change(self, run_id: str, fields: Mapping[str, Any], token: datetime, tries: Tries) -> datetime:
        return self._commit(firestore_write.update(self._name(run_id), fields, token), tries)

    def _delete(self, run_id: str, token: datetime, tries: Tries) -> datetime:
        return self._commit(firestore_write.delete(self._name(run_id), token), tries)

    def _commit(self, commit: types.CommitRequest, tries: Tries) -> datetime:
        to = self._connected()
        answer = to.api.commit(request=commit, metadata=to.metadata, timeout=tries.next_timeout(), retry=None)
        return firestore_write.time_of(answer)

    def _change_with(self, effects: Effects, claim: Claim, fields: Mapping[str, Any], tries: Tries) -> datetime:
        """The one place where a transaction is needed."""

        def complete(transaction: firestore.Transaction, client: firestore.Client) -> None:
            record, _ = self._read_once(claim.run_id, tries, transaction.id)
            # The status too: with attempt_id alone, a commit that was applied unseen would be applied again here.
            if record is None or not record.is_held_by(claim.attempt_id):
                raise Refused
            try:
                effects(transaction)
            except Exception as raised:
                raise EffectsRaised(raised) from raised
            transaction.update(client.collection(self.collection).document(claim.run_id), dict(fields))

        to = self._connected()
        place = {"project": to.project, "database": self.database, "credentials": to.credentials}
        try:
            return run_in_transaction(complete, to.api, tries, **place)
        except FAULTS as fault:
            raise self._unavailable(fault) from fault

    # What is listed.

    def _page(self, query: firestore.Query) -> list[Any]:
        """Runs a query, whose runs come all at once: one that is cut off is asked again from its start."""
        tries = self._tries(PAGE_SECONDS)

        def read() -> list[Any]:
            try:
                return list(query.stream(timeout=tries.next_timeout(), retry=None))
            except google.FailedPrecondition as fault:  # only an index can be missing: the query has no other condition
                raise StoreUnavailable(f"Firestore: {fault} (apply terraform/, whose firestore.tf has the index)") from fault

        return self._answer(read, tries)

    # How the server is reached.

    def _where(self) -> str:
        return f"Firestore, database {self.database} of {self._project_text()}"

    def _name(self, run_id: str) -> str:
        return f"{self._connected().database}/documents/{self.collection}/{run_id}"

    def _connected(self) -> Connection:
        """The connection, made at the first use: gRPC must not be started before the server forks."""
        return self._connection.get(partial(self._opened, partial(connect, self.project, self.database)))


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
    collection = name_in(parts.query, "collection", form)
    if project and not re.fullmatch(r"[a-z0-9.:-]+", project):
        raise ValueError(f"the project's id in it is none; the form is {form}")
    if not re.fullmatch(r"\(default\)|[a-z][a-z0-9-]{2,61}[a-z0-9]", database):
        raise ValueError(
            f"{database!r} is not a database's id; the form is {form}, DATABASE such as (default) or scheduler-runs"
        )
    if not collection or "/" in collection:
        raise ValueError(f"{collection!r} is not a collection's id; the form is {form}")
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
    project = store._connected().project
    field = f"projects/{project}/databases/{store.database}/collectionGroups/{store.collection}/fields/expire_at"
    try:
        found = FirestoreAdminClient().get_field(name=field, timeout=CLAIM_SECONDS, retry=None)
    except FAULTS as fault:
        raise store._unavailable(fault) from fault
    return found.ttl_config.state in (Field.TtlConfig.State.CREATING, Field.TtlConfig.State.ACTIVE)
