"""Everything at once: instances die, the network fails, answers get lost; and each run is done, recorded once, by one owner."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dedup.record import RunRecord, Status
from tests.template.e2e.conftest import StoreInUse, firestore_store, redis_store, run_id, spanner_store, sqlite_store
from tests.template.e2e.fleet import Blow, Fleet, fleet_of
from tests.template.e2e.ledger import Execution, overlaps
from tests.template.e2e.relay import Fault, Relay
from tests.template.e2e.scheduler import Network, RetryPolicy, ScheduledRun, SimulatedScheduler
from tests.template.emulator import EmulatorMissing, own_spanner_emulator, redis_server
from tests.template.size import WHOLE

POLICY = RetryPolicy(attempt_deadline=3, min_backoff=0.1, max_backoff=1, max_doublings=3, retry_count=100)
NETWORK = Network(duplicated=0.15, hung_up=0.08, unheard=0.12)
BLOWS = [Blow.WORKER] * 11 + [Blow.MACHINE] * 3 + [Blow.TERM] * 4 + [Blow.PAUSE] * 2
FAULTS = [Fault.DROP] * 3 + [Fault.MUTE] * 3 + [Fault.DELAY] * 2 + [Fault.FREEZE] * 2


@dataclass(frozen=True)
class Size:
    """How much of it."""

    runs: int
    kills: int
    lost: int
    """Replies that get lost or come late."""
    at_once: int
    lease_seconds: int
    counted: int
    """Of how many runs, the first ones, every other one counts in one commit with its end.

    On Firestore that takes a transaction, and whoever dies in it leaves a lock that keeps everyone from the run for a minute:
    measured on the emulator. So they come early.
    """
    seconds: float
    """When it must have come to that; it goes on until it has."""


LARGE = Size(runs=300, kills=100, lost=100, at_once=24, lease_seconds=2, counted=300, seconds=170)
SMALL = Size(runs=20, kills=3, lost=3, at_once=16, lease_seconds=1, counted=0, seconds=30)
MEDIUM = Size(runs=100, kills=30, lost=30, at_once=16, lease_seconds=2, counted=0, seconds=100)
SIZES = {
    "sqlite": replace(SMALL, counted=1000),
    "firestore": LARGE if WHOLE else SMALL,
    "spanner": replace(MEDIUM, counted=1000),
    "redis": MEDIUM,
}
STORES = [pytest.param(name, marks=pytest.mark.store(name)) for name in SIZES if WHOLE or name == "firestore"]


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", STORES)
def test_chaos(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Whatever dies or fails: every run ends recorded exactly once, and no two executions own one run at the same time.

    Large on Firestore (where the environment says WHOLE=0: small, and there alone, since the others have the handler and the
    lease in common with it); small on SQLite, which has no network to fail. Redis crashes too: it syncs every write, and has
    them all when it is back.
    """
    size = SIZES[kind]
    seed = int(os.environ.get("CHAOS_SEED", "1"))
    began = time.monotonic()
    with ExitStack() as stack:
        store, relay, crash = store_in_a_storm(kind, request, tmp_path, stack)
        environ = {"DEDUP_LEASE_SECONDS": str(size.lease_seconds), "DEDUP_TIMEOUT_SECONDS": "10", **store.environ}
        fleet = stack.enter_context(fleet_of(3, environ, tmp_path))
        scheduler = SimulatedScheduler(seed, lambda: fleet.ports, POLICY, NETWORK)

        runs = deliver_in_a_storm(scheduler, fleet, relay, crash, size, seed)

        fleet.await_all()
        exit_codes = fleet.drain()
        records = {id_of(run): store.get_run(id_of(run)) for run in runs}
        counted = {run.body["count"]: store.count(run.body["count"]) for run in runs if "count" in run.body}
        executions = store.ledger.executions()
        processed = Counter(line["run_id"] for line in fleet.log_lines() if line.get("outcome") == "processed")

    tally = scheduler.tally
    faults = [f"{number} {what}" for what, number in [*fleet.blows.items(), *(relay.faults.items() if relay else [])]]
    print(
        f"\n{kind}: {len(runs)} runs, {fleet.kills} kills, {tally.lost_replies} lost replies, {tally.late_replies} late ones, "
        f"{tally.broken} broken connections, {tally.duplicates} duplicates, {tally.deliveries} deliveries, "
        f"{len(executions)} executions, {sum(one.attempt > 1 for one in executions)} take-overs "
        f"in {time.monotonic() - began:.0f} s (seed {seed})\n  {', '.join(faults)}\n"
        f"  {dict(tally.answers.most_common())}"
    )
    assert not tally.given_up
    assert not violations(runs, records, executions, processed, counted.__getitem__)
    assert set(exit_codes) <= {0, -signal.SIGTERM}, "the latter: told to end before it had begun"
    assert len(runs) >= size.runs
    assert fleet.kills >= size.kills
    assert tally.lost_replies + tally.late_replies >= size.lost


def store_in_a_storm(
    kind: str, request: pytest.FixtureRequest, folder: Path, stack: ExitStack
) -> tuple[StoreInUse, Relay | None, Callable[[], None] | None]:
    """A store of one kind, the network that may fail before it, and what crashes its server, if that keeps what it has."""
    try:
        match kind:
            case "firestore":
                host = request.getfixturevalue("emulator").host
                relay = stack.enter_context(Relay(host))
                return firestore_store(folder, host, through=relay.host), relay, None
            case "spanner":
                emulator = stack.enter_context(own_spanner_emulator())
                relay = stack.enter_context(Relay(emulator.host))
                return spanner_store(folder, emulator, through=relay.host), relay, None
            case "redis":
                server = stack.enter_context(redis_server("--appendonly", "yes", "--appendfsync", "always"))
                relay = stack.enter_context(Relay(server.host))
                return redis_store(folder, server, through=relay.host), relay, server.restart
    except EmulatorMissing as missing:
        pytest.skip(str(missing))
    return sqlite_store(folder), None, None


def deliver_in_a_storm(
    scheduler: SimulatedScheduler,
    fleet: Fleet,
    relay: Relay | None,
    crash: Callable[[], None] | None,
    size: Size,
    seed: int,
) -> list[ScheduledRun]:
    """Delivers runs until there were as many as asked, and as many kills and lost replies; gives the runs."""
    delivered: list[ScheduledRun] = []
    over = threading.Event()
    give_up_at = time.monotonic() + size.seconds

    def runs() -> Iterator[ScheduledRun]:
        for run in scheduled_runs(seed, size.lease_seconds, size.counted):
            tally = scheduler.tally
            enough = fleet.kills >= size.kills and tally.lost_replies + tally.late_replies >= size.lost
            if (len(delivered) >= size.runs and enough) or time.monotonic() > give_up_at:
                over.set()  # what is under way still is delivered in peace
                return
            delivered.append(run)
            yield run

    def strike() -> None:
        draw = random.Random(f"{seed}/blows")
        while not over.wait(draw.uniform(0.2, 0.6)):
            fleet.strike(draw.choice(BLOWS), draw, pause=size.lease_seconds + 0.5)

    def fail() -> None:
        assert relay is not None
        draw = random.Random(f"{seed}/network")
        while not over.wait(draw.uniform(0.5, 3)):
            relay.fail(draw.choice(FAULTS), draw.uniform(0.1, 1.5))

    def crash_the_server() -> None:
        assert crash is not None
        assert relay is not None
        draw = random.Random(f"{seed}/crashes")
        while not over.wait(draw.uniform(2, 6)):
            crash()
            relay.faults["crashes of the server"] += 1

    storm = [threading.Thread(target=strike)]
    if relay is not None:
        storm.append(threading.Thread(target=fail))
    if crash is not None:
        storm.append(threading.Thread(target=crash_the_server))
    for thread in storm:
        thread.start()
    try:
        scheduler.deliver_all(runs(), at_once=size.at_once)
    finally:
        over.set()
        for thread in storm:
            thread.join()
    return delivered


def scheduled_runs(seed: int, lease: int, counted: int) -> Iterator[ScheduledRun]:
    """Runs of a few jobs, most of them short, some longer than a lease."""
    draw, noon = random.Random(f"{seed}/runs"), datetime(2026, 10, 16, 12, tzinfo=UTC)
    for number in range(100_000):
        job, when = f"job-{number % 5}", (noon + timedelta(minutes=number // 5)).strftime("%Y-%m-%dT%H:%M:%SZ")
        seconds = draw.choices(
            [draw.uniform(0.02, 0.3), draw.uniform(0.3, 0.8) * lease, draw.uniform(1.1, 1.5) * lease], [75, 17, 8]
        )[0]
        effects = {"count": f"{job}-{number}"} if number < counted and number % 2 else {}
        yield ScheduledRun(job, when, {"seconds": round(seconds, 3), **effects})


def id_of(run: ScheduledRun) -> str:
    """Of the run that a delivery stands for."""
    return run_id(run.job, run.schedule_time)


def violations(
    runs: list[ScheduledRun],
    records: Mapping[str, RunRecord | None],
    executions: list[Execution],
    processed: Counter[str],
    count: Callable[[str], int],
) -> list[str]:
    """What may never be, in words.

    Args:
        runs: all that were delivered.
        records: what the store says of them in the end, by run_id.
        executions: what the jobs themselves have written down.
        processed: how often an instance has reported, by run_id, that it recorded a run.
        count: what a counter stands at.
    """
    done = {(execution.run_id, execution.id) for execution in executions if execution.ended == "done"}
    found = [
        f"{first.run_id}: {second.id} began {first.held_at - second.started_at:.3f} s before {first.id} had lost the run"
        for first, second in overlaps(executions)
    ]
    for run in runs:
        record = records[id_of(run)]
        if record is None or record.status is not Status.COMPLETED:
            found.append(f"{run} is lost: {record}")
        elif (id_of(run), record.result) not in done:
            found.append(f"{run} is recorded in the name of {record.result}, which never came to its end")
        if processed[id_of(run)] > 1:
            found.append(f"{run} was recorded {processed[id_of(run)]} times")
        if "count" in run.body and count(run.body["count"]) != 1:
            found.append(f"{run} was counted {count(run.body['count'])} times")
    return found
