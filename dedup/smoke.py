"""`make test-job`: is main.py wired as it is deployed? Your job isn't run, another one is in its place; nothing is reached.

If main.py needs variables of its environment when it is imported, set them at the top of tests/conftest.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dedup import testing

IMPORT_AND_TELL = """
import json, os, sys

reached = []
METADATA = ["169.254.169.254", "metadata.google.internal"]  # where Google's libraries look for credentials
METADATA += [os.environ.get(name) for name in ("GCE_METADATA_HOST", "GCE_METADATA_IP")]

def watch(event, args):
    if event in ("socket.connect", "socket.sendto"):
        where = args[1]
    elif event in ("socket.getaddrinfo", "socket.gethostbyname", "sqlite3.connect"):
        where = args[0]
    else:
        return
    host = where[0] if isinstance(where, tuple) else where
    if host not in METADATA and f"{host}:{where[1] if isinstance(where, tuple) else 80}" not in METADATA and host != ":memory:":
        reached.append(f"{event} {where}")

sys.addaudithook(watch)
import main
here = os.getcwd() + os.sep
files = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
local = sorted({file[len(here):].split(os.sep)[0] for file in files if file.startswith(here) and "site-packages" not in file})
with open(sys.argv[1], "w") as told:
    json.dump({"reached": reached, "local": local}, told)
os._exit(0)  # whatever main.py has left to be done at the end
"""
BOTH_KINDS = {"Idempotency-Key": "smoke"}
"""A target that other services call reads this in place of Cloud Scheduler's headers."""


@pytest.fixture(scope="module")
def scheduler() -> Iterator[testing.Scheduler]:
    """Cloud Scheduler, for main.py with a job that does nothing."""
    with testing.scheduler("main.py", job=lambda run: "smoke") as scheduler:
        yield scheduler


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What importing main.py reaches, and what of this folder it imports, in a process of its own."""
    told = tmp_path_factory.mktemp("smoke") / "told.json"
    environ = {name: value for name, value in os.environ.items() if not name.startswith("DEDUP_")}
    command = [sys.executable, "-c", IMPORT_AND_TELL, str(told)]
    done = subprocess.run(command, env={**environ, "PYTHONPATH": "."}, capture_output=True, text=True, timeout=60, check=False)
    assert told.exists(), f"main.py can't be imported:\n{done.stderr}"
    heard: dict[str, list[str]] = json.loads(told.read_text())
    return heard


def test_main_is_imported_and_connects_to_nothing(imported: dict[str, list[str]]) -> None:
    """A server imports main.py before it forks: whatever it connects to there, all its workers would share."""
    reached = "; ".join(imported["reached"])
    assert not reached, f"main.py connects to {reached} when it is imported: connect when the job runs"


def test_what_main_imports_is_deployed(imported: dict[str, list[str]]) -> None:
    """A module of yours that has no line in .gcloudignore isn't deployed, and the function doesn't start."""
    lines = Path(".gcloudignore").read_text().splitlines() if Path(".gcloudignore").exists() else []
    let_through = {line.strip().removeprefix("!/").rstrip("/") for line in lines if line.startswith("!/")}
    missing = [name for name in imported["local"] if let_through and name not in let_through and not name.startswith(".")]
    assert not missing, (
        f"main.py imports {', '.join(missing)}, which .gcloudignore leaves out: add a line such as !/{missing[0]}"
    )


def test_a_request_without_headers_is_refused(scheduler: testing.Scheduler) -> None:
    """`handle_scheduled_job` is the target, and answers 400 to what is no delivery."""
    answer = scheduler.app.test_client().post("/")
    assert (answer.status_code, answer.text[:6]) == (400, "error:")


def test_a_delivery_and_its_duplicate(scheduler: testing.Scheduler) -> None:
    """A run is processed once, and its duplicate is skipped."""
    answers = [scheduler.deliver(headers=BOTH_KINDS).text for _ in range(2)]
    assert answers == ["Run processed", "Duplicate run skipped"]
