"""Lists runs, and shows one."""

from __future__ import annotations

from datetime import datetime

import click

from dedup.cli.output import (
    Column,
    JobName,
    Moment,
    Table,
    as_fields,
    delivery_of,
    duration_seconds,
    find,
    job_text,
    json_option,
    lease_text,
    open_given,
    printable,
    progress,
    rfc3339,
    scope_option,
    seconds_text,
    status_text,
    store_options,
    write_json,
)
from dedup.record import Status
from dedup.stores import SeenRun
from dedup.stores.selection import Selection

RESULT_WIDTH = 80
"""Enough for an error's class and the start of its message; a line with it stays below 180 characters as a rule."""
COLUMNS = [
    Column("JOB", 20),
    Column("SCHEDULED", 20),
    Column("STATUS", 11),
    Column("ATTEMPTS", 8),
    Column("DURATION", 8),
    Column("OWNER", 8),
    Column("LEASE LEFT", 10),
    Column("RESULT", 0, cut_at=RESULT_WIDTH),
]


@click.command()
@click.option("--job", type=JobName(), metavar="NAME", help="Only runs of this job.")
@click.option("--status", type=click.Choice([status.value for status in Status]), help="Only runs of this status.")
@click.option("--since", type=Moment(), help="Only runs scheduled then or later.")
@click.option("--until", type=Moment(), help="Only runs scheduled before that.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="How many at most.")
@store_options
def runs(
    job: str | None,
    status: str | None,
    since: datetime | None,
    until: datetime | None,
    limit: int,
    store: str | None,
    as_json: bool,
) -> None:
    """Lists runs, the newest scheduled time first.

    The table cuts a result or an error at 80 characters, at a terminal as in a pipe or a file; --json has all of it, and so
    has `show`.

    A run that the documented example has claimed has no scheduled time of its own; `show` finds it, this doesn't.
    """
    only = Status(status) if status is not None else None
    listing = open_given(store).list_runs(Selection(job_name=job, status=only, since=since, until=until, limit=limit))
    table = Table(COLUMNS)
    count = 0
    with progress(as_json=as_json) as step:
        for seen in listing:
            count += 1
            if as_json:
                write_json(as_fields(seen))
            else:
                table.add(*_cells(seen))
            step(seen)
    table.close()
    if not as_json and count in (0, limit):
        click.echo("no runs" if count == 0 else f"{count} runs; for older ones, a higher --limit", err=True)


@click.command()
@click.argument("run", metavar="RUN_ID|JOB")
@click.argument("time", required=False)
@scope_option
@store_options
def show(run: str, time: str | None, scope: str, store: str | None, as_json: bool) -> None:
    """Shows one run whole: by its RUN_ID, or by JOB and TIME."""
    seen = find(open_given(store), run, time, scope)
    if as_json:
        write_json(as_fields(seen))
    else:
        print_whole(seen)


@click.command()
@click.argument("job")
@click.argument("time")
@scope_option
@json_option
def key(job: str, time: str, scope: str, as_json: bool) -> None:
    """Prints the run_id of JOB at TIME; asks no store."""
    delivery = delivery_of(job, time, scope)
    if as_json:
        write_json({"run_id": delivery.run_id, "key": delivery.key})
    else:
        click.echo(delivery.run_id)


def print_whole(seen: SeenRun, *, err: bool = False) -> None:
    """Prints a run, a field a line."""
    shown = as_fields(seen) | {
        "status": status_text(seen.record),
        "duration_seconds": None,
        "lease_left_seconds": None,
        "duration": seconds_text(duration_seconds(seen)),
        "lease left": lease_text(seen),
    }
    for name, value in shown.items():
        if value is not None and value != "-":
            text = rfc3339(value) if isinstance(value, datetime) else printable(str(value))
            click.echo(f"{name.replace('_', ' '):14} {text}", err=err)


def _cells(seen: SeenRun) -> list[str]:
    record = seen.record
    return [
        job_text(record),
        rfc3339(record.schedule_time) if record.schedule_time is not None else "-",
        status_text(record),
        str(record.attempts),
        seconds_text(duration_seconds(seen)),
        (record.attempt_id or "-")[:8],
        lease_text(seen),
        record.result or record.error or "",
    ]
