"""What is measured. Each measure gives plain figures by name; peers take turns within it."""

from __future__ import annotations

import hashlib
import os
import random
import socket
import statistics
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TextIO

from google.cloud.firestore_v1 import types

from benchmarks.instance import Deployment, Reply, burst, deliver_distinct, memory_of, time_start
from benchmarks.peers import Bare, Documented, Failed, Limit, Ours, Peer, delivery_of, on_redis
from benchmarks.wire import Wire, firestore_client, redis_through
from dedup.stores import firestore_write
from tests.template.emulator import Emulator, EmulatorMissing, redis_server

Figures = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """How much is measured.

    Args:
        runs_by_delay: how many runs of each peer, by the milliseconds that are added to each round trip.
        bursts: how often each peer has its turn, by how many deliveries at once: whether transactions meet is chance.
        throughput_warm_ups: how many turns of each peer don't count.
        throughput_rounds: how often each peer has its turn.
        throughput_seconds: how long a turn is.
        starts: how often each peer is started, by what bytecode there is.
        looks_at_memory: at how many instances of each peer at rest.
        runs_in_memory: after how many runs memory is looked at; the last but one is half of the last.
        collections: how many records there are already.
        runs_in_collection: how many more are timed.
        patience_seconds: how long an answer is waited for where the store is silent.
        leases: how long the job is whose renewals are counted.
    """

    runs_by_delay: dict[int, int]
    bursts: dict[int, int]
    throughput_warm_ups: int
    throughput_rounds: int
    throughput_seconds: float
    starts: dict[str, int]
    looks_at_memory: int
    runs_in_memory: tuple[int, ...]
    collections: tuple[int, ...]
    runs_in_collection: int
    patience_seconds: float
    leases: int


WHOLE = Size(
    runs_by_delay={0: 400, 2: 150, 10: 100},
    bursts={2: 3, 8: 8, 20: 3, 50: 3},
    throughput_warm_ups=4,
    throughput_rounds=24,
    throughput_seconds=1.0,
    starts={"all compiled": 15, "own bytecode stale": 15, "nothing compiled": 3},
    looks_at_memory=7,
    runs_in_memory=(1_000, 10_000, 20_000),
    collections=(0, 10_000, 100_000),
    runs_in_collection=500,
    patience_seconds=60.0,
    leases=10,
)
QUICK = Size(
    runs_by_delay={0: 20, 10: 5},
    bursts={8: 1},
    throughput_warm_ups=1,
    throughput_rounds=2,
    throughput_seconds=0.4,
    starts={"all compiled": 1},
    looks_at_memory=1,
    runs_in_memory=(50, 75, 150),
    collections=(0, 250),
    runs_in_collection=40,
    patience_seconds=11.0,
    leases=2,
)

BURST_JOB_SECONDS = 0.2
BURST_TIMEOUT_SECONDS = 180.0


@dataclass(frozen=True)
class Bench:
    """What all measures share.

    Args:
        emulator: Firestore's.
        folder: for deployments and output.
        size: how much is measured.
        progress: is told what is under way.
    """

    emulator: Emulator
    folder: Path
    size: Size
    progress: Callable[[str], None]

    def project(self) -> str:
        """A name that nothing was written under."""
        return f"bench-{uuid.uuid4().hex[:12]}"

    def deployment(self, peer: str, *, compiled: bool = True) -> Deployment:
        """One peer on the emulator, in a project of its own."""
        environ = {"FIRESTORE_EMULATOR_HOST": self.emulator.host, "GOOGLE_CLOUD_PROJECT": self.project()}
        return Deployment(peer, self.folder, environ, compiled=compiled)


def nothing() -> None:
    """A job that takes no time."""


def fail() -> None:
    """A job that wants a retry."""
    raise Failed


# Round trips.


def round_trips(bench: Bench) -> Figures:
    """What each kind of delivery costs at the store, by peer."""
    figures: Figures = {}
    for name, make in {"ours": Ours.on_firestore, "documented": Documented, "limit": Limit}.items():
        bench.progress(name)
        wire = Wire()
        figures[name] = count_kinds(make(bench.project(), wire), wire)
    return figures


def count_kinds(peer: Peer, wire: Wire) -> Figures:
    """Delivers runs of every kind, and counts what passes the wire for each."""
    counted: Figures = {}

    def count(kind: str, job_name: str, job: Callable[[], None], status: int) -> None:
        wire.count()
        heard = peer.deliver(delivery_of(job_name), job)
        counted[kind] = wire.count().as_dict()
        if heard != status:
            raise AssertionError(f"{kind}: answered {heard}, not {status}")

    with quiet():
        peer.deliver(delivery_of("warm-up"), nothing)
        count("new run", "new", nothing, 200)
        if not peer.decides:
            return counted
        count("duplicate, completed", "new", nothing, 200)
        peer.deliver(delivery_of("long"), lambda: count("duplicate, in progress", "long", nothing, 409))
        count("failure", "failing", fail, 500)
        peer.leave_dead(delivery_of("dead"))
        count("take-over", "dead", nothing, 200)
    return counted


# Time.


def latency(bench: Bench) -> Figures:
    """Milliseconds that a delivery takes, handler and store, by added delay, peer and kind; the job takes none."""
    figures: Figures = {}
    for delay, runs in bench.size.runs_by_delay.items():
        bench.progress(f"{delay} ms added to each round trip")
        wire = Wire(delay / 1000) if delay else None
        peers: dict[str, Peer] = {
            "ours": Ours.on_firestore(bench.project(), wire),
            "documented": Documented(bench.project(), wire),
            "limit": Limit(bench.project(), wire),
            "bare": Bare(),
        }
        figures[str(delay)] = time_in_turn(peers, runs)
    return figures


def time_in_turn(peers: dict[str, Peer], runs: int) -> Figures:
    """Times new runs and their duplicates: one of each peer, again and again, in an order that changes."""
    taken: dict[str, dict[str, list[float]]] = {name: {"new run": [], "duplicate": []} for name in peers}
    names, prefix = list(peers), uuid.uuid4().hex[:8]
    draw = random.Random(5)
    with quiet():
        for run in range(-max(5, runs // 20), runs):  # those below zero warm up
            draw.shuffle(names)
            for name in names:
                for kind in taken[name]:
                    if kind == "duplicate" and not peers[name].decides:
                        continue
                    delivery = delivery_of(f"{prefix}-{run}")
                    began = time.perf_counter()
                    peers[name].deliver(delivery, nothing)
                    ended = time.perf_counter()
                    if run >= 0:
                        taken[name][kind].append(ended - began)
    return {name: {kind: summary(seconds) for kind, seconds in kinds.items() if seconds} for name, kinds in taken.items()}


def summary(seconds: list[float]) -> Figures:
    """Median and 99th percentile, in milliseconds."""
    percentiles = statistics.quantiles(seconds, n=100, method="inclusive")
    return {"median_ms": statistics.median(seconds) * 1000, "p99_ms": percentiles[98] * 1000, "runs": len(seconds)}


def bursts(bench: Bench) -> Figures:
    """Deliveries of one run at once, over HTTP: what is answered, how late, and how often the job ran."""
    names = ("ours", "documented")
    figures: Figures = {name: {} for name in names}
    deployments = {name: bench.deployment(name) for name in names}
    for deliveries, rounds in bench.size.bursts.items():
        replies: dict[str, list[Reply]] = {name: [] for name in names}
        executions = dict.fromkeys(names, 0)
        for turn in range(rounds):
            for name in names:
                bench.progress(f"{name}, {deliveries} at once, turn {turn + 1} of {rounds}")
                marks = bench.folder / f"marks-{name}-{deliveries}-{turn}"
                with deployments[name].serving(JOB_SECONDS=str(BURST_JOB_SECONDS), JOB_MARKS=str(marks)) as server:
                    server.deliver(f"warm-up-{deliveries}-{turn}")
                    marks.write_text("")
                    replies[name] += burst(server.port, f"burst-{deliveries}-{turn}", deliveries, BURST_TIMEOUT_SECONDS)
                executions[name] += len(marks.read_text().splitlines())
        for name in names:
            statuses = sorted(reply.status for reply in replies[name])
            figures[name][str(deliveries)] = {
                "bursts": rounds,
                "statuses": {str(status): statuses.count(status) for status in dict.fromkeys(statuses)},
                "executions": executions[name],
                "slowest_seconds": max(reply.seconds for reply in replies[name]),
            }
    return figures


def throughput(bench: Bench) -> Figures:
    """Distinct runs per second through functions-framework at its default threads; the job takes no time."""
    names = ("ours", "documented", "limit", "bare")
    rates: dict[str, list[float]] = {name: [] for name in names}
    with ExitStack() as serving:
        ports = {name: serving.enter_context(bench.deployment(name).serving()).port for name in names}
        for turn in range(-bench.size.throughput_warm_ups, bench.size.throughput_rounds):
            counts = f"turn {turn + 1} of {bench.size.throughput_rounds}" if turn >= 0 else "to warm up"
            bench.progress(f"all by turns, {counts}")
            first = turn % len(names)
            for name in names[first:] + names[:first]:  # none is always the one after the same other
                rate, statuses = deliver_distinct(ports[name], f"turn-{turn}", seconds=bench.size.throughput_seconds)
                if set(statuses) != {200}:
                    raise AssertionError(f"{name}: answers other than 200: {dict(statuses)}")
                if turn >= 0:
                    rates[name].append(rate)
    return {name: {"runs_per_second": statistics.median(of_peer), "turns": of_peer} for name, of_peer in rates.items()}


# Start and memory.


def starts(bench: Bench) -> Figures:
    """Milliseconds from the start of the process to the first answer, by what bytecode there is."""
    names = ("ours", "documented", "bare")
    figures: Figures = {}
    for kind, times in bench.size.starts.items():
        environ = {"PYTHONPYCACHEPREFIX": str(bench.folder / "nowhere")} if kind == "nothing compiled" else {}
        found: dict[str, list[Any]] = {name: [] for name in names}
        deployments = {name: bench.deployment(name, compiled=kind == "all compiled") for name in names}
        for turn in range(-1, times):  # the first turn fills the machine's file cache
            first = turn % len(names)
            for name in names[first:] + names[:first]:  # none is always the one after the same other
                bench.progress(f"{name}, {kind}, start {max(turn, 0) + 1} of {times}")
                start = time_start(deployments[name], f"{kind.replace(' ', '-')}-{turn}", **environ)
                if turn >= 0:
                    found[name].append(start)
        figures[kind] = {
            name: {
                "first_answer_ms": statistics.median(start.open_seconds + start.answer_seconds for start in of_peer) * 1000,
                "first_delivery_ms": statistics.median(start.answer_seconds for start in of_peer) * 1000,
                "starts": len(of_peer),
            }
            for name, of_peer in found.items()
        }
    return figures


def memory(bench: Bench) -> Figures:
    """MiB of an instance that has answered once, and after many runs."""
    names = ("ours", "documented", "bare")
    deployments = {name: bench.deployment(name) for name in names}
    at_rest: dict[str, list[float]] = {name: [] for name in names}
    for look in range(bench.size.looks_at_memory):
        for name in names:
            bench.progress(f"{name} at rest, {look + 1} of {bench.size.looks_at_memory}")
            with deployments[name].serving() as server:
                server.deliver(f"look-{look}")
                time.sleep(0.5)
                at_rest[name].append(memory_of(server) / 2**20)
    figures: Figures = {name: {"at_rest": statistics.median(looks)} for name, looks in at_rest.items()}
    for name in names:
        with deployments[name].serving() as server:
            done = 0
            # That the others stay flat is not asked: up to half of the runs says what they hold after many.
            for runs in bench.size.runs_in_memory if name == "ours" else bench.size.runs_in_memory[:-1]:
                bench.progress(f"{name}, {runs} runs")
                deliver_distinct(server.port, f"upto-{runs}", runs=runs - done)
                done = runs
                figures[name][f"after_{runs}"] = memory_of(server) / 2**20
    return figures


# A collection that grows.


def growth(bench: Bench) -> Figures:
    """Milliseconds of a new run where so many records are there already."""
    peers: dict[str, Peer] = {}
    for records in bench.size.collections:
        bench.progress(f"writing {records} records")
        project = bench.project()
        fill(project, records)
        peers[str(records)] = Ours.on_firestore(project)
    bench.progress("timing")
    timed = time_in_turn(peers, bench.size.runs_in_collection)
    return {records: kinds["new run"] for records, kinds in timed.items()}


def fill(project: str, records: int) -> None:
    """Writes completed runs, 250 to a commit: the emulator takes seconds for a larger one."""
    client = firestore_client(project)
    now = datetime.now(UTC)

    def record(number: int) -> types.Write:
        ended = now - timedelta(seconds=number)
        fields = {
            "status": "completed",
            "attempt_id": uuid.uuid4().hex,
            "lease_seconds": 300,
            "lease_expires": ended + timedelta(minutes=5),
            "expire_at": ended + timedelta(days=1),
            "job_name": f"job-{number % 100}",
            "schedule_time": now - timedelta(minutes=number // 100),
            "attempts": 1,
            "claimed_at": ended,
            "finished_at": ended,
        }
        run_id = hashlib.sha256(str(number).encode()).hexdigest()
        return firestore_write.create(f"{client._database_string}/documents/scheduler_runs/{run_id}", fields).writes[0]

    for first in range(0, records, 250):
        writes = list(map(record, range(first, min(first + 250, records))))
        request = {"database": client._database_string, "writes": writes}
        client._firestore_api.commit(request=request, timeout=300, retry=None)


# What is waited for.


def silence(bench: Bench) -> Figures:
    """Seconds until a delivery is answered where the store takes connections and says nothing; None: not in time."""
    patience = bench.size.patience_seconds

    def wait(name: str) -> Figures:
        environ = {"FIRESTORE_EMULATOR_HOST": silent.host, "GOOGLE_CLOUD_PROJECT": "nobody"}
        with Deployment(name, bench.folder / "silence", environ).serving() as server:
            began = time.perf_counter()
            with suppress(OSError):
                status = server.deliver("nightly", timeout=patience).status
                return {"status": status, "seconds": time.perf_counter() - began}
            return {"status": None, "seconds": None, "waited_seconds": patience}

    bench.progress(f"ours and the documented example, for up to {patience:.0f} s")
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener, ThreadPoolExecutor() as pool:
        silent = Emulator(f"127.0.0.1:{listener.getsockname()[1]}")
        waits = {name: pool.submit(wait, name) for name in ("ours", "documented")}
        return {name: future.result() for name, future in waits.items()}


def renewal(bench: Bench) -> Figures:
    """What a job costs that takes many leases, beyond what a short one does."""
    leases, lease_seconds = bench.size.leases, 1
    bench.progress(f"a job of {leases} leases")
    wire = Wire()
    ours = Ours.on_firestore(bench.project(), wire, lease_seconds=lease_seconds)
    with quiet():
        status = ours.deliver(delivery_of("long"), lambda: time.sleep(leases * lease_seconds))
    if status != 200:
        raise AssertionError(f"a job of {leases} leases was answered {status}")
    renewals = wire.count().round_trips.total() - 2
    return {"leases": leases, "round_trips": renewals, "per_lease": renewals / leases}


# On Redis.


def redis(bench: Bench) -> Figures:
    """Round trips and milliseconds of the peers on a Redis; why not, where there is none."""
    figures: Figures = {"round_trips": {}, "latency": {}}
    wire = Wire()
    try:
        with redis_server() as server, redis_through(wire):
            peers = on_redis(server.port)
            for name, peer in peers.items():
                bench.progress(name)
                figures["round_trips"][name] = count_kinds(peer, wire)
            for delay, runs in bench.size.runs_by_delay.items():
                bench.progress(f"{delay} ms added to each round trip")
                wire.added_seconds = delay / 1000
                figures["latency"][str(delay)] = time_in_turn(peers, runs)
    except EmulatorMissing as missing:
        return {"skipped": str(missing)}
    return figures


@contextmanager
def quiet() -> Iterator[TextIO]:
    """Lets log lines be written as ever, to where nobody reads them."""
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        yield nowhere


def calibration() -> float:
    """Milliseconds that a fixed piece of work takes: what this machine can do at the moment."""
    block = b"x" * 4096
    taken = []
    for _ in range(15):
        began = time.perf_counter()
        for _ in range(3_000):
            hashlib.sha256(block).digest()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1000


MEASURES: dict[str, Callable[[Bench], Figures]] = {
    measure.__name__: measure
    for measure in (round_trips, latency, bursts, starts, memory, throughput, growth, silence, renewal, redis)
}
"""By the name under which their figures are kept. Memory's runs warm up the emulator for throughput:
in its first minute of load, while it compiles itself, a run takes several times as long."""
WAITING = (silence.__name__,)
"""They do nothing but wait, so the others go on meanwhile."""
