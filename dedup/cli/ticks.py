"""When a Cloud Scheduler job is due, by its schedule and time zone. Needs cronsim."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import click

from dedup.cli.unix_cron import check_unix_cron


@dataclass(frozen=True)
class Tick:
    """One time at which a job is due.

    Args:
        time: UTC.
        local: what the clocks show then in the job's time zone; naive.
        certain: False: local time is skipped or comes twice here, and Google doesn't document what is sent.
        instead: at which other times it may come, where its local time is skipped.
    """

    time: datetime
    local: datetime
    certain: bool = True
    instead: tuple[datetime, ...] = ()


def ticks(schedule: str, zone: ZoneInfo, since: datetime, until: datetime) -> Iterator[Tick]:
    """The ticks of a schedule from `since` until before `until`, as local time goes on.

    Local time decides, as cron has it. cronsim is asked for naive times: given a zone, it moves a skipped 02:30 to 03:00, which
    is a guess.

    Raises:
        click.UsageError: cronsim isn't installed, or the schedule isn't unix-cron.
    """
    try:
        from cronsim import CronSim, CronSimError
    except ImportError:
        raise click.UsageError("cronsim isn't installed: pip install cronsim (requirements-dev.txt has it)") from None
    try:
        check_unix_cron(schedule)
    except ValueError as fault:
        raise click.BadParameter(str(fault), param_hint="--schedule") from None
    day = timedelta(days=1)  # more than any zone is from UTC, and than any of its changes takes
    begin, end = (edge.astimezone(zone).replace(tzinfo=None) for edge in (since - day, until + day))
    try:
        local_times = CronSim(schedule, begin)
    except CronSimError:  # the only fault that is left
        never = f"{schedule!r}: day of month: no month of this schedule has so many days"
        raise click.BadParameter(never, param_hint="--schedule") from None
    for local in local_times:
        if local > end:
            break
        for tick in _at(local, zone):
            if since <= tick.time < until and not (tick.instead and _is_due_anyway(tick, schedule, zone)):
                yield tick


def _at(local: datetime, zone: ZoneInfo) -> list[Tick]:
    """The ticks that a local time stands for: usually one."""
    offset = _offset_of(local.date(), zone)
    if offset is not None:
        return [Tick((local - offset).replace(tzinfo=UTC), local)]
    first, second = (local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    if first == second:
        return [Tick(first, local)]
    if first < second:  # it comes twice
        return [Tick(first, local, certain=False), Tick(second, local, certain=False)]
    # It is skipped. By the offset from before the gap it would be `first`, by the one after it `second`, and the gap's end is
    # where crons that catch up run what they missed.
    gap_ends = _first_after_gap(second, first, zone)
    return [Tick(first, local, certain=False, instead=(second, gap_ends))]


@lru_cache(maxsize=1)
def _offset_of(day: date, zone: ZoneInfo) -> timedelta | None:
    """A zone's offset throughout a day; None where it changes. A year of ticks is through in half the time by it."""
    begin = datetime(day.year, day.month, day.day, tzinfo=zone)
    first, last = begin.utcoffset(), (begin + timedelta(days=1)).utcoffset()
    return first if first == last else None


def _first_after_gap(before: datetime, after: datetime, zone: ZoneInfo) -> datetime:
    """The moment between the two at which the zone's offset changes."""
    offset = before.astimezone(zone).utcoffset()
    while after - before > timedelta(seconds=1):
        middle = before + (after - before) / 2
        if middle.astimezone(zone).utcoffset() == offset:
            before = middle
        else:
            after = middle
    return after.replace(microsecond=0)


def _is_due_anyway(tick: Tick, schedule: str, zone: ZoneInfo) -> bool:
    """Whether the schedule has a tick of its own at the moment that a skipped local time would come at, such as */5 does."""
    from cronsim import CronSim

    shown = tick.time.astimezone(zone).replace(tzinfo=None)
    return next(CronSim(schedule, shown - timedelta(minutes=1)), None) == shown
