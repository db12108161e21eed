"""Behaves as Cloud Scheduler does, towards any URL."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import click

from dedup.cli.output import NO, Duration, json_option, printable, rfc3339, seconds_text, write_json
from dedup.cli.scheduler import Attempt, Clock, RetryPolicy, attempts, headers_of, send, unsigned_token
from dedup.delivery import BadDelivery, parse_schedule_time

DEFAULTS = RetryPolicy()
FASTEST = 1e6


@dataclass(frozen=True)
class Tick:
    """A run that is due.

    Args:
        time: its scheduled time.
        due_at: when it is delivered, in seconds of the simulation's clock.
        forced: by hand, ahead of that time.
    """

    time: datetime
    due_at: float
    forced: bool = False


@dataclass
class Simulation:
    """One Cloud Scheduler job.

    Args:
        job: its id.
        url: its target.
        headers: what is sent besides Cloud Scheduler's own.
        body: likewise.
        policy: its retries.
        clock: by which it goes.
        gap: seconds from one tick to the next; None: there is one tick only.
        next_tick: `end` or `skip`.
        duplicated: the attempts that arrive twice.
        unheard: the attempts whose answers get lost.
        as_json: how all of it is told.
    """

    job: str
    url: str
    headers: dict[str, str]
    body: bytes
    policy: RetryPolicy
    clock: Clock
    gap: float | None
    next_tick: str
    duplicated: frozenset[int]
    unheard: frozenset[int]
    as_json: bool
    busy_until: float = 0.0
    """Until when the last run was retried."""

    def run(self, tick: Tick) -> bool:
        """Delivers a tick's run, as often as it takes, and says whether it was done."""
        if self.next_tick == "skip" and self.busy_until > tick.due_at:
            _print_skipped(tick, self.job, as_json=self.as_json)
            return False
        self.clock.wait(tick.due_at - self.clock.now())
        time = rfc3339(tick.time)
        if not self.as_json:
            click.echo(f"{self.job} of {time}{', forced by hand' if tick.forced else ''}, to {self.url}")
        headers = {**headers_of(self.job, time), **self.headers}
        made = None
        for made in attempts(
            lambda: send(self.url, headers, self.body, self.policy.attempt_deadline / self.clock.fast),
            self.policy,
            self.clock,
            next_tick=self.gap if self.next_tick == "end" else None,
            duplicated=self.duplicated,
            unheard=self.unheard,
        ):
            _print_attempt(made, tick, self.job, as_json=self.as_json)
        if not tick.forced:
            self.busy_until = self.clock.now()
        return made is not None and made.done


@click.command()
@click.argument("url", default="http://127.0.0.1:8080")
@click.option("--job", default="nightly", show_default=True, metavar="NAME", help="The job's id.")
@click.option("--time", "first", metavar="TIME", help="The first run's scheduled time.  [default: this minute]")
@click.option("--ticks", type=click.IntRange(min=1), default=1, show_default=True, help="How many runs.")
@click.option("--interval", type=Duration(), help="From one tick to the next.  [default: none, or 60s for several ticks]")
@click.option("--retry-count", type=click.IntRange(0, 5), default=DEFAULTS.retry_count, show_default=True)
@click.option("--max-retry-duration", type=Duration(), default=DEFAULTS.max_retry_duration, show_default="0: by the count")
@click.option("--min-backoff", type=Duration(), default=DEFAULTS.min_backoff, show_default="5s")
@click.option("--max-backoff", type=Duration(), default=DEFAULTS.max_backoff, show_default="1h")
@click.option("--max-doublings", type=click.IntRange(min=0), default=DEFAULTS.max_doublings, show_default=True)
@click.option("--attempt-deadline", type=Duration(), default=DEFAULTS.attempt_deadline, show_default="3m")
@click.option(
    "--next-tick",
    type=click.Choice(["end", "skip"]),
    default="end",
    show_default=True,
    help="What a tick does that comes while a run is being retried: Google documents both, that it ends the retries, and that "
    "it is skipped.",
)
@click.option("--duplicate", "duplicated", type=int, multiple=True, metavar="N", help="Attempt N arrives twice at once.")
@click.option("--lose-reply", "unheard", type=int, multiple=True, metavar="N", help="The answer to attempt N gets lost.")
@click.option(
    "--manual", is_flag=True, help="Force the first run by hand before its tick comes, as `gcloud scheduler jobs run` does."
)
@click.option("--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="Another header.")
@click.option("--message-body", default="", metavar="TEXT", help="What is sent.")
@click.option(
    "--oidc-service-account-email",
    "email",
    metavar="EMAIL",
    help="Send a token in Google's shape in its name; it isn't signed.",
)
@click.option(
    "--fast", type=click.FloatRange(min=0, min_open=True), default=1, show_default=True, help="Run the clock N times as fast."
)
@json_option
@click.pass_context
def simulate(
    ctx: click.Context,
    url: str,
    job: str,
    first: str | None,
    ticks: int,
    interval: float | None,
    retry_count: int,
    max_retry_duration: float,
    min_backoff: float,
    max_backoff: float,
    max_doublings: int,
    attempt_deadline: float,
    next_tick: str,
    duplicated: tuple[int, ...],
    unheard: tuple[int, ...],
    manual: bool,
    headers: tuple[str, ...],
    message_body: str,
    email: str | None,
    fast: float,
    as_json: bool,
) -> None:
    """Delivers runs to URL as Cloud Scheduler does, and prints each attempt. Exit code 0: all were done.

    The options have Cloud Scheduler's own names and defaults. With --fast all its times are shorter, the attempt deadline too.
    """
    _check_url(url)
    if not fast <= FASTEST:  # not a number isn't either
        raise click.BadParameter(f"{fast:g} is more than {FASTEST:g}", param_hint="--fast")
    _check_sendable("--job", job)
    if max_backoff < min_backoff:
        raise click.UsageError(f"--max-backoff ({max_backoff:g} s) is below --min-backoff ({min_backoff:g} s)")
    policy = RetryPolicy(attempt_deadline, retry_count, max_retry_duration, min_backoff, max_backoff, max_doublings)
    begins_at = _first_time(first, manual=manual)
    sent = dict(_read_header(text) for text in headers)
    if email is not None:
        sent["Authorization"] = f"Bearer {unsigned_token(email, url, datetime.now(UTC))}"
    gap = interval if interval is not None else 60.0 if ticks > 1 else None
    simulation = Simulation(
        job,
        url,
        sent,
        message_body.encode(),
        policy,
        Clock(fast),
        gap,
        next_tick,
        frozenset(duplicated),
        frozenset(unheard),
        as_json,
    )
    done = [simulation.run(tick) for tick in _ticks(begins_at, ticks, gap or 0.0, manual=manual)]
    if not all(done):
        ctx.exit(NO)


def _ticks(begins_at: datetime, number: int, gap: float, *, manual: bool) -> list[Tick]:
    """The runs that are due. One forced by hand comes now, its tick at its own time, by which they can be told apart."""
    ahead = max(0.0, (begins_at - datetime.now(UTC)).total_seconds()) if manual else 0.0
    due = [Tick(begins_at + timedelta(seconds=gap * n), ahead + gap * n) for n in range(number)]
    return [Tick(begins_at, 0.0, forced=True), *due] if manual else due


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and url.isascii() and url.isprintable()
    except ValueError:  # the port is no number, or too high
        good = False
    if not good:
        raise click.BadParameter(f"{url!r} is not an http or https URL", param_hint="URL")


def _check_sendable(option: str, text: str) -> None:
    if not (text.isascii() and text.isprintable()):
        raise click.BadParameter(f"{text!r} can't stand in a header", param_hint=option)


def _first_time(text: str | None, *, manual: bool) -> datetime:
    """The first tick's time. A run that is forced by hand carries the time of the tick that comes next."""
    if text is None:
        this_minute = datetime.now(UTC).replace(second=0, microsecond=0)
        return this_minute + timedelta(minutes=2) if manual else this_minute
    try:
        return parse_schedule_time(text)[0]
    except BadDelivery as refusal:
        raise click.BadParameter(str(refusal).removeprefix("X-CloudScheduler-ScheduleTime "), param_hint="--time") from None


def _read_header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not re.fullmatch(r"[A-Za-z0-9_-]+", name.strip()):
        raise click.BadParameter(f"{text!r} is not a header, such as 'X-Job-Project: prod'", param_hint="--header")
    _check_sendable("--header", text)
    return name.strip(), value.strip()


def _print_attempt(attempt: Attempt, tick: Tick, job: str, *, as_json: bool) -> None:
    if as_json:
        for answer in attempt.answers:
            write_json(
                {
                    "job_name": job,
                    "schedule_time": tick.time,
                    "forced": tick.forced,
                    "attempt": attempt.number,
                    "at_seconds": round(attempt.at, 3),
                    "status": answer.status,
                    "body": answer.body,
                    "lost": attempt.lost,
                    "done": attempt.done,
                    "wait_seconds": attempt.wait,
                }
            )
        return
    for answer in attempt.answers:
        said = f"{answer.status} {answer.body}" if answer.status is not None else answer.body
        lost = "  (lost on its way)" if attempt.lost else ""
        click.echo(f"  +{attempt.at:<8.1f} attempt {attempt.number}  {printable(said.strip()[:200])}{lost}")
    if attempt.wait is not None:
        click.echo(f"  {'':9} retry in {seconds_text(attempt.wait)}")
    else:
        click.echo(f"  {'':9} {'done' if attempt.done else f'not done: {attempt.ended}'}")


def _print_skipped(tick: Tick, job: str, *, as_json: bool) -> None:
    if as_json:
        write_json({"job_name": job, "schedule_time": tick.time, "skipped": True})
    else:
        click.echo(f"{job} of {rfc3339(tick.time)}\n  {'':9} skipped: the run before it was still being retried")
