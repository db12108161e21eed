"""What was due, beside what is recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any
from zoneinfo import ZoneInfo

import click

from dedup.cli.output import (
    NO,
    Column,
    Duration,
    JobName,
    Moment,
    Table,
    delivery_that_made,
    open_given,
    read_settings,
    rfc3339,
    scope_option,
    seconds_text,
    store_options,
    write_json,
)
from dedup.cli.ticks import Tick, ticks
from dedup.record import Status
from dedup.stores import Inspectable, SeenRun
from dedup.stores.selection import Selection

COLUMNS = [Column("DUE", 20), Column("LOCAL TIME", 16), Column("STATE", 11), Column("LAG", 8), Column("NOTE", 0)]


class State(StrEnum):
    """What became of a tick."""

    DONE = "done"
    LATE = "late"
    FAILED = "failed"
    IN_PROGRESS = "in progress"
    ABANDONED = "abandoned"
    MISSING = "missing"
    DUE = "due"
    UNCERTAIN = "uncertain"
    UNKNOWN = "unknown"


NOTES = {
    State.FAILED: "the job raised PermanentError",
    State.ABANDONED: "its attempt died, and no retry has come since its lease was over",
    State.MISSING: "never delivered, or each attempt failed: the log tells",
    State.DUE: "it may come yet",
    State.UNCERTAIN: "local time is skipped or comes twice here: Google doesn't document whether it is sent",
    State.UNKNOWN: "its record may be deleted by now: it is older than records are kept",
}
NOT_DONE = (State.FAILED, State.ABANDONED, State.MISSING)
"""What --fail fails on."""


@dataclass(frozen=True)
class Expected:
    """A tick and what became of it.

    Args:
        tick: when it was due.
        state: what became of it.
        seen: its record.
        lag_seconds: from its time to the start of its last attempt.
    """

    tick: Tick
    state: State
    seen: SeenRun | None = None
    lag_seconds: float | None = None


@click.command()
@click.option("--job", type=JobName(), required=True, metavar="NAME", help="The job's id.")
@click.option(
    "--schedule",
    required=True,
    metavar="CRON",
    help="As in Cloud Scheduler: unix-cron, such as '30 2 * * *'; no L, W, #, ? or @daily.",
)
@click.option("--time-zone", default="Etc/UTC", show_default=True, metavar="TZ", help="As in Cloud Scheduler.")
@click.option("--since", type=Moment(), required=True, help="From when.")
@click.option("--until", type=Moment(), help="Until before when.  [default: now]")
@click.option("--late-after", type=Duration(), default=300.0, show_default="5m", help="What lag makes a run late.")
@click.option("--retention", type=Duration(), help="How long records are kept.  [default: DEDUP_RETENTION_SECONDS]")
@click.option("--fail", is_flag=True, help="Exit code 1 if a tick is missing, abandoned, or failed for good.")
@scope_option
@store_options
@click.pass_context
def missed(
    ctx: click.Context,
    job: str,
    schedule: str,
    time_zone: str,
    since: datetime,
    until: datetime | None,
    late_after: float,
    retention: float | None,
    fail: bool,
    scope: str,
    store: str | None,
    as_json: bool,
) -> None:
    """Lists every tick of a job, beside what is recorded of it.

    A failed attempt deletes its record, as Google documents: a run whose retries are used up is missing, like one that was
    never delivered. A tick that local time skips, or has twice, is uncertain unless it is recorded.
    """
    zone = _zone(time_zone)
    now = datetime.now(UTC)
    until = until if until is not None else now
    if until <= since:
        raise click.UsageError("--until is not after --since")
    kept = timedelta(seconds=retention if retention is not None else read_settings(store).retention_seconds)
    due = sorted(ticks(schedule, zone, since, until), key=lambda tick: tick.time)
    recorded = _recorded(open_given(store), job, since, until, scope)
    counts: Counter[State] = Counter()
    table = Table(COLUMNS)
    for expected in _judged(due, recorded, now=now, late_after=late_after, kept=kept):
        counts[expected.state] += 1
        if as_json:
            write_json(_as_fields(job, expected))
        else:
            table.add(*_cells(expected))
    table.close()
    if not as_json:
        told = ", ".join(f"{number} {state}" for state, number in counts.items())
        click.echo(f"{len(due)} due: {told}" if due else "no tick was due", err=True)
    if fail and any(counts[state] for state in NOT_DONE):
        ctx.exit(NO)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise click.BadParameter(f"{name!r} is not a time zone, such as America/New_York", param_hint="--time-zone") from None


def _recorded(store: Inspectable, job: str, since: datetime, until: datetime, scope: str) -> dict[datetime, SeenRun]:
    """The runs of a job by their times. One that was forced by hand and stands for itself is no tick."""
    found: dict[datetime, SeenRun] = {}
    scopes: set[str] = set()
    hour = timedelta(hours=1)  # a tick whose local time is skipped may come this much later or earlier
    for seen in store.list_runs(Selection(job_name=job, since=since - hour, until=until + hour)):
        record = seen.record
        its_scope = record.scope or ""
        if record.schedule_time is None or (scope and its_scope != scope) or delivery_that_made(seen) is None:
            continue
        scopes.add(its_scope)
        if len(scopes) > 1:
            names = ", ".join(sorted(scopes))
            raise click.UsageError(f"there are jobs {job} in several scopes ({names}): name one by --scope")
        found[record.schedule_time] = seen
    return found


def _judged(
    due: list[Tick], recorded: dict[datetime, SeenRun], *, now: datetime, late_after: float, kept: timedelta
) -> Iterator[Expected]:
    own = {tick.time for tick in due if not tick.instead}
    for tick in due:
        times = [tick.time, *(time for time in tick.instead if time not in own)]
        seen = next((recorded[time] for time in times if time in recorded), None)
        if seen is not None:
            yield _recorded_tick(tick, seen, late_after)
        elif not tick.certain:
            yield Expected(tick, State.UNCERTAIN)
        elif now - tick.time > kept:
            yield Expected(tick, State.UNKNOWN)
        elif (now - tick.time).total_seconds() <= late_after:
            yield Expected(tick, State.DUE)
        else:
            yield Expected(tick, State.MISSING)


def _recorded_tick(tick: Tick, seen: SeenRun, late_after: float) -> Expected:
    record = seen.record
    lag = None
    if record.claimed_at is not None and record.schedule_time is not None:
        lag = round((record.claimed_at - record.schedule_time).total_seconds(), 3)
    if record.status is Status.COMPLETED:
        state = State.LATE if lag is not None and lag > late_after else State.DONE
    elif record.status is Status.FAILED:
        state = State.FAILED
    else:
        state = State.IN_PROGRESS if seen.seen_at < record.live_until else State.ABANDONED
    return Expected(tick, state, seen, lag)


def _note(expected: Expected) -> str:
    seen = expected.seen
    if seen is None:
        return NOTES[expected.state]
    said = seen.record.error or seen.record.result or NOTES.get(expected.state, "")
    return said if expected.tick.certain else f"{said} (local time is skipped or comes twice here)".strip()


def _cells(expected: Expected) -> list[str]:
    tick = expected.tick
    local = f"{tick.local:%Y-%m-%d %H:%M}"
    return [rfc3339(tick.time), local, expected.state.value, seconds_text(expected.lag_seconds), _note(expected)]


def _as_fields(job: str, expected: Expected) -> dict[str, Any]:
    seen = expected.seen
    return {
        "job_name": job,
        "schedule_time": expected.tick.time,
        "local_time": expected.tick.local.isoformat(),
        "certain": expected.tick.certain,
        "state": expected.state.value.replace(" ", "_"),
        "lag_seconds": expected.lag_seconds,
        "run_id": seen.run_id if seen is not None else None,
        "status": seen.record.status if seen is not None else None,
        "attempts": seen.record.attempts if seen is not None else None,
        "note": _note(expected),
    }
