"""What was due beside what is recorded."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta

import pytest

from dedup.delivery import Delivery
from dedup.record import Ending
from tests.template.cli.conftest import House

HOUR = timedelta(hours=1)
NOW = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
"""The last full hour; the next one is never due while the tests run."""


def states(house: House, *options: str, since: datetime, until: datetime | None = None) -> list[tuple[datetime, str]]:
    """Each tick of an hourly job, and its state."""
    ends = ("--until", until.isoformat()) if until is not None else ()
    hourly = ("missed", "--job", "nightly", "--schedule", "0 * * * *", "--since", since.isoformat(), *ends)
    return [(datetime.fromisoformat(tick["schedule_time"]), tick["state"]) for tick in house.json(*hourly, *options)]


def test_each_tick_has_what_became_of_it(house: House) -> None:
    """Done, late, failed, in progress, abandoned, missing: each is told from the record, or from there being none."""
    since = NOW - 6 * HOUR
    house.finished(time=since)
    house.finished(time=since + HOUR, ending=Ending.FAILED, error="PermanentError: no")
    house.abandoned(time=since + 2 * HOUR)
    house.claim(time=since + 4 * HOUR)
    house.finished("other", time=since + 3 * HOUR)
    found = states(house, "--late-after", "7h", since=since, until=since + 5 * HOUR)
    assert [state for _, state in found] == ["done", "failed", "abandoned", "due", "in_progress"]
    found = states(house, "--late-after", "1s", since=since, until=since + 5 * HOUR)
    assert [state for _, state in found] == ["late", "failed", "abandoned", "missing", "in_progress"]


def test_the_table_says_it_for_people(house: House) -> None:
    """The table has a row for each tick with its local time, and a last line that counts."""
    house.finished(time=NOW - 2 * HOUR, result="7 rows")
    times = ("--since", (NOW - 2 * HOUR).isoformat(), "--until", NOW.isoformat())
    done = house(
        "missed", "--job", "nightly", "--schedule", "0 * * * *", "--late-after", "1m", "--time-zone", "Asia/Tokyo", *times
    )
    assert done.exit_code == 0
    head, first, second = done.stdout.splitlines()
    assert head.split() == ["DUE", "LOCAL", "TIME", "STATE", "LAG", "NOTE"]
    assert f"{NOW - 2 * HOUR + 9 * HOUR:%Y-%m-%d %H:%M}  late" in first
    assert first.endswith("7 rows")
    assert "missing" in second
    assert done.stderr == "2 due: 1 late, 1 missing\n"


@pytest.mark.parametrize(
    ("prepare", "code"),
    [("missing", 1), ("failed", 1), ("abandoned", 1), ("done", 0), ("held", 0)],
)
def test_fail_is_for_scripts(local: House, prepare: str, code: int) -> None:
    """With --fail a tick that isn't done and won't be is exit code 1; without it, nothing is."""
    time = NOW - HOUR
    match prepare:
        case "failed":
            local.finished(time=time, ending=Ending.FAILED)
        case "abandoned":
            local.abandoned(time=time)
        case "done":
            local.finished(time=time)
        case "held":
            local.claim(time=time)
    hourly = ("missed", "--job", "nightly", "--schedule", "0 * * * *", "--late-after", "1s")
    times = ("--since", time.isoformat(), "--until", NOW.isoformat())
    assert local(*hourly, *times).exit_code == 0
    assert local(*hourly, *times, "--fail").exit_code == code


def test_a_record_that_may_be_deleted_is_no_miss(local: House) -> None:
    """A tick that is older than records are kept, and has none, is unknown; --fail doesn't take it for missed."""
    old = NOW - timedelta(days=3)
    assert {state for _, state in states(local, "--fail", since=old, until=old + 2 * HOUR)} == {"unknown"}
    found = states(local, "--retention", "7d", since=old, until=old + 2 * HOUR)
    assert {state for _, state in found} == {"missing"}


def test_a_tick_that_may_yet_come_is_no_miss(local: House) -> None:
    """A tick of a moment ago that isn't recorded is due."""
    found = states(local, "--late-after", "2h", since=NOW, until=NOW + timedelta(minutes=1))
    assert found == [(NOW, "due")]


def test_the_skipped_hour_is_uncertain(local: House) -> None:
    """An unrecorded tick at a local time that is skipped is uncertain, not missing; a record at a time it may mean is its."""
    spring = ("--since", "2026-03-07T12:00:00Z", "--until", "2026-03-09T12:00:00Z", "--retention", "999w")
    daily = ("missed", "--job", "nightly", "--schedule", "30 2 * * *", "--time-zone", "America/New_York", *spring)
    found = [(tick["local_time"], tick["state"], tick["certain"]) for tick in local.json(*daily)]
    assert found == [("2026-03-08T02:30:00", "uncertain", False), ("2026-03-09T02:30:00", "missing", True)]
    local.finished(time=datetime(2026, 3, 8, 7, tzinfo=UTC))
    assert [tick["state"] for tick in local.json(*daily)] == ["late", "missing"]


def test_a_run_forced_by_hand_is_no_tick(local: House) -> None:
    """A run that was forced and stands for itself doesn't pass for the tick whose time it carries."""
    time = NOW - HOUR
    forced = Delivery("nightly", time, manual=True).run_id
    local.harness.put(forced, {"status": "completed", "job_name": "nightly", "schedule_time": time, "attempt_id": "a" * 32})
    assert states(local, "--late-after", "1s", since=time, until=NOW) == [(time, "missing")]


def test_two_scopes_are_told_apart(local: House) -> None:
    """Where jobs of one id stand in several scopes, --scope names one; without it that is exit code 2, which names them."""
    time = NOW - HOUR
    for scope, status in (("prod", "completed"), ("test", "failed")):
        run_id = Delivery("nightly", time, (scope,)).run_id
        fields = {"status": status, "job_name": "nightly", "schedule_time": time, "scope": scope, "attempt_id": "a" * 32}
        local.harness.put(run_id, fields)
    assert states(local, "--scope", "prod", since=time, until=NOW) == [(time, "done")]
    assert states(local, "--scope", "test", since=time, until=NOW) == [(time, "failed")]
    hourly = ("missed", "--job", "nightly", "--schedule", "0 * * * *", "--since", time.isoformat())
    done = local(*hourly)
    assert done.exit_code == 2
    assert "prod, test" in done.stderr


@pytest.mark.parametrize(
    ("option", "value"),
    [("--schedule", "every 5 minutes"), ("--time-zone", "Mars/Olympus"), ("--time-zone", "../etc"), ("--since", "x")],
)
def test_what_cannot_be_read_is_told(local: House, option: str, value: str) -> None:
    """A wrong schedule, time zone or time is exit code 2, and names its option."""
    given = {"--job": "nightly", "--schedule": "0 * * * *", "--since": "24h", option: value}
    done = local("missed", *(word for pair in given.items() for word in pair))
    assert done.exit_code == 2
    assert option in done.stderr


def test_cronsim_is_named_where_it_is_missing(local: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without cronsim, which the function doesn't need, the command says what to install."""
    monkeypatch.setitem(sys.modules, "cronsim", None)
    done = local("missed", "--job", "nightly", "--schedule", "0 * * * *", "--since", "1h")
    assert done.exit_code == 2
    assert "pip install cronsim" in done.stderr


def test_json_is_one_object_a_tick(local: House) -> None:
    """With --json each tick is an object that carries the run's id where there is a record."""
    run_id = local.finished(time=NOW - HOUR)
    hourly = ("missed", "--job", "nightly", "--schedule", "0 * * * *", "--json")
    done = local(*hourly, "--since", (NOW - HOUR).isoformat(), "--until", NOW.isoformat())
    [tick] = [json.loads(line) for line in done.stdout.splitlines()]
    assert (tick["run_id"], tick["certain"], tick["status"]) == (run_id, True, "completed")
    assert tick["lag_seconds"] > 0


def test_no_time_is_no_answer(local: House) -> None:
    """A range that is empty, or ends before it begins, is exit code 2: --fail would be green for ever."""
    hourly = ("missed", "--job", "nightly", "--schedule", "0 * * * *", "--fail")
    for times in (("--since", "2999-01-01T00:00:00Z"), ("--since", "1h", "--until", "5h")):
        done = local(*hourly, *times)
        assert done.exit_code == 2
        assert "--until is not after --since" in done.stderr
