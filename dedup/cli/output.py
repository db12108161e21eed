"""What the commands read, and how they print."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from urllib.parse import unquote

import click

from dedup.delivery import BadDelivery, Delivery, is_job_name, parse_schedule_time
from dedup.record import RunRecord, Status
from dedup.settings import Settings
from dedup.stores import Inspectable, SeenRun, open_store

NO = 1
UNREACHABLE = 3
REFUSED = 4
BROKEN = 70
INTERRUPTED = 130
CLOSED_PIPE = 141

PAGE = 50
"""Rows that a table at a terminal takes at once, to find its widths."""
PROGRESS = 1000
"""A listing says how far it is after so many runs."""

EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(3000, 1, 1, tzinfo=UTC)
"""What lies outside is a slip of the finger, and near where dates overflow."""
LONGEST_SECONDS = 10**9
NO_JOB_NAME = "{!r} is not a job's id: it has 1 to 500 letters, digits, - and _"

Command = TypeVar("Command", bound=Callable[..., Any])

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


class Refused(click.ClickException):
    """Nothing was changed. The message says why, and what to do."""

    exit_code = REFUSED


class NotThere(click.ClickException):
    """There is no such run."""

    exit_code = NO


# What is read.


class Moment(click.ParamType):  # type: ignore[type-arg]
    """An RFC 3339 time, or an age such as `24h`, counted back from this machine's clock."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Reads it; UTC."""
        if isinstance(value, datetime):
            return value
        with suppress(ValueError):
            return datetime.now(UTC) - timedelta(seconds=read_seconds(value))
        try:
            moment = parse_schedule_time(value)[0]
        except BadDelivery:
            moment = EARLIEST
        if not EARLIEST < moment < LATEST:
            self.fail(
                f"{value!r} is neither a time with an offset, such as 2026-10-16T12:00:00Z, nor an age, such as 24h", param, ctx
            )
        return moment


class JobName(click.ParamType):  # type: ignore[type-arg]
    """A job's id."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Reads it."""
        return str(value) if is_job_name(value) else self.fail(NO_JOB_NAME.format(value), param, ctx)


class Duration(click.ParamType):  # type: ignore[type-arg]
    """Seconds: `5`, `5s`, `2m`, `1h30m`."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Reads it; seconds."""
        if isinstance(value, int | float):
            return float(value)
        try:
            return read_seconds(f"{value}s" if re.fullmatch(r"[0-9.]+", value) else value)
        except ValueError as fault:
            self.fail(str(fault), param, ctx)


def read_seconds(text: str) -> float:
    """Reads a length of time such as `24h` or `1h30m`.

    Raises:
        ValueError: it is none.
    """
    if not re.fullmatch(r"(?:[0-9]+(?:\.[0-9]+)?[smhdw])+", text):
        raise ValueError(f"{text!r} is not a length of time, such as 5s, 2m or 1h30m")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"([0-9.]+)([smhdw])", text))
    if seconds > LONGEST_SECONDS:
        raise ValueError(f"{text!r} is longer than thirty years")
    return seconds


def store_options(command: Command) -> Command:
    """Adds --store and --json, which may stand before the command too."""
    help_ = "Instead of the store that DEDUP_STORE names."
    return click.option("--store", metavar="URL", callback=_or_before, help=help_)(json_option(command))


def json_option(command: Command) -> Command:
    """Adds --json, which may stand before the command too."""
    help_ = "One JSON object a line, and nothing else."
    return click.option("--json", "as_json", is_flag=True, callback=_or_before, help=help_)(command)


def _or_before(ctx: click.Context, param: click.Parameter, value: str | bool | None) -> str | bool | None:
    """What was given after the command's name, else what was given before it."""
    return ctx.find_root().params.get(param.name or "", value) if value is None or value is False else value


def scope_option(command: Command) -> Command:
    """Adds --scope."""
    help_ = "Where DEDUP_SCOPE is set: the run's scope as `runs` shows it, such as prod/europe-west1."
    return click.option("--scope", metavar="PART/PART", default="", help=help_)(command)


def read_settings(url: str | None) -> Settings:
    """The environment's settings, with another store where one is given.

    Raises:
        SettingsError: they are wrong.
    """
    return Settings.from_environment({**os.environ, "DEDUP_STORE": url} if url else os.environ)


def open_given(url: str | None) -> Inspectable:
    """Opens the store that the settings name.

    Raises:
        SettingsError: the environment is wrong.
    """
    return open_store(read_settings(url).store)


def delivery_of(job: str, time: str, scope: str) -> Delivery:
    """The run that a job's name, its time and scope stand for."""
    try:
        schedule_time, fraction = parse_schedule_time(time)
    except BadDelivery as refusal:
        raise click.BadParameter(str(refusal).removeprefix("X-CloudScheduler-ScheduleTime "), param_hint="TIME") from None
    if not is_job_name(job):
        raise click.BadParameter(NO_JOB_NAME.format(job), param_hint="JOB")
    delivery = Delivery(job, schedule_time, scope_parts(scope), fraction)
    try:
        _ = delivery.run_id
    except UnicodeEncodeError:
        raise click.BadParameter(f"{scope!r} is no text", param_hint="--scope") from None
    return delivery


def run_id_of(run: str, time: str | None, scope: str) -> str:
    """What a command's `RUN_ID`, or `JOB TIME`, stands for."""
    if time is not None:
        return delivery_of(run, time, scope).run_id
    if not re.fullmatch(r"[0-9a-f]{64}", run):
        raise click.UsageError(f"{run!r} is not a run_id (64 hex digits): name the run by it, or by JOB TIME")
    return run


def delivery_that_made(seen: SeenRun) -> Delivery | None:
    """The delivery by Cloud Scheduler's headers that stands for a run; None: it was forced by hand, or came in another way."""
    record = seen.record
    if record.job_name is None or record.schedule_time is None:
        return None
    fraction = f"{record.schedule_time.microsecond:06}".rstrip("0")
    delivery = Delivery(record.job_name, record.schedule_time, scope_parts(record.scope or ""), fraction)
    return delivery if delivery.run_id == seen.run_id else None


def scope_parts(scope: str) -> tuple[str, ...]:
    """The parts of a scope as a record has it."""
    return tuple(unquote(part) for part in scope.split("/")) if scope else ()


def find(store: Inspectable, run: str, time: str | None, scope: str) -> SeenRun:
    """Reads the run that a command names."""
    run_id = run_id_of(run, time, scope)
    record, now = store.look_up(run_id)
    if record is None:
        what = f"{run} of {time}" if time is not None else "this run"
        raise NotThere(
            f"no record of {what} (run_id {run_id}): it was never delivered, or each attempt failed and gave it back, or its "
            "record was deleted after its time; one that was forced by hand may be there by its RUN_ID alone, see runs"
            + ("" if scope or time is None else "; where DEDUP_SCOPE is set, name its --scope")
        )
    return SeenRun(run_id, record, now)


# How it is printed.


def rfc3339(moment: datetime) -> str:
    """A time in UTC, as Cloud Scheduler writes it."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def write_json(what: dict[str, Any]) -> None:
    """Prints one object on a line of its own."""
    click.echo(json.dumps(what, default=lambda value: rfc3339(value) if isinstance(value, datetime) else str(value)))


def as_fields(seen: SeenRun) -> dict[str, Any]:
    """A run by the names of its record's fields, and what follows from them."""
    record = {field.name: getattr(seen.record, field.name) for field in fields(RunRecord)}
    return {
        "run_id": seen.run_id,
        **record,
        "duration_seconds": duration_seconds(seen),
        "lease_left_seconds": lease_left_seconds(seen),
    }


def duration_seconds(seen: SeenRun) -> float | None:
    """How long the last attempt took, or takes by now."""
    record = seen.record
    ended_at = seen.seen_at if record.status is Status.IN_PROGRESS else record.finished_at
    if record.claimed_at is None or ended_at is None:
        return None
    return max(0.0, round((ended_at - record.claimed_at).total_seconds(), 3))


def lease_left_seconds(seen: SeenRun) -> float | None:
    """How long the run is held yet, by the store's clock; below 0, it may be taken over. None: the run is over."""
    if seen.record.status in (Status.COMPLETED, Status.FAILED):
        return None
    return round((seen.record.live_until - seen.seen_at).total_seconds(), 3)


def status_text(record: RunRecord) -> str:
    """A status for people."""
    return record.status.value.replace("_", " ") if record.status is not None else "unreadable"


def job_text(record: RunRecord) -> str:
    """A job with its scope."""
    name = record.job_name or "-"
    return f"{name} ({record.scope})" if record.scope else name


def seconds_text(seconds: float | None) -> str:
    """A length of time in the one or two units that matter."""
    if seconds is None:
        return "-"
    if 0 < abs(seconds) < 1:
        return f"{seconds * 1000:.0f} ms"
    if round(abs(seconds), 1) < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(abs(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "m"), (rest, "s")]
    first = next(index for index, (number, _) in enumerate(parts) if number)
    text = " ".join(f"{number}{unit}" for number, unit in parts[first : first + 2] if number)
    return f"-{text}" if seconds < 0 else text


def lease_text(seen: SeenRun) -> str:
    """What is left of a lease."""
    left = lease_left_seconds(seen)
    return "-" if left is None else seconds_text(left) if left > 0 else "over"


def printable(text: str) -> str:
    """A text from a record with nothing in it that a terminal would obey."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def coloured() -> bool:
    """Whether standard output is a terminal that may be given colours."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Args:
        title: its head.
        width: characters that it is padded to in plain text.
        cut_at: characters that are printed at most; None: all.
    """

    title: str
    width: int
    cut_at: int | None = None

    def cell(self, text: str) -> str:
        """What is printed of a text: the same at a terminal as in a pipe."""
        shown = printable(text)
        return shown if self.cut_at is None or len(shown) <= self.cut_at else f"{shown[: self.cut_at - 3]}..."


_STYLES = {"completed": "green", "done": "green", "failed": "red", "missing": "red", "abandoned": "red", "unreadable": "red"}
_STYLES |= {
    "in progress": "yellow",
    "late": "yellow",
    "uncertain": "yellow",
    "unknown": "yellow",
    "fault": "red",
    "warning": "yellow",
}
_STYLES |= {"ok": "green"}


class Table:
    """Rows that are printed as they come: by rich at a terminal, where it is installed, else as plain text."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = columns
        self._rows: list[list[str]] = []
        self._begun = False
        self._rich = sys.stdout.isatty() and _rich_is_there()

    def add(self, *cells: str) -> None:
        """Prints a row, or keeps it for its page."""
        row = [column.cell(text) for column, text in zip(self._columns, cells, strict=True)]
        if self._rich:
            self._rows.append(row)
            if len(self._rows) == PAGE:
                self._print_page()
        else:
            if not self._begun:
                self._print_plain([column.title for column in self._columns])
            self._print_plain(row)

    def close(self) -> None:
        """Prints what is left."""
        if self._rows:
            self._print_page()

    def _print_plain(self, row: list[str]) -> None:
        self._begun = True
        padded = [cell.ljust(column.width) for cell, column in zip(row, self._columns, strict=True)]
        click.echo("  ".join(padded).rstrip())

    def _print_page(self) -> None:
        from rich import box
        from rich.console import Console
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
        for column in self._columns:
            table.add_column(column.title, overflow="fold")
        for row in self._rows:
            table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
        Console(no_color=not coloured(), highlight=False).print(table)
        self._rows.clear()


def _rich_is_there() -> bool:
    from importlib.util import find_spec

    return find_spec("rich") is not None


@contextmanager
def progress(*, as_json: bool) -> Iterator[Callable[[SeenRun], None]]:
    """Says on one line of a terminal how far a long listing is, where the listing itself goes elsewhere."""
    shown = sys.stderr.isatty() and not sys.stdout.isatty() and not as_json
    count = 0

    def step(seen: SeenRun) -> None:
        nonlocal count
        count += 1
        if shown and count % PROGRESS == 0:
            back_to = rfc3339(seen.record.schedule_time) if seen.record.schedule_time is not None else "?"
            click.echo(f"\r{count:,} runs, back to {back_to}", nl=False, err=True)

    try:
        yield step
    finally:
        if shown and count >= PROGRESS:
            click.echo("\r\033[K", nl=False, err=True)
