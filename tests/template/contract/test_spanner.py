"""What is Spanner's own: what a run costs, what a lost acknowledgement leaves, effects, the schema, and all its deadlines."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.api_core import exceptions as google
from google.cloud import spanner as library

from dedup.record import Decision, Ending, Status
from dedup.stores import EffectsRaised, StoreUnavailable, open_store, spanner, spanner_client
from dedup.stores.conditional import CONTENDED_CLAIMS, RPC_SECONDS
from dedup.stores.spanner import SpannerRunStore, create_schema
from tests.template.contract.harness import A_RUN, LEASE, SpannerHarness, Ticker, a_claim
from tests.template.contract.threads import at_once
from tests.template.emulator import free_port, own_spanner_emulator, spanner_database
from tests.template.size import WHOLE

pytestmark = pytest.mark.store("spanner")

_EVERY = [
    google.ServiceUnavailable,
    google.Aborted,
    google.DeadlineExceeded,
    google.InternalServerError,
    google.Unknown,
    google.Cancelled,
    google.ResourceExhausted,
]
UNCLEAR = _EVERY if WHOLE else _EVERY[:2]
"""What a transaction can be answered with, whether it was applied or not."""
READ, DML, COMMIT = "execute_streaming_sql", "execute_sql", "commit"


@pytest.fixture
def harness(request: pytest.FixtureRequest) -> Iterator[SpannerHarness]:
    """A fresh store with its harness."""
    made = SpannerHarness(request)
    yield made
    made.close()


@pytest.fixture(params=UNCLEAR, ids=lambda kind: kind.__name__)
def unclear(request: pytest.FixtureRequest) -> Exception:
    """An answer that says nothing of what was written."""
    fault: Exception = request.param("injected", errors=[object()])
    return fault


@pytest.fixture(params=[True, False], ids=["arrived", "lost"])
def arrives(request: pytest.FixtureRequest) -> bool:
    """Whether the commit was applied all the same."""
    return bool(request.param)


def rpcs(harness: SpannerHarness, do: Callable[[], Any]) -> list[str]:
    """The RPCs that something costs. What the library asks of a session of its own, on the emulator alone, isn't counted."""
    before = len(harness.spy.rpcs)
    do()
    return harness.spy.methods[before:]


# What a run costs.


@pytest.mark.parametrize("ending", Ending, ids=lambda ending: ending.value)
def test_new_run_costs_three_rpcs(harness: SpannerHarness, ending: Ending) -> None:
    """A run costs the insert that claims it, and the statement and the commit that end it, nothing else."""
    claim = a_claim()
    assert rpcs(harness, lambda: harness.store.claim_run(claim)) == [COMMIT]
    assert rpcs(harness, lambda: harness.store.finish_run(claim, ending)) == [DML, COMMIT]


@pytest.mark.parametrize("ending", [None, Ending.COMPLETED, Ending.FAILED], ids=["in progress", "completed", "failed"])
def test_duplicate_costs_two_rpcs(harness: SpannerHarness, ending: Ending | None) -> None:
    """A duplicate costs the insert that is refused and one read without a lock, whatever has become of the run."""
    claim = harness.claimed()
    if ending is not None:
        assert harness.store.finish_run(claim, ending)
    assert rpcs(harness, lambda: harness.store.claim_run(a_claim())) == [COMMIT, READ]


def test_take_over_costs_four_rpcs(harness: SpannerHarness) -> None:
    """A take-over costs the insert that is refused, one read, and the conditional statement with its commit."""
    harness.claimed()
    harness.expire_lease(A_RUN)
    assert rpcs(harness, lambda: harness.store.claim_run(a_claim())) == [COMMIT, READ, DML, COMMIT]


def test_renewal_costs_two_rpcs(harness: SpannerHarness) -> None:
    """A renewal costs one statement and its commit."""
    claim = harness.claimed()
    assert rpcs(harness, lambda: harness.store.renew_run(claim)) == [DML, COMMIT]


def test_completion_with_effects_costs_no_more(harness: SpannerHarness) -> None:
    """A completion with a job's own writes costs what one without costs, and those."""
    claim = harness.claimed()
    finish = lambda: harness.store.finish_run(claim, Ending.COMPLETED, effects=harness.count_one)  # noqa: E731
    assert rpcs(harness, finish) == [DML, DML, COMMIT]


def test_what_is_not_ours_is_rolled_back(harness: SpannerHarness) -> None:
    """A finish or a renewal of another's run leaves no lock behind."""
    claim = harness.claimed()
    harness.expire_lease(A_RUN)
    harness.claimed()
    assert rpcs(harness, lambda: harness.store.renew_run(claim)) == [DML, "rollback", READ]
    assert rpcs(harness, lambda: harness.store.finish_run(claim, Ending.COMPLETED)) == [DML, "rollback", READ]


def test_claim_that_others_always_beat(harness: SpannerHarness) -> None:
    """A claim that is refused again and again, by a run that is free each time it is read, gives the run up in the end."""
    harness.spy.fail(COMMIT, google.AlreadyExists("injected"), times=99)
    assert harness.store.claim_run(a_claim()) is Decision.IN_PROGRESS
    assert harness.spy.methods == [COMMIT, READ] * CONTENDED_CLAIMS


def test_every_rpc_is_bounded(harness: SpannerHarness) -> None:
    """Every RPC has a timeout, and is not tried again behind the store's back; a rollback and a job's own ones too."""
    claim = harness.claimed()
    assert harness.store.renew_run(claim)
    assert harness.store.claim_run(a_claim()) is Decision.IN_PROGRESS
    harness.expire_lease(A_RUN)
    lost, claim = claim, harness.claimed()
    assert not harness.store.renew_run(lost)

    def effects(transaction: Any) -> None:
        harness.count_one(transaction)
        list(transaction.execute_sql("SELECT n FROM counter"))
        list(transaction.read("counter", ["n"], library.KeySet(all_=True)))

    assert harness.store.finish_run(claim, Ending.COMPLETED, effects=effects)
    assert {rpc.method for rpc in harness.spy.rpcs} == {COMMIT, READ, DML, "streaming_read", "rollback"}
    for rpc in harness.spy.rpcs:
        assert rpc.options["retry"] is None, rpc.method
        assert 0 < rpc.options["timeout"] <= RPC_SECONDS, rpc.method


@pytest.mark.parametrize("fault", [google.ServiceUnavailable, google.InternalServerError], ids=lambda kind: kind.__name__)
def test_unanswered_rpcs_stay_within_the_deadline(harness: SpannerHarness, monkeypatch: pytest.MonkeyPatch, fault: Any) -> None:
    """However often the library repeats what fails, and sleeps between, an operation ends with its own time."""
    ticker = harness.monotonic
    monkeypatch.setattr(harness.store, "_sleep", ticker.wait)
    claim = harness.claimed()
    for method in (COMMIT, READ, DML):
        harness.spy.fail(method, fault("RST_STREAM injected"), times=10_000)
    calls: list[tuple[float, Callable[[], Any]]] = [
        (10, lambda: harness.store.claim_run(a_claim())),
        (6, lambda: harness.store.renew_run(claim)),
        (10, lambda: harness.store.finish_run(claim, Ending.COMPLETED)),
        (2, lambda: harness.store.finish_run(claim, Ending.RELEASED, within_seconds=2)),
        (10, lambda: harness.store.finish_run(claim, Ending.COMPLETED, effects=harness.count_one)),
        (10, lambda: harness.store.get_run(A_RUN)),
    ]
    for bound, call in calls:
        began, real = ticker(), time.monotonic()
        with pytest.raises(StoreUnavailable):
            call()
        assert ticker() - began < bound
        assert time.monotonic() - real < 2, "it has slept by another clock"


def test_finish_leaves_time_for_reading(harness: SpannerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finish whose statements all take their whole time still looks at what has become of them, within its own time."""
    claim, ticker = harness.claimed(), harness.monotonic
    monkeypatch.setattr(harness.store, "_sleep", ticker.wait)
    harness.spy.fail(DML, google.DeadlineExceeded("injected"), times=99)

    def take_time() -> None:
        rpc = harness.spy.rpcs[-1]
        ticker.ahead += rpc.options["timeout"] if rpc.method == DML else 1.5

    harness.spy.before_any, began = take_time, ticker()
    with pytest.raises(StoreUnavailable):
        harness.store.finish_run(claim, Ending.COMPLETED)
    assert ticker() - began < 10
    assert harness.spy.methods[-1] == READ


# A lost acknowledgement: the store is told nothing, and the server has done it, or not.


def test_unclear_insert(harness: SpannerHarness, unclear: Exception, arrives: bool) -> None:
    """An attempt whose insert went unacknowledged has the run, as its first attempt, and knows its last write."""
    harness.spy.fail(COMMIT, unclear, arrives=arrives)
    claim = a_claim()
    assert harness.store.claim_run(claim) is Decision.CLAIM
    assert claim.attempts == harness.record().attempts == 1
    assert claim.token == harness.record().updated_at
    assert claim.create_unclear


def test_unclear_take_over(harness: SpannerHarness, unclear: Exception, arrives: bool) -> None:
    """An attempt whose take-over went unacknowledged has the run, counted once."""
    harness.claimed()
    harness.expire_lease(A_RUN)
    claim = a_claim()
    harness.spy.fail(COMMIT, google.AlreadyExists("as it would be"))
    harness.spy.fail(COMMIT, unclear, arrives=arrives)
    assert harness.store.claim_run(claim) is Decision.CLAIM
    assert claim.attempts == harness.record().attempts == 2
    assert claim.token == harness.record().updated_at


def test_unclear_renewal(harness: SpannerHarness, unclear: Exception, arrives: bool) -> None:
    """A renewal that went unacknowledged is made again."""
    claim = harness.claimed()
    harness.spy.fail(COMMIT, unclear, arrives=arrives)
    assert harness.store.renew_run(claim)
    assert claim.token == harness.record().updated_at


@pytest.mark.parametrize("ending", Ending, ids=lambda ending: ending.value)
def test_unclear_finish(harness: SpannerHarness, unclear: Exception, arrives: bool, ending: Ending) -> None:
    """A finish that went unacknowledged is judged by what is read, and made again where it wasn't applied."""
    claim = harness.claimed()
    harness.spy.fail(COMMIT, unclear, arrives=arrives)
    assert harness.store.finish_run(claim, ending)
    left = harness.store.get_run(A_RUN)
    assert (left.status if left is not None else None) == (None if ending is Ending.RELEASED else Status(ending.value))


def test_finish_whose_last_commit_was_applied(harness: SpannerHarness) -> None:
    """A finish that runs out of time with its commit applied unseen is recorded all the same: time is kept to look."""
    claim = harness.claimed()

    def take_all_the_time() -> None:
        harness.monotonic.ahead += 60

    harness.spy.before_write = take_all_the_time
    harness.spy.fail(COMMIT, google.DeadlineExceeded("injected"), arrives=True)
    assert harness.store.finish_run(claim, Ending.COMPLETED)


def test_an_insert_that_arrives_after_the_release(harness: SpannerHarness) -> None:
    """A try that comes after its attempt has given the run up holds nothing; the run is free for the next one."""
    harness.spy.fail(COMMIT, google.DeadlineExceeded("injected"), arrives=False)
    claim = a_claim()
    assert harness.store.claim_run(claim) is Decision.CLAIM
    late = next(rpc for rpc in harness.spy.rpcs if rpc.method == COMMIT)
    assert harness.store.finish_run(claim, Ending.RELEASED)
    assert harness.store.finish_run(claim, Ending.RELEASED)
    with pytest.raises(google.AlreadyExists):
        harness.spy.resend(late)
    assert harness.store.claim_run(a_claim()) is Decision.CLAIM


def test_two_that_take_over_at_once(harness: SpannerHarness) -> None:
    """A take-over is conditional on what was read: one whose row has been written since is refused."""
    owner = harness.claimed()
    harness.expire_lease(A_RUN)
    owners_store = store_like(harness)
    owner_renews = [lambda: owners_store.renew_run(dataclasses.replace(owner))]
    harness.spy.before_dml = lambda: owner_renews.pop()() if owner_renews else None
    assert harness.store.claim_run(a_claim()) is Decision.IN_PROGRESS
    assert harness.record().attempt_id == owner.attempt_id


BETWEEN = range(3) if WHOLE else [1]
"""Before which RPC of a claim something else happens; a claim that takes over has a commit more, which its lock covers."""
EVENTS = ["claims", "completes", "releases", "owner renews", "owner completes", "owner releases"]


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("at", BETWEEN)
@pytest.mark.parametrize("before", ["nothing", "live", "expired"])
def test_what_happens_between_the_rpcs_of_a_claim(harness: SpannerHarness, before: str, at: int, event: str) -> None:
    """Whatever others do between any two RPCs of a claim, no two attempts hold the run, and the record names who does."""
    others, owner, rival = store_like(harness), a_claim(), a_claim()
    if before != "nothing":
        assert harness.store.claim_run(owner) is Decision.CLAIM
    if before == "expired":
        harness.expire_lease(A_RUN)
    holders: set[str] = {owner.attempt_id} if before == "live" else set()

    def happens() -> None:
        if event.startswith("owner"):
            act = {"renews": others.renew_run, "completes": lambda claim: others.finish_run(claim, Ending.COMPLETED)}
            act["releases"] = lambda claim: others.finish_run(claim, Ending.RELEASED)
            done = act[event.split()[1]](owner)
            holders.difference_update({owner.attempt_id})
            if done and event == "owner renews":
                holders.add(owner.attempt_id)
        elif others.claim_run(rival) is Decision.CLAIM:
            assert not holders
            if event == "claims":
                holders.add(rival.attempt_id)
            else:
                assert others.finish_run(rival, Ending.COMPLETED if event == "completes" else Ending.RELEASED)

    rpcs_of_claim = iter(range(99))

    def count() -> None:
        if next(rpcs_of_claim) == at:
            happens()

    claim = a_claim()
    harness.spy.before_any = count
    if harness.store.claim_run(claim) is Decision.CLAIM:
        assert not holders
        holders.add(claim.attempt_id)
    harness.spy.before_any = lambda: None
    record = harness.store.get_run(A_RUN)
    in_progress = {record.attempt_id} if record is not None and record.status is Status.IN_PROGRESS else set()
    assert in_progress - {owner.attempt_id if before == "expired" else None} <= holders <= in_progress


def test_a_thread_that_got_no_session(harness: SpannerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread whose transaction had no session gets one the next time: the library's own way leaves it without for good."""
    claim, sessions = harness.claimed(), harness.store._database(harness.store._tries(10)).sessions_manager
    get_session, faults = sessions.get_session, [google.ServiceUnavailable("injected")]

    def fail_once(kind: Any) -> Any:
        if faults:
            raise faults.pop()
        return get_session(kind)

    monkeypatch.setattr(sessions, "get_session", fail_once)
    assert harness.store.renew_run(claim)
    assert harness.store.finish_run(claim, Ending.COMPLETED)


def test_the_library_still_needs_to_be_gone_round(harness: SpannerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's own way of running a transaction has the fault that `commit_once` goes round."""
    database = harness.store._database(harness.store._tries(10))

    def fail(kind: Any) -> None:
        raise google.ServiceUnavailable("injected")

    with monkeypatch.context() as patch:
        patch.setattr(database.sessions_manager, "get_session", fail)
        with pytest.raises(google.ServiceUnavailable):
            database.run_in_transaction(lambda transaction: None, timeout_secs=0)
    try:
        database.run_in_transaction(lambda transaction: None, timeout_secs=0)
    except RuntimeError:  # "nested": it takes the thread to be in a transaction still
        return
    pytest.fail("google-cloud-spanner is mended: let dedup/stores/spanner_client.py use Database.run_in_transaction")


def test_the_library_sends_by_what_is_bounded(harness: SpannerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session, a write, a read and a transaction ask `Database.spanner_api` for what sends their RPCs."""
    asked: list[str] = []
    bounded = spanner_client._BoundedApi.__getattr__

    def note(api: Any, method: str) -> Any:
        asked.append(method)
        return bounded(api, method)

    monkeypatch.setattr(spanner_client._BoundedApi, "__getattr__", note)
    store = store_like(harness)
    claim = a_claim()
    assert store.claim_run(claim) is Decision.CLAIM
    assert store.get_run(A_RUN)
    assert store.renew_run(claim)
    missing = {"create_session", "commit", "execute_streaming_sql", "execute_sql"} - set(asked)
    missing -= {"create_session"} if "batch_create_sessions" in asked else set()
    assert not missing, f"google-cloud-spanner sends {missing} by another way: mend dedup/stores/spanner_client.py"


# Effects.


def test_effects_that_are_aborted(harness: SpannerHarness) -> None:
    """A transaction that Spanner aborts, in the job's own statement or at the commit, is run again, and applied once."""
    claim = harness.claimed()
    harness.spy.fail(COMMIT, google.Aborted("injected", errors=[object()]))
    aborts = [google.Aborted("injected", errors=[object()])]

    def effects(transaction: Any) -> None:
        harness.count_one(transaction)
        if aborts:
            raise aborts.pop()

    assert harness.store.finish_run(claim, Ending.COMPLETED, effects=effects)
    assert harness.counted() == 1


def test_unclear_effects(harness: SpannerHarness, unclear: Exception, arrives: bool) -> None:
    """Effects whose commit went unacknowledged are applied once, whether it was applied or not."""
    claim = harness.claimed()
    harness.spy.fail(COMMIT, unclear, arrives=arrives)
    assert harness.store.finish_run(claim, Ending.COMPLETED, effects=harness.count_one)
    assert harness.counted() == 1
    assert harness.record().status is Status.COMPLETED


def test_effects_that_raise_and_are_not_rolled_back(harness: SpannerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rollback that fails doesn't stand before what the job's effects raised."""
    claim, raised = harness.claimed(), KeyError("no such account")

    def effects(transaction: Any) -> None:
        raise raised

    def lost(**request: Any) -> None:
        harness.spy._api.rollback(**request)
        raise google.ServiceUnavailable("injected")

    monkeypatch.setattr(harness.spy, "rollback", lost)
    with pytest.raises(EffectsRaised) as caught:
        harness.store.finish_run(claim, Ending.COMPLETED, effects=effects)
    assert caught.value.raised is raised


def test_effects_that_the_server_refuses(harness: SpannerHarness) -> None:
    """What a job's mutations or statements can't do is the job's fault; the run stays its own."""
    claim = harness.claimed()
    wrong: list[Callable[[Any], None]] = [
        lambda transaction: transaction.insert("scheduler_runs", ["run_id"], [[A_RUN]]),
        lambda transaction: transaction.update("counter", ["id", "n"], [[99, 1]]),
        lambda transaction: transaction.execute_update("UPDATE no_such_table SET n = 1 WHERE true"),
    ]
    for effects in wrong:
        with pytest.raises(EffectsRaised):
            harness.store.finish_run(claim, Ending.COMPLETED, effects=effects)
    assert harness.record().status is Status.IN_PROGRESS
    assert harness.store.finish_run(claim, Ending.RELEASED)


# The schema.


def test_schema_has_the_columns_that_are_written() -> None:
    """The table of spanner.sql has the columns that the store reads, in its order, and rows end at expire_at."""
    statement = spanner.schema("my_runs")
    assert re.findall(r"^    (\w+) ", statement, flags=re.MULTILINE) == list(spanner._TYPES)
    assert statement.startswith("CREATE TABLE IF NOT EXISTS my_runs (")
    assert "ROW DELETION POLICY (OLDER_THAN(expire_at, INTERVAL 0 DAY))" in statement
    assert "--" not in statement


def test_schema_is_made_once(harness: SpannerHarness) -> None:
    """create_schema makes the table that the URL names, and leaves one that is there as it is."""
    url = f"spanner://{harness.store.project}/{harness.store.instance}/{harness.store.database}?table=other_runs"
    create_schema(url)
    store = open_store(url)
    store.claim_run(a_claim())
    create_schema(url)
    assert store.get_run(A_RUN) is not None
    assert harness.store.get_run(A_RUN) is None
    with harness.database.batch() as batch:
        batch.delete("other_runs", library.KeySet(all_=True))


# The server can't be asked.


def store_like(harness: SpannerHarness, **other: str) -> SpannerRunStore:
    """The harness's store, with something else about it."""
    place = {name: getattr(harness.store, name) for name in ("project", "instance", "database", "table")}
    return SpannerRunStore(**{**place, **other})


@pytest.mark.parametrize(
    ("wrong", "remedy"),
    [
        ({"table": "no_runs"}, "python -m dedup store create"),
        ({"database": "no-database"}, "create what is missing"),
        ({"instance": "no-instance"}, "create what is missing"),
    ],
    ids=["table", "database", "instance"],
)
def test_something_is_missing(harness: SpannerHarness, wrong: dict[str, str], remedy: str) -> None:
    """A table, a database or an instance that isn't there is told at once, with where that was and what to do."""
    store, began = store_like(harness, **wrong), time.monotonic()
    for call in (lambda: store.claim_run(a_claim()), lambda: store.get_run(A_RUN)):
        with pytest.raises(StoreUnavailable, match=remedy) as raised:
            call()
        assert str(raised.value).startswith(
            f"Spanner, table {store.table} of {store.instance}/{store.database}, project test: "
        )
    assert time.monotonic() - began < 3
    if "table" not in wrong:
        with pytest.raises(StoreUnavailable, match=remedy):
            create_schema(f"spanner://test/{store.instance}/{store.database}")


def test_definite_refusal(harness: SpannerHarness) -> None:
    """A refusal that the next try would meet too ends every method at once."""
    claim = harness.claimed()
    for method in (COMMIT, READ, DML):
        harness.spy.fail(method, google.PermissionDenied("injected"), times=99)
    calls: list[Callable[[], Any]] = [
        lambda: harness.store.claim_run(a_claim()),
        lambda: harness.store.renew_run(claim),
        lambda: harness.store.finish_run(claim, Ending.COMPLETED),
        lambda: harness.store.get_run(A_RUN),
    ]
    for call in calls:
        before = len(harness.spy.rpcs)
        with pytest.raises(StoreUnavailable, match=r"roles/spanner\.databaseUser"):
            call()
        assert len(harness.spy.rpcs) - before <= 2


def test_a_closed_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that isn't there is an error that names the store and what to look at, within 10 s."""
    monkeypatch.setenv("SPANNER_EMULATOR_HOST", f"127.0.0.1:{free_port()}")
    ticker = Ticker()
    store, began = SpannerRunStore("nowhere", "runs", "runs", monotonic=ticker, sleep=ticker.wait), ticker()
    with pytest.raises(StoreUnavailable, match="the server") as raised:
        store.claim_run(a_claim())
    assert ticker() - began < 10
    assert str(raised.value).startswith("Spanner, table scheduler_runs of runs/runs, project nowhere: ")


@pytest.mark.skipif(not WHOLE, reason="waits 10 s: WHOLE=0")
def test_many_threads_before_a_closed_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that wait for one another's first session wait no longer than each has time."""
    monkeypatch.setenv("SPANNER_EMULATOR_HOST", f"127.0.0.1:{free_port()}")
    store = SpannerRunStore("nowhere", "runs", "runs")

    def seconds(late: float) -> float:
        time.sleep(late)
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            store.claim_run(a_claim())
        return time.monotonic() - began

    assert max(at_once(seconds, [n / 10 for n in range(20)])) < 10


@pytest.mark.skipif(not WHOLE, reason="waits 10 s: WHOLE=0")
def test_a_frozen_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a server takes RPCs and never answers, each method ends in its time; thawed, the run isn't held for long."""
    with own_spanner_emulator() as emulator:
        for name, value in emulator.spanner_environ.items():
            monkeypatch.setenv(name, value)
        store = open_store(spanner_database(emulator, "frozen"))
        held = a_claim("f" * 64)
        assert store.claim_run(held) is Decision.CLAIM
        emulator.freeze()
        calls: list[tuple[float, Callable[[], Any]]] = [
            (10, lambda: store.claim_run(a_claim(lease_seconds=1))),
            (6, lambda: store.renew_run(held)),
            (8, lambda: store.finish_run(held, Ending.COMPLETED, within_seconds=7)),
            (8, lambda: store.finish_run(held, Ending.COMPLETED, effects=lambda _: None, within_seconds=7)),
            (10, lambda: store.get_run(A_RUN)),
        ]

        def seconds_of(call: Callable[[], Any]) -> float:
            began = time.monotonic()
            with pytest.raises(StoreUnavailable, match="didn't answer in time"):
                call()
            return time.monotonic() - began

        took = at_once(seconds_of, [call for _, call in calls])
        assert [seconds for seconds, (bound, _) in zip(took, calls, strict=True) if seconds >= bound] == []
        emulator.thaw()
        time.sleep(2)
        assert store.claim_run(a_claim()) is Decision.CLAIM


def test_no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where there are neither credentials nor an emulator, the first use says what to do; making the store does not."""
    monkeypatch.delenv("SPANNER_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    store = open_store("spanner://nowhere/runs/runs")
    with pytest.raises(StoreUnavailable, match=r"project nowhere: .*set SPANNER_EMULATOR_HOST, run gcloud auth"):
        store.claim_run(a_claim())
    with pytest.raises(StoreUnavailable, match=r"project nowhere: .*set SPANNER_EMULATOR_HOST, run gcloud auth"):
        create_schema("spanner://nowhere/runs/runs")


def test_threads_share_one_session(harness: SpannerHarness) -> None:
    """Threads that use a store for the first time at the same moment make one client, with one session to share."""
    store = store_like(harness)
    found = at_once(lambda _: id(store._database(store._tries(10))), range(20))
    assert len(set(found)) == 1
    assert store.claim_run(a_claim(lease_seconds=LEASE)) is Decision.CLAIM
