"""Two commits through the generated client, used as its reference shows: requests are dicts, and writes are its own objects."""

from __future__ import annotations

import threading
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from google.cloud import firestore
from google.cloud.firestore_v1 import _helpers
from google.cloud.firestore_v1.types import Document, DocumentMask, Precondition, Write

RPC_SECONDS = 3.0


class RawCommits:
    """Writes the fields that a new run has, and those that end it.

    Args:
        client: lends its connection; None makes one at the first use.
    """

    def __init__(self, client: firestore.Client | None = None) -> None:
        self._client = client
        self._making_client = threading.Lock()

    def create(self, run_id: str) -> tuple[str, Any]:
        """Writes a record that must not be there yet. Gives its name, and the time of the write."""
        client = self._connected()
        name = f"{client._database_string}/documents/scheduler_runs/{run_id}"
        now = datetime.now(UTC)
        fields = {
            "status": "in_progress",
            "attempt_id": uuid.uuid4().hex,
            "lease_seconds": 300,
            "job_name": "nightly",
            "schedule_time": now,
            "attempts": 1,
            "claimed_at": now,
            "lease_expires": now + timedelta(seconds=300),
            "expire_at": now + timedelta(days=1),
        }
        return name, self._commit(client, _write(name, fields, current_document=Precondition(exists=False)))

    def complete(self, run: tuple[str, Any]) -> None:
        """Marks a record that nobody has written since."""
        name, written_at = run
        fields = {"status": "completed", "finished_at": datetime.now(UTC)}
        mask, unchanged = DocumentMask(field_paths=list(fields)), Precondition(update_time=written_at)
        self._commit(self._connected(), _write(name, fields, update_mask=mask, current_document=unchanged))

    def _connected(self) -> firestore.Client:
        if self._client is None:
            with self._making_client:
                if self._client is None:
                    client = firestore.Client()
                    _ = client._firestore_api
                    self._client = client
        return self._client

    def _commit(self, client: firestore.Client, write: Write) -> Any:
        answer = client._firestore_api.commit(
            request={"database": client._database_string, "writes": [write]},
            metadata=client._rpc_metadata,
            timeout=RPC_SECONDS,
            retry=None,
        )
        return answer.write_results[0].update_time


def _write(name: str, fields: dict[str, Any], **conditions: Any) -> Write:
    return Write(update=Document(name=name, fields=_helpers.encode_dict(fields)), **conditions)
