"""How far each store reaches: computes and simulates the tables of docs/scale.md.

    python -m benchmarks.scale           print them
    python -m benchmarks.scale --write   put them into docs/scale.md

Limits and prices are Google's as published; each has its source in docs/scale.md.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report import BEGIN, END, table
from dedup.stores.firestore import CLAIM_SECONDS

PAGE = Path(__file__).parent.parent / "docs" / "scale.md"

RUNS_PER_DAY = (1, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)
DAYS_PER_MONTH = 30
GIB = 2**30


@dataclass(frozen=True)
class Cost:
    """What one delivery is billed at Firestore, as the benchmark counts it."""

    reads: int = 0
    writes: int = 0
    deletes: int = 0


NEW_RUN = Cost(writes=2)
DUPLICATE = Cost(reads=1)
FAILURE = Cost(writes=1, deletes=1)
TTL = Cost(deletes=1)
"""The end of each record."""

DUPLICATES_PER_RUN = 0.01
FAILURES_PER_RUN = 0.01

PRICE_PER_READ, PRICE_PER_WRITE, PRICE_PER_DELETE = 0.06 / 100_000, 0.18 / 100_000, 0.02 / 100_000
PRICE_PER_GIB_MONTH = 0.18
"""Firestore Standard, nam5; no free quota, which a named database doesn't have."""
PRICE_PER_SCHEDULER_JOB = 0.10
"""Cloud Scheduler, a month."""
PRICE_PER_SPANNER_NODE_HOUR = 0.90
"""Spanner, one region."""

INDEXED_WRITES_PER_SECOND = 500
"""Firestore's limit for a collection with an index on a field that only rises."""
RAMP_START, RAMP_FACTOR, RAMP_SECONDS = 500, 1.5, 300
"""Firestore's rule for new traffic: 500 operations a second, half as much again every 5 minutes."""
JOBS_PER_REGION = 5_000
"""Cloud Scheduler's quota."""
RUNS_PER_JOB_AT_MOST = 1_440
SPANNER_WRITES_PER_NODE = 3_500
SPANNER_SMALLEST_NODE = 0.1

KEPT_DAYS = 2
"""A day of retention, and a day until TTL has deleted."""


# What a record takes.


def record_bytes() -> int:
    """A completed record's size by Firestore's rules, its entries in the three indexes included."""
    path = sum(len(part) + 1 for part in ("scheduler_runs", "0" * 64)) + 16
    texts = {"status": "completed", "attempt_id": "0" * 32, "job_name": "nightly-export", "result": "1234 rows"}
    numbers = ("lease_seconds", "attempts")
    times = ("lease_expires", "expire_at", "schedule_time", "claimed_at", "finished_at")
    fields = sum(len(name) + 1 + len(value) + 1 for name, value in texts.items())
    fields += sum(len(name) + 1 + 8 for name in (*numbers, *times))
    document = path + fields + 32
    indexed = (8, 8 + len(texts["job_name"]) + 1, 8 + len(texts["status"]) + 1)
    return document + sum(path + 32 + value for value in indexed)


# A day, simulated: when the runs fall due.


@dataclass(frozen=True)
class Share:
    """Some of the runs.

    Args:
        of_runs: their part of all.
        every_minutes: how often their jobs run; all at the first second of that minute.
    """

    of_runs: float
    every_minutes: int


MIX = (Share(0.70, 1), Share(0.20, 5), Share(0.09, 60), Share(0.01, 1440))
SPREAD_SECONDS = 10
"""Over which the deliveries that fall due at once arrive."""


def due(runs_per_day: int) -> Iterator[float]:
    """Runs that arrive in each second of a day, midnight first."""
    for minute in range(1440):
        now = sum(
            runs_per_day * share.of_runs * share.every_minutes / 1440 for share in MIX if minute % share.every_minutes == 0
        )
        for second in range(60):
            yield now / SPREAD_SECONDS if second < SPREAD_SECONDS else 0.0


@dataclass(frozen=True)
class Day:
    """How a day goes at a store that takes so much and no more.

    Args:
        busiest_second: runs that arrive in it.
        longest_wait: seconds until the last of those that came at the worst time had its claim written.
        late: part of the runs whose claim had to wait longer than a claim goes on trying.
    """

    busiest_second: float
    longest_wait: float
    late: float


def simulate(runs_per_day: int, writes_per_second: float) -> Day:
    """Lets a day of runs queue at a store, second by second. Each run writes twice.

    Args:
        runs_per_day: how many.
        writes_per_second: what the store takes.
    """
    backlog = busiest = longest = late = 0.0
    for arriving in due(runs_per_day):
        backlog += arriving * NEW_RUN.writes
        wait = max(0.0, backlog / writes_per_second - 1)
        busiest, longest = max(busiest, arriving), max(longest, wait)
        if wait > CLAIM_SECONDS:  # answered 500, for Cloud Scheduler to retry
            late += arriving
        backlog = max(0.0, backlog - writes_per_second)
    return Day(busiest, longest, late / runs_per_day)


def minutes_to_ramp_to(operations_per_second: float) -> float:
    """How long new traffic takes to grow to this by the 500/50/5 rule, in minutes."""
    if operations_per_second <= RAMP_START:
        return 0.0
    return math.ceil(math.log(operations_per_second / RAMP_START, RAMP_FACTOR)) * RAMP_SECONDS / 60


# What it costs.


def firestore_per_month(runs_per_day: int) -> float:
    """US dollars for Firestore: operations, and what is stored."""
    kinds = ((1.0, NEW_RUN), (DUPLICATES_PER_RUN, DUPLICATE), (FAILURES_PER_RUN, FAILURE), (1.0, TTL))
    per_run = sum(
        often * (cost.reads * PRICE_PER_READ + cost.writes * PRICE_PER_WRITE + cost.deletes * PRICE_PER_DELETE)
        for often, cost in kinds
    )
    return runs_per_day * DAYS_PER_MONTH * per_run + stored_gib(runs_per_day) * PRICE_PER_GIB_MONTH


def stored_gib(runs_per_day: int) -> float:
    """What lies in the store on an ordinary day."""
    return runs_per_day * KEPT_DAYS * record_bytes() / GIB


def spanner_nodes(runs_per_day: int) -> float:
    """Nodes for the busiest second, in tenths, at two thirds of what one is said to write."""
    busiest = simulate(runs_per_day, math.inf).busiest_second * NEW_RUN.writes
    return max(SPANNER_SMALLEST_NODE, math.ceil(busiest / (SPANNER_WRITES_PER_NODE * 2 / 3) * 10) / 10)


def tables() -> str:
    """Both tables."""
    reach, costs = [], []
    for runs in RUNS_PER_DAY:
        indexed = simulate(runs, INDEXED_WRITES_PER_SECOND)
        writes = indexed.busiest_second * NEW_RUN.writes
        reach.append(
            [
                f"{runs:,}",
                f"{runs * NEW_RUN.writes / 86_400:,.2f}" if runs < 100_000 else f"{runs * NEW_RUN.writes / 86_400:,.0f}",
                f"{writes:,.0f}" if writes >= 1 else "< 1",
                f"{indexed.longest_wait:,.0f} s",
                f"{indexed.late:.0%}",
                f"{minutes_to_ramp_to(writes):,.0f} min",
            ]
        )
        jobs = math.ceil(runs / RUNS_PER_JOB_AT_MOST)
        nodes = spanner_nodes(runs)
        costs.append(
            [
                f"{runs:,}",
                _dollars(firestore_per_month(runs)),
                f"{stored_gib(runs):,.2f}",
                f"{jobs:,} ({math.ceil(jobs / JOBS_PER_REGION)})",
                _dollars(jobs * PRICE_PER_SCHEDULER_JOB),
                f"{nodes:,.1f}",
                _dollars(nodes * PRICE_PER_SPANNER_NODE_HOUR * 24 * DAYS_PER_MONTH),
            ]
        )
    return "\n\n".join(
        [
            table(
                "Firestore: a day of runs, simulated",
                [
                    "runs a day",
                    "writes/s, mean",
                    "writes/s, busiest second",
                    "longest wait at 500/s",
                    "runs that wait over 9 s",
                    "ramp without the indexes",
                ],
                reach,
            ),
            table(
                "What it costs a month, in US dollars",
                [
                    "runs a day",
                    "Firestore",
                    "GiB stored",
                    "Cloud Scheduler jobs (quotas)",
                    "Cloud Scheduler",
                    "Spanner nodes",
                    "Spanner",
                ],
                costs,
            ),
        ]
    )


def _dollars(amount: float) -> str:
    return f"{amount:,.2f}" if amount < 100 else f"{amount:,.0f}"


def page() -> str:
    """docs/scale.md with its tables computed anew."""
    before, rest = PAGE.read_text().split(BEGIN, 1)
    return f"{before}{BEGIN}\n\n{tables()}\n\n{END}{rest.split(END, 1)[1]}"


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page())
    else:
        print(tables())
