"""What this environment would do: settings, store, clock, TTL, permissions."""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

import click

from dedup import __version__
from dedup.cli.output import (
    NO,
    Column,
    Table,
    read_settings,
    seconds_text,
    store_options,
    write_json,
)
from dedup.delivery import Delivery, ManualRuns
from dedup.record import Decision, Ending, Status
from dedup.settings import Settings, SettingsError
from dedup.stores import Claim, Inspectable, StoreUnavailable, open_store
from dedup.stores.selection import Selection

CLOCK_OFFSET_SECONDS = 30.0
"""From here on a clock is told as wrong. It decides no lease, and matters to DEDUP_MANUAL_RUNS and to people."""
SLOW_SECONDS = 1.0

T = TypeVar("T")

PROBE_JOB = "dedup-check"

COLUMNS = [Column("CHECK", 11), Column("FINDING", 7), Column("WHAT", 0)]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Args:
        check: what.
        finding: `ok`, `warning` (runs go on), `fault` (it stops them) or `unknown`.
        what: one sentence.
        remedy: what to do about it.
    """

    check: str
    finding: str
    what: str
    remedy: str = ""


@click.command()
@store_options
@click.pass_context
def check(ctx: click.Context, store: str | None, as_json: bool) -> None:
    """Says what this environment would do. Exit code 1: something stops runs.

    It claims and releases a run of the job dedup-check, as a function would: its record is there for a moment.
    """
    table = Table(COLUMNS)
    stopped = False
    for found in _findings(store):
        stopped = stopped or found.finding == "fault"
        if as_json:
            write_json(vars(found))
        else:
            table.add(found.check, found.finding, f"{found.what}{f': {found.remedy}' if found.remedy else ''}")
    table.close()
    if stopped:
        ctx.exit(NO)


def _findings(url: str | None) -> Iterator[Finding]:
    yield Finding("version", "ok", __version__)
    try:
        settings = read_settings(url)
    except SettingsError as wrong:
        for fault in wrong.faults:
            yield Finding("settings", "fault", fault)
        return
    yield Finding("settings", "ok", _told(settings))
    if settings.retention_seconds < 86400:
        retention = seconds_text(settings.retention_seconds)
        yield Finding(
            "settings", "warning", f"records are kept for {retention} only", "they must outlive all retries; a day is usual"
        )
    store = open_store(settings.store)
    try:
        yield from _store_findings(store, settings)
        _, now = store.look_up("0" * 64)
        yield _clock_finding((datetime.now(UTC) - now).total_seconds(), settings)
        yield _listing_finding(store)
    except StoreUnavailable as unavailable:
        yield Finding("store", "fault", str(unavailable))
        return
    yield from _ttl_findings(settings.store)


def _told(settings: Settings) -> str:
    renewed = "renewed" if settings.renew else "not renewed"
    lease = f"a lease of {seconds_text(settings.lease_seconds)}, {renewed}"
    kept = f"a request takes up to {settings.timeout_seconds} s; records kept for {seconds_text(settings.retention_seconds)}"
    store = re.sub("//.*@", "//", settings.store) if settings.store.startswith("redis") else settings.store  # no password
    return f"{store}; {lease}; {kept}"


def _store_findings(store: Inspectable, settings: Settings) -> Iterator[Finding]:
    claim = _probe(settings)
    seconds, decision = _timed(lambda: store.claim_run(claim))  # first: it makes SQLite's file, as a first delivery does
    if decision is not Decision.CLAIM:
        yield Finding(
            "permissions", "warning", f"the run of {PROBE_JOB} was not given", "another check is under way; try again"
        )
        return
    reading, _ = _timed(lambda: store.get_run(claim.run_id))
    released_in, released = _timed(lambda: store.finish_run(claim, Ending.RELEASED))
    speed = f"claimed in {seconds_text(seconds)}, read in {seconds_text(reading)}, released in {seconds_text(released_in)}"
    if released_in > SLOW_SECONDS:
        yield Finding("store", "warning", speed, "is the store in the function's region?")
    else:
        yield Finding("store", "ok", speed)
    if released:
        yield Finding("permissions", "ok", "runs can be claimed, read and released")
    else:
        yield Finding("permissions", "warning", "the run that was claimed was not released", "did somebody write to it?")


def _probe(settings: Settings) -> Claim:
    delivery = Delivery(PROBE_JOB, datetime.now(UTC).replace(microsecond=0), (uuid.uuid4().hex,))
    return Claim(
        run_id=delivery.run_id,
        attempt_id=uuid.uuid4().hex,
        lease_seconds=settings.lease_seconds,
        retention_seconds=settings.retention_seconds,
        job_name=delivery.job_name,
        schedule_time=delivery.schedule_time,
        scope="/".join(delivery.scope_parts),
    )


def _clock_finding(offset: float, settings: Settings) -> Finding:
    told = f"this machine's clock is {abs(offset):.1f} s {'ahead of' if offset > 0 else 'behind'} the store's"
    if abs(offset) < CLOCK_OFFSET_SECONDS:
        return Finding("clock", "ok", told)
    if settings.manual_runs is ManualRuns.SHARE:
        return Finding("clock", "warning", told, "no lease goes by it, but the times that people read do: set it by NTP")
    manual = f"DEDUP_MANUAL_RUNS={settings.manual_runs} tells forced runs by it: set it by NTP, or use share"
    return Finding("clock", "warning", told, manual)


def _listing_finding(store: Inspectable) -> Finding:
    """Tries every query that `runs` asks, each of which needs an index of its own on Firestore."""
    if not store.lists_by_index:
        return Finding("listing", "ok", "each listing reads all runs: this store has no index for it")
    try:
        for job_name in (None, PROBE_JOB):
            for status in (None, Status.COMPLETED):
                list(store.list_runs(Selection(job_name=job_name, status=status, limit=1)))
    except StoreUnavailable as unavailable:
        return Finding("listing", "warning", str(unavailable))
    return Finding("listing", "ok", "runs can be listed by job, by status, and by both")


def _ttl_findings(url: str) -> Iterator[Finding]:
    if not url.startswith("firestore"):
        yield Finding("ttl", "ok", "this store deletes old records by itself")
        return
    if os.environ.get("FIRESTORE_EMULATOR_HOST"):
        yield Finding("ttl", "unknown", "the emulator deletes no old records")
        return
    from dedup.stores.firestore import sees_ttl_policy

    try:
        seen = sees_ttl_policy(url)
    except StoreUnavailable as unavailable:
        yield Finding("ttl", "unknown", str(unavailable), "roles/datastore.viewer lets you see it")
        return
    if seen:
        yield Finding("ttl", "ok", "there is a TTL policy on expire_at")
    else:
        remedy = "apply terraform/, or see `python -m dedup store create`"
        yield Finding("ttl", "warning", "there is no TTL policy on expire_at, so records are kept for ever", remedy)


def _timed(call: Callable[[], T]) -> tuple[float, T]:
    began = time.monotonic()
    done = call()
    return time.monotonic() - began, done
