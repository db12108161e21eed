"""A service that other callers call: the work of one key is done once, beside the caller's own run in the same database."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from flask import Flask, request

import dedup.handler
from dedup.record import Status
from tests.template.contract.harness import A_RUN, Harness

app = Flask(__name__)


def test_twenty_calls_at_once_do_the_work_once(harness: Harness) -> None:
    """Twenty calls with the id of a run that is in progress in this very database do the work once, and don't wait for it."""
    caller = harness.claimed()
    done: list[str] = []
    answered: list[tuple[int, str]] = []
    at_once, all_others_answered = threading.Barrier(20), threading.Event()

    def work(call: dedup.Run) -> None:
        done.append(call.id)
        assert all_others_answered.wait(60)  # who waited for this one would never be answered

    def call(_: int) -> None:
        at_once.wait()
        answered.append(send(harness, work, A_RUN))
        if len(answered) == 19:
            all_others_answered.set()

    with ThreadPoolExecutor(20) as threads:
        list(threads.map(call, range(20)))

    assert len(done) == 1
    assert Counter(answered) == {(200, "Run processed"): 1, (409, "Run in progress"): 19}
    assert send(harness, work, A_RUN) == (200, "Duplicate run skipped")
    assert len(done) == 1
    assert harness.record().is_held_by(caller.attempt_id)
    assert harness.record(done[0]).status is Status.COMPLETED


@pytest.mark.parametrize("key", ["", "  ", "a" * 10240, "a\x01b", "a\x7fb"], ids=["blank", "blanks", "10 KB", "SOH", "DEL"])
def test_what_is_no_key_stores_nothing(harness: Harness, key: str) -> None:
    """A key of 10 KB, blank or with control characters is 400, and the store isn't asked."""
    status, body = send(harness, lambda call: pytest.fail("ran"), key)
    assert status == 400
    assert body.startswith("error: Idempotency-Key ")


def send(harness: Harness, work: Any, key: str) -> tuple[int, str]:
    """Calls the service once."""
    delivery = partial(dedup.from_idempotency_key, service="billing")
    with app.test_request_context(method="POST", headers={"Idempotency-Key": key}):
        response = dedup.handler.handle(request, work, delivery=delivery, store=harness.store)
    return response.status_code, response.get_data(as_text=True)
