"""What is Redis's own: one round trip, scripts that agree with decide(), lost replies, and what a lost server forgets."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis as library
from google.auth.exceptions import DefaultCredentialsError, TransportError
from hypothesis import given, settings
from hypothesis import strategies as st

from dedup.record import Decision, Ending, Status, decide
from dedup.stores import Claim, StoreUnavailable, Unsupported, open_store, redis_client
from dedup.stores.redis import CLAIM_SECONDS, RedisRunStore, _record, _Script
from dedup.stores.redis_client import TRY_SECONDS, Server, bounded_by, within_bounds
from dedup.stores.tries import Tries
from tests.template.contract.harness import A_RUN, LEASE, RETENTION, RedisHarness, Ticker, ValkeyHarness, a_claim
from tests.template.e2e.relay import Fault, Relay
from tests.template.emulator import EmulatorMissing, RedisServer, free_port, redis_server
from tests.template.size import WHOLE

pytestmark = pytest.mark.store("redis")

NO_REPLY = [library.TimeoutError("injected"), library.ConnectionError("injected")]


SERVERS = {"redis": RedisHarness, **({"valkey": ValkeyHarness} if WHOLE else {})}


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.store(name)) for name in SERVERS])
def harness(request: pytest.FixtureRequest) -> Iterator[RedisHarness]:
    """A fresh store with its harness."""
    made = SERVERS[request.param](request)
    yield made
    made.close()


@pytest.fixture(params=NO_REPLY, ids=["time-out", "broken connection"])
def no_reply(request: pytest.FixtureRequest) -> Exception:
    """What the client says where none came."""
    fault: Exception = request.param
    return fault


@pytest.fixture(params=[True, False], ids=["arrived", "lost"])
def arrives(request: pytest.FixtureRequest) -> bool:
    """Whether the script ran all the same."""
    return bool(request.param)


@pytest.fixture
def own_server(request: pytest.FixtureRequest) -> Iterator[Callable[..., RedisServer]]:
    """Starts servers of a test's own, with options; ends them after it."""
    running = []

    def start(*options: str, valkey: bool = False) -> RedisServer:
        try:
            entered = redis_server(*options, valkey=valkey)
            running.append(entered)
            return entered.__enter__()
        except EmulatorMissing as missing:
            pytest.skip(str(missing))

    yield start
    for entered in running:
        entered.__exit__(None, None, None)


def store_at(server: RedisServer, **more: Any) -> RedisRunStore:
    """A store on that server whose waits between tries take no real time."""
    ticker = Ticker()
    return RedisRunStore(Server(host="127.0.0.1", port=server.port, **more), monotonic=ticker, sleep=ticker.wait)


def refusal(call: Callable[[], Any]) -> str:
    """What a store that can't be asked says."""
    with pytest.raises(StoreUnavailable) as raised:
        call()
    return str(raised.value)


# Round trips.


def sent(harness: RedisHarness, do: Callable[[], Any]) -> list[str]:
    """The commands that something costs."""
    before = len(harness.spy.sent)
    do()
    return harness.spy.commands[before:]


@pytest.mark.parametrize("ending", Ending, ids=lambda ending: ending.value)
def test_every_outcome_costs_one_round_trip(harness: RedisHarness, ending: Ending) -> None:
    """A claim, its duplicate, a take-over, a renewal and each ending cost one command each, whatever comes of them."""
    harness.claimed("f" * 64)  # the server knows the script from here on
    claim, duplicate, successor = a_claim(), a_claim(), a_claim()
    assert harness.store.renew_run(harness.claimed("e" * 64))
    assert harness.store.finish_run(harness.claimed("d" * 64), Ending.COMPLETED)
    assert sent(harness, lambda: harness.store.claim_run(claim)) == ["EVALSHA"]
    assert sent(harness, lambda: harness.store.claim_run(claim)) == ["EVALSHA"]
    assert sent(harness, lambda: harness.store.claim_run(duplicate)) == ["EVALSHA"]
    assert sent(harness, lambda: harness.store.renew_run(claim)) == ["EVALSHA"]
    harness.expire_lease(A_RUN)
    assert sent(harness, lambda: harness.store.claim_run(successor)) == ["EVALSHA"]
    assert sent(harness, lambda: harness.store.renew_run(claim)) == ["EVALSHA"]
    assert sent(harness, lambda: harness.store.finish_run(claim, ending)) == ["EVALSHA"]
    assert sent(harness, lambda: harness.store.finish_run(successor, ending)) == ["EVALSHA"]
    assert sent(harness, lambda: harness.store.finish_run(successor, ending)) == ["EVALSHA"]
    assert sent(harness, lambda: harness.store.claim_run(a_claim())) == ["EVALSHA"]


def test_a_new_connection_begins_with_the_script(own_server: Callable[..., RedisServer]) -> None:
    """Nothing is said to the server before the first script: no HELLO, no CLIENT SETINFO."""
    server = own_server(valkey=True)  # Redis before 7.2 doesn't count a SETINFO
    with closing(library.Redis(port=server.port, protocol=2, driver_info=None, decode_responses=True)) as client:
        for text in (script.text for script in store_at(server)._scripts.values()):
            client.script_load(text)
        client.config_resetstat()
        assert store_at(server).claim_run(a_claim()) is Decision.CLAIM
        calls = {name.removeprefix("cmdstat_"): stat["calls"] for name, stat in client.info("commandstats").items()}
    in_the_script = {"hgetall", "time", "del", "hset", "pexpireat"}
    assert {name: calls[name] for name in calls.keys() - in_the_script - {"config|resetstat"}} == {"evalsha": 1}


def test_a_server_that_has_forgotten_the_scripts(harness: RedisHarness) -> None:
    """A server that has restarted, or taken over, is sent the text once, in a second round trip."""
    harness.claimed("f" * 64)
    harness.client.script_flush()
    assert sent(harness, lambda: harness.claimed("a" * 64)) == ["EVALSHA", "EVAL"]
    assert sent(harness, lambda: harness.claimed("b" * 64)) == ["EVALSHA"]


def test_scripts_write_text_alone(harness: RedisHarness) -> None:
    """Redis 7.2.0 to 7.2.4 and the first Valkey write a number such as 10^9 as 1e+9: redis.call is given none."""
    text_alone = """
        local real = redis
        local redis = {call = function(...)
            for _, argument in ipairs({...}) do
                assert(type(argument) == 'string', 'not text: ' .. tostring(argument))
            end
            return real.call(...)
        end}
    """
    harness.store._scripts = {
        name: _Script(text_alone + script.text, "0" * 40) for name, script in harness.store._scripts.items()
    }
    claim = harness.claimed()
    assert harness.store.renew_run(claim)
    harness.expire_lease(A_RUN)
    successor = harness.claimed()
    assert harness.store.finish_run(successor, Ending.COMPLETED, result="done")
    assert harness.store.claim_run(claim) is Decision.COMPLETED
    _, now = harness.store.look_up(A_RUN)
    assert harness.store.delete_run(A_RUN, now) is False
    late = harness.claimed("b" * 64)
    late.create_unclear = True
    assert harness.store.finish_run(late, Ending.RELEASED)


# The scripts' rule is decide()'s.

NOW = datetime.now(UTC)
numbers = st.sampled_from(["0", "1", "60", "1000000000", "1000000001", "9999999999999999", "007"])
broken = st.sampled_from(["", "-1", "1.5", "1e3", "0x10", " 5 ", "soon", "99999999999999999", "\u0663", "nan", "inf", "60\n"])


def times(*hours: float) -> st.SearchStrategy[str]:
    """Times near now, as Redis holds them."""
    return st.sampled_from(hours).map(lambda ago: str(int((NOW + timedelta(hours=ago)).timestamp() * 1_000_000)))


FIELDS: dict[str, st.SearchStrategy[str]] = {
    "status": st.sampled_from(["in_progress", "in_progress", "completed", "failed", "Completed", "", "done", "in_progress "]),
    "attempt_id": st.sampled_from(["mine", "mine", "other", ""]),
    "lease_seconds": numbers | broken,
    "lease_expires": times(-1, 1, 100) | broken,
    "updated_at": times(-30, -1, -0.01, 1) | broken,
    "expire_at": times(-1, 1) | broken,
    "attempts": numbers | broken,
    "unknown": st.just("x"),
}


def test_the_script_decides_as_python_does(harness: RedisHarness) -> None:
    """Of any record, whoever wrote it and however broken, the claim's script says what decide() says, and counts alike."""
    client, key, script = harness.client, harness.key(A_RUN), harness.store._scripts["claim"]

    @settings(max_examples=2000 if WHOLE else 100, database=None)
    @given(fields=st.fixed_dictionaries({}, optional=FIELDS))
    def agree(fields: dict[str, str]) -> None:
        client.delete(key)
        if fields:
            client.hset(key, mapping=fields)
        said, micros, _ = client.eval(script.text, 1, key, "mine", LEASE, RETENTION)
        now = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(micros))
        record = _record(A_RUN, fields, now) if fields else None
        assert Decision(said) is decide(record, "mine", now)
        if said == "claim":
            assert client.hget(key, "attempts") == str(record.attempts + 1 if record is not None else 1)
        elif said != "held":
            assert client.hgetall(key) == fields

    agree()


# A reply that doesn't come.


def test_unanswered_claim(harness: RedisHarness, no_reply: Exception, arrives: bool) -> None:
    """A claim whose reply didn't come is sent again, and finds itself: one attempt, one record."""
    harness.spy.fail(no_reply, arrives=arrives)
    claim = a_claim()
    assert harness.store.claim_run(claim) is Decision.CLAIM
    assert claim.attempts == harness.record().attempts == 1
    assert harness.record().updated_at == claim.token


def test_unanswered_take_over(harness: RedisHarness, no_reply: Exception, arrives: bool) -> None:
    """A take-over whose reply didn't come counts one attempt."""
    harness.claimed()
    harness.expire_lease(A_RUN)
    harness.spy.fail(no_reply, arrives=arrives)
    claim = a_claim()
    assert harness.store.claim_run(claim) is Decision.CLAIM
    assert claim.attempts == harness.record().attempts == 2


def test_a_connection_that_breaks(harness: RedisHarness) -> None:
    """A claim whose connection breaks with its reply is sent again, and known to have been: the library repeats nothing."""
    with Relay(harness.server.host) as relay:
        store = RedisRunStore(Server(host="127.0.0.1", port=int(relay.host.rpartition(":")[2])), harness.prefix)
        assert store.claim_run(a_claim("f" * 64)) is Decision.CLAIM
        network = threading.Thread(target=relay.fail, args=(Fault.MUTE, 0.3))
        network.start()
        while not relay.faults:
            time.sleep(0.01)
        claim = a_claim()
        assert store.claim_run(claim) is Decision.CLAIM
        network.join()
        store._client().close()
    assert claim.create_unclear
    assert harness.record().attempts == 1


def test_trust_of_an_unanswered_claim(harness: RedisHarness, arrives: bool) -> None:
    """The lease is trusted from before the try that was answered: that one has written it anew."""
    harness.write_seconds = 1.0
    harness.spy.fail(NO_REPLY[0], arrives=arrives)
    claim = a_claim()
    assert harness.store.claim_run(claim) is Decision.CLAIM
    left = claim.trusted_until - harness.monotonic()
    assert LEASE - 1.0 - 1.0 - 1.0 < left <= LEASE - 1.0 - 1.0
    assert harness.now() + timedelta(seconds=left) < harness.record().live_until


def test_unanswered_renewal(harness: RedisHarness, no_reply: Exception, arrives: bool) -> None:
    """A renewal whose reply didn't come is sent again."""
    claim = harness.claimed()
    harness.spy.fail(no_reply, arrives=arrives)
    assert harness.store.renew_run(claim)
    assert harness.record().updated_at == claim.token


@pytest.mark.parametrize("ending", Ending, ids=lambda ending: ending.value)
def test_unanswered_finish(harness: RedisHarness, no_reply: Exception, arrives: bool, ending: Ending) -> None:
    """A finish whose reply didn't come is sent again, and is told that the run stands as wanted."""
    claim = harness.claimed()
    harness.spy.fail(no_reply, arrives=arrives)
    assert harness.store.finish_run(claim, ending)
    left = harness.store.get_run(A_RUN)
    assert (left.status if left is not None else None) == {"completed": Status.COMPLETED, "failed": Status.FAILED}.get(
        ending.value
    )


def test_a_claim_that_arrives_after_the_release(harness: RedisHarness) -> None:
    """A try that comes after its attempt has given the run up holds nothing; the run is free for everybody else."""
    harness.spy.fail(NO_REPLY[0], arrives=False)
    claim = a_claim()
    assert harness.store.claim_run(claim) is Decision.CLAIM
    late = harness.spy.sent[0]
    assert harness.store.finish_run(claim, Ending.RELEASED)
    assert harness.store.finish_run(claim, Ending.RELEASED)

    harness.spy.resend(late)

    assert not harness.store.renew_run(claim)
    successor = a_claim()
    assert harness.store.claim_run(successor) is Decision.CLAIM
    harness.spy.resend(late)
    assert harness.store.renew_run(successor)
    assert not harness.store.finish_run(claim, Ending.COMPLETED)
    assert harness.record().attempt_id == successor.attempt_id


def test_a_release_leaves_nothing_where_every_try_was_answered(harness: RedisHarness) -> None:
    """With no try on its way, a release deletes the record."""
    claim = harness.claimed()
    assert harness.store.finish_run(claim, Ending.RELEASED)
    assert harness.client.exists(harness.key(A_RUN)) == 0


@pytest.mark.parametrize("fault", ["READONLY", "LOADING"])
def test_a_server_that_fails_over(harness: RedisHarness, fault: str) -> None:
    """A server that starts, or is no primary any more, is asked again, by a new connection; the claim isn't unclear by it."""
    raised = {"READONLY": library.exceptions.ReadOnlyError, "LOADING": library.exceptions.BusyLoadingError}[fault]
    harness.claimed("f" * 64)
    before = harness.client.info("stats")["total_connections_received"]
    harness.spy.fail(raised("injected"), times=3)
    claim = a_claim()
    assert harness.store.claim_run(claim) is Decision.CLAIM
    assert not claim.create_unclear
    assert harness.client.info("stats")["total_connections_received"] == before + 1


def test_an_attempt_that_is_stopped_between_command_and_reply(harness: RedisHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker's abort may strike there. The reply that is still to come is not taken for that of the next command."""
    client = harness.store._client()
    client.set("name", "value")

    def stopped(*_: Any, **__: Any) -> Any:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(client, "parse_response", stopped)
        with pytest.raises(SystemExit):
            client.blpop("nothing is here", timeout=1)
    assert client.get("name") == "value"


def test_commands_in_one_go_whose_time_is_up_before_their_replies(harness: RedisHarness) -> None:
    """What is still to come of them is not taken for the reply of the next command."""
    client = harness.store._client()
    client.set("name", "value")
    with client.pipeline(transaction=False) as pipeline, bounded_by(harness.store._tries(0)):
        pipeline.blpop("nothing is here", timeout=1)
        with pytest.raises(StoreUnavailable):
            pipeline.execute()
    assert client.get("name") == "value"


def test_a_hash_that_is_no_record_of_ours_is_there(harness: RedisHarness) -> None:
    """What has none of a record's fields is held by nobody, and yet not gone."""
    harness.client.hset(harness.key(A_RUN), "note", "written by hand")
    claim = a_claim()
    assert harness.store.claim_run(claim) is Decision.IN_PROGRESS
    assert not harness.store.finish_run(claim, Ending.RELEASED)
    record, now = harness.store.look_up(A_RUN)
    assert record is not None
    assert harness.store.delete_run(A_RUN, now)
    assert harness.client.exists(harness.key(A_RUN)) == 0


# What is kept.


def test_a_record_expires(harness: RedisHarness) -> None:
    """Redis deletes a record at its expire_at, which a renewal moves on, and an ending doesn't."""
    claim = harness.claimed(retention_seconds=LEASE)
    assert LEASE - 5 < harness.client.ttl(harness.key(A_RUN)) <= LEASE
    claim.retention_seconds = RETENTION
    assert harness.store.renew_run(claim)
    assert RETENTION - 5 < harness.client.ttl(harness.key(A_RUN)) <= RETENTION
    assert harness.store.finish_run(claim, Ending.COMPLETED)
    assert RETENTION - 5 < harness.client.ttl(harness.key(A_RUN)) <= RETENTION
    expire_at = harness.record().expire_at
    assert expire_at is not None
    assert 0 <= harness.client.pexpiretime(harness.key(A_RUN)) - expire_at.timestamp() * 1000 <= 1


def test_an_effect_is_refused(harness: RedisHarness) -> None:
    """A job's own writes can't be one with a script: they are refused, and nothing is written."""
    claim = harness.claimed()
    before = harness.raw(A_RUN)
    with pytest.raises(Unsupported, match="needs Firestore or Spanner"):
        harness.store.finish_run(claim, Ending.COMPLETED, effects=harness.count_one)
    assert harness.raw(A_RUN) == before
    assert not harness.store.supports_effects


@pytest.mark.parametrize("field", ["updated_at", "status", "attempt_id", "lease_seconds"])
@pytest.mark.parametrize("value", ["", "yesterday", b"\xff\xfe"], ids=["empty", "text", "binary"])
def test_a_broken_hash_fails_closed(harness: RedisHarness, field: str, value: Any) -> None:
    """A hash that a hand has broken holds its run, is left as it is, and can be looked at."""
    harness.claimed()
    harness.client.hset(harness.key(A_RUN), field, value)
    before = harness.client.dump(harness.key(A_RUN)) if isinstance(value, str) else None
    if field == "attempt_id" and value:  # whose it is by now, nobody else knows either: it is some other attempt's
        assert harness.store.claim_run(a_claim()) is Decision.IN_PROGRESS
        return
    assert harness.store.claim_run(a_claim()) is Decision.IN_PROGRESS
    assert harness.store.get_run(A_RUN) is not None
    if before is not None:
        assert harness.client.hget(harness.key(A_RUN), field) == value


def test_a_key_of_another_kind(harness: RedisHarness) -> None:
    """A key that is no hash is an error that names the server, not a free run."""
    harness.client.set(harness.key(A_RUN), "x")
    assert "WRONGTYPE" in refusal(lambda: harness.store.claim_run(a_claim()))
    assert "WRONGTYPE" in refusal(lambda: harness.store.get_run(A_RUN))


@pytest.mark.skipif(not WHOLE, reason="waits for a cluster: WHOLE=0")
def test_runs_are_where_a_cluster_wants_them(own_server: Callable[..., RedisServer]) -> None:
    """The scripts run on a cluster's node: each touches one key, which it names."""
    server = own_server("--cluster-enabled", "yes")
    with closing(library.Redis(port=server.port)) as client:
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        give_up_at = time.monotonic() + 10
        while client.execute_command("CLUSTER INFO")["cluster_state"] != "ok" and time.monotonic() < give_up_at:
            time.sleep(0.05)
    store, claim = store_at(server), a_claim()
    assert store.claim_run(claim) is Decision.CLAIM
    assert store.renew_run(claim)
    assert store.finish_run(claim, Ending.COMPLETED)


# What Redis can't promise.


def kept_over_a_crash(server: RedisServer) -> Decision:
    """What a second attempt hears after a claim that was acknowledged, and a crash of the server."""
    store = store_at(server)
    assert store.claim_run(a_claim()) is Decision.CLAIM
    server.restart()
    return store.claim_run(a_claim())


def test_a_crash_forgets_a_claim(own_server: Callable[..., RedisServer]) -> None:
    """A server without persistence that crashes forgets an acknowledged claim: the run is given away a second time."""
    assert kept_over_a_crash(own_server()) is Decision.CLAIM


def test_a_crash_keeps_a_claim_that_was_synced(own_server: Callable[..., RedisServer]) -> None:
    """With an AOF that is synced with every write, an acknowledged claim outlives the crash."""
    server = own_server("--appendonly", "yes", "--appendfsync", "always")
    assert kept_over_a_crash(server) is Decision.IN_PROGRESS


# The server can't be asked.


def test_a_closed_port() -> None:
    """A server that isn't there is an error that names the store and what to look at, within 10 s."""
    ticker = Ticker()
    store = RedisRunStore(Server(host="127.0.0.1", port=free_port()), monotonic=ticker, sleep=ticker.wait)
    began = ticker()
    told = refusal(lambda: store.claim_run(a_claim()))
    assert ticker() - began < 10
    assert told.startswith(f"Redis at 127.0.0.1:{store.server.port}/0: ")
    assert "is it up, does DEDUP_STORE name it" in told


def test_a_name_that_takes_long_is_waited_for_no_longer_than_there_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server that is silent is an error in time, though no time-out of a socket covers it; its thread ends by itself."""
    asked = threading.Event()

    def silent(*_: object, **__: object) -> list[Any]:
        asked.wait(10)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    monkeypatch.setattr("dedup.stores.redis.CLAIM_SECONDS", 0.5)
    store = RedisRunStore(Server(host="redis.internal"))
    began = time.monotonic()
    assert "took too long" in refusal(lambda: store.claim_run(a_claim()))
    assert time.monotonic() - began < 2
    asked.set()


def test_a_connection_that_nobody_waits_for_is_closed() -> None:
    """What connects too late is closed by the thread that has connected."""
    go, closed = threading.Event(), threading.Event()

    def connect() -> str:
        go.wait(10)
        return "connected"

    tries = Tries(0.1, 0.1, monotonic=time.monotonic, sleep=time.sleep, unavailable=lambda fault: fault)
    with bounded_by(tries), pytest.raises(library.TimeoutError):
        within_bounds(connect, abandon=lambda _: closed.set())
    go.set()
    assert closed.wait(10)


def test_the_library_connects_by_what_is_bounded(harness: RedisHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """redis-py looks the server's name up, and connects, in `_connect`, and reads each reply by `read_response`."""
    called: list[str] = []

    def note(kind: type, method: str) -> None:
        real = getattr(kind, method, None)
        assert real is not None, f"redis-py has no {kind.__name__}.{method} any more: mend dedup/stores/redis_client.py"
        monkeypatch.setattr(kind, method, lambda *args, **options: called.append(method) or real(*args, **options))

    note(library.Connection, "_connect")
    note(library.Connection, "read_response")
    note(redis_client._BoundedConnection, "_connect")
    store = RedisRunStore(harness.store.server, harness.prefix)
    assert store.claim_run(a_claim()) is Decision.CLAIM
    for method in ("_connect", "read_response"):
        assert method in called, f"redis-py doesn't use {method} any more: mend dedup/stores/redis_client.py"
    assert called.count("_connect") == 2, "redis-py connects by another way: mend dedup/stores/redis_client.py"


def test_a_missing_authority_is_told_at_once() -> None:
    """A `ca` that is no file is an error that names it, and no server out of reach."""
    store = RedisRunStore(Server(host="127.0.0.1", tls=True, ca="/nowhere/ca.pem"), sleep=no_wait)
    assert "there is no file /nowhere/ca.pem" in refusal(lambda: store.claim_run(a_claim()))


def no_wait(seconds: float) -> None:
    """Nothing is to be tried again."""
    raise AssertionError(f"waited {seconds} s")


class SlowServer:
    """Takes connections, and answers each command a while later, but never with what was asked for."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Takes no more."""
        self._listening.close()

    def _serve(self) -> None:
        try:
            while True:
                connection, _ = self._listening.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()
        except OSError:
            pass

    def _answer(self, connection: socket.socket) -> None:
        try:
            while connection.recv(65536):
                time.sleep(self._seconds)
                connection.sendall(b"+OK\r\n" if self._seconds < TRY_SECONDS else b"")
        except OSError:
            pass


@pytest.mark.parametrize(
    ("seconds", "password"),
    [
        pytest.param(TRY_SECONDS - 0.8, "secret", id="slow", marks=pytest.mark.skipif(not WHOLE, reason="waits 2 s: WHOLE=0")),
        pytest.param(60.0, None, id="silent"),
    ],
)
def test_a_server_that_is_slow_is_waited_for_no_longer_than_there_is_time(seconds: float, password: str | None) -> None:
    """However many replies an operation waits for, and however late each comes, it ends with its time."""
    with closing(SlowServer(seconds)) as server:
        store = RedisRunStore(Server(host="127.0.0.1", port=server.port, db=1, password=password))
        store._scripts["finish"] = store._scripts["claim"]
        began = time.monotonic()
        told = refusal(lambda: store.finish_run(a_claim(), Ending.COMPLETED, within_seconds=1.5))
        assert time.monotonic() - began < 1.5 + 0.5
    assert "didn't answer in time" in told


@pytest.mark.skipif(not WHOLE, reason="waits 10 s: WHOLE=0")
def test_a_frozen_server(own_server: Callable[..., RedisServer]) -> None:
    """A claim on a server that takes the command and never answers ends within 10 s; thawed, the run isn't held for long."""
    server = own_server()
    store = RedisRunStore(Server(host="127.0.0.1", port=server.port))
    assert store.claim_run(a_claim("f" * 64)) is Decision.CLAIM
    server.freeze()
    claim, began = a_claim(lease_seconds=1), time.monotonic()
    refusal(lambda: store.claim_run(claim))
    assert CLAIM_SECONDS - 2 < time.monotonic() - began < 10
    server.thaw()
    time.sleep(1.2)
    assert store.claim_run(a_claim()) is Decision.CLAIM


@pytest.mark.parametrize(
    ("options", "password", "remedy"),
    [
        (["--requirepass", "right"], "wrong", "mend the password in DEDUP_STORE"),
        (["--requirepass", "right"], None, "does it want a password?"),
        (["--maxmemory", "1"], None, "the server is full"),
        (["--replicaof", "127.0.0.1 1", "--replica-serve-stale-data", "yes"], None, "DEDUP_STORE must name the primary"),
    ],
    ids=["wrong password", "no password", "full", "replica"],
)
def test_a_server_that_refuses(
    own_server: Callable[..., RedisServer], options: list[str], password: str | None, remedy: str
) -> None:
    """A server that won't is an error that says what to do, and never the password."""
    store = store_at(own_server(*options), password=password)
    told = refusal(lambda: store.claim_run(a_claim()))
    assert remedy in told
    assert "wrong" not in told.replace("WRONGPASS", "")


def test_a_password_and_a_database_by_url(own_server: Callable[..., RedisServer]) -> None:
    """The URL's user, password, database and prefix are what the server sees; the rights that the error names are enough."""
    server = own_server()
    url = f"redis://runner:p%40ss%2Fword@127.0.0.1:{server.port}/3?prefix=jobs"
    rights = ["+@scripting", "+@hash", "+@keyspace", "+time", "+select"]
    with closing(library.Redis(port=server.port)) as client:
        client.execute_command("ACL", "SETUSER", "runner", "on", ">p@ss/word", "~jobs:*", "+select")
        assert "+@scripting, +@hash, +@keyspace, +time and +select" in refusal(lambda: open_store(url).claim_run(a_claim()))
        client.execute_command("ACL", "SETUSER", "runner", *rights)
    store, claim = open_store(url), a_claim()
    assert store.claim_run(claim) is Decision.CLAIM
    assert store.renew_run(claim)
    assert store.finish_run(claim, Ending.COMPLETED)
    with closing(library.Redis(port=server.port, db=3, username="runner", password="p@ss/word")) as client:
        assert client.keys("jobs:*") == [f"jobs:{A_RUN}".encode()]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A key, and a certificate for 127.0.0.1 that is its own authority."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl to make a certificate with")
    key, made = tmp_path_factory.mktemp("tls") / "key.pem", tmp_path_factory.mktemp("tls") / "ca.pem"
    name = ["-subj", "/CN=redis", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = [
        openssl,
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "1",
        "-keyout",
        key,
        "-out",
        made,
        *name,
    ]
    subprocess.run(command, check=True, capture_output=True)
    return key, made


def test_tls_by_url(certificate: tuple[Path, Path], redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """`rediss://` speaks TLS, and takes only a server whose certificate is of the authority that a file or a variable holds."""
    key, made = certificate
    monkeypatch.setenv("REDIS_CA", made.read_text())
    with tls_server(key, made) as server:
        store, claim = open_store(f"rediss://127.0.0.1:{server.port}?ca={made}"), a_claim()
        assert store.claim_run(claim) is Decision.CLAIM
        assert open_store(f"rediss://127.0.0.1:{server.port}?ca=env:REDIS_CA").finish_run(claim, Ending.COMPLETED)
        distrusting = RedisRunStore(Server(host="127.0.0.1", port=server.port, tls=True), sleep=no_wait)
        assert "CERTIFICATE_VERIFY_FAILED" in refusal(lambda: distrusting.claim_run(a_claim()))


def test_an_authority_out_of_a_variable(certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """With `ca=env:NAME` a server is spoken to whose certificate is of the authority in that variable, and no other server."""
    key, made = certificate
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made, key)
    monkeypatch.setenv("REDIS_CA", made.read_text())

    def serve() -> None:
        for _ in range(2):
            connection, _ = listening.accept()
            with suppress(ssl.SSLError), context.wrap_socket(connection, server_side=True) as trusted:
                trusted.recv(1024)
                trusted.sendall(b"-NOAUTH who are you?\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, daemon=True).start()
        url = f"rediss://127.0.0.1:{listening.getsockname()[1]}"
        assert "who are you?" in refusal(lambda: open_store(f"{url}?ca=env:REDIS_CA").claim_run(a_claim()))
        assert "CERTIFICATE_VERIFY_FAILED" in refusal(lambda: open_store(url).claim_run(a_claim()))


class tls_server:  # noqa: N801
    """A server that speaks TLS alone."""

    def __init__(self, key: Path, certificate: Path) -> None:
        self._options = ["--tls-cert-file", str(certificate), "--tls-key-file", str(key), "--tls-auth-clients", "no"]

    def __enter__(self) -> RedisServer:
        self._port = free_port()
        self._running = redis_server("--tls-port", str(self._port), "--tls-ca-cert-file", self._options[1], *self._options)
        try:
            server = self._running.__enter__()
        except RuntimeError:
            pytest.skip("this server was built without TLS")
        server.port = self._port
        return server

    def __exit__(self, *_: object) -> None:
        self._running.__exit__(None, None, None)


class Credentials:
    """An account's, with a token for each refresh, or what goes wrong with it."""

    def __init__(self, tokens: list[str | Exception]) -> None:
        self._tokens = tokens
        self.token: str | None = None
        self.valid = False

    def refresh(self, request: Any) -> None:
        """The next token."""
        token = self._tokens.pop(0)
        if isinstance(token, Exception):
            raise token
        self.token = token
        self.valid = True


def test_iam_by_url(own_server: Callable[..., RedisServer], monkeypatch: pytest.MonkeyPatch) -> None:
    """With auth=iam each new connection signs in with an access token that is still good."""
    server = own_server("--requirepass", "token-1")
    credentials = Credentials(["token-1", "token-2"])
    monkeypatch.setattr("google.auth.default", lambda scopes: (credentials, "project"))
    store = open_store(f"redis://127.0.0.1:{server.port}?auth=iam")
    assert store.claim_run(a_claim()) is Decision.CLAIM
    assert store.get_run(A_RUN) is not None
    with closing(library.Redis(port=server.port, password="token-1")) as client:
        client.config_set("requirepass", "token-2")
        client.client_kill_filter(_type="normal", skipme=True)
    credentials.valid = False  # an hour later
    assert store.claim_run(a_claim()) is Decision.IN_PROGRESS
    assert credentials.token == "token-2"


def test_no_access_token(own_server: Callable[..., RedisServer], monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that can't be had just now is asked for again, on a connection that is signed in on; one for good is an error."""
    server = own_server("--requirepass", "token")
    credentials = Credentials([TransportError("injected"), "token", DefaultCredentialsError("injected"), "token"])
    monkeypatch.setattr("google.auth.default", lambda scopes: (credentials, "project"))
    store = store_at(server, iam=True)
    assert store.claim_run(a_claim()) is Decision.CLAIM
    store._client().connection_pool.disconnect()
    credentials.valid = False
    told = refusal(lambda: store.claim_run(a_claim()))
    assert "no access token: injected" in told
    assert "its account needs the role to connect" in told
    assert store.claim_run(a_claim()) is Decision.IN_PROGRESS


def test_threads_have_connections_of_their_own(harness: RedisHarness) -> None:
    """Many threads at once share one client, and none waits for another's connection."""
    found: set[int] = set()

    def claim(number: int) -> Claim:
        found.add(id(harness.store._client()))
        return harness.claimed(uuid.uuid4().hex)

    threads = [threading.Thread(target=claim, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 1


def connections_made(harness: RedisHarness, do: Callable[[], Any]) -> int:
    """How many connections the server has taken meanwhile."""

    def taken() -> int:
        return int(harness.client.info("stats")["total_connections_received"])

    before = taken()
    do()
    return taken() - before


def test_connections_are_used_again(harness: RedisHarness) -> None:
    """Whatever comes after another needs no connection of its own, a listing and what was refused included."""

    def everything() -> None:
        claim = harness.claimed()
        assert harness.store.renew_run(claim)
        assert harness.store.claim_run(a_claim(attempt_id="another")) is Decision.IN_PROGRESS
        assert len(list(harness.store.list_runs())) == 2
        assert harness.store.finish_run(claim, Ending.COMPLETED)

    harness.claimed("f" * 64)
    assert connections_made(harness, everything) == 0


def test_a_connection_that_the_server_has_closed(harness: RedisHarness) -> None:
    """It is noticed before a script is sent, so nothing is unclear by it."""
    harness.claimed("f" * 64)
    harness.client.client_kill_filter(_type="normal", skipme=True)
    claim = a_claim()
    assert connections_made(harness, lambda: harness.store.claim_run(claim)) == 1
    assert not claim.create_unclear
    assert claim.token is not None


def test_a_fork_leaves_its_parents_connection_alone(harness: RedisHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes on one connection would read each other's replies: the child makes its own."""
    harness.claimed("e" * 64)
    with monkeypatch.context() as child:
        child.setattr("os.getpid", lambda: -1)
        assert connections_made(harness, lambda: harness.claimed("f" * 64)) == 1
        assert connections_made(harness, lambda: harness.claimed("d" * 64)) == 0


def test_a_server_that_stays_away_leaves_no_connections_behind() -> None:
    """A connection that can't be made is tried again, and not one more made for each try."""
    ticker = Ticker()
    store = RedisRunStore(Server(host="127.0.0.1", port=free_port()), monotonic=ticker, sleep=ticker.wait)
    made = []
    pool = store._client().connection_pool
    make = pool.make_connection
    pool.make_connection = lambda: made.append(make()) or made[-1]
    for _ in range(3):
        refusal(lambda: store.claim_run(a_claim()))
    assert len(made) == 1
