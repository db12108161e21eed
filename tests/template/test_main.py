"""A main.py as the template ships it, imported in a process of its own as a server would."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.template import ROOT
from tests.template.shipped import MAIN_PY

IMPORT_AND_TELL = """
import json, os, sys

done = []

def watch(event, args):
    writes = event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    outward = ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "sqlite3.connect")
    processes = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system")
    changes = ("os.mkdir", "os.rename", "os.remove")
    if writes or event in outward + processes + changes:
        done.append(f"{event} {args}")

sys.addaudithook(watch)
import main
import threading
threads = [thread.name for thread in threading.enumerate()]
print(json.dumps({"done": done, "modules": sorted(sys.modules), "threads": threads, "names": dir(main)}))
"""

DELIVER = """
import functions_framework
from werkzeug.test import Client

client = Client(functions_framework.create_app("handle_scheduled_job", "main.py"))
headers = {"X-CloudScheduler-JobName": "nightly", "X-CloudScheduler-ScheduleTime": "2026-10-16T12:00:00Z"}
for _ in range(2):
    print(client.post("/", headers=headers).get_data(as_text=True))
"""


def python(code: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Runs code from the folder of main.py, with nothing in its environment but what is given."""
    command = [sys.executable, "-B", "-c", code]
    environ = {"PYTHONPATH": str(ROOT), **environ}
    return subprocess.run(command, cwd=MAIN_PY.parent, env=environ, capture_output=True, text=True, timeout=60, check=False)


@cache
def imported(store: str) -> dict[str, Any]:
    """What importing `main` has done, with that store."""
    done = python(IMPORT_AND_TELL, **({"DEDUP_STORE": store} if store else {}))
    assert (done.returncode, done.stderr) == (0, "")
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_imports_without_a_word() -> None:
    """With no home, no credentials and no server, `import main` works and is silent."""
    done = python("import main")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


STORES = ["", "firestore://prod/runs", "sqlite:///x", "sqlite:////nowhere/at/all/x", "spanner://p/runs/runs", "redis://h"]


@pytest.mark.parametrize("store", STORES)
def test_importing_changes_and_reaches_nothing(store: str) -> None:
    """`import main` connects to nothing, writes no file, and starts no thread that a fork of the server would lose."""
    assert imported(store)["done"] == []
    assert imported(store)["threads"] == ["MainThread"]


@pytest.mark.parametrize(
    ("store", "library"),
    [
        ("", "google.cloud.firestore"),
        ("sqlite:///x", "dedup.stores.sqlite"),
        ("spanner://p/runs/runs", "google.cloud.spanner"),
        ("redis://h", "redis"),
    ],
)
def test_only_the_chosen_stores_library_is_imported(store: str, library: str) -> None:
    """The chosen store's library is imported at start, so that forks share it, and no other is."""
    every = {"google.cloud.firestore", "dedup.stores.sqlite", "google.cloud.spanner", "redis"}
    assert every & set(imported(store)["modules"]) == {library}


@pytest.mark.parametrize(("auth", "there"), [("iam", False), ("oidc", True)])
def test_a_cold_start_loads_nothing_that_is_not_chosen(auth: str, there: bool) -> None:
    """Google's auth library is loaded where tokens are verified here, and what calls Google's APIs where a job imports it."""
    oidc = {"DEDUP_AUDIENCE": "https://a.run.app", "DEDUP_CALLERS": "a@b.com"} if auth == "oidc" else {}
    told = "import main, sys; print(*(name for name in ('google.auth', 'requests', 'dedup.forward') if name in sys.modules))"
    done = python(told, DEDUP_STORE="sqlite:///x", DEDUP_AUTH=auth, **oidc)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == (["google.auth", "requests"] if there else [])


def test_the_entry_point_is_the_documented_examples(tmp_path: Path) -> None:
    """The framework finds `handle_scheduled_job`: delivered twice, the run is done once."""
    done = python(DELIVER, DEDUP_STORE=f"sqlite:///{tmp_path}/runs.db", DEDUP_LOG_LEVEL="ERROR")
    assert (done.returncode, done.stderr) == (0, "")
    answers = [line for line in done.stdout.splitlines() if line.startswith(("Run processed", "Duplicate"))]
    assert answers == ["Run processed", "Duplicate run skipped"]


def test_wrong_settings_stop_the_start() -> None:
    """A wrong environment fails the import, with one error that names each variable that is wrong."""
    done = python("import main", DEDUP_LEASE_SECONDS="soon", DEDUP_STORE="mysql://user:hunter2@host/db")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("Traceback") == 1
    _, _, error = done.stderr.partition("SettingsError: the environment is wrong:\n")
    assert [line.split(":")[0].strip() for line in error.splitlines()] == ["DEDUP_STORE", "DEDUP_LEASE_SECONDS"]
    assert "hunter2" not in done.stderr
