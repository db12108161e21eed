"""examples/start_workflow/workflow.yaml in the Workflows emulator, with its records in the Firestore emulator."""

from __future__ import annotations

import json
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests
from workflows_emulator.lib import http_utils

from tests.template import ROOT
from tests.template.apis import Started, run_workflow
from tests.template.emulator import Emulator
from tests.template.size import WHOLE

WORKFLOW = str(ROOT / "examples/start_workflow/workflow.yaml")
RUN_ID = "7" * 64

pytestmark = pytest.mark.store("firestore")


class Documents:
    """The workflow's documents in a project of a test's own."""

    def __init__(self, host: str, project: str) -> None:
        self._root = f"http://{host}/v1/projects/{project}/databases/(default)/documents"

    def all(self, collection: str) -> list[dict[str, Any]]:
        """The fields of each document of a collection."""
        answer = requests.get(f"{self._root}/{collection}", headers={"Authorization": "Bearer owner"}, timeout=10)
        answer.raise_for_status()
        return [{k: next(iter(v.values())) for k, v in one["fields"].items()} for one in answer.json().get("documents", [])]

    def set(self, path: str, **fields: dict[str, str]) -> None:
        """Writes a document."""
        headers = {"Authorization": "Bearer owner"}
        requests.patch(f"{self._root}/{path}", json={"fields": fields}, headers=headers, timeout=10).raise_for_status()


@pytest.fixture
def documents(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> Documents:
    """No documents yet."""
    project = f"workflow-{uuid.uuid4().hex[:12]}"
    monkeypatch.setenv("FIRESTORE_URL", f"http://{emulator.host}")
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT_ID", project)
    return Documents(emulator.host, project)


def execute(run_id: str = RUN_ID) -> Any:
    """One execution of the workflow."""
    name = f"projects/p/locations/l/workflows/w/executions/{uuid.uuid4()}"
    argument = json.dumps({"run_id": run_id, "day": "2026-10-16"})
    return run_workflow(WORKFLOW, Started("", {"name": name, "argument": argument}))


def test_one_execution_changes_the_state(documents: Documents) -> None:
    """The first execution does its work and says so; a second one of the same run leaves early; another run's does its own."""
    assert [execute(), execute()] == ["done", "completed before"]
    assert documents.all("reports") == [{"day": "2026-10-16"}]
    assert [one["status"] for one in documents.all("workflow_runs")] == ["completed"]
    assert execute("8" * 64) == "done"
    assert len(documents.all("reports")) == 2


@pytest.mark.skipif(not WHOLE, reason="takes 2 s: WHOLE=0")
def test_executions_at_once_change_the_state_once(documents: Documents) -> None:
    """Of six executions at once, one does the work."""
    with ThreadPoolExecutor(6) as threads:
        returned = list(threads.map(lambda _: execute(), range(6)))
    assert returned.count("done") == 1
    assert set(returned) <= {"done", "in progress", "completed before"}
    assert len(documents.all("reports")) == 1


@pytest.mark.skipif(not WHOLE, reason="takes 2 s: WHOLE=0")
@pytest.mark.parametrize(("lease_from_now", "returned", "reports"), [(60, "in progress", 0), (-1, "done", 1)])
def test_a_crashed_execution_is_taken_over_after_its_lease(
    documents: Documents, lease_from_now: int, returned: str, reports: int
) -> None:
    """While the lease of an execution lives the next one leaves, and afterwards it does the work."""
    crash(documents, lease_from_now)
    assert execute() == returned
    assert len(documents.all("reports")) == reports


def test_a_crashed_execution_is_taken_over_once(documents: Documents, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of six executions that have all read that the lease is over, one takes the run."""
    crash(documents, -1)
    read, all_have_read = http_utils.get, threading.Barrier(6, timeout=30)
    monkeypatch.setattr(http_utils, "get", lambda **how: (read(**how), all_have_read.wait())[0])
    with ThreadPoolExecutor(6) as threads:
        returned = list(threads.map(lambda _: execute(), range(6)))
    assert returned.count("done") == 1
    assert len(documents.all("reports")) == 1


def crash(documents: Documents, lease_from_now: int) -> None:
    """Leaves what an execution that crashed leaves."""
    until = {"integerValue": str(int(time.time()) + lease_from_now)}
    documents.set(
        f"workflow_runs/{RUN_ID}", status={"stringValue": "in_progress"}, execution={"stringValue": "dead"}, lease_until=until
    )
