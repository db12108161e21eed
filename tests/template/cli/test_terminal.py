"""The command line as a process: what a shell, a pipe and a terminal see."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

import dedup
from dedup.cli import cli
from dedup.record import Ending, Status
from dedup.stores.selection import Selection
from dedup.stores.sqlite import SQLiteRunStore, create_schema
from tests.template import ROOT
from tests.template.contract.harness import a_claim
from tests.template.size import WHOLE

COMMAND = [sys.executable, "-m", "dedup"]
MANY = 100_000 if WHOLE else 20_000
FIRST = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file with very many runs, of ten jobs, every tenth failed."""
    path = tmp_path_factory.mktemp("many") / "runs.db"
    create_schema(f"sqlite:///{path}")
    rows = (
        (
            f"{n:064x}",
            time_text(n),
            "failed" if n % 10 == 3 else "completed",
            "a" * 32,
            f"job-{n % 10}",
            time_text(n),
            "9999-01-01",
        )
        for n in range(MANY)
    )
    columns = "run_id, updated_at, status, attempt_id, job_name, schedule_time, expire_at"
    with closing(sqlite3.connect(path)) as db, db:
        db.executemany(f"INSERT INTO scheduler_runs ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    return f"sqlite:///{path}"


def time_text(number: int) -> str:
    """A minute of its own, as the store writes it."""
    return (FIRST + timedelta(minutes=number)).isoformat(timespec="microseconds")


def environ(**other: str) -> dict[str, str]:
    """An environment with nothing in it that the command line reads."""
    return {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "PYTHONPATH": str(ROOT), **other}


def run(*arguments: str, **other: str) -> subprocess.CompletedProcess[str]:
    """Runs a command with pipes for its streams."""
    return subprocess.run(
        [*COMMAND, *arguments],
        env=environ(**other),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def at_a_terminal(*arguments: str, output: int | None = None, **other: str) -> str:
    """What a terminal of 160 columns shows of a command, whose output may go elsewhere."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        env=environ(TERM="xterm", COLUMNS="160", **other),
        stdin=theirs,
        stdout=output or theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 65536):
            shown += chunk
    except OSError:  # how a terminal ends on Linux
        pass
    os.close(ours)
    assert process.wait(timeout=30) == 0
    return shown.decode()


FILTERS = [
    (),
    ("--job", "job-3"),
    ("--status", "failed"),
    ("--job", "job-3", "--status", "failed"),
    ("--since", "2026-01-02T00:00:00Z"),
]


@pytest.mark.parametrize("options", FILTERS, ids=" ".join)
def test_very_many_runs_are_listed_at_once(many: str, options: tuple[str, ...]) -> None:
    """Among 100,000 runs, the newest 50 are listed within 2 s, whatever is filtered by."""
    began = time.monotonic()
    listed = list(SQLiteRunStore(many.removeprefix("sqlite:///")).list_runs(asked(options)))
    assert time.monotonic() - began < 2
    assert len(listed) == 50


def asked(options: tuple[str, ...]) -> Selection:
    """What the options ask of a store."""
    given = dict(zip(options[::2], options[1::2], strict=True))
    names = {"--job": ("job_name", str), "--status": ("status", Status), "--since": ("since", datetime.fromisoformat)}
    filters = {names[option][0]: names[option][1](value) for option, value in given.items()}  # type: ignore[operator]
    return Selection(limit=50, **filters)  # type: ignore[arg-type]


def test_a_pipe_that_is_closed_ends_it_quietly(many: str) -> None:
    """`| head` gets its lines, and the rest ends without a word: exit code 141."""
    process = subprocess.Popen(
        [*COMMAND, "runs", "--store", many, "--limit", "20000", "--json"],
        env=environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert json.loads(process.stdout.readline())["status"] == "completed"
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=30) == 141


def test_ctrl_c_ends_it_quietly(tmp_path: Path) -> None:
    """Ctrl-C ends whatever is under way with one word: exit code 130."""
    process = subprocess.Popen(
        [*COMMAND, "simulate", "http://127.0.0.1:1", "--retry-count", "5", "--min-backoff", "60"],
        env=environ(PYTHONUNBUFFERED="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background job ignores it
    )
    assert process.stdout is not None
    while "retry in" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=30)
    assert told == "interrupted\n"
    assert process.returncode == 130


def test_a_terminal_gets_colours_and_a_pipe_does_not(tmp_path: Path) -> None:
    """A terminal gets a table with colours; NO_COLOR takes the colours away; a pipe gets plain text."""
    store = f"sqlite:///{tmp_path}/runs.db"
    SQLiteRunStore(tmp_path / "runs.db").claim_run(a_claim())
    assert "\x1b[" in at_a_terminal("runs", "--store", store)
    plain = at_a_terminal("runs", "--store", store, NO_COLOR="1")
    assert "in progress" in plain
    assert "\x1b[3" not in plain
    assert "\x1b" not in run("runs", "--store", store).stdout


def test_a_terminal_cuts_what_a_pipe_cuts(tmp_path: Path) -> None:
    """A long result is cut to the same 80 characters at a terminal, however many lines it takes there."""
    listing = ("runs", "--store", f"sqlite:///{tmp_path}/runs.db")
    store = SQLiteRunStore(tmp_path / "runs.db")
    store.claim_run(claim := a_claim())
    store.finish_run(claim, Ending.COMPLETED, result="Q" * 900)
    assert at_a_terminal(*listing).count("Q") == run(*listing).stdout.count("Q") == 77


def test_a_long_listing_says_how_far_it_is(many: str) -> None:
    """A listing that goes into a file tells the terminal of each thousand runs, on one line; with --json it tells nothing."""
    told = at_a_terminal("runs", "--store", many, "--limit", "2500", output=subprocess.DEVNULL)
    _, first, second, _ = told.split("\r", maxsplit=3)
    assert first.startswith("1,000 runs, back to 2026-")
    assert second.startswith("2,000 runs, back to 2026-")
    assert at_a_terminal("runs", "--store", many, "--limit", "2500", "--json", output=subprocess.DEVNULL) == ""


def test_without_rich_a_terminal_gets_plain_text(tmp_path: Path) -> None:
    """Where rich isn't installed, as in the function itself, a terminal gets what a pipe gets."""
    store = f"sqlite:///{tmp_path}/runs.db"
    SQLiteRunStore(tmp_path / "runs.db").claim_run(a_claim())
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['rich'] = None\n")
    shown = at_a_terminal("runs", "--store", store, PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert shown.replace("\r\n", "\n").split("  ")[0] == run("runs", "--store", store).stdout.split("  ")[0]
    assert "\x1b[3" not in shown


@pytest.mark.parametrize(
    "command",
    [
        "runs",
        "show nightly 2026-10-16T12:00:00Z",
        "release nightly 2026-10-16T12:00:00Z",
        "rerun nightly 2026-10-16T12:00:00Z",
        "missed --job nightly --schedule '0 * * * *' --since 2h",
        "timeline",
    ],
)
def test_a_store_out_of_reach_is_told(command: str) -> None:
    """A store that can't be reached is exit code 3, with what to look at, and no traceback."""
    done = CliRunner().invoke(cli, [*shlex.split(command), "--store", "sqlite:////nowhere/runs.db"])
    assert (done.exit_code, done.stdout) == (3, "")
    assert done.stderr.startswith("Error: SQLite file /nowhere/runs.db")
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not WHOLE, reason="takes the 10 s that a store may take; runs whole")
def test_a_server_out_of_reach_is_told() -> None:
    """A Firestore that doesn't answer is exit code 3 within 15 s, with one line and no log of its tries."""
    began = time.monotonic()
    done = run("runs", "--store", "firestore://prod", FIRESTORE_EMULATOR_HOST="127.0.0.1:1")
    assert time.monotonic() - began < 15
    assert done.returncode == 3
    assert done.stderr.startswith("Error: Firestore, database (default) of project prod: ")
    assert len(done.stderr.splitlines()) == 1


def test_a_wrong_environment_is_told() -> None:
    """A wrong setting is exit code 3, with the same message that stops a server's start, and no traceback."""
    done = run("runs", DEDUP_LEASE_SECONDS="soon", DEDUP_STORE="mysql://user:hunter2@host/db")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("Error: the environment is wrong:\n  DEDUP_STORE: ")
    assert "DEDUP_LEASE_SECONDS" in done.stderr
    assert "hunter2" not in done.stderr
    assert run("check", DEDUP_LEASE_SECONDS="soon").returncode == 1


def test_the_version_is_printed() -> None:
    """--version prints the version of three numbers alone, whatever the environment is."""
    done = run("--version", DEDUP_STORE="nonsense")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{dedup.__version__}\n", "")
    assert re.fullmatch(r"\d+\.\d+\.\d+", dedup.__version__)


def test_help_lists_the_commands() -> None:
    """--help lists every command and the exit codes; an unknown command is exit code 2."""
    told = run("--help").stdout
    commands = ("check", "key", "missed", "release", "rerun", "runs", "show", "simulate", "store", "timeline")
    assert [command for command in commands if f"\n  {command} " not in told] == []
    assert "Exit codes" in told
    assert run("nonsense").returncode == 2


STORE_COMMANDS = [
    "runs",
    "show nightly 2026-10-16T12:00:00Z",
    "release nightly 2026-10-16T12:00:00Z",
    "rerun nightly 2026-10-16T12:00:00Z",
    "missed --job nightly --schedule '0 * * * *' --since 2h",
    "timeline",
    "check",
    "store create",
]


def test_each_command_that_asks_a_store_is_tried() -> None:
    """The commands that are tried below are all but the two that ask no store."""
    assert {command.split()[0] for command in STORE_COMMANDS} == set(cli.commands) - {"key", "simulate"}


@pytest.mark.parametrize("command", STORE_COMMANDS)
def test_the_store_may_stand_before_the_command(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--store before a command names its store, as it does after it; where both are given, the one after it counts."""
    monkeypatch.chdir(tmp_path)
    there, nowhere = f"sqlite:///{tmp_path}/runs.db", "sqlite:////proc/nowhere/runs.db"
    environment = {"DEDUP_STORE": f"sqlite:///{tmp_path}/other.db"}

    def told(before: str, *after: str) -> str:
        done = CliRunner().invoke(cli, ["--store", before, *shlex.split(command), *after], env=environment)
        assert done.exit_code not in (2, 70), done.output
        return done.output

    assert "/proc/nowhere/runs.db" in told(nowhere)
    assert "/proc/nowhere/runs.db" in told(there, "--store", nowhere)
    assert "/proc/nowhere/runs.db" not in told(nowhere, "--store", there)


def test_json_may_stand_before_the_command(many: str) -> None:
    """--json before a command, even one that asks no store, is --json after it."""
    for command in ("runs --limit 3", "check", "key nightly 2026-10-16T12:00:00Z"):
        done = CliRunner().invoke(cli, ["--store", many, "--json", *shlex.split(command)])
        assert done.exit_code == 0, done.output
        assert all(json.loads(line) for line in done.stdout.splitlines())


@pytest.mark.parametrize(
    "command",
    [
        ("show", "\udcff", "2026-10-16T12:00:00Z"),
        ("key", "nightly", "2026-10-16T12:00:00Z", "--scope", "\udcff"),
        ("show", "no/job", "2026-10-16T12:00:00Z"),
        ("runs", "--job", "\udcff"),
        ("timeline", "--job", "no/job"),
        ("missed", "--job", "", "--schedule", "* * * * *", "--since", "1h"),
    ],
    ids=" ".join,
)
def test_what_is_no_name_is_told(command: tuple[str, ...], many: str) -> None:
    """A job's name that no job can have, and bytes that are no text, are exit code 2."""
    store = ("--store", many) if command[0] != "key" else ()
    done = CliRunner().invoke(cli, [*command, *store])
    assert (done.exit_code, done.stdout) == (2, "")


def test_a_fault_of_the_program_is_told(many: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else is raised is one line that says where, and an exit code of its own."""

    def broken(*_: object, **__: object) -> None:
        raise LookupError("oh dear")

    monkeypatch.setattr(SQLiteRunStore, "list_runs", broken)
    done = CliRunner().invoke(cli, ["runs", "--store", many])
    assert (done.exit_code, done.stdout) == (70, "")
    assert "LookupError: oh dear" in done.stderr
    assert "test_terminal.py, line" in done.stderr
