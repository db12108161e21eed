"""What is Firestore's own: what a run costs, what a lost acknowledgement leaves, and how long anything may take."""

from __future__ import annotations

import dataclasses
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import pytest
from google.api_core import exceptions as google
from google.cloud import firestore

from dedup.record import Decision, Ending, Status
from dedup.stores import Claim, EffectsRaised, StoreUnavailable
from dedup.stores.conditional import CONTENDED_CLAIMS, REFUSED_FINISHES, RPC_SECONDS
from dedup.stores.firestore import Connection, FirestoreRunStore, connect
from tests.template.contract.harness import A_RUN, LEASE, FirestoreHarness, a_claim
from tests.template.contract.spy import transaction_of
from tests.template.contract.threads import at_once
from tests.template.emulator import Emulator, free_port
from tests.template.size import WHOLE

pytestmark = pytest.mark.store("firestore")

UNCLEAR = [
    google.ServiceUnavailable,
    google.DeadlineExceeded,
    google.InternalServerError,
    google.Unknown,
    google.Aborted,
    google.Cancelled,
    google.ResourceExhausted,
]
"""What a commit can answer with, whether it was applied or not."""


@pytest.fixture
def harness(request: pytest.FixtureRequest) -> Iterator[FirestoreHarness]:
    """A fresh store with its harness."""
    made = FirestoreHarness(request)
    yield made
    made.close()


@pytest.fixture(params=UNCLEAR, ids=lambda kind: kind.__name__)
def unclear(request: pytest.FixtureRequest) -> Exception:
    """An answer that says nothing of what was written."""
    fault: Exception = request.param("injected")
    return fault


@pytest.fixture(params=[True, False], ids=["arrived", "lost"])
def arrives(request: pytest.FixtureRequest) -> bool:
    """Whether the commit was applied all the same."""
    return bool(request.param)


def rpcs(harness: FirestoreHarness, do: Callable[[], Any]) -> list[str]:
    """The RPCs that something costs."""
    before = len(harness.spy.rpcs)
    do()
    return harness.spy.methods[before:]


# What a run costs.


def test_new_run_costs_two_rpcs(harness: FirestoreHarness) -> None:
    """A run costs the commit that claims it and the one that ends it, nothing else."""
    claim = a_claim()
    assert rpcs(harness, lambda: harness.store.claim_run(claim)) == ["commit"]
    assert rpcs(harness, lambda: harness.store.finish_run(claim, Ending.COMPLETED, result="12 rows")) == ["commit"]


def test_failed_run_costs_two_rpcs(harness: FirestoreHarness) -> None:
    """A run that fails costs the same, and so does one that fails for good."""
    for ending in (Ending.RELEASED, Ending.FAILED):
        claim = a_claim()
        assert rpcs(harness, lambda claim=claim: harness.store.claim_run(claim)) == ["commit"]
        assert rpcs(harness, lambda claim=claim, ending=ending: harness.store.finish_run(claim, ending)) == ["commit"]


@pytest.mark.parametrize("ending", [None, Ending.COMPLETED, Ending.FAILED], ids=["in progress", "completed", "failed"])
def test_duplicate_costs_two_rpcs(harness: FirestoreHarness, ending: Ending | None) -> None:
    """A duplicate costs the create that is refused and one read, whatever has become of the run."""
    claim = harness.claimed()
    if ending is not None:
        assert harness.store.finish_run(claim, ending)
    for _ in range(3):
        assert rpcs(harness, lambda: harness.store.claim_run(a_claim())) == ["commit", "batch_get_documents"]


def test_take_over_costs_three_rpcs(harness: FirestoreHarness) -> None:
    """A take-over costs the create that is refused, one read and one update; its finish one more."""
    harness.claimed()
    harness.expire_lease(A_RUN)
    claim = a_claim()
    assert rpcs(harness, lambda: harness.store.claim_run(claim)) == ["commit", "batch_get_documents", "commit"]
    assert rpcs(harness, lambda: harness.store.finish_run(claim, Ending.COMPLETED)) == ["commit"]


def test_claim_that_others_always_beat(harness: FirestoreHarness) -> None:
    """A claim that is refused again and again, by a run that is free each time it is read, gives the run up in the end."""
    harness.spy.fail("commit", google.AlreadyExists("injected"), times=99)
    assert harness.store.claim_run(a_claim()) is Decision.IN_PROGRESS
    assert harness.spy.methods == ["commit", "batch_get_documents"] * CONTENDED_CLAIMS


def test_renewal_costs_one_rpc(harness: FirestoreHarness) -> None:
    """A renewal costs one commit."""
    claim = harness.claimed()
    assert rpcs(harness, lambda: harness.store.renew_run(claim)) == ["commit"]


def test_every_rpc_is_bounded(harness: FirestoreHarness) -> None:
    """Every RPC has a timeout, and is not tried again behind the store's back; the transaction's own ones too."""
    claim = harness.claimed()
    assert harness.store.renew_run(claim)
    assert harness.store.claim_run(a_claim()) is Decision.IN_PROGRESS
    harness.expire_lease(A_RUN)
    claim = harness.claimed()
    harness.spy.fail("commit", google.Aborted("injected"))
    assert harness.store.finish_run(claim, Ending.COMPLETED, effects=harness.count_one)
    for ending in (Ending.RELEASED, Ending.FAILED):
        assert harness.store.finish_run(harness.claimed(uuid.uuid4().hex), ending)
    lost = harness.claimed("b" * 64)
    harness.expire_lease("b" * 64)
    harness.claimed("b" * 64)
    assert not harness.store.finish_run(lost, Ending.COMPLETED, effects=harness.count_one)
    assert harness.store.get_run(A_RUN)
    own = [rpc for rpc in harness.spy.rpcs if "effects/counter" not in str(rpc.request)]
    assert {rpc.method for rpc in own} == {"commit", "batch_get_documents", "begin_transaction", "rollback"}
    for rpc in own:
        assert rpc.options["retry"] is None, rpc.method
        assert 0 < rpc.options["timeout"] <= RPC_SECONDS, rpc.method
        assert ("google-cloud-resource-prefix", f"projects/{harness.project}/databases/(default)") in rpc.options["metadata"], (
            rpc.method
        )


def test_unanswered_rpcs_stay_within_the_deadline(harness: FirestoreHarness) -> None:
    """No RPC's timeout reaches past the end of the whole operation: here 9 s for a claim, by the attempt's clock."""
    began = harness.monotonic()
    ends = []

    def take_a_timeout() -> None:
        rpc = harness.spy.rpcs[-1]
        ends.append(harness.monotonic() + rpc.options["timeout"] - began)
        harness.monotonic.ahead += rpc.options["timeout"]

    harness.spy.before_write = take_a_timeout
    harness.spy.fail("commit", google.DeadlineExceeded("injected"), times=99)
    with pytest.raises(StoreUnavailable, match="didn't answer in time"):
        harness.store.claim_run(a_claim())
    assert len(ends) >= 3
    assert max(ends) < 9.1


@pytest.mark.parametrize(
    ("call", "before", "longest"),
    [
        (lambda store, claim: store.claim_run(a_claim()), [], 16),
        (lambda store, claim: store.renew_run(claim), [], 8),
        (lambda store, claim: store.finish_run(claim, Ending.COMPLETED), [0.05], 17),
        (lambda store, claim: store.finish_run(claim, Ending.COMPLETED, within_seconds=5), [0.05], 7),
        (lambda store, claim: store.get_run(A_RUN), [], 16),
    ],
    ids=["claim", "renewal", "finish", "hurried finish", "read"],
)
def test_waits_between_tries(
    harness: FirestoreHarness,
    monkeypatch: pytest.MonkeyPatch,
    call: Callable[[FirestoreRunStore, Claim], Any],
    before: list[float],
    longest: int,
) -> None:
    """Between two tries a store waits half of 0.1 s or more, then of twice as much, at most of 1 s, while its time lasts.

    A finish waits between its write and the reading of what became of it, whose tries begin anew.
    """
    claim = harness.claimed()
    waited: list[float] = []
    monkeypatch.setattr("random.uniform", lambda low, high: low if (low, high) == (0.5, 1.0) else pytest.fail("other bounds"))
    monkeypatch.setattr(harness.store, "_monotonic", lambda: sum(waited))
    monkeypatch.setattr(harness.store, "_sleep", waited.append)
    for method in ("commit", "batch_get_documents"):
        harness.spy.fail(method, google.ServiceUnavailable("injected"), times=99)
    with pytest.raises(StoreUnavailable):
        call(harness.store, claim)
    assert waited == [*before, 0.05, 0.1, 0.2, 0.4, *[0.5] * longest]


def test_effects_leave_time_for_reading(harness: FirestoreHarness) -> None:
    """A finish with effects keeps a third of its time back, for reading what has become of its commit."""
    claim = harness.claimed()
    assert harness.store.finish_run(claim, Ending.COMPLETED, effects=harness.count_one, within_seconds=3)
    begin = next(rpc for rpc in harness.spy.rpcs if rpc.method == "begin_transaction")
    assert begin.options["timeout"] <= 2


# The client.


def test_one_channel_for_all_threads(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """30 threads that use a store for the first time at the same moment make one connection, with one channel."""
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", emulator.host)
    made: list[str] = []
    real_channel = grpc.insecure_channel

    def slow_connect(*place: Any) -> Connection:
        made.append("connection")
        time.sleep(0.05)
        return connect(*place)

    def slow_channel(*address: Any, **options: Any) -> grpc.Channel:
        made.append("channel")
        time.sleep(0.05)
        return real_channel(*address, **options)

    monkeypatch.setattr("dedup.stores.firestore.connect", slow_connect)
    monkeypatch.setattr(grpc, "insecure_channel", slow_channel)
    store = FirestoreRunStore(f"test-{uuid.uuid4().hex[:20]}")
    assert made == []
    decisions = at_once(store.claim_run, [a_claim(f"{n:064x}") for n in range(30)])
    assert decisions == [Decision.CLAIM] * 30
    assert made == ["connection", "channel"]


def test_named_database_and_collection(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are kept in the database and the collection that were named, and nowhere else."""
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", emulator.host)
    project = f"test-{uuid.uuid4().hex[:20]}"
    store = FirestoreRunStore(project, "scheduler-db", "my_runs")
    claim = a_claim()
    assert store.claim_run(claim) is Decision.CLAIM
    assert store.finish_run(claim, Ending.COMPLETED, effects=lambda transaction: None)
    named = firestore.Client(project=project, database="scheduler-db")
    assert [run.id for run in named.collection("my_runs").stream()] == [A_RUN]
    assert [collection.id for collection in named.collections()] == ["my_runs"]
    assert list(firestore.Client(project=project).collections()) == []


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port where connections are accepted, and nothing is ever answered."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield server.getsockname()[1]


@pytest.mark.skipif(not WHOLE, reason="waits 9 s: WHOLE=0; the end-to-end tier asks the same of a claim")
def test_server_out_of_reach(monkeypatch: pytest.MonkeyPatch, silent_port: int) -> None:
    """Where no server listens, or one that never answers, each method says so within its time: a claim in less than 10 s."""

    def held() -> Claim:
        return dataclasses.replace(a_claim(), token=datetime.now(UTC), trusted_until=time.monotonic() + 60)

    calls: list[tuple[float, FirestoreRunStore, Callable[[FirestoreRunStore], Any]]] = []
    for port in (free_port(), silent_port):
        monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", f"127.0.0.1:{port}")
        store = FirestoreRunStore("nowhere")
        store._connected()
        calls += [
            (10, store, lambda store: store.claim_run(a_claim())),
            (6, store, lambda store: store.renew_run(held())),
            (8, store, lambda store: store.finish_run(held(), Ending.COMPLETED, within_seconds=7)),
            (8, store, lambda store: store.finish_run(held(), Ending.RELEASED, within_seconds=7)),
            (3, store, lambda store: store.finish_run(held(), Ending.RELEASED, within_seconds=2)),
            (10, store, lambda store: store.finish_run(held(), Ending.COMPLETED, effects=lambda _: None, within_seconds=7)),
            (10, store, lambda store: store.get_run(A_RUN)),
        ]

    def timed(call: tuple[float, FirestoreRunStore, Callable[[FirestoreRunStore], Any]]) -> tuple[str, float, float]:
        bound, store, method = call
        began = time.monotonic()
        with pytest.raises(StoreUnavailable) as raised:
            method(store)
        return str(raised.value), time.monotonic() - began, bound

    for message, seconds, bound in at_once(timed, calls):
        assert seconds < bound
        assert "project nowhere" in message
        assert "the server" in message


@pytest.mark.parametrize(
    ("project", "where"),
    [("somewhere", "of project somewhere: "), (None, "of the environment's project: ")],
    ids=["named", "not"],
)
def test_no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Any, project: str | None, where: str) -> None:
    """Where there are neither credentials nor an emulator, the first use says what to do; making the store does not."""
    for name in ("FIRESTORE_EMULATOR_HOST", "GOOGLE_CLOUD_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    store = FirestoreRunStore(project)
    with pytest.raises(StoreUnavailable, match=f"{where}.*gcloud auth application-default login"):
        store.claim_run(a_claim())


# A lost acknowledgement: the store is told nothing, and the server has done it, or not.


def test_unclear_create(harness: FirestoreHarness, unclear: Exception, arrives: bool) -> None:
    """An attempt whose create went unacknowledged has the run, as its first attempt, and trusts it from before that try."""
    began = harness.monotonic()
    harness.spy.before_write = lambda: setattr(harness.monotonic, "ahead", harness.monotonic.ahead + 1.0)
    harness.spy.fail("commit", unclear, arrives=arrives)
    claim = a_claim()
    assert harness.store.claim_run(claim) is Decision.CLAIM
    assert claim.attempts == harness.record().attempts == 1
    assert harness.record().attempt_id == claim.attempt_id
    assert claim.token == harness.record().updated_at
    tries = harness.spy.methods.count("commit")
    assert claim.trusted_until - LEASE + 1.0 < began + tries
    assert claim.create_unclear


def test_unclear_create_that_arrived_is_trusted_from_before_it(harness: FirestoreHarness) -> None:
    """A create that is found by reading again is trusted from before it was sent, not from when it was found."""
    began = harness.monotonic()
    harness.write_seconds = 3.0
    harness.spy.fail("commit", google.DeadlineExceeded("injected"), arrives=True)
    assert harness.claimed().trusted_until - LEASE + 1.0 < began + harness.write_seconds


def test_unclear_take_over(harness: FirestoreHarness, unclear: Exception, arrives: bool) -> None:
    """An attempt whose take-over went unacknowledged has the run, counted once."""
    harness.claimed()
    harness.expire_lease(A_RUN)
    claim = a_claim()
    harness.spy.fail("commit", google.AlreadyExists("as it would be"))
    harness.spy.fail("commit", unclear, arrives=arrives)
    assert harness.store.claim_run(claim) is Decision.CLAIM
    assert claim.attempts == harness.record().attempts == 2
    assert harness.record().attempt_id == claim.attempt_id
    assert not claim.create_unclear


def test_unclear_take_over_by_another(harness: FirestoreHarness, unclear: Exception) -> None:
    """An attempt whose take-over was lost, and whose rival's wasn't, hears that the run is in progress."""
    harness.claimed()
    harness.expire_lease(A_RUN)
    rival = a_claim()
    harness.spy.fail("commit", google.AlreadyExists("as it would be"))
    harness.spy.fail("commit", unclear)
    harness.spy.before_write = _at(2, lambda: FirestoreRunStore(harness.project).claim_run(rival))
    assert harness.store.claim_run(a_claim()) is Decision.IN_PROGRESS
    assert harness.record().attempt_id == rival.attempt_id


def test_unclear_renewal(harness: FirestoreHarness, unclear: Exception, arrives: bool) -> None:
    """A renewal that went unacknowledged is found, or sent again."""
    claim = harness.claimed()
    token = claim.token
    assert token is not None
    harness.spy.fail("commit", unclear, arrives=arrives)
    assert harness.store.renew_run(claim)
    assert token < harness.record().updated_at == claim.token
    assert harness.spy.methods.count("commit") == (2 if arrives else 3)


@pytest.mark.parametrize("first_try", ["arrived", "lost", "late"])
def test_unclear_renewal_is_trusted_from_before_its_first_try(harness: FirestoreHarness, first_try: str) -> None:
    """A renewal that is found by reading again extends the trust only from before its first try: that one may have made it."""
    claim = harness.claimed()
    harness.monotonic.ahead += 10
    began = harness.monotonic()

    def send() -> None:
        harness.monotonic.ahead += 1.0
        if first_try == "late" and harness.spy.methods.count("commit") == 3:
            harness.spy.resend(harness.spy.rpcs[1])

    harness.spy.before_write = send
    harness.spy.fail("commit", google.DeadlineExceeded("injected"), arrives=first_try == "arrived")
    if first_try == "lost":
        harness.spy.fail("commit", google.DeadlineExceeded("injected"), arrives=True)
    assert harness.store.renew_run(claim)
    assert harness.spy.methods.count("commit") == (2 if first_try == "arrived" else 3)
    assert began < claim.trusted_until - LEASE + claim.margin_seconds < began + 1.0
    assert (claim.token, claim.unsettled_since) == (harness.record().updated_at, None)


def test_refusal_settles_nothing_that_was_unclear(harness: FirestoreHarness) -> None:
    """A renewal that is refused for good after an unclear try leaves that try unsettled: it may still arrive."""
    claim = harness.claimed()
    began = harness.monotonic()
    harness.write_seconds = 1.0
    harness.spy.fail("commit", google.DeadlineExceeded("injected"))
    harness.spy.fail("commit", google.PermissionDenied("injected"))
    with pytest.raises(StoreUnavailable):
        harness.store.renew_run(claim)
    assert claim.unsettled_since is not None
    assert began <= claim.unsettled_since < began + harness.write_seconds


def test_write_that_changed_nothing_is_unclear(harness: FirestoreHarness) -> None:
    """A write that leaves the time of the last one as it was has renewed nothing, and settles nothing."""
    claim = harness.claimed()
    token = claim.token
    assert token is not None
    claim.unsettled_since = 5.0
    fate = harness.store._write(claim, harness.store._tries(1), lambda: token)
    assert (fate.name, claim.unsettled_since) == ("UNCLEAR", 5.0)


def test_unclear_renewal_of_a_lost_run(harness: FirestoreHarness, unclear: Exception) -> None:
    """A renewal that went unacknowledged, of a run that has been taken over, is none."""
    claim = harness.claimed()
    harness.expire_lease(A_RUN)
    successor = a_claim()
    assert FirestoreRunStore(harness.project).claim_run(successor) is Decision.CLAIM
    trusted_until = claim.trusted_until
    harness.spy.fail("commit", unclear)
    assert not harness.store.renew_run(claim)
    assert claim.trusted_until == trusted_until
    assert harness.record().attempt_id == successor.attempt_id


@pytest.mark.parametrize("ending", [Ending.COMPLETED, Ending.FAILED], ids=["completed", "failed"])
def test_unclear_finish(harness: FirestoreHarness, unclear: Exception, arrives: bool, ending: Ending) -> None:
    """A finish that went unacknowledged is recorded once."""
    claim = harness.claimed()
    harness.spy.fail("commit", unclear, arrives=arrives)
    assert harness.store.finish_run(claim, ending, result="12 rows")
    assert harness.record().status == ending.value
    assert harness.record().result == "12 rows"
    assert harness.spy.methods.count("commit") == (2 if arrives else 3)


def test_unclear_release(harness: FirestoreHarness, unclear: Exception, arrives: bool) -> None:
    """A release that went unacknowledged leaves the run to the next."""
    claim = harness.claimed()
    harness.spy.fail("commit", unclear, arrives=arrives)
    assert harness.store.finish_run(claim, Ending.RELEASED)
    assert harness.raw(A_RUN) is None


def test_unclear_release_of_a_lost_run(harness: FirestoreHarness, unclear: Exception) -> None:
    """A release that went unacknowledged, of a run that has been taken over, leaves it to its successor."""
    claim = harness.claimed()
    harness.expire_lease(A_RUN)
    successor = harness.claimed()
    before = harness.raw(A_RUN)
    harness.spy.fail("commit", unclear)
    assert not harness.store.finish_run(claim, Ending.RELEASED)
    assert harness.raw(A_RUN) == before
    assert harness.record().attempt_id == successor.attempt_id


def test_unclear_effects(harness: FirestoreHarness, unclear: Exception, arrives: bool) -> None:
    """Effects whose commit went unacknowledged are there once if the run is recorded, and not at all if it isn't."""
    claim = harness.claimed()
    harness.spy.fail("commit", unclear, arrives=arrives)
    try:
        recorded = harness.store.finish_run(claim, Ending.COMPLETED, effects=harness.count_one)
    except StoreUnavailable:
        recorded = False
    assert harness.counted() == recorded
    assert harness.record().status is (Status.COMPLETED if recorded else Status.IN_PROGRESS)
    assert recorded or not arrives


@pytest.mark.parametrize(
    ("write", "refusal"),
    [
        (lambda transaction, document: transaction.create(document, {}), google.AlreadyExists),
        (lambda transaction, document: transaction.update(document.parent.document("none"), {"n": 1}), google.NotFound),
    ],
    ids=["create of what exists", "update of what doesn't"],
)
def test_refused_effects(harness: FirestoreHarness, write: Callable[..., Any], refusal: type[Exception]) -> None:
    """What Firestore refuses of the job's own writes is the job's fault, told by Firestore's words; nothing is written."""
    claim = harness.claimed()
    document = harness.client.document("effects/there")
    document.set({})
    with pytest.raises(EffectsRaised) as raised:
        harness.store.finish_run(claim, Ending.COMPLETED, effects=lambda transaction: write(transaction, document))
    assert isinstance(raised.value.raised, refusal)
    assert harness.record().is_held_by(claim.attempt_id)


def test_unclear_read(harness: FirestoreHarness, unclear: Exception) -> None:
    """A read that failed is tried again."""
    harness.claimed()
    harness.spy.fail("batch_get_documents", unclear, times=2)
    assert harness.store.claim_run(a_claim()) is Decision.IN_PROGRESS


def test_empty_read(harness: FirestoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer without a document says nothing of the run: it is asked for again, and doesn't pass for a missing record."""
    claim = harness.claimed()
    api = harness.store._connected().api
    real = api.batch_get_documents
    answers: list[Callable[..., Any]] = [lambda **rpc: iter(())]
    monkeypatch.setattr(api, "batch_get_documents", lambda **rpc: (answers.pop() if answers else real)(**rpc), raising=False)
    assert harness.store.get_run(A_RUN) == harness.record()
    assert answers == []
    assert harness.record().attempt_id == claim.attempt_id


def test_nothing_but_empty_reads(harness: FirestoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every answer is empty, the run is unknown, and the error says why."""
    api = harness.store._connected().api
    monkeypatch.setattr(api, "batch_get_documents", lambda **rpc: iter(()), raising=False)
    with pytest.raises(StoreUnavailable, match=": the answer was empty "):
        harness.store.get_run(A_RUN)


# What can't be mended by trying again.

DEFINITE = {
    google.PermissionDenied: "its service account needs roles/datastore.user on this database",
    google.Unauthenticated: "its credentials are refused: gcloud auth application-default login",
    google.NotFound: "create the database, or set DEDUP_STORE=firestore://PROJECT/DATABASE",
    google.FailedPrecondition: "the database must be in Native mode",
    google.InvalidArgument: "see the Firestore status page",
}


@pytest.mark.parametrize("kind", DEFINITE, ids=lambda kind: kind.__name__)
def test_definite_refusal(harness: FirestoreHarness, kind: type[Exception]) -> None:
    """A refusal that the next try would meet too ends every method at once, with where that was and what to do about it."""
    claim = harness.claimed()
    harness.spy.fail("commit", kind("injected"), times=99)
    harness.spy.fail("batch_get_documents", kind("injected"), times=99)
    calls: list[Callable[[], Any]] = [
        lambda: harness.store.claim_run(a_claim()),
        lambda: harness.store.renew_run(claim),
        lambda: harness.store.finish_run(claim, Ending.COMPLETED),
        lambda: harness.store.finish_run(claim, Ending.RELEASED),
        lambda: harness.store.finish_run(claim, Ending.COMPLETED, effects=lambda transaction: None),
        lambda: harness.store.get_run(A_RUN),
    ]
    for call in calls:
        before = len(harness.spy.rpcs)
        with pytest.raises(StoreUnavailable) as refusal:
            call()
        assert str(refusal.value).startswith(f"Firestore, database (default) of project {harness.project}: ")
        assert str(refusal.value).endswith(f"injected ({DEFINITE[kind]})")
        assert len([rpc for rpc in harness.spy.rpcs[before:] if rpc.method in ("commit", "batch_get_documents")]) <= 2
    assert claim.unsettled_since is None


# A create that arrives late.


def test_release_after_unclear_create(harness: FirestoreHarness) -> None:
    """An attempt whose create may still arrive gives the run up by an update, and that create then changes nothing."""
    harness.spy.fail("commit", google.DeadlineExceeded("injected"))
    claim = harness.claimed()
    lost_create = harness.spy.rpcs[0]
    assert harness.store.finish_run(claim, Ending.RELEASED)
    fields = harness.raw(A_RUN)
    assert fields is not None
    assert fields["lease_seconds"] == 0
    assert fields["lease_expires"] < datetime.now(UTC) - timedelta(days=365)
    with pytest.raises(google.AlreadyExists):
        harness.spy.resend(lost_create)
    assert harness.raw(A_RUN) == fields
    successor = a_claim()
    assert harness.store.claim_run(successor) is Decision.CLAIM
    assert successor.attempts == 2


def test_unclear_release_after_unclear_create(harness: FirestoreHarness, unclear: Exception, arrives: bool) -> None:
    """That update is found by reading again, too, or sent again."""
    harness.spy.fail("commit", google.DeadlineExceeded("injected"))
    claim = harness.claimed()
    harness.spy.fail("commit", unclear, arrives=arrives)
    assert harness.store.finish_run(claim, Ending.RELEASED)
    assert (harness.raw(A_RUN) or {})["lease_seconds"] == 0
    assert harness.store.claim_run(a_claim()) is Decision.CLAIM


def test_completion_after_unclear_create(harness: FirestoreHarness) -> None:
    """A create that arrives after the completion changes nothing."""
    harness.spy.fail("commit", google.DeadlineExceeded("injected"))
    claim = harness.claimed()
    assert harness.store.finish_run(claim, Ending.COMPLETED)
    with pytest.raises(google.AlreadyExists):
        harness.spy.resend(harness.spy.rpcs[0])
    assert harness.record().status is Status.COMPLETED


def test_release_by_the_one_that_claimed_after(harness: FirestoreHarness) -> None:
    """An attempt that took over, after another's unclear create, gives the run up by a delete."""
    harness.claimed()
    harness.expire_lease(A_RUN)
    assert harness.store.finish_run(harness.claimed(), Ending.RELEASED)
    assert harness.raw(A_RUN) is None


# A renewal beside the finish.


@pytest.mark.parametrize("renewals", [1, 2, 3])
@pytest.mark.parametrize("ending", Ending, ids=lambda ending: ending.value)
def test_renewals_beside_the_finish(harness: FirestoreHarness, ending: Ending, renewals: int) -> None:
    """Renewals that each move the token just before the finish don't keep the run from being ended."""
    claim = harness.claimed()
    for_renewals = FirestoreRunStore(harness.project)
    renewed = []

    def renew() -> None:
        if len(renewed) < renewals:
            beside = dataclasses.replace(claim, token=harness.record().updated_at)
            renewed.append(for_renewals.renew_run(beside))

    harness.spy.before_write = renew
    assert harness.store.finish_run(claim, ending)
    assert renewed == [True] * renewals
    record = harness.store.get_run(A_RUN)
    assert (record.status.value if record and record.status else "released") == ending.value


def test_renewals_beside_the_finish_without_end(harness: FirestoreHarness) -> None:
    """A finish that is refused again and again is given up: it says so, and has written nothing."""
    claim = harness.claimed()
    for_renewals = FirestoreRunStore(harness.project)
    harness.spy.before_write = lambda: _ignore(
        for_renewals.renew_run(dataclasses.replace(claim, token=harness.record().updated_at))
    )
    assert not harness.store.finish_run(claim, Ending.COMPLETED)
    assert harness.spy.methods.count("commit") == 1 + 1 + REFUSED_FINISHES
    assert harness.record().status is Status.IN_PROGRESS
    assert harness.record().attempt_id == claim.attempt_id


# The transaction of a finish with effects.


def test_effects_and_completion_share_what_was_read(harness: FirestoreHarness) -> None:
    """The run is read in the transaction that completes it, so that nobody takes it over in between."""
    claim = harness.claimed()
    assert harness.store.finish_run(claim, Ending.COMPLETED, effects=lambda transaction: None)
    read, commit = harness.spy.rpcs[-2:]
    assert (read.method, commit.method) == ("batch_get_documents", "commit")
    assert transaction_of(read.request) == transaction_of(commit.request) != b""


def test_aborted_effects_begin_again_as_a_retry(harness: FirestoreHarness) -> None:
    """A transaction that begins after an aborted one names it, and the server lets it go before younger ones."""
    claim = harness.claimed()
    harness.spy.fail("commit", google.Aborted("injected"))
    assert harness.store.finish_run(claim, Ending.COMPLETED, effects=harness.count_one)
    _, second = [rpc for rpc in harness.spy.rpcs if rpc.method == "begin_transaction"]
    aborted = next(of for rpc in harness.spy.rpcs if rpc.method == "commit" and (of := transaction_of(rpc.request)))
    assert second.request["options"].read_write.retry_transaction == aborted


def test_transaction_tells_of_its_commit(harness: FirestoreHarness) -> None:
    """As with the client's own, the job can read off its transaction when it was committed, and what came of each write."""
    transactions: list[firestore.Transaction] = []
    assert harness.store.finish_run(harness.claimed(), Ending.COMPLETED, effects=transactions.append)
    [transaction] = transactions
    assert transaction.commit_time == harness.record().updated_at
    assert len(transaction.write_results) == 1
    assert not transaction.in_progress


# Threads.


def test_effects_in_many_threads(harness: FirestoreHarness) -> None:
    """Completions with effects, in several threads at once, are committed each once."""
    claims = [harness.claimed(f"{n:064x}") for n in range(6)]
    marks = threading.Lock()
    done: list[str] = []

    def complete(claim: Claim) -> bool:
        mark = harness.client.document(f"marks/{claim.run_id}")

        def effects(transaction: firestore.Transaction) -> None:
            transaction.create(mark, {"by": claim.attempt_id})
            with marks:
                done.append(claim.run_id)

        return harness.store.finish_run(claim, Ending.COMPLETED, effects=effects)

    assert at_once(complete, claims) == [True] * len(claims)
    assert {mark.id for mark in harness.client.collection("marks").stream()} == set(done)
    assert {harness.record(claim.run_id).status for claim in claims} == {Status.COMPLETED}


def _at(nth: int, call: Callable[[], Any]) -> Callable[[], None]:
    """Calls before the nth write, and only then."""
    writes = iter(range(1, 1000))
    return lambda: _ignore(call() if next(writes) == nth else None)


def _ignore(_: object) -> None:
    """Makes a statement of an expression."""
