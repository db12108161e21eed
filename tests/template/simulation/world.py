"""One small world: a Firestore, attempts at one scheduled run that use it, and time; it takes one step when it is told to.

Each attempt is the real `handle()` with a FirestoreRunStore of its own, in a greenlet. It stops at each RPC, in its job, and
where it waits for a renewal; `World.options()` says what can happen next, and `World.take()` makes it happen. Everything runs
in one thread of the operating system, so that a list of options taken is a whole schedule, and gives the same run again.

An option is a word: `A:ok` (the RPC that A has sent is served and answered), `A:lost UNAVAILABLE` (served; its answer is an
error), `A+1:ok` (the same for A's first renewal), `late 1` (a request arrives that its sender has given up), `time:expiry`.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from types import SimpleNamespace
from typing import Any
from unittest import mock

from flask import Request, Response
from google.api_core import exceptions as google
from google.auth.credentials import AnonymousCredentials
from greenlet import getcurrent, greenlet
from werkzeug.test import EnvironBuilder

from tests.template.simulation.invariants import Watch
from tests.template.simulation.service import Service, documents_of, writes_of
from tests.template.simulation.speed import fast_client

JOB_NAME = "nightly"
BEGINNING = int(datetime(2026, 10, 16, 12, tzinfo=UTC).timestamp()) * 1_000_000
SECOND = 1_000_000
LONGEST = 150
"""Steps of a schedule; more of them have no end."""
RPC_SECONDS = 0.2
CUT_OFF_SECONDS = 12.0
"""How long an attempt that is cut off reaches no server: longer than a claim or a finish goes on trying."""
SKEW = (timedelta(minutes=10), timedelta(minutes=-10), timedelta(minutes=3))
"""What the attempts' own clocks are wrong by."""
COUNTER = "counters/effects"
DATABASE = "projects/simulated/databases/(default)"

CODES = {
    "UNAVAILABLE": google.ServiceUnavailable,
    "DEADLINE_EXCEEDED": google.DeadlineExceeded,
    "INTERNAL": google.InternalServerError,
    "UNKNOWN": google.Unknown,
    "ABORTED": google.Aborted,
    "CANCELLED": google.Cancelled,
    "RESOURCE_EXHAUSTED": google.ResourceExhausted,
}
MERGED = ("UNAVAILABLE",)
"""The code treats the others as it does this one; ABORTED in a transaction excepted."""


@dataclass(frozen=True)
class Rules:
    """What may happen in a world.

    Args:
        attempts: how many deliveries of the run there are, all at once.
        faults: how many options that are faults may be taken.
        passes: how often time may pass, beside the faults.
        ticks: how many renewals may come due.
        effects: the job's own writes are committed with its completion.
        codes: the errors that a fault answers.
        outcomes: what a job may do: `returns`, `raises`, `permanent`, `exits`, `looks` (asks whether it still holds the run).
        lease_seconds: the lease.
        waits_are_time: what an attempt waits passes for all: for leases that are not much longer.
        jumps: how far time passes: `expiry`, beyond every lease, or `part`, most of one; twice that is beyond it too.
        kinds: the faults; see `World._faults`.
        together: how many faults and passes of time there may be in all.
        counts: what a schedule must have to be counted, so that none is counted in two worlds: `fault` and `pass` (all that
            there may be), `renewal`, `transaction`, `time` (some).
    """

    attempts: int = 2
    faults: int = 2
    passes: int = 1
    ticks: int = 0
    effects: bool = False
    codes: tuple[str, ...] = MERGED
    outcomes: tuple[str, ...] = ("returns", "raises", "permanent", "exits", "looks")
    lease_seconds: int = 300
    waits_are_time: bool = False
    jumps: tuple[str, ...] = ("expiry",)
    kinds: tuple[str, ...] = ("crash", "lost", "refused", "late", "cut", "struck", "empty")
    together: int = 99
    counts: tuple[str, ...] = ()

    def jump_seconds(self, jump: str) -> float:
        """How far time goes on."""
        return self.lease_seconds * {"expiry": 1.1, "part": 0.7}[jump]


@dataclass(slots=True)
class Pending:
    """Where a task has stopped, and what may happen to it there."""

    what: str
    """`start`, `read`, `commit`, `begin`, `rollback`, `answer` (withheld), `job`, `lock`, `thread`."""
    after_pass: int = -1
    """Of a withheld answer: how often time had passed."""
    lock: Any = None


@dataclass(slots=True)
class Task:
    """One thread of an attempt."""

    name: str
    attempt: Attempt
    greenlet: greenlet
    pending: Pending | None = None

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.pending is None


@dataclass(slots=True)
class Late:
    """A commit that its sender has given up, and that will arrive."""

    number: int
    attempt: Attempt
    request: Any
    sender: Task
    steps_then: int

    @property
    def name(self) -> str:
        """Its option."""
        return f"late {self.number}"


@dataclass(slots=True)
class Attempt:
    """One delivery, and what is known of it from outside."""

    name: str
    index: int
    tasks: list[Task] = field(default_factory=list)
    timers: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    begun: bool = False
    dead: bool = False
    """Its process was killed."""
    steps: int = 0
    faults: int = 0
    waited: float = 0.0
    cut_off_until: float = 0.0
    job: str = "not begun"
    """`not begun`, `running`, or what it did."""
    claim: Any = None
    lease: Any = None
    run: Any = None
    ids: set[str] = field(default_factory=set)
    """The attempt_ids it has made."""
    began_at: float = 0.0
    lost_at: float | None = None
    """Until when it had trusted its lease, where that was over when its job ended; a renewal in flight may still mend it."""
    saw_another: bool = False
    """Another attempt has held a live lease since it began."""
    outcome: str = ""
    response: Response | None = None
    raised: BaseException | None = None

    @property
    def over(self) -> bool:
        """Whether it was killed, or its handle() is over."""
        return self.dead or (self.begun and self.tasks[0].over)


class Killed(BaseException):
    """The process ends here: whatever would still run in it raises this again."""


class PermanentlyWrong(Exception):
    """Stands in for a fault of the job that a retry may mend."""


class World:
    """One run of a schedule, from its beginning.

    Args:
        code: the modules under test, from `code.load()`.
        rules: what may happen.
        after: a world whose documents it goes on with, for the next scheduled run.
    """

    def __init__(self, code: SimpleNamespace, rules: Rules, *, after: World | None = None) -> None:
        self.code = code
        self.rules = rules
        self.number = after.number + 1 if after is not None else 0
        self.now = after.service.clock + SECOND if after is not None else BEGINNING
        self.passed = 0
        self.passed_seconds = 0.0
        self.faults = 0
        self.ticked = 0
        self.last = ""
        self.steps = 0
        self.alone = False
        """A retry after the end: everything is served, nothing goes wrong."""
        self.touched: dict[str, bool] = {}
        """Documents of this step: whether it changed them."""
        self.took_time = False
        self.late: list[Late] = []
        self.late_count = 0
        self.written_by: Attempt | None = None
        self.hub = getcurrent()
        self.running: Task | None = None
        self.service = Service(lambda: self.now, self._wrote)
        if after is not None:
            self.service.documents.update(after.service.documents)
        self.attempts: list[Attempt] = []
        self.watch = Watch(self)
        _LOG.world = self
        for index in range(rules.attempts):
            self._deliver("ABCDEFGH"[index], index)
        self._resume(self.attempts[0].tasks[0], "ok")

    # What can happen.

    def options(self) -> list[str]:
        """Every option there is now, the fault-free ones first."""
        tasks = [task for attempt in self.attempts if not attempt.dead for task in attempt.tasks if task.pending is not None]
        plain = [f"{task.name}:{option}" for task in tasks for option in self._plain(task)]
        plain += [
            late.name for late in self.late if late.attempt.over or late.sender.over or late.attempt.steps > late.steps_then
        ]
        plain += self._timers()
        if self._may_pass() and self.last[:4] != "time" and tasks:
            plain += [f"time:{jump}" for jump in self.rules.jumps]
        if self.faults < self.rules.faults and self.faults + self.passed + self._owed(tasks) < self.rules.together:
            plain += [f"{task.name}:{option}" for task in tasks for option in self._faults(task)]
        return plain

    def _may_pass(self) -> bool:
        return self.passed < self.rules.passes and self.faults + self.passed < self.rules.together

    def _owed(self, tasks: list[Task]) -> bool:
        """Whether time must pass yet, for an answer that is withheld until then."""
        return any(task.pending is not None and task.pending.after_pass == self.passed for task in tasks)

    def is_counted(self) -> bool:
        """Whether this schedule has what is counted in this world."""
        has = {
            "fault": self.faults == self.rules.faults,
            "pass": self.passed == self.rules.passes,
            "renewal": self.ticked > 0,
            "transaction": self.service.transactions > 0,
            "time": self.passed_seconds > 0,
        }
        return all(has[what] for what in self.rules.counts)

    def _plain(self, task: Task) -> Iterator[str]:
        pending = task.pending
        assert pending is not None
        match pending.what:
            case "job":
                yield from self.rules.outcomes if self.passed or self.ticked else self.rules.outcomes[:4]
            case "answer":
                if self.passed > pending.after_pass:
                    yield "ok"
            case "lock":
                if pending.lock.owner is None:
                    yield "ok"
            case "commit" | "read":
                yield "ok"
                if self._may_pass():
                    yield "withheld"  # it comes when time has passed
            case _:
                yield "ok"

    def _faults(self, task: Task) -> Iterator[str]:
        """The faults that may befall a task here.

        `crash`: the process is killed, after its request was applied; before it only where it has done something since the last
        one, which is when its job has ended. `lost`: applied, but answered by an error. `refused`: an error, not applied.
        `late`: an error, applied after its sender's next step or later. `cut`: no server answers this attempt any more,
        until it has given up. `struck`: SystemExit is raised in the attempt (a worker's abort), the request applied or not.
        `empty`: a read answers nothing at all. `impatient`: an attempt waits no more for its renewal.
        """
        pending = task.pending
        assert pending is not None
        kinds = self.rules.kinds
        codes = self.rules.codes
        match pending.what:
            case "commit":
                job_has_ended = task.attempt.job not in ("not begun", "running")
                if "crash" in kinds:
                    yield "crash after"
                    if job_has_ended:
                        yield "crash before"
                if self.rules.effects and "ABORTED" not in codes and job_has_ended:
                    codes = (*codes, "ABORTED")  # in a transaction, the client library has its own way with it
                for kind in ("lost", "refused"):
                    if kind in kinds:
                        yield from (f"{kind} {code}" for code in codes)
                if "late" in kinds:
                    yield from (f"late {code}" for code in codes)
                if "cut" in kinds:
                    yield "cut"
                if "struck" in kinds and task is task.attempt.tasks[0]:
                    yield "struck after"
                    yield "struck before"
            case "read":
                if "refused" in kinds:
                    yield from (f"refused {code}" for code in codes)
                if "cut" in kinds:
                    yield "cut"
                if "struck" in kinds and task is task.attempt.tasks[0]:
                    yield "struck before"
                if "empty" in kinds:
                    yield "empty"
            case "begin" | "rollback":
                if "refused" in kinds:
                    yield from (f"refused {code}" for code in codes)
            case "job":
                if "crash" in kinds:
                    yield "crash"
            case "lock":
                if pending.lock.owner is not None:
                    yield "impatient"

    def _timers(self) -> Iterator[str]:
        if self.ticked >= self.rules.ticks:
            return
        for attempt in self.attempts:
            if attempt.timers and not attempt.dead and attempt.job == "running":
                yield f"{attempt.name}:renewal due"

    # What happens.

    def take(self, option: str) -> None:
        """Lets one option happen, and checks that everything is as it must be after it."""
        self.touched = {}
        self.took_time = False
        who, _, what = option.partition(":")
        if who == "time":
            self.passed += 1
            self._pass(self.rules.jump_seconds(what))
        elif who[:4] == "late":
            self._arrive(who)
        elif what == "renewal due":
            self._fire(next(attempt for attempt in self.attempts if attempt.name == who))
        else:
            task = next(task for attempt in self.attempts for task in attempt.tasks if task.name == who)
            if what.split()[0] in _FAULT_WORDS:
                self.faults += 1
                task.attempt.faults += 1
            task.attempt.steps += 1
            self._resume(task, what)
        self.last = option
        self.steps += 1
        if self.steps > LONGEST:
            self.watch.violated("it goes on and on")
        self.watch.stepped()

    def told(self) -> str:
        """The last step's outcome in a few words: the record, and what has been answered."""
        held = self.watch.held
        if held is None:
            record = "no record"
        elif held.in_progress:
            owner = next((attempt.name for attempt in self.attempts if held.by(attempt)), "nobody")
            record = f"{owner}'s, lease {'live' if held.live(self.now) else 'over'}"
        else:
            record = held.status
        said = [
            f"{attempt.name} {attempt.outcome or ('killed' if attempt.dead else 'job ' + attempt.job)}"
            for attempt in self.attempts
        ]
        return f"{record:24}{', '.join(said)}"

    def _pass(self, seconds: float) -> None:
        self.now += int(seconds * SECOND)
        self.passed_seconds += seconds
        self.took_time = True

    def _arrive(self, name: str) -> None:
        late = next(late for late in self.late if late.name == name)
        self.late.remove(late)
        self.written_by = late.attempt
        try:
            self._serve("commit", late.request)
        except google.GoogleAPIError:
            pass
        finally:
            self.written_by = None

    def _fire(self, attempt: Attempt) -> None:
        when, call = min(attempt.timers, key=lambda timer: timer[0])
        attempt.timers.remove((when, call))
        wait = when - self._monotonic(attempt)
        if wait > 0:
            self._pass(wait)
        self.ticked += 1
        self.took_time = True
        held = self.watch.held
        lasts_until = held.live_until if held is not None and held.by(attempt) and held.live(self.now) else None

        def renew() -> None:
            call()
            if lasts_until is not None:
                self.watch.renewed(attempt, lasts_until)

        self._start(attempt, f"{attempt.name}+{len(attempt.tasks)}", renew, Pending("start"))
        self._resume(attempt.tasks[-1], "ok")

    def end(self) -> None:
        """Ends every thread that is left."""
        for attempt in self.attempts:
            self._kill(attempt)

    def _kill(self, attempt: Attempt) -> None:
        attempt.dead = True
        for task in attempt.tasks:
            if not task.greenlet.dead and task.greenlet is not getcurrent():
                task.pending = None
                task.greenlet.parent = getcurrent()
                if task.greenlet:  # begun: its handlers run, and can do nothing
                    task.greenlet.throw(Killed())

    # Attempts and their threads.

    def _deliver(self, name: str, index: int) -> Attempt:
        attempt = Attempt(name, index)
        self.attempts.append(attempt)
        self._start(attempt, name, lambda: self._handle(attempt), Pending("start"))
        return attempt

    def _start(self, attempt: Attempt, name: str, call: Callable[[], None], pending: Pending) -> None:
        def body(_: Any) -> None:
            try:
                call()
            except Killed:
                pass
            except BaseException as raised:
                attempt.raised = attempt.raised or raised
                self.watch.violated(f"a thread of {attempt.name} ended by {raised!r}")
            task.pending = None

        task = Task(name, attempt, greenlet(body, parent=self.hub), pending)
        attempt.tasks.append(task)

    def _resume(self, task: Task, action: str) -> None:
        self.running = task
        task.pending = None
        task.greenlet.parent = getcurrent()
        task.greenlet.switch(action)
        self.running = None

    def stop(self, pending: Pending) -> str:
        """Called in an attempt's thread: lets others run, and returns what is to happen to this one."""
        task = self.running
        assert task is not None
        if task.attempt.dead:
            raise Killed
        if self.alone:
            return "returns" if pending.what == "job" else "ok"
        task.pending = pending
        action: str = self.hub.switch()
        if task.attempt.dead:
            raise Killed
        self.running = task
        return action

    def _handle(self, attempt: Attempt) -> None:
        attempt.begun = True
        self.watch.began(attempt)
        code = self.code
        store = code.firestore.FirestoreRunStore(
            "simulated",
            monotonic=lambda: self._monotonic(attempt),
            utcnow=lambda: self._utcnow(attempt),
            sleep=lambda seconds: self._wait(attempt, seconds),
        )
        store._connection.made = code.firestore.Connection(
            _Api(self, attempt), "simulated", DATABASE, [], AnonymousCredentials()
        )
        store.renew_run = self._preempted(store.renew_run)
        settings = code.settings.Settings(
            lease_seconds=self.rules.lease_seconds, renew=self.rules.ticks > 0, timeout_seconds=3600
        )
        try:
            attempt.response = code.handler.handle(
                _request(self.number),
                lambda run: self._job(attempt, run),
                settings=settings,
                store=store,
                clock=_clock(self, attempt),
            )
        except SystemExit as exits:
            attempt.raised = exits
        self.watch.answered(attempt)

    def _preempted(self, renew: Callable[[Any], bool]) -> Callable[[Any], bool]:
        """A renewal's thread may be held up between its look at the lease and what it sends."""

        def renew_later(claim: Any) -> bool:
            self.stop(Pending("thread"))
            return renew(claim)

        return renew_later

    def _job(self, attempt: Attempt, run: Any) -> str:
        attempt.run, attempt.claim, attempt.lease = run, run._claim, run._lease
        attempt.job = "running"
        self.watch.job_began(attempt)
        does = self.stop(Pending("job"))
        if does == "crash":
            raise self._crash(attempt)
        if does == "looks":
            attempt.job = "raises"
            run.ensure_held()
            self.watch.told_held(attempt)
            does = "returns"
        attempt.job = does
        self.watch.job_ended(attempt)
        match does:
            case "raises":
                raise PermanentlyWrong
            case "permanent":
                raise self.code.run.PermanentError("no retry can mend this")
            case "exits":
                raise SystemExit(1)
        if self.rules.effects:
            run.on_commit(lambda transaction: self._count(attempt, transaction))
        return "done"

    def _count(self, attempt: Attempt, transaction: Any) -> None:
        """The job's own writes: a counter goes up by one."""
        counter = transaction._client.document(COUNTER)
        was, self.alone = self.alone, True  # at once with the read of the run
        try:
            snapshot = counter.get(transaction=transaction)
        finally:
            self.alone = was
        transaction.set(counter, {"n": (snapshot.get("n") if snapshot.exists else 0) + 1})

    def _crash(self, attempt: Attempt) -> Killed:
        self._kill(attempt)
        return Killed()

    def retry(self, name: str) -> Attempt:
        """Delivers the run once more, to a fault-free attempt that has the world for itself."""
        self.alone = True
        attempt = self._deliver(name, len(self.attempts))
        self._resume(attempt.tasks[0], "ok")
        self.watch.stepped()
        return attempt

    # Clocks.

    def _monotonic(self, attempt: Attempt) -> float:
        return (self.now - BEGINNING) / SECOND + 1000.0 * (attempt.index + 1) + attempt.waited

    def _utcnow(self, attempt: Attempt) -> datetime:
        return _EPOCH + timedelta(microseconds=self.now) + SKEW[attempt.index % 3]

    def _wait(self, attempt: Attempt, seconds: float) -> None:
        """A time-out or a pause between two tries.

        These are seconds, where leases are minutes: it moves its own attempt's clock only, so that no other one's RPC takes
        longer for it. Where the rules have a lease of seconds, it is time that passes for all.
        """
        if self.rules.waits_are_time:
            self._pass(seconds)
        else:
            attempt.waited += seconds

    # RPCs.

    def rpc(self, attempt: Attempt, what: str, request: Any, timeout: float | None) -> Any:
        """One RPC of an attempt, in its thread: it is sent, and what happens to it then is an option that is taken."""
        if attempt.dead:
            raise Killed
        assert timeout is not None, "every RPC has a timeout"
        task = self.running
        if self._monotonic(attempt) < attempt.cut_off_until:
            self._wait(attempt, timeout)
            raise google.DeadlineExceeded("cut off")
        kind, _, detail = self.stop(Pending(what)).partition(" ")
        match kind:
            case "refused":
                raise self._error(attempt, detail, timeout)
            case "cut":
                attempt.cut_off_until = self._monotonic(attempt) + CUT_OFF_SECONDS
                self._wait(attempt, timeout)
                raise google.DeadlineExceeded("cut off")
            case "late":
                self.late_count += 1
                assert task is not None
                self.late.append(Late(self.late_count, attempt, request, task, attempt.steps))
                raise self._error(attempt, detail, timeout)
            case "empty":
                return iter(())
            case "crash" if detail == "before":
                raise self._crash(attempt)
            case "struck" if detail == "before":
                raise SystemExit("struck")
        if not self.rules.waits_are_time:
            self._wait(attempt, min(RPC_SECONDS, timeout))
        answer, refusal = None, None
        try:
            answer = self._serve(what, request)
        except google.GoogleAPIError as raised:
            refusal = raised
        match kind:
            case "lost":
                raise self._error(attempt, detail, timeout)
            case "crash":
                raise self._crash(attempt)
            case "struck":
                raise SystemExit("struck")
            case "withheld":
                self.stop(Pending("answer", after_pass=self.passed))
        if refusal is not None:
            raise refusal
        return answer

    def _error(self, attempt: Attempt, code: str, timeout: float) -> Exception:
        if code == "DEADLINE_EXCEEDED":
            self._wait(attempt, timeout)
        error: Exception = CODES[code](f"simulated {code}")
        return error

    def _serve(self, what: str, request: Any) -> Any:
        match what:
            case "read":
                for name in documents_of(request):
                    self.touched.setdefault(name, False)
                return self.service.batch_get_documents(request)
            case "commit":
                for write in writes_of(request):
                    self.touched.setdefault(write.update.name or write.delete, False)
                if isinstance(request, dict):
                    for name in self.service._open.get(request.get("transaction") or b"", ()):
                        self.touched.setdefault(name, False)
                return self.service.commit(request)
            case "begin":
                return self.service.begin_transaction(request)
            case _:
                return self.service.rollback(request)

    def _wrote(self, name: str, before: Any, after: Any) -> None:
        self.touched[name] = True
        writer = self.written_by or (self.running and self.running.attempt)
        assert writer is not None
        self.watch.wrote(writer, name, before, after)
        self.now += 1


@contextmanager
def simulated(code: SimpleNamespace) -> Iterator[None]:
    """What worlds of this code need around them: locks that let others run, ids and waits that are the same each time."""
    log = logging.getLogger("dedup")
    before = log.handlers, log.level, log.propagate
    log.handlers, log.level, log.propagate = [_LOG], logging.INFO, False
    steady = SimpleNamespace(uniform=lambda low, high: high)
    try:
        with (
            fast_client(code.firestore.firestore_write),
            mock.patch.object(uuid, "uuid4", _next_id),
            mock.patch.object(code.tries, "random", steady),
            mock.patch.object(code.lease, "threading", SimpleNamespace(Lock=Lock)),
        ):
            yield
    finally:
        log.handlers, log.level, log.propagate = before
        _LOG.world = None


def _next_id() -> Any:
    world = _LOG.world
    assert world is not None
    assert world.running is not None
    attempt = world.running.attempt
    made = f"{attempt.index + 10:x}{len(attempt.ids):031x}"
    attempt.ids.add(made)
    return SimpleNamespace(hex=made)


class _Api:
    """An attempt's way to the service, in the place of the generated client."""

    def __init__(self, world: World, attempt: Attempt) -> None:
        self._world = world
        self._attempt = attempt

    def commit(self, request: Any, timeout: float | None = None, **_: Any) -> Any:
        return self._world.rpc(self._attempt, "commit", request, timeout)

    def batch_get_documents(self, request: Any, timeout: float | None = None, **_: Any) -> Any:
        if self._world.alone and timeout is None:
            timeout = 60.0  # the job's own read
        return self._world.rpc(self._attempt, "read", request, timeout)

    def begin_transaction(self, request: Any, timeout: float | None = None, **_: Any) -> Any:
        return self._world.rpc(self._attempt, "begin", request, timeout)

    def rollback(self, request: Any, timeout: float | None = None, **_: Any) -> Any:
        return self._world.rpc(self._attempt, "rollback", request, timeout)


class Lock:
    """In the place of threading.Lock between a renewal and the end of its job: who waits lets others run."""

    def __init__(self) -> None:
        self.owner: Task | None = None

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Takes it; False when the time-out, or the scheduler's patience, is over."""
        world = _LOG.world
        assert world is not None
        while self.owner is not None:
            if world.stop(Pending("lock", lock=self)) == "impatient":
                assert world.running is not None
                world._wait(world.running.attempt, timeout)
                return False
        self.owner = world.running
        return True

    def release(self) -> None:
        """Gives it back."""
        self.owner = None

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


_CLOCKS: dict[int, type] = {}


def _clock(world: World, attempt: Attempt) -> Any:
    """The process's clock of an attempt: a subclass of the real one, whose due calls are options."""
    base = world.code.lease.Clock
    kind = _CLOCKS.get(id(base))
    if kind is None:

        class Clock(base):  # type: ignore[misc, valid-type]
            def __init__(self, world: World, attempt: Attempt) -> None:
                self._world, self._attempt = world, attempt

            def monotonic(self) -> float:
                return self._world._monotonic(self._attempt)

            def utcnow(self) -> datetime:
                return self._world._utcnow(self._attempt)

            def call_at(self, when: float, call: Callable[[], None]) -> None:
                self._attempt.timers.append((when, call))

            def cancel(self, call: Callable[[], None]) -> None:
                self._attempt.timers[:] = [timer for timer in self._attempt.timers if timer[1] != call]

        kind = _CLOCKS[id(base)] = Clock
    return kind(world, attempt)


class _Log(logging.Handler):
    """Hands the outcome of each log line to the attempt that is at work, and the warnings to whoever prints a trace."""

    world: World | None = None
    lines: list[str] | None = None

    def emit(self, record: logging.LogRecord) -> None:
        world = self.world
        if world is None or world.running is None:
            return
        outcome = getattr(record, "outcome", None)
        if outcome is not None:
            world.running.attempt.outcome = outcome
        elif self.lines is not None:
            self.lines.append(record.getMessage())


_LOG = _Log()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@cache
def _request(number: int) -> Request:
    """A delivery of a scheduled run: one a minute."""
    schedule_time = datetime.fromtimestamp(BEGINNING // SECOND + 60 * number, UTC)
    headers = {"X-CloudScheduler-JobName": JOB_NAME, "X-CloudScheduler-ScheduleTime": schedule_time.isoformat()}
    return Request(EnvironBuilder(method="POST", headers=headers).get_environ())


_FAULT_WORDS = frozenset({"crash", "lost", "refused", "late", "cut", "struck", "empty", "impatient"})
