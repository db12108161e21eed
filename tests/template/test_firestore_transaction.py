"""What is known of google-cloud-firestore beyond what it documents. Where one of these fails, read that module first."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from google.api_core import exceptions as google
from google.auth.credentials import AnonymousCredentials
from google.cloud import firestore
from google.cloud.firestore_v1 import types

from dedup.stores.firestore_transaction import run_in_transaction
from dedup.stores.tries import Tries

COMMITTED = datetime(2026, 10, 16, 12, tzinfo=UTC)
MOVED = "google-cloud-firestore sends its transactions' RPCs by another way: mend dedup/stores/firestore_transaction.py"


class Api:
    """In the place of the generated client: notes what is sent, and raises what it is given."""

    def __init__(self, **raises: BaseException) -> None:
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.raises = raises

    def __getattr__(self, method: str) -> Any:
        answers = {
            "begin_transaction": SimpleNamespace(transaction=b"of this name"),
            "commit": types.CommitResponse(commit_time=COMMITTED, write_results=[types.WriteResult()]),
        }

        def rpc(**options: Any) -> Any:
            self.sent.append((method, options))
            if method in self.raises:
                raise self.raises[method]
            return answers.get(method)

        return rpc

    @property
    def methods(self) -> list[str]:
        """The names of the RPCs so far."""
        return [method for method, _ in self.sent]


def run(api: Api, function: Any = lambda transaction, client: None) -> datetime:
    """Runs a transaction that may take 2 s."""
    tries = Tries(2, 2, monotonic=time.monotonic, sleep=time.sleep, unavailable=lambda fault: fault)
    place = {"project": "p", "database": "(default)", "credentials": AnonymousCredentials()}
    return run_in_transaction(function, api, tries, **place)


def test_the_library_sends_by_the_client_that_is_lent() -> None:
    """A transaction begins, commits and is rolled back by the client that it is lent, each once and in time."""
    api = Api(commit=google.Aborted("injected"))
    with pytest.raises(google.Aborted):
        run(api)
    assert set(api.methods) == {"begin_transaction", "commit", "rollback"}, MOVED
    for method, options in api.sent:
        assert options["retry"] is None, f"{method}: {MOVED}"
        assert 0 < options["timeout"] <= 2, f"{method}: {MOVED}"


def test_time_of_the_commit() -> None:
    """It gives the server's time of the commit, and what the job wrote was in it."""

    def write(transaction: firestore.Transaction, client: firestore.Client) -> None:
        transaction.set(client.document("counters/one"), {"n": 1})

    api = Api()
    assert run(api, write) == COMMITTED
    [write_of_the_job] = api.sent[-1][1]["request"]["writes"]
    assert write_of_the_job.update.name.endswith("/counters/one"), MOVED


@pytest.mark.parametrize("struck", [google.ServiceUnavailable("injected"), SystemExit(1)], ids=["fault", "worker's abort"])
def test_what_keeps_it_from_beginning_is_raised(struck: BaseException) -> None:
    """A transaction that can't begin raises why, and not that it can't be rolled back either."""
    with pytest.raises(type(struck)) as raised:
        run(Api(begin_transaction=struck))
    assert raised.value is struck


def test_a_rollback_that_fails_is_passed_over() -> None:
    """What a function raises isn't hidden by a rollback that fails."""

    def wrong(*_: Any) -> None:
        raise KeyError("no such account")

    with pytest.raises(KeyError, match="no such account"):
        run(Api(rollback=google.ServiceUnavailable("injected")), wrong)
