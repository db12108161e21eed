"""Who may call: each token that is refused, by a key set made here, and that nothing is stored for any of them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from flask import Flask, Response, request
from google.auth import crypt, jwt

import dedup.handler
from dedup.auth import FETCH_SECONDS, AppEngine, Auth, Certificates, Iam, Kind, Oidc, Unverifiable, open_auth
from dedup.stores.sqlite import SQLiteRunStore
from tests.template.emulator import free_port
from tests.template.size import WHOLE

AUDIENCE = "https://nightly-abc.a.run.app"
CALLER = "scheduler@prod.iam.gserviceaccount.com"
RUN_ID = hashlib.sha256(b"nightly/2026-10-16T12:00:00Z").hexdigest()
DELIVERY = {"X-CloudScheduler-JobName": "nightly", "X-CloudScheduler-ScheduleTime": "2026-10-16T12:00:00Z"}

app = Flask(__name__)


@dataclass(frozen=True)
class Key:
    """A key pair, and the certificate that Google would publish for it."""

    id: str
    signer: crypt.RSASigner
    certificate: str

    @classmethod
    def make(cls, key_id: str) -> Key:
        """Makes one; it takes a tenth of a second."""
        key = rsa.generate_private_key(65537, 2048)
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "google, for a test")])
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(1)
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .sign(key, hashes.SHA256())
        )
        pem = serialization.Encoding.PEM
        private = key.private_bytes(pem, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())
        return cls(key_id, crypt.RSASigner.from_string(private), certificate.public_bytes(pem).decode())

    def token(self, **claims: Any) -> str:
        """A token as Cloud Scheduler sends it, but for these claims; one that is None is left out."""
        header = {"kid": claims.pop("kid", self.id)}
        now = int(time.time())
        usual = {
            "iss": "https://accounts.google.com",
            "aud": AUDIENCE,
            "iat": now,
            "exp": now + 3600,
            "email": CALLER,
            "email_verified": True,
        }
        payload = {name: value for name, value in {**usual, **claims}.items() if value is not None}
        signed: bytes = jwt.encode(self.signer, payload, header=header)
        return signed.decode()


GOOD, STRANGE = Key.make("good"), Key.make("strange")


def part(value: Any) -> str:
    """A segment of a token."""
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def claims_of(token: str) -> dict[str, Any]:
    """A token's claims."""
    claims: dict[str, Any] = jwt.decode(token, verify=False)
    return claims


def unsigned(alg: str) -> str:
    """A token that says it needs no signature."""
    return f"{part({'alg': alg, 'kid': 'good'})}.{part(claims_of(GOOD.token()))}."


def signed_by_the_public_key(alg: str = "HS256") -> str:
    """A token that takes what everybody knows for a shared secret."""
    head = f"{part({'alg': alg, 'kid': 'good'})}.{part(claims_of(GOOD.token()))}"
    return f"{head}.{part(hmac.new(GOOD.certificate.encode(), head.encode(), hashlib.sha256).digest())}"


def with_other_claims() -> str:
    """Claims that were changed after the signature."""
    head, _, signature = GOOD.token(email="somebody@else.com").split(".")
    return f"{head}.{part(claims_of(GOOD.token()))}.{signature}"


@dataclass
class Published:
    """A server of certificates on 127.0.0.1."""

    body: bytes = field(default_factory=lambda: json.dumps({"good": GOOD.certificate}).encode())
    status: int = 200
    cache_control: str = "public, max-age=600, must-revalidate"
    trickles: threading.Event | None = None
    """Until it is set, the answer is one endless header."""
    url: str = ""
    fetched: int = 0


@contextmanager
def publishing(published: Published) -> Iterator[Published]:
    """Serves the certificates for as long as the `with` lasts."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            published.fetched += 1
            if published.trickles is not None:
                self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Endless: ")
                while not published.trickles.wait(0.05):
                    self.wfile.write(b"x")
                return
            self.send_response(published.status)
            self.send_header("Cache-Control", published.cache_control)
            self.end_headers()
            self.wfile.write(published.body)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    published.url = f"http://127.0.0.1:{server.server_port}/certs"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield published
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def google() -> Iterator[Published]:
    """Google's certificates."""
    with publishing(Published()) as published:
        yield published


@pytest.fixture
def store(tmp_path: Path) -> SQLiteRunStore:
    """An empty store."""
    return SQLiteRunStore(tmp_path / "runs.db")


def deliver(auth: Auth, store: SQLiteRunStore, headers: dict[str, str]) -> Response:
    """Delivers the run, and checks that what is refused leaves nothing behind."""
    ran: list[str] = []
    before = store.get_run(RUN_ID)
    with app.test_request_context(method="POST", headers={**DELIVERY, **headers}):
        response = dedup.handler.handle(request, lambda run: ran.append(run.id), store=store, auth=auth)
    if response.status_code != 200:
        assert ran == []
        assert store.get_run(RUN_ID) == before
    assert response.status_code != 503
    return response


def bearer(token: str) -> dict[str, str]:
    """The header that Cloud Scheduler sends."""
    return {"Authorization": f"Bearer {token}"}


def oidc(google: Published, **how: Any) -> Oidc:
    """As it is set by DEDUP_AUTH=oidc, with Google's certificates from here."""
    return Oidc(AUDIENCE, (CALLER, "ops@prod.com"), Certificates(google.url, **how))


@pytest.mark.parametrize("issuer", ["https://accounts.google.com", "accounts.google.com"])
@pytest.mark.parametrize("caller", [CALLER, "ops@prod.com"])
def test_oidc_lets_a_good_token_pass(google: Published, store: SQLiteRunStore, issuer: str, caller: str) -> None:
    """A token of Google's, for this audience, of one of the callers, runs the job."""
    response = deliver(oidc(google), store, bearer(GOOD.token(iss=issuer, email=caller)))
    assert (response.status_code, response.get_data(as_text=True)) == (200, "Run processed")
    assert store.get_run(RUN_ID) is not None


HOUR_AGO = int(time.time()) - 3600


@pytest.mark.parametrize(
    ("token", "status", "told"),
    [
        pytest.param(lambda: GOOD.token(iat=HOUR_AGO - 60, exp=HOUR_AGO), 401, "expired", id="expired"),
        pytest.param(lambda: GOOD.token(iat=HOUR_AGO + 7200, exp=HOUR_AGO + 9000), 401, "too early", id="not yet issued"),
        pytest.param(lambda: GOOD.token(exp=None), 401, "exp", id="without an expiry"),
        pytest.param(lambda: GOOD.token(exp="tomorrow"), 401, "not valid", id="an expiry that is none"),
        pytest.param(lambda: GOOD.token(aud="https://other.a.run.app"), 401, "audience", id="another audience"),
        pytest.param(lambda: GOOD.token(aud=None), 401, "audience", id="no audience"),
        pytest.param(lambda: GOOD.token(email="somebody@else.com"), 403, "DEDUP_CALLERS", id="another e-mail"),
        pytest.param(lambda: GOOD.token(email=None), 403, "DEDUP_CALLERS", id="no e-mail"),
        pytest.param(lambda: GOOD.token(email_verified=False), 403, "not verified", id="unverified e-mail"),
        pytest.param(lambda: GOOD.token(email_verified=None), 403, "not verified", id="e-mail of unknown standing"),
        pytest.param(lambda: GOOD.token(iss="https://accounts.example.com"), 401, "not issued by Google", id="another issuer"),
        pytest.param(lambda: GOOD.token(iss=None), 401, "not issued by Google", id="no issuer"),
        pytest.param(lambda: unsigned("none"), 401, "RS256", id="alg none"),
        pytest.param(lambda: unsigned("RS256"), 401, "not valid", id="no signature"),
        pytest.param(signed_by_the_public_key, 401, "RS256", id="HS256 by the public key"),
        pytest.param(lambda: signed_by_the_public_key("RS256"), 401, "not valid", id="HMAC that passes for RS256"),
        pytest.param(with_other_claims, 401, "not valid", id="claims of another token"),
        pytest.param(lambda: STRANGE.token(kid="good"), 401, "not valid", id="another key under a known id"),
        pytest.param(lambda: STRANGE.token(), 401, "none of Google's", id="an unknown key"),
        pytest.param(lambda: GOOD.token(kid=None), 401, "RS256", id="no key id"),
        pytest.param(lambda: "garbage", 401, "no JSON Web Token", id="garbage"),
        pytest.param(lambda: "a.b.c", 401, "no JSON Web Token", id="garbage in three parts"),
        pytest.param(lambda: f"{part(b'[' * 9000)}.{part({})}.x", 401, "no JSON Web Token", id="deep garbage"),
        pytest.param(lambda: f"{part([])}.{part({})}.x", 401, "no JSON Web Token", id="no object"),
        pytest.param(lambda: "", 401, "no bearer token", id="an empty one"),
    ],
)
def test_oidc_refuses(google: Published, store: SQLiteRunStore, token: Callable[[], str], status: int, told: str) -> None:
    """What isn't a good token is 401, or 403 where it is somebody else's, with the reason; nothing runs or is stored."""
    response = deliver(oidc(google), store, bearer(token()))
    assert response.status_code == status
    assert response.get_data(as_text=True).startswith("error: ")
    assert told in response.get_data(as_text=True)
    assert response.headers.get("WWW-Authenticate") == ("Bearer" if status == 401 else None)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Basic c2NoZWR1bGVyOng="},
        {"X-CloudScheduler": "true"},
        {"X-Appengine-Cron": "true"},
        {"X-Serverless-Authorization": f"Bearer {GOOD.token()}"},
    ],
)
def test_oidc_takes_nothing_else_for_a_token(google: Published, store: SQLiteRunStore, headers: dict[str, str]) -> None:
    """Without a bearer token in Authorization it is 401, whatever other headers say."""
    assert deliver(oidc(google), store, headers).status_code == 401


@pytest.mark.parametrize("token", ["garbage", "a.b.c", unsigned("none"), signed_by_the_public_key(), GOOD.token(kid=None)])
def test_garbage_is_refused_without_a_network(google: Published, store: SQLiteRunStore, token: str) -> None:
    """Form and algorithm are judged before anybody is asked for certificates."""
    assert deliver(oidc(google), store, bearer(token)).status_code == 401
    assert google.fetched == 0


def test_certificates_are_fetched_once(google: Published, store: SQLiteRunStore) -> None:
    """Certificates are kept for as long as Google says, and fetched anew after that."""
    now = [0.0]
    auth = oidc(google, monotonic=lambda: now[0])
    for moment, fetched in [(0.0, 1), (599.0, 1), (601.0, 2)]:
        now[0] = moment
        assert deliver(auth, store, bearer(GOOD.token())).status_code == 200
        assert google.fetched == fetched


def test_a_new_key_is_found(google: Published, store: SQLiteRunStore) -> None:
    """A key that Google has begun to use is fetched for; invented ones cost a fetch a minute."""
    now = [0.0]
    auth = oidc(google, monotonic=lambda: now[0])
    assert deliver(auth, store, bearer(GOOD.token())).status_code == 200
    google.body = json.dumps({"good": GOOD.certificate, "strange": STRANGE.certificate}).encode()
    for moment, status, fetched in [(59.0, 401, 1), (61.0, 200, 2), (62.0, 200, 2)]:
        now[0] = moment
        assert deliver(auth, store, bearer(STRANGE.token())).status_code == status
        assert google.fetched == fetched


@pytest.mark.parametrize(
    ("status", "body"), [(500, b"{}"), (200, b"not JSON"), (200, b"[]"), (200, b'{"keys": [{"kid": "good"}]}')]
)
def test_certificates_that_cant_be_read_let_nobody_in(
    google: Published, store: SQLiteRunStore, status: int, body: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    """What isn't a list of certificates is a 500, whose line says why, and never a pass."""
    google.status, google.body = status, body
    response = deliver(oidc(google), store, bearer(GOOD.token()))
    assert (response.status_code, response.get_data(as_text=True)) == (500, "error: caller not verified")
    assert "certificates" in json.loads(capsys.readouterr().out.splitlines()[-1])["message"]


def test_certificates_out_of_reach_are_an_error(store: SQLiteRunStore) -> None:
    """Where Google can't be reached it is a 500, and the next delivery asks again."""
    port = free_port()
    auth = Oidc(AUDIENCE, (CALLER,), Certificates(f"http://127.0.0.1:{port}/certs"))
    for _ in range(2):
        response = deliver(auth, store, bearer(GOOD.token()))
        assert (response.status_code, response.get_data(as_text=True)) == (500, "error: caller not verified")


def test_a_thread_that_cannot_start_is_no_end(
    google: Published, store: SQLiteRunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no thread to fetch certificates with it is a 500, and the next delivery fetches them."""
    auth = oidc(google)
    with monkeypatch.context() as exhausted:
        exhausted.setattr(threading.Thread, "start", no_thread)
        assert deliver(auth, store, bearer(GOOD.token())).status_code == 500
    assert deliver(auth, store, bearer(GOOD.token())).status_code == 200


def no_thread(_: threading.Thread) -> None:
    """Stands in for Thread.start where the machine has no more."""
    raise RuntimeError("can't start new thread")


def test_certificates_that_run_out_are_not_kept(google: Published, store: SQLiteRunStore) -> None:
    """Certificates that are too old are no reason to let anybody in while Google can't be reached."""
    now = [0.0]
    auth = oidc(google, monotonic=lambda: now[0])
    assert deliver(auth, store, bearer(GOOD.token())).status_code == 200
    now[0], google.status = 601.0, 500
    with app.test_request_context(method="POST", headers=bearer(GOOD.token())), pytest.raises(Unverifiable):
        auth.check(request)


def test_silent_certificates_are_waited_for_in_bounds(google: Published, store: SQLiteRunStore) -> None:
    """A server that takes the connection and trickles is given up in time; callers at once wait for one fetch."""
    google.trickles = threading.Event()
    seconds = FETCH_SECONDS if WHOLE else 0.5
    auth = oidc(google, seconds=seconds)
    statuses: list[int] = []
    began = time.monotonic()

    def call() -> None:
        statuses.append(deliver(auth, store, bearer(GOOD.token())).status_code)

    callers = [threading.Thread(target=call) for _ in range(5)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert time.monotonic() - began < min(10, seconds + 3)
    google.trickles.set()
    assert statuses == [500] * 5
    assert google.fetched == 1


def test_callers_wait_less_than_the_answer_may_take() -> None:
    """What a caller waits for certificates leaves time for an answer within 10 s."""
    assert Certificates()._seconds == FETCH_SECONDS <= 9


IAM_TOKEN = f"{part({'alg': 'RS256'})}.{part({'email': CALLER})}.SIGNATURE_REMOVED_BY_GOOGLE"
OTHER_TOKEN = f"{part({'alg': 'RS256'})}.{part({'email': 'somebody@else.com'})}.SIGNATURE_REMOVED_BY_GOOGLE"


@pytest.mark.parametrize(
    ("callers", "on_platform", "headers", "status"),
    [
        pytest.param((), False, {}, 200, id="no platform"),
        pytest.param((), True, {}, 401, id="past the platform"),
        pytest.param((), True, {"X-CloudScheduler": "true"}, 401, id="Cloud Scheduler's header is no token"),
        pytest.param((), True, bearer(IAM_TOKEN), 200, id="through the platform"),
        pytest.param((), True, bearer("garbage"), 401, id="garbage"),
        pytest.param((), True, {"X-Serverless-Authorization": f"Bearer {IAM_TOKEN}"}, 200, id="by the other header"),
        pytest.param((CALLER,), True, bearer(IAM_TOKEN), 200, id="a caller"),
        pytest.param((CALLER,), True, bearer(OTHER_TOKEN), 403, id="another caller"),
        pytest.param((CALLER,), False, {}, 500, id="callers are named, and nobody has checked them"),
        pytest.param((CALLER,), False, bearer(IAM_TOKEN), 500, id="a caller whom nobody has checked"),
        pytest.param(
            (CALLER,),
            True,
            {**bearer(IAM_TOKEN), "X-Serverless-Authorization": f"Bearer {OTHER_TOKEN}"},
            403,
            id="the header that the platform has checked",
        ),
    ],
)
def test_iam(store: SQLiteRunStore, callers: tuple[str, ...], on_platform: bool, headers: dict[str, str], status: int) -> None:
    """On Cloud Run a token must have come through the platform, and be of one of the callers where those are named."""
    assert deliver(Iam(callers, on_platform=on_platform), store, headers).status_code == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"X-Appengine-Cron": "true"}, 200),
        ({}, 403),
        ({"X-Appengine-Cron": ""}, 403),
        ({"X-Appengine-Cron": "false"}, 403),
        ({"X-Appengine-Cron": "true,true"}, 403),
        ({"X-CloudScheduler": "true"}, 403),
        (bearer(GOOD.token()), 403),
    ],
)
def test_app_engine(store: SQLiteRunStore, headers: dict[str, str], status: int) -> None:
    """Only App Engine's own header lets a delivery pass."""
    assert deliver(AppEngine(), store, headers).status_code == status


def test_no_answer_is_a_503() -> None:
    """App Engine retries a 503 outside of retryCount: no outcome of the handler has it."""
    outcomes = [value for value in vars(dedup.handler).values() if isinstance(value, dedup.handler.Outcome)]
    outcomes += dedup.handler.NOT_RUN.values()
    assert len(outcomes) > 15
    assert [outcome.name for outcome in outcomes if outcome.status == 503] == []


@pytest.mark.parametrize(("kind", "means"), [(Kind.IAM, Iam), (Kind.OIDC, Oidc), (Kind.APP_ENGINE, AppEngine)])
def test_settings_choose_the_means(kind: Kind, means: type) -> None:
    """Each value of DEDUP_AUTH has its means, and the deployed handler has that of its settings."""
    assert type(open_auth(kind, audience=AUDIENCE, callers=(CALLER,), on_platform=True)) is means
    assert type(dedup.handler._auth) is Iam
