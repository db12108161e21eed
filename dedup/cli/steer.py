"""Frees a run that is stuck, and lets one that is over run again."""

from __future__ import annotations

import getpass
import logging
import shlex
import socket
import sys
from typing import Any

import click

from dedup.cli.output import (
    Refused,
    as_fields,
    delivery_that_made,
    find,
    job_text,
    lease_left_seconds,
    open_given,
    printable,
    rfc3339,
    scope_option,
    seconds_text,
    status_text,
    store_options,
    write_json,
)
from dedup.cli.runs import print_whole
from dedup.delivery import JOB_NAME_HEADER, SCHEDULE_TIME_HEADER
from dedup.record import Status
from dedup.stores import Inspectable, SeenRun, StoreUnavailable
from dedup.telemetry import JsonFormatter

log = logging.getLogger("dedup")

OVER = (Status.COMPLETED, Status.FAILED)
NO_COMMAND = (
    "no command can be told from the record: the run was forced by hand, came by an Idempotency-Key, or at a time with "
    "nanoseconds. Whoever has sent it must send it again."
)


@click.command()
@click.argument("run", metavar="RUN_ID|JOB")
@click.argument("time", required=False)
@scope_option
@click.option("--force", is_flag=True, help="Even though its lease is live: its attempt is surely dead.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@store_options
def release(run: str, time: str | None, scope: str, force: bool, yes: bool, store: str | None, as_json: bool) -> None:
    """Frees a run that is in progress with nobody at work, so that the next delivery runs it."""
    opened = open_given(store)
    seen = find(opened, run, time, scope)
    if seen.record.status in OVER:
        raise Refused(f"the run is {status_text(seen.record)}, so nobody holds it; to let it run again: rerun")
    left = lease_left_seconds(seen)
    if left is not None and left > 0 and not force:
        raise Refused(
            f"attempt {seen.record.attempt_id} holds the run for another {seconds_text(left)}, and may be at work: another "
            "one would run beside it. If it is surely dead: --force"
        )
    _delete(opened, seen, "released", yes=yes, as_json=as_json)


@click.command()
@click.argument("run", metavar="RUN_ID|JOB")
@click.argument("time", required=False)
@scope_option
@click.option("--yes", is_flag=True, help="Don't ask.")
@store_options
def rerun(run: str, time: str | None, scope: str, yes: bool, store: str | None, as_json: bool) -> None:
    """Lets a run that is completed, or failed for good, run again at its next delivery."""
    opened = open_given(store)
    seen = find(opened, run, time, scope)
    if seen.record.status not in OVER:
        raise Refused(f"the run is {status_text(seen.record)}, not over; to free it if its attempt is dead: release")
    _delete(opened, seen, "rerun", yes=yes, as_json=as_json)


def _delete(store: Inspectable, seen: SeenRun, action: str, *, yes: bool, as_json: bool) -> None:
    if not yes:
        _ask(seen, action, as_json=as_json)
    trace = {"action": action, "by": _who(), **as_fields(seen)}
    try:
        deleted = store.delete_run(seen.run_id, seen.record.updated_at)
    except StoreUnavailable as unavailable:
        _log(f"perhaps {action} by hand", trace)
        raise StoreUnavailable(
            f"{unavailable}. The record may have been deleted all the same: look at it again"
        ) from unavailable
    if not deleted:
        raise Refused("the run was written to since it was shown, so nothing was done; look at it again")
    if as_json:
        write_json(trace)
        return
    _log(f"{action} by hand", trace)
    click.echo(f"{job_text(seen.record)}: the record is deleted, and the next delivery runs it.")
    click.echo("Cloud Scheduler sends none for a time that is past, unless retries are left. To send one:")
    click.echo(f"  {_delivery_command(seen) or NO_COMMAND}")


def _ask(seen: SeenRun, action: str, *, as_json: bool) -> None:
    if as_json:
        raise click.UsageError("--json asks nothing: say --yes")
    print_whole(seen, err=True)
    question = "Free it for the next delivery" if action == "released" else "Let it run again"
    click.echo(f"{question}? [y/N] ", nl=False, err=True)
    answer = sys.stdin.readline()
    if not answer:
        raise Refused("nobody is there to answer, so nothing was done; in a script: --yes")
    if answer.strip().lower() not in ("y", "yes"):
        raise Refused("nothing was done")


def _log(message: str, trace: dict[str, Any]) -> None:
    """Leaves a trace on standard error, in the form of the function's own log."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    log.addHandler(handler)
    try:
        log.warning(message, extra=trace)
    finally:
        log.removeHandler(handler)


def _who() -> str:
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError):  # a container whose user has no name
        return f"unknown@{socket.gethostname()}"


def _delivery_command(seen: SeenRun) -> str | None:
    delivery = delivery_that_made(seen)
    if delivery is None:
        return None
    headers = {JOB_NAME_HEADER: delivery.job_name, SCHEDULE_TIME_HEADER: rfc3339(delivery.schedule_time)}
    sent = " ".join(f"-H {shlex.quote(printable(f'{name}: {value}'))}" for name, value in headers.items())
    scope = " and the headers of its scope" if delivery.scope else ""
    return f'curl -X POST "$URL" -H "Authorization: Bearer $(gcloud auth print-identity-token)" {sent}{scope}'
