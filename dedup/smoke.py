"""`make test-job`: is main.py wired as it is deployed? Your job isn't run, another one is in its place; nothing is reached.

If main.py needs variables of its environment when it is imported, set them at the top of tests/conftest.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from dedup import testing

IMPORT_AND_TELL = """
import json, sys

reached = []

def watch(event, args):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "sqlite3.connect"):
        reached.append(f"{event} {args[1:] if event.startswith('socket') else args}")

sys.addaudithook(watch)
import main
print(json.dumps(reached))
"""
BOTH_KINDS = {"Idempotency-Key": "smoke"}
"""A target that other services call reads this in place of Cloud Scheduler's headers."""


@pytest.fixture(scope="module")
def scheduler() -> Iterator[testing.Scheduler]:
    """Cloud Scheduler, for main.py with a job that does nothing."""
    with testing.scheduler("main.py", job=lambda run: "smoke") as scheduler:
        yield scheduler


def test_main_is_imported_and_connects_to_nothing() -> None:
    """A server imports main.py before it forks: whatever it connects to there, all its workers would share."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("DEDUP_")}
    command = [sys.executable, "-c", IMPORT_AND_TELL]
    done = subprocess.run(command, env={**environ, "PYTHONPATH": "."}, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"main.py can't be imported:\n{done.stderr}"
    reached = json.loads(done.stdout.splitlines()[-1])
    assert reached == [], "main.py connects to something when it is imported: make clients there, and use them in the job"


def test_a_request_without_headers_is_refused(scheduler: testing.Scheduler) -> None:
    """`handle_scheduled_job` is the target, and answers 400 to what is no delivery."""
    answer = scheduler.app.test_client().post("/")
    assert (answer.status_code, answer.text[:6]) == (400, "error:")


def test_a_delivery_and_its_duplicate(scheduler: testing.Scheduler) -> None:
    """A run is processed once, and its duplicate is skipped."""
    answers = [scheduler.deliver(headers=BOTH_KINDS).text for _ in range(2)]
    assert answers == ["Run processed", "Duplicate run skipped"]
