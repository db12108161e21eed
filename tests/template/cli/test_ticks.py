"""When a job is due."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import click
import pytest

from dedup.cli.ticks import Tick, ticks
from tests.template.size import WHOLE

NEW_YORK = ZoneInfo("America/New_York")
YEAR = datetime(2026, 1, 1, 5, tzinfo=UTC), datetime(2027, 1, 1, 5, tzinfo=UTC)
SPRING, AUTUMN = date(2026, 3, 8), date(2026, 11, 1)
"""When New York's clocks change: 02:00 to 03:00, and back from 02:00 to 01:00."""


def utc(text: str) -> datetime:
    """A time of 2026."""
    return datetime.fromisoformat(f"2026-{text}Z")


def certain(found: list[Tick]) -> list[datetime]:
    """The times of the ticks that are sure."""
    return [tick.time for tick in found if tick.certain]


def test_every_half_past_two_of_a_year() -> None:
    """`30 2 * * *` over a year in New York: each day has its 02:30 but the one that skips it, whose tick is uncertain."""
    found = list(ticks("30 2 * * *", NEW_YORK, *YEAR))
    days = [date(2026, 1, 1) + timedelta(days=number) for number in range(365)]
    half_past_two = [datetime(d.year, d.month, d.day, 2, 30, tzinfo=NEW_YORK).astimezone(UTC) for d in days if d != SPRING]
    assert certain(found) == half_past_two
    [odd] = [tick for tick in found if not tick.certain]
    assert odd.local == datetime(2026, 3, 8, 2, 30)  # noqa: DTZ001
    assert {odd.time, *odd.instead} == {utc("03-08T06:30"), utc("03-08T07:30"), utc("03-08T07:00")}


def test_a_local_time_that_comes_twice_is_uncertain_twice() -> None:
    """`30 1 * * *`: on the day whose 01:30 comes twice, both are listed, and neither is sure."""
    found = list(ticks("30 1 * * *", NEW_YORK, *YEAR))
    assert [tick.time for tick in found if not tick.certain] == [utc("11-01T05:30"), utc("11-01T06:30")]
    assert len(certain(found)) == 364


def test_every_five_minutes_of_a_year() -> None:
    """`*/5 * * * *` over a year in New York: each fifth minute once, those of the doubled hour uncertain, none invented."""
    changes = [(utc("03-07T00:00"), utc("03-09T00:00")), (utc("10-31T00:00"), utc("11-02T00:00"))]
    for since, until in [YEAR] if WHOLE else changes:
        found = sorted(ticks("*/5 * * * *", NEW_YORK, since, until), key=lambda tick: tick.time)
        every_fifth = [since + timedelta(minutes=5 * number) for number in range((until - since) // timedelta(minutes=5))]
        assert [tick.time for tick in found] == every_fifth
    assert [tick.time for tick in found if not tick.certain] == [
        utc("11-01T05:00") + timedelta(minutes=5 * number) for number in range(24)
    ]


def test_a_zone_that_never_changes_is_certain() -> None:
    """In UTC every tick is sure."""
    found = list(ticks("0 * * * *", ZoneInfo("UTC"), *YEAR))
    assert certain(found) == [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=5 + n) for n in range(365 * 24)]


def test_half_an_hour_is_skipped_too() -> None:
    """Lord Howe Island's clocks change by half an hour: only what falls into it is uncertain."""
    day = utc("10-03T00:00"), utc("10-04T00:00")
    found = list(ticks("15 1,2,3 * * *", ZoneInfo("Australia/Lord_Howe"), *day))
    assert [(tick.local.hour, tick.certain) for tick in found] == [(1, True), (2, False), (3, True)]


@pytest.mark.parametrize(
    ("schedule", "times"),
    [
        ("0 0 13 * 5", ["02-06", "02-13", "02-20", "02-27"]),
        ("0 0 * * SUN", ["02-01", "02-08", "02-15", "02-22"]),
        ("0 0 * * 7", ["02-01", "02-08", "02-15", "02-22"]),
        ("0 0 1-3,28 FEB *", ["02-01", "02-02", "02-03", "02-28"]),
    ],
)
def test_unix_crons_own_rules_hold(schedule: str, times: list[str]) -> None:
    """Day of month or day of week, names, 7 for Sunday, lists and ranges are as in unix-cron."""
    found = ticks(schedule, ZoneInfo("UTC"), utc("02-01T00:00"), utc("03-01T00:00"))
    assert [f"{tick.time:%m-%d}" for tick in found] == times


def test_the_edges_are_half_open() -> None:
    """A tick at `since` is listed, one at `until` is not."""
    found = ticks("0 * * * *", NEW_YORK, utc("05-01T10:00"), utc("05-01T12:00"))
    assert [tick.time for tick in found] == [utc("05-01T10:00"), utc("05-01T11:00")]


@pytest.mark.parametrize("schedule", ["every 5 minutes", "0 0 L * *", "0 0 30 2 *", "0 0 31 4,6 *"])
def test_what_is_no_unix_cron_is_told(schedule: str) -> None:
    """What isn't unix-cron, or has a day that never comes, is refused, with the schedule that was given."""
    with pytest.raises(click.BadParameter, match=re.escape(repr(schedule))):
        list(ticks(schedule, NEW_YORK, *YEAR))
