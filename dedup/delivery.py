"""Reads a request as one delivery of a scheduled run, and refuses what can't be one.

The two headers are documented on Google's page "Deduplicate job requests":
https://docs.cloud.google.com/scheduler/docs/configuring/deduplicate-job-requests. They are not authenticated, their case
varies, and neither project nor region is among them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from flask import Request

JOB_NAME_HEADER = "X-CloudScheduler-JobName"
SCHEDULE_TIME_HEADER = "X-CloudScheduler-ScheduleTime"
IDEMPOTENCY_KEY_HEADER = "Idempotency-Key"

MANUAL_IS_AHEAD_BY = timedelta(minutes=1)
"""A tick arrives at its time or later; only a run that was forced by hand is this far ahead of it."""

_JOB_NAME = re.compile(r"[A-Za-z0-9_-]{1,500}")
_IDEMPOTENCY_KEY = re.compile(r"[\x21\x23-\x2b\x2d-\x5b\x5d-\x7e]{1,255}")
"""What can be seen, but for the comma of a repeated header and what quoting takes."""
_SCHEDULE_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(?P<fraction>\d{1,9}))?"
    r"(?:[Zz]|(?P<sign>[+-])(?P<hours>\d\d):(?P<minutes>\d\d))",
    re.ASCII,
)


class ManualRuns(StrEnum):
    """What a run that was forced by hand, which carries the next tick's time, stands for."""

    SHARE = "share"
    """That tick, which is then skipped: what Google documents."""
    SEPARATE = "separate"
    """Itself: the tick still runs."""
    REFUSE = "refuse"


class BadDelivery(Exception):
    """The request isn't a delivery. The message names the header, the fault, and an example."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One delivery of one scheduled run.

    Args:
        job_name: the job's id, without project and location.
        schedule_time: aware, UTC; cut to microseconds.
        scope: what else tells this job from others of the same id.
        fraction: the digits of the second's fraction, up to nine, without trailing zeros.
        manual: it was forced by hand, and stands for itself.
        idempotency_key: the caller's token, of a call that isn't Cloud Scheduler's; `job_name` is the service's name then.
    """

    job_name: str
    schedule_time: datetime
    scope: tuple[str, ...] = ()
    fraction: str = ""
    manual: bool = False
    idempotency_key: str = ""

    @property
    def key(self) -> str:
        """What is hashed: `JOB_NAME/TIME` as in the documented example, after the scope's parts, percent-encoded."""
        if self.idempotency_key:  # the colon can't stand at this place in any job's key
            return f"{IDEMPOTENCY_KEY_HEADER}:/{self.job_name}/{self.idempotency_key}"
        time = self.schedule_time.replace(microsecond=0, tzinfo=None).isoformat()
        fraction = f".{self.fraction}" if self.fraction else ""
        manual = ["manual"] if self.manual else []
        return "/".join([*self.scope_parts, self.job_name, f"{time}{fraction}Z", *manual])

    @property
    def scope_parts(self) -> list[str]:
        """The scope, percent-encoded: no part can pass for two."""
        return [quote(part, safe="") for part in self.scope]

    @property
    def run_id(self) -> str:
        """The run's id, and the idempotency token for every call that the job makes: 64 hex digits."""
        return hashlib.sha256(self.key.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class ScopePart:
    """Where one part of the scope is read from.

    Args:
        source: `header`, `query` or `path`.
        name: of the header or the query parameter.
    """

    source: str
    name: str = ""

    @classmethod
    def parse(cls, text: str) -> ScopePart:
        """Reads `header:NAME`, `query:NAME` or `path`.

        Raises:
            ValueError: it is none of them.
        """
        source, colon, name = text.strip().partition(":")
        named = source in ("header", "query") and re.fullmatch(r"[A-Za-z0-9_.-]+", name)
        if not named and (source, colon) != ("path", ""):
            raise ValueError(f"{text!r} is not a part of a scope: write header:NAME, query:NAME or path")
        return cls(source, name)

    def read(self, request: Request) -> str:
        """Takes this part from a request.

        Raises:
            BadDelivery: the request doesn't have it.
        """
        if self.source == "path":
            return request.path
        values = self._values(request)
        what = f"{'header' if self.source == 'header' else 'query parameter'} {self.name}"
        if not any(values):
            raise BadDelivery(f"{what} is missing: DEDUP_SCOPE says that it is part of the run's key")
        if len(values) > 1:
            raise BadDelivery(f"{what} was sent more than once: it is part of the run's key, send one")
        return values[0]

    def _values(self, request: Request) -> list[str]:
        if self.source == "header":
            values = request.headers.get(self.name, "").split(",")  # how a header that was sent twice arrives
        else:
            try:
                values = request.args.getlist(self.name)
            except UnicodeDecodeError:  # of a query with raw bytes
                values = []
        return [value.strip() for value in values]


def from_request(
    request: Request,
    *,
    scope: Sequence[ScopePart] = (),
    manual_runs: ManualRuns = ManualRuns.SHARE,
    now: datetime,
) -> Delivery:
    """Reads Cloud Scheduler's two headers, without regard to their case.

    Args:
        request: a Flask request.
        scope: what else belongs to the run's key.
        manual_runs: what a run forced by hand stands for. It is told from a tick by `now`, so that under `SEPARATE` and
            `REFUSE` a clock that is minutes slow takes ticks for runs forced by hand, and one that is fast the reverse.
        now: this instance's clock, aware; without influence under `SHARE`.

    Raises:
        BadDelivery: a header is missing, blank, repeated or malformed, or the run is a forced one and those are refused.
    """
    job_name = _header(request, JOB_NAME_HEADER, example="nightly")
    if not is_job_name(job_name):
        raise BadDelivery(
            f"{JOB_NAME_HEADER} {_shown(job_name)} is not a job's id: it has 1 to 500 letters, digits, - and _, such as nightly"
        )
    text = _header(request, SCHEDULE_TIME_HEADER, example="2026-10-16T12:00:00Z")
    schedule_time, fraction = parse_schedule_time(text)
    manual = manual_runs is not ManualRuns.SHARE and schedule_time - now > MANUAL_IS_AHEAD_BY
    if manual and manual_runs is ManualRuns.REFUSE:
        raise BadDelivery(
            f"{SCHEDULE_TIME_HEADER} {_shown(text)} is ahead of the clock, so the run was forced by hand: "
            "DEDUP_MANUAL_RUNS=refuse refuses that"
        )
    return Delivery(job_name, schedule_time, tuple(part.read(request) for part in scope), fraction, manual)


def from_idempotency_key(request: Request, service: str, *, now: datetime | None = None) -> Delivery:
    """Reads a call's `Idempotency-Key` in place of Cloud Scheduler's headers, so that a service does each call's work once.

    The service's name is hashed with the key. Where caller and service keep their runs in one database, the caller's own
    record is in progress under that key, and must not block the work that it waits for.

    Args:
        request: a Flask request. The key is 1 to 255 visible ASCII characters, bare, or quoted as in the IETF's draft.
        service: what this service is called, by the rules of a job's id; it is `run.job_name`.
        now: when the call arrived, aware; it is `run.schedule_time`, for people. None: by this instance's clock.

    Raises:
        BadDelivery: the key is missing, blank, repeated or malformed.
        ValueError: the service's name is none.
    """
    if not is_job_name(service):
        raise ValueError(f"{service!r} is not a service's name: it has 1 to 500 letters, digits, - and _, such as billing")
    example = "7b9d0f3e-5f0a-4c8e-9a51-2d1c8c1f6f0e"
    text = _header(request, IDEMPOTENCY_KEY_HEADER, example=example, sender="the caller")
    key = text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
    if not _IDEMPOTENCY_KEY.fullmatch(key):
        raise BadDelivery(
            f"{IDEMPOTENCY_KEY_HEADER} {_shown(text)} is not a key: it has 1 to 255 visible ASCII characters, such as {example}"
        )
    return Delivery(service, now if now is not None else datetime.now(UTC), idempotency_key=key)


def is_job_name(text: str) -> bool:
    """Whether a job of Cloud Scheduler can be called so."""
    return _JOB_NAME.fullmatch(text) is not None


def _header(request: Request, name: str, *, example: str, sender: str = "Cloud Scheduler") -> str:
    value = request.headers.get(name)
    if value is None:
        raise BadDelivery(f"{name} is missing: {sender} sends it, such as {name}: {example}")
    value = value.strip()
    if not value:
        raise BadDelivery(f"{name} is blank: it must say something, such as {name}: {example}")
    if "," in value:  # how a header that was sent twice arrives; no header's own value has a comma
        raise BadDelivery(f"{name} was sent more than once, as {_shown(value)}: send one, such as {name}: {example}")
    return value


def parse_schedule_time(text: str) -> tuple[datetime, str]:
    """Reads an RFC 3339 date-time into UTC, and its fraction's digits.

    Raises:
        BadDelivery: it is none, or has no offset, or doesn't exist.
    """
    match = _SCHEDULE_TIME.fullmatch(text)
    if match is None:
        raise BadDelivery(
            f"{SCHEDULE_TIME_HEADER} {_shown(text)} is not an RFC 3339 time with an offset, such as 2026-10-16T12:00:00Z "
            "or 2026-10-16T05:00:00-07:00"
        )
    fraction = (match["fraction"] or "").rstrip("0")
    try:
        year, month, day, hour, minute, second = map(int, match.groups()[:6])
        microsecond = int(fraction[:6].ljust(6, "0"))
        moment = datetime(year, month, day, hour, minute, second, microsecond, _offset(match)).astimezone(UTC)
    except (ValueError, OverflowError) as fault:
        raise BadDelivery(
            f"{SCHEDULE_TIME_HEADER} {_shown(text)} does not exist ({fault}); a real time is 2026-10-16T12:00:00Z"
        ) from None
    return moment, fraction


def _offset(match: re.Match[str]) -> timezone:
    if match["sign"] is None:
        return UTC
    hours, minutes = int(match["hours"]), int(match["minutes"])
    if hours > 23 or minutes > 59:
        raise ValueError(f"no place is {match['sign']}{match['hours']}:{match['minutes']} from UTC")
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(-offset if match["sign"] == "-" else offset)


def _shown(value: str) -> str:
    """A value for an error message: escaped, and short."""
    return repr(value if len(value) <= 60 else f"{value[:60]}...")
