"""What `runs`, `show` and `key` print."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dedup.record import Ending
from dedup.stores.firestore import FirestoreRunStore
from tests.template.cli.conftest import AT_NOON, NOON, House
from tests.template.contract.harness import FirestoreHarness

RUN_ID = hashlib.sha256(f"nightly/{NOON}".encode()).hexdigest()
HOUR = timedelta(hours=1)


def rows(text: str) -> list[list[str]]:
    """The cells of a plain table, its head left out."""
    return [re.split(r" {2,}", line) for line in text.splitlines()[1:]]


def test_runs_are_listed_newest_first(house: House) -> None:
    """A table has a row for each run, the newest scheduled time first, with all that a person asks for."""
    house.finished(time=AT_NOON - HOUR, result="7 rows")
    house.finished("hourly", AT_NOON, Ending.FAILED, error="PermanentError: no such table")
    claim = house.claim(time=AT_NOON + HOUR)
    table = rows(house("runs").stdout)
    assert [row[:4] for row in table] == [
        ["nightly", "2026-10-16T13:00:00Z", "in progress", "1"],
        ["hourly", "2026-10-16T12:00:00Z", "failed", "1"],
        ["nightly", "2026-10-16T11:00:00Z", "completed", "1"],
    ]
    assert table[0][5] == claim.attempt_id[:8]
    assert re.fullmatch(r"5\d(\.\d+)? s|1m", table[0][6])
    assert [row[7] for row in table[1:]] == ["PermanentError: no such table", "7 rows"]


def test_runs_as_json_has_the_records_fields(house: House) -> None:
    """With --json, a run is an object on a line, by the record's own names, its times in UTC."""
    house.finished(result="7 rows")
    [run] = house.json("runs")
    assert (run["run_id"], run["job_name"], run["schedule_time"]) == (RUN_ID, "nightly", NOON)
    assert (run["status"], run["attempts"], run["result"], run["error"]) == ("completed", 1, "7 rows", None)
    assert run["lease_left_seconds"] is None
    assert run["duration_seconds"] >= 0
    for name in ("updated_at", "claimed_at", "finished_at", "expire_at"):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", run[name]), name


FILTERED = {
    "": [3, 2, 1, 0],
    "--job nightly": [3, 1, 0],
    "--status completed": [3, 2, 0],
    "--job nightly --status completed": [3, 0],
    "--since 2026-10-16T14:00:00Z": [3, 2],
    "--until 2026-10-16T14:00:00+00:00": [1, 0],
    "--since 2026-10-16T13:00:00Z --until 2026-10-16T15:00:00Z --job nightly": [1],
    "--since 2026-10-16T13:00:00Z --status completed --limit 1": [3],
    "--limit 2": [3, 2],
    "--job nobody": [],
}


def test_runs_are_filtered(house: House) -> None:
    """Job, status, time and limit say which runs are listed."""
    house.finished(time=AT_NOON)
    house.claim(time=AT_NOON + HOUR)
    house.finished("other", time=AT_NOON + 2 * HOUR)
    house.finished(time=AT_NOON + 3 * HOUR)
    for options, hours in FILTERED.items():
        listed = [datetime.fromisoformat(run["schedule_time"]) for run in house.json("runs", *options.split())]
        assert listed == [AT_NOON + hour * HOUR for hour in hours], options


def test_an_age_is_counted_back_from_now(house: House) -> None:
    """--since takes an age too."""
    now = datetime.now(UTC).replace(microsecond=0)
    house.finished(time=now - timedelta(hours=3))
    house.finished(time=now - timedelta(hours=1))
    assert len(house.json("runs", "--since", "2h")) == 1
    assert len(house.json("runs", "--since", "1d12h30m")) == 2


def test_nothing_to_list_is_said(house: House) -> None:
    """An empty listing says so, beside the data; that is no failure."""
    done = house("runs")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "no runs\n")
    assert house.json("runs") == []


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        ("r" * 80, "r" * 80),
        ("r" * 81, f"{'r' * 77}..."),
        ("r" * 1000, f"{'r' * 77}..."),
        ("\n" * 41, "\\n" * 38 + "\\..."),
        ("r" * 77 + "\x1b" * 3, f"{'r' * 77}..."),
    ],
    ids=["80", "81", "1000", "escaped", "escape"],
)
def test_a_long_result_is_cut_in_the_table(local: House, result: str, shown: str) -> None:
    """A table has 80 characters of a result at most, as they are printed; --json and `show` have all of it."""
    run_id = local.finished(result=result)
    assert rows(local("runs").stdout)[0][7] == shown
    assert local.json("runs")[0]["result"] == local.json("show", run_id)[0]["result"] == result
    assert "..." not in local("show", run_id).stdout
    assert "80 characters" in " ".join(local("runs", "--help").stdout.split())


def test_a_long_error_is_cut_in_the_table(local: House) -> None:
    """An error is cut as a result is: its start, which names the exception, is what stays."""
    local.finished(ending=Ending.FAILED, error="PermanentError: " + "no " * 300)
    [row] = rows(local("runs").stdout)
    assert row[7].startswith("PermanentError: no no")
    assert (len(row[7]), row[7][-3:]) == (80, "...")


def test_a_listing_that_may_go_on_says_so(local: House) -> None:
    """A listing that has reached its limit names the way to see more."""
    local.finished()
    assert "--limit" in local("runs", "--limit", "1").stderr
    assert local("runs", "--limit", "2").stderr == ""


@pytest.mark.store("firestore")
def test_firestore_reads_no_more_than_is_printed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """On Firestore, every filter is part of the query: a document that isn't printed isn't read, nor paid for."""
    read = []
    page = FirestoreRunStore._page

    def counted(self: FirestoreRunStore, query: Any) -> list[Any]:
        found = page(self, query)
        read.append(len(found))
        return found

    monkeypatch.setattr(FirestoreRunStore, "_page", counted)
    harness = FirestoreHarness(request)
    house = House(harness, {"DEDUP_STORE": f"firestore://{harness.project}"})
    for number in range(8):
        house.finished(f"j{number % 2}", AT_NOON + number * HOUR)
    for options in ("", "--job j1", "--status completed", "--job j1 --status completed"):
        assert len(house.json("runs", "--limit", "3", *options.split())) == 3
        assert read == [3], options
        read.clear()
    harness.close()


def test_a_run_is_shown_by_its_id_and_by_its_name(house: House) -> None:
    """`show` takes a run_id, or job and time in any spelling of it, and prints every field that says something."""
    house.finished(result="7 rows")
    by_id, by_name = house("show", RUN_ID), house("show", "nightly", "2026-10-16T05:00:00-07:00")
    assert by_id.exit_code == by_name.exit_code == 0
    assert by_id.stdout == by_name.stdout
    shown = dict(re.split(r" {2,}", line, maxsplit=1) for line in by_id.stdout.splitlines() if "  " in line)
    assert shown["status"] == "completed"
    assert shown["result"] == "7 rows"
    assert "lease left" not in shown
    assert house.json("show", RUN_ID) == house.json("runs")


def test_a_held_run_shows_who_holds_it(house: House) -> None:
    """A run in progress says whose it is and for how long; one whose lease has ended says so."""
    claim = house.claim()
    assert claim.attempt_id in house("show", RUN_ID).stdout
    assert 0 < house.json("show", RUN_ID)[0]["lease_left_seconds"] <= claim.lease_seconds
    dead = house.abandoned("dead")
    assert re.search(r"lease left +over", house("show", dead).stdout)


def test_an_unknown_run_is_a_no(house: House) -> None:
    """A run that isn't there is exit code 1, and says under which id it was looked for."""
    done = house("show", "nightly", NOON)
    assert (done.exit_code, done.stdout) == (1, "")
    assert RUN_ID in done.stderr
    assert house("show", "0" * 64).exit_code == 1


def test_the_key_is_the_documented_examples(local: House) -> None:
    """`key` hashes job and time as the documentation does, and the scope before them."""
    assert local("key", "nightly", NOON).stdout == f"{RUN_ID}\n"
    scoped = hashlib.sha256(f"prod/a%2Fb/nightly/{NOON}".encode()).hexdigest()
    assert local("key", "nightly", NOON, "--scope", "prod/a%2Fb").stdout == f"{scoped}\n"
    assert local.json("key", "nightly", NOON) == [{"run_id": RUN_ID, "key": f"nightly/{NOON}"}]


@pytest.mark.parametrize("time", ["yesterday", "2026-10-16", "2026-10-16T12:00:00", "2026-02-30T12:00:00Z", ""])
@pytest.mark.parametrize("command", [("key", "nightly"), ("show", "nightly"), ("release", "nightly"), ("rerun", "nightly")])
def test_a_bad_time_is_told(local: House, command: tuple[str, ...], time: str) -> None:
    """What is no time is exit code 2, with the fault and an example, before any store is asked."""
    done = local(*command, time)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "2026-10-16T12:00:00Z" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("option", ["--since", "--until"])
@pytest.mark.parametrize(
    "time", ["24", "-1h", "1y", "tomorrow", "99999999999999999w", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"]
)
def test_a_bad_age_is_told(local: House, option: str, time: str) -> None:
    """What is neither a time nor an age is exit code 2, with an example of both."""
    done = local("runs", option, time)
    assert done.exit_code == 2
    assert "24h" in done.stderr


def test_a_run_that_is_named_by_halves_is_told(local: House) -> None:
    """A job without its time is exit code 2."""
    done = local("show", "nightly")
    assert done.exit_code == 2
    assert "JOB TIME" in done.stderr


def test_nothing_from_a_record_commands_the_terminal(local: House) -> None:
    """Control characters in a result are spelled out, in the table and alone."""
    local.finished(result="\x1b[31mred\x1b[0m \x07\u202eback\ntwo")
    for done in (local("runs"), local("show", RUN_ID)):
        assert "\\x1b[31mred\\x1b[0m \\x07\\u202eback\\ntwo" in done.stdout
        assert not set("\x1b\x07\u202e") & set(done.stdout)


def test_a_record_that_cannot_be_read_is_listed(house: House) -> None:
    """A record that nobody can read is told as unreadable, and ends no listing."""
    house.harness.put("f" * 64, {"status": "odd", "schedule_time": AT_NOON, "job_name": "odd"})
    house.finished(time=AT_NOON - HOUR)
    assert [row[2] for row in rows(house("runs").stdout)] == ["unreadable", "completed"]
    assert house.json("runs")[0]["status"] is None
