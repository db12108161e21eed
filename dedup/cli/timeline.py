"""Draws runs as one page of HTML that needs nothing else: no network, no server."""

from __future__ import annotations

import base64
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html import escape
from itertools import pairwise
from pathlib import Path
from statistics import median

import click

from dedup.cli.output import (
    JobName,
    Moment,
    duration_seconds,
    job_text,
    lease_left_seconds,
    open_given,
    printable,
    progress,
    rfc3339,
    seconds_text,
    status_text,
    store_options,
    write_json,
)
from dedup.record import Status
from dedup.stores import SeenRun
from dedup.stores.selection import Selection

BAR_PIXELS = 12
"""How wide the plot is made for each run of the busiest job, so that bars can be told apart; the page scrolls sideways."""
WIDEST_PIXELS = 30_000
LABEL_PIXELS = 80
GAP_FACTOR = 1.5
"""What is longer than so many times a job's usual interval is marked as a gap."""

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Gap:
    """A time without runs.

    Args:
        after: the last run before it.
        before: the first run after it, or the end of the page.
        usual: the job's usual interval, seconds.
    """

    after: datetime
    before: datetime
    usual: float


@click.command()
@click.option("--since", type=Moment(), default="24h", show_default=True, help="From when.")
@click.option("--until", type=Moment(), help="Until before when.  [default: now]")
@click.option("--job", type=JobName(), metavar="NAME", help="Only runs of this job.")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), default=Path("runs.html"), show_default=True)
@store_options
def timeline(since: datetime, until: datetime | None, job: str | None, output: Path, store: str | None, as_json: bool) -> None:
    """Draws a page with a row for each job and a bar for each run: outcome, lag, attempts and gaps.

    A duplicate writes nothing, so none is drawn: logs and metrics count them.
    """
    until = until if until is not None else datetime.now(UTC)
    if until <= since:
        raise click.UsageError("--until is not after --since")
    seen = []
    with progress(as_json=as_json) as step:
        for run in open_given(store).list_runs(Selection(job_name=job, since=since, until=until)):
            seen.append(run)
            step(run)
    try:
        output.write_text(page(seen, since, until), encoding="utf-8")
    except OSError as fault:
        raise click.BadParameter(f"{output}: {fault.strerror}", param_hint="--output") from None
    if as_json:
        write_json({"output": str(output), "runs": len(seen)})
    else:
        click.echo(f"{output}: {len(seen)} runs")


def page(seen: Sequence[SeenRun], since: datetime, until: datetime) -> str:
    """Makes the page. Whatever comes from a record is text in it, never markup.

    Args:
        seen: the runs, in any order; each has a scheduled time.
        since: the left edge.
        until: the right edge.
    """
    jobs: defaultdict[str, list[SeenRun]] = defaultdict(list)
    for run in sorted(seen, key=_scheduled):
        jobs[job_text(run.record)].append(run)
    style, script = (_HERE.joinpath(f"timeline.{kind}").read_text() for kind in ("css", "js"))
    # The page's own script is let through by its hash; one that came out of a record would not run even if it were markup.
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{_hash(script)}'"
    busiest = max((len(runs) for runs in jobs.values()), default=0)
    width = min(WIDEST_PIXELS, busiest * BAR_PIXELS)
    axis = _Axis(since, until, max(1000, width))
    title = f"Runs from {_moment(since)} to {_moment(until)}"
    counts = ", ".join(f"{number} {status}" for status, number in _counted(seen)) or "none"
    rows = "\n".join(_row(job, runs, axis) for job, runs in sorted(jobs.items()))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header>
<h1>{title}</h1>
<p>{len(seen)} runs of {len(jobs)} jobs: {counts}. Times are UTC. A duplicate writes nothing, so none is drawn.</p>
<ul class="legend" aria-label="Legend">
<li><i class="bar completed"></i>completed</li>
<li><i class="bar failed"></i>failed for good</li>
<li><i class="bar in-progress"></i>in progress</li>
<li><i class="bar abandoned"></i>lease over, or unreadable</li>
<li><i class="lag"></i>lag: from the scheduled time to the start</li>
<li><i class="gap"></i>gap: longer than the job's usual interval</li>
</ul>
<p>In a row, <kbd>←</kbd> <kbd>→</kbd> go from run to run, <kbd>Home</kbd> and <kbd>End</kbd> to the first and last.</p>
</header>
<main>
<div class="scroll" tabindex="0" role="region" aria-label="Time line">
<div class="plot" style="min-width:{width}px">
<div class="axis" aria-hidden="true">{axis.marks()}</div>
{rows}
</div>
</div>
<output id="about" aria-live="polite">Point at a bar, or step to it, to read about its run.</output>
<details>
<summary>All runs as a table</summary>
{_table(seen)}
</details>
</main>
<script>{script}</script>
</body>
</html>
"""


class _Axis:
    def __init__(self, since: datetime, until: datetime, pixels: int) -> None:
        self.since = since
        self.until = until
        self._most_labels = pixels // LABEL_PIXELS
        self._seconds = (until - since).total_seconds()

    def at(self, moment: datetime) -> float:
        """Where a moment is, in percent, between the edges."""
        return min(100.0, max(0.0, (moment - self.since).total_seconds() / self._seconds * 100))

    def marks(self) -> str:
        """Labels at round times."""
        steps = [60, 300, 900, 3600, 3 * 3600, 6 * 3600, 86400, 7 * 86400, 30 * 86400]
        step = next((step for step in steps if self._seconds / step <= self._most_labels), 365 * 86400)
        form = "%H:%M" if step < 86400 else "%Y-%m-%d"
        first = datetime.fromtimestamp((self.since.timestamp() // step + 1) * step, UTC)
        times = [first + timedelta(seconds=step * number) for number in range(self._most_labels + 1)]
        labels = [
            f'<span style="left:{self.at(time):.3f}%">{time:%d %b} {time:%H:%M}</span>'
            if step < 86400 and time.hour == time.minute == 0
            else f'<span style="left:{self.at(time):.3f}%">{time.strftime(form)}</span>'
            for time in times
            if time < self.until
        ]
        return "".join(labels)


def _row(job: str, runs: list[SeenRun], axis: _Axis) -> str:
    name = escape(printable(job))
    gaps = "".join(_gap(gap, axis) for gap in gaps_of([_scheduled(run) for run in runs], axis.until))
    bars = "\n".join(_bar(run, axis, first=number == 0) for number, run in enumerate(runs))
    return f"""<section class="job" aria-label="{name}">
<h2><span>{name}</span></h2>
<div class="row">
{gaps}
<div role="listbox" aria-label="Runs of {name}" aria-orientation="horizontal">
{bars}
</div>
</div>
</section>"""


def gaps_of(times: Sequence[datetime], until: datetime) -> list[Gap]:
    """The times without runs that are longer than usual, of a job that has at least three intervals to tell that by.

    Args:
        times: when the job's runs were scheduled, in order.
        until: the end of what was looked at.
    """
    intervals = [(later - earlier).total_seconds() for earlier, later in pairwise(times)]
    if len(intervals) < 3:
        return []
    usual = median(intervals)
    ends = zip(times, [*times[1:], until], strict=True)
    return [Gap(after, before, usual) for after, before in ends if (before - after).total_seconds() > GAP_FACTOR * usual > 0]


def _gap(gap: Gap, axis: _Axis) -> str:
    begins = axis.at(gap.after + timedelta(seconds=gap.usual / 2))
    width = axis.at(gap.before) - begins
    length = seconds_text((gap.before - gap.after).total_seconds())
    told = f"no run for {length} after {_moment(gap.after)}; the usual interval is {seconds_text(gap.usual)}"
    return f'<i class="gap" role="img" style="left:{begins:.3f}%;width:{width:.3f}%" title="{told}" aria-label="{told}"></i>'


def _bar(run: SeenRun, axis: _Axis, *, first: bool) -> str:
    record = run.record
    scheduled = _scheduled(run)
    started = max(scheduled, record.claimed_at) if record.claimed_at is not None else scheduled
    ended = started + timedelta(seconds=duration_seconds(run) or 0)
    left, width = axis.at(started), axis.at(ended) - axis.at(started)
    lag_left = axis.at(scheduled)
    told = escape(_told(run))
    attempts = f"<b>{record.attempts}</b>" if record.attempts > 1 else ""
    lag = (
        f'<i class="lag" aria-hidden="true" style="left:{lag_left:.3f}%;width:{left - lag_left:.3f}%"></i>'
        if left - lag_left > 0.01
        else ""
    )
    return (
        f'{lag}<span class="bar {_outcome(run)}" role="option" aria-selected="false" tabindex="{0 if first else -1}" '
        f'style="left:{left:.3f}%;width:{width:.3f}%" aria-label="{told}" title="{told}">{attempts}</span>'
    )


def _told(run: SeenRun) -> str:
    record = run.record
    parts = [f"{printable(job_text(record))} of {_moment(_scheduled(run))}: {_outcome(run).replace('-', ' ')}"]
    if record.claimed_at is not None:
        parts.append(f"started {seconds_text(max(0.0, (record.claimed_at - _scheduled(run)).total_seconds()))} after its time")
    if (seconds := duration_seconds(run)) is not None:
        parts.append(f"took {seconds_text(seconds)}")
    parts.append(f"attempt {record.attempts}")
    if said := record.result or record.error:
        parts.append(printable(said))
    return "; ".join(parts)


def _outcome(run: SeenRun) -> str:
    """A run's outcome, which is its bar's class too."""
    if run.record.status in (Status.COMPLETED, Status.FAILED):
        return str(run.record.status.value)
    left = lease_left_seconds(run)
    return "in-progress" if run.record.status is not None and left is not None and left > 0 else "abandoned"


def _counted(seen: Iterable[SeenRun]) -> list[tuple[str, int]]:
    counts: defaultdict[str, int] = defaultdict(int)
    for run in seen:
        counts[_outcome(run).replace("-", " ")] += 1
    return sorted(counts.items())


def _table(seen: Sequence[SeenRun]) -> str:
    heads = "".join(f'<th scope="col">{head}</th>' for head in ("Job", "Scheduled", "Status", "Attempts", "Duration", "Result"))
    rows = "\n".join(
        "<tr>" + "".join(f"<td>{escape(printable(cell))}</td>" for cell in _cells(run)) + "</tr>"
        for run in sorted(seen, key=_scheduled, reverse=True)
    )
    return f"<table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>"


def _cells(run: SeenRun) -> list[str]:
    record = run.record
    said = record.result or record.error or ""
    duration = seconds_text(duration_seconds(run))
    return [job_text(record), _moment(_scheduled(run)), status_text(record), str(record.attempts), duration, said]


def _scheduled(run: SeenRun) -> datetime:
    assert run.record.schedule_time is not None  # a listing leaves the others out
    return run.record.schedule_time


def _moment(moment: datetime) -> str:
    return rfc3339(moment.replace(microsecond=0)).replace("T", " ").removesuffix("Z")


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
