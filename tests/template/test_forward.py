"""Google's APIs as targets: each run starts one execution, whatever gets lost."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import requests
from flask import Flask, request
from google.oauth2.credentials import Credentials

import dedup.handler
from dedup import LeaseLost, PermanentError, Run, forward, from_idempotency_key
from dedup.forward import StartFailed, start_build, start_cloud_run_job, start_workflow_execution
from dedup.lease import Lease
from dedup.record import Status
from dedup.stores import Claim
from dedup.stores.sqlite import SQLiteRunStore
from tests.template.apis import HOSTS, LOST, LOST_LATER, SLOW, GoogleApis, Invalid, Started, method_of, serving_apis
from tests.template.clock import ManualClock
from tests.template.size import WHOLE

PARENT = "projects/prod/locations/europe-west6"
TRIGGER = f"{PARENT}/triggers/0a3cade0-425f-4adc-b86b-14cde51af674"
NOON = "2026-10-16T12:00:00Z"
RUN_ID = hashlib.sha256(f"nightly/{NOON}".encode()).hexdigest()
HEADERS = {"X-CloudScheduler-JobName": "nightly", "X-CloudScheduler-ScheduleTime": NOON}

app = Flask(__name__)


def some(*values: Any) -> tuple[Any, ...]:
    """All of them, or where it is to be quick, the first."""
    return values if WHOLE else values[:1]


@dataclass(frozen=True)
class Kind:
    """One of the three APIs, as a test calls it."""

    start: Callable[..., str]
    """Given a run."""
    token: Callable[[dict[str, Any]], Any]
    """The run's id in what was started."""
    post: str
    """The method that starts."""
    look: str
    """The method that lists."""


def _env(resource: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["value"] for one in resource["template"]["containers"][0]["env"]}


KINDS = {
    "workflows": Kind(
        lambda run, **how: start_workflow_execution(run, f"{PARENT}/workflows/nightly", {"table": "orders"}, **how),
        lambda resource: json.loads(resource["argument"])["run_id"],
        "workflowexecutions.projects.locations.workflows.executions.create",
        "workflowexecutions.projects.locations.workflows.executions.list",
    ),
    "run": Kind(
        lambda run, **how: start_cloud_run_job(run, f"{PARENT}/jobs/nightly", env={"TABLE": "orders"}, args=["all"], **how),
        lambda resource: _env(resource)["RUN_ID"],
        "run.projects.locations.jobs.run",
        "run.projects.locations.jobs.executions.list",
    ),
    "build": Kind(
        lambda run, **how: start_build(run, TRIGGER, substitutions={"_TABLE": "orders"}, branch="main", **how),
        lambda resource: resource["substitutions"]["_RUN_ID"],
        "cloudbuild.projects.locations.triggers.run",
        "cloudbuild.projects.locations.builds.list",
    ),
}


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    """Each API in turn."""
    return KINDS[request.param]


@pytest.fixture(scope="module")
def served() -> Iterator[GoogleApis]:
    """One stand-in for all tests."""
    with serving_apis(GoogleApis()) as apis:
        yield apis


@pytest.fixture
def apis(served: GoogleApis, monkeypatch: pytest.MonkeyPatch) -> GoogleApis:
    """The stand-in, with nothing started yet."""
    fresh = GoogleApis()
    vars(served).update({name: value for name, value in vars(fresh).items() if name != "host"})
    for name in HOSTS:
        monkeypatch.setenv(name, served.host)
    return served


@dataclass
class ARun:
    """An attempt at the run, and the clock that its lease goes by."""

    clock: ManualClock = field(default_factory=ManualClock)
    attempt_id: str = "b" * 32
    run_id: str = RUN_ID

    def make(self) -> Run:
        """The run, as a job is given it."""
        claim = Claim(
            run_id=self.run_id,
            attempt_id=self.attempt_id,
            lease_seconds=300,
            retention_seconds=86400,
            job_name="nightly",
            schedule_time=datetime(2026, 10, 16, 12, tzinfo=UTC),
        )
        claim.wrote(datetime(2026, 10, 16, 12, tzinfo=UTC), self.clock.monotonic())
        lease = Lease(None, claim, renews=False, ends_at=self.clock.monotonic() + 3600, clock=self.clock)  # type: ignore[arg-type]
        run = Run(claim, lease, body=b"", deadline=claim.schedule_time + timedelta(hours=1), supports_effects=True)
        self.claim = claim
        return run


@pytest.fixture
def run() -> Run:
    """A run that holds its lease."""
    return ARun().make()


def tokens(apis: GoogleApis, kind: Kind) -> list[str]:
    """The run's id in everything that was started."""
    return [kind.token(started.resource) for started in apis.started]


def deliver(job: Callable[[Run], Any], store: SQLiteRunStore) -> tuple[int, str]:
    """Delivers the run once, through the handler that is deployed."""
    with app.test_request_context(method="POST", headers=HEADERS):
        response = dedup.handler.handle(request, job, store=store)
    return response.status_code, response.get_data(as_text=True)


@pytest.mark.parametrize("lost", [LOST, LOST_LATER])
@pytest.mark.parametrize("first", [0, 1])
def test_ten_deliveries_start_one_execution(apis: GoogleApis, kind: Kind, tmp_path: Path, lost: str, first: int) -> None:
    """Ten deliveries of a run, every second answer of the API lost, start one execution, which carries the run's id."""
    store = SQLiteRunStore(tmp_path / "runs.db")
    apis.faults.extend(([lost, 0] * 10)[first:])

    answers = [deliver(kind.start, store) for _ in range(10)]

    assert tokens(apis, kind) == [RUN_ID]
    assert apis.called.count(kind.post) == 1
    assert answers[-1] == (200, "Duplicate run skipped")
    record = store.get_run(RUN_ID)
    assert record is not None
    assert (record.status, record.result) == (Status.COMPLETED, apis.started[0].resource["name"])


def test_where_no_look_up_helps_the_work_itself_tells(apis: GoogleApis, kind: Kind, tmp_path: Path) -> None:
    """With every list failing too, each retry starts another execution; the service that they call changes its state once."""
    store = SQLiteRunStore(tmp_path / "runs.db")
    changes: list[str] = []

    def call_downstream(started: Started) -> None:
        headers = {"Idempotency-Key": kind.token(started.resource)}
        with app.test_request_context(method="POST", headers=headers):
            dedup.handler.handle(
                request,
                lambda run: changes.append(run.id),
                delivery=lambda call: from_idempotency_key(call, "billing"),
                store=store,
            )

    apis.on_start = call_downstream
    apis.faults.extend([LOST, LOST, 0])
    apis.look_up_faults.extend([500] * 9)

    answers = [deliver(lambda run: kind.start(run, look_first=False), store) for _ in range(10)]

    assert [status for status, _ in answers[:3]] == [500, 500, 200]
    assert tokens(apis, kind) == [RUN_ID] * 3
    assert len(changes) == 1


def test_what_is_sent_says_what_it_was_told(apis: GoogleApis, run: Run) -> None:
    """Beside the run's id, each payload has what the job adds to it."""
    for kind in KINDS.values():
        kind.start(run)

    build, job, workflow = (started.resource for started in apis.started)
    assert json.loads(workflow["argument"]) == {"table": "orders", "run_id": RUN_ID}
    assert workflow["labels"] == {"run_id": RUN_ID[:63]}
    assert _env(job) == {"FROM_THE_JOB": "itself", "TABLE": "orders", "RUN_ID": RUN_ID}
    assert build["substitutions"] == {"_TABLE": "orders", "_RUN_ID": RUN_ID}


@pytest.mark.parametrize("name", list(KINDS))
def test_the_returned_name_is_the_executions(apis: GoogleApis, run: Run, name: str) -> None:
    """What is returned names the execution, started now or found."""
    started = KINDS[name].start(run)
    assert started == apis.started[0].resource["name"]
    assert KINDS[name].start(run) == started
    assert len(apis.started) == 1


def test_a_misspelt_field_is_found(apis: GoogleApis, kind: Kind, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each field of each payload, misspelt, is refused by the API's discovery document, and the payload itself is not."""
    sent: list[tuple[str, str, Any]] = []
    real = requests.Session.request

    def note(session: requests.Session, method: str, url: str, **how: Any) -> requests.Response:
        sent.append((method, "/" + url.split("/", 3)[3], how.get("json")))
        return real(session, method, url, **how)

    monkeypatch.setattr(requests.Session, "request", note)
    kind.start(run)
    verb, path, body = next(one for one in sent if one[0] == "POST")

    method = method_of(verb, path)
    method.check([], body)
    misspelt = list(_misspelt(body))
    assert misspelt
    for wrong in misspelt:
        with pytest.raises(Invalid):
            method.check([], wrong)
    with pytest.raises(Invalid):
        method_of(verb, path.replace("locations", "location"))


def _misspelt(body: Any) -> Iterator[Any]:
    """The body with one field's name wrong, for each field but those that the caller names."""
    free = ("labels", "substitutions")
    if isinstance(body, list):
        for number, item in enumerate(body):
            for wrong in _misspelt(item):
                yield [*body[:number], wrong, *body[number + 1 :]]
    if isinstance(body, dict):
        for name, value in body.items():
            yield {**{k: v for k, v in body.items() if k != name}, f"{name}x": copy.deepcopy(value)}
            if name not in free:
                for wrong in _misspelt(value):
                    yield {**body, name: wrong}


@pytest.mark.parametrize("status", some(403, 400, 404))
@pytest.mark.parametrize("look_first", [True, False])
def test_what_no_retry_mends_is_permanent(apis: GoogleApis, kind: Kind, run: Run, status: int, look_first: bool) -> None:
    """400, 403 and 404 are PermanentError with Google's own message, and nothing is looked for afterwards."""
    apis.faults.append(status)
    with pytest.raises(PermanentError, match=rf"googleapis.com answered {status}: \w+ as it was told"):
        kind.start(run, look_first=look_first)
    assert apis.called == [kind.look] * look_first + [kind.post]


@pytest.mark.parametrize("status", some(429, 401, 409))
def test_what_may_pass_is_retried(apis: GoogleApis, kind: Kind, run: Run, status: int) -> None:
    """Other refusals are left to Cloud Scheduler's retries; nothing was started, so nothing is looked for."""
    apis.faults.append(status)
    with pytest.raises(StartFailed, match=f"answered {status}"):
        kind.start(run)
    assert apis.called == [kind.look, kind.post]
    assert kind.start(run)


@pytest.mark.parametrize("status", some(500, 408, 502, 503, 504))
def test_an_unclear_outcome_is_looked_up(apis: GoogleApis, kind: Kind, run: Run, status: int) -> None:
    """After 408 and 5xx it isn't known what was started: it is looked for, and not found it is left to the retries."""
    apis.faults.append(status)
    with pytest.raises(StartFailed, match=f"answered {status}"):
        kind.start(run)
    assert apis.called == [kind.look, kind.post, kind.look]


def test_a_slow_start_is_found(apis: GoogleApis, kind: Kind, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call is given up after its time, and what it has started is found."""
    monkeypatch.setattr(forward, "START_SECONDS", 0.9)
    apis.faults.append(SLOW)
    apis.slow_seconds = 0.6
    assert kind.start(run) == apis.started[0].resource["name"]
    assert apis.called == [kind.look, kind.post, kind.look]


def test_all_of_it_is_bounded(apis: GoogleApis, kind: Kind, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """With no time left, no call is made."""
    monkeypatch.setattr(forward, "START_SECONDS", 0.0)
    with pytest.raises(StartFailed, match="no time left"):
        kind.start(run)
    assert apis.called == []


def test_an_api_out_of_reach_is_retried(kind: Kind, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that can't be made is left to Cloud Scheduler's retries."""
    for name in HOSTS:
        monkeypatch.setenv(name, "127.0.0.1:9")
    with pytest.raises(StartFailed, match="gave no answer"):
        kind.start(run)


def test_look_first_false_saves_the_call(apis: GoogleApis, kind: Kind, run: Run) -> None:
    """look_first=False posts at once."""
    kind.start(run, look_first=False)
    assert apis.called == [kind.post]


def test_a_refused_filter_is_left_out(apis: GoogleApis, kind: Kind, run: Run) -> None:
    """Where an API doesn't take the filter, the run doesn't fail by it: the whole list is looked through."""
    name = kind.start(run, look_first=False)
    apis.takes_filters = False
    assert kind.start(run) == name
    assert len(apis.started) == 1


def test_every_page_is_looked_through(apis: GoogleApis, kind: Kind, run: Run) -> None:
    """An execution of this run is found behind a hundred others."""
    name = kind.start(run)
    _start_others(apis, 150)
    apis.takes_filters = False
    assert kind.start(run) == name


def test_only_so_many_pages_are_looked_through(apis: GoogleApis, kind: Kind, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """What isn't among the newest is left to the work's own check: the look-up is bounded."""
    monkeypatch.setattr(forward, "LOOK_UP_PAGES", 1)
    kind.start(run)
    _start_others(apis, 150)
    apis.takes_filters = False
    kind.start(run)
    assert tokens(apis, kind).count(RUN_ID) == 2


def _start_others(apis: GoogleApis, number: int) -> None:
    for _ in range(number):
        other = copy.deepcopy(apis.started[-1])
        text = json.dumps(other.resource).replace(RUN_ID, "0" * 64).replace(RUN_ID[:63], "0" * 63)
        apis.started.insert(0, Started(other.parent, json.loads(text)))


def test_a_label_of_63_characters_is_not_enough(apis: GoogleApis, run: Run) -> None:
    """Two runs whose ids differ in the last character only have one label, and each its own execution."""
    other = ARun(run_id=RUN_ID[:63] + ("0" if RUN_ID[63] != "0" else "1")).make()
    start = KINDS["workflows"].start
    assert start(run) != start(other)
    assert len({started.resource["labels"]["run_id"] for started in apis.started}) == 1


def test_another_runs_execution_is_not_taken(apis: GoogleApis, kind: Kind, run: Run) -> None:
    """Each run has an execution of its own."""
    assert kind.start(run) != kind.start(ARun(run_id="c" * 64).make())
    assert len(apis.started) == 2


def test_a_lost_lease_starts_nothing(apis: GoogleApis, kind: Kind) -> None:
    """A job that was paused past its lease doesn't start what its successor starts."""
    about = ARun()
    run = about.make()
    about.clock.pause(301)
    with pytest.raises(LeaseLost):
        kind.start(run)
    assert apis.called == [kind.look]


def test_a_run_that_is_handed_over_starts_its_own_attempts_execution(apis: GoogleApis) -> None:
    """An execution of an earlier attempt will end by itself: it isn't taken, and ATTEMPT_ID says whose the new one is."""
    start, earlier, later = KINDS["run"].start, ARun(attempt_id="d" * 32), ARun(attempt_id="e" * 32)
    for about in (earlier, later, later):
        run = about.make()
        about.claim.handed_over = True
        start(run)
    assert [_env(started.resource)["ATTEMPT_ID"] for started in apis.started] == ["e" * 32, "d" * 32]


@pytest.mark.parametrize(
    ("start", "told"),
    [
        (lambda run: start_workflow_execution(run, f"{PARENT}/workflows/w", {"run_id": "mine"}), "run_id is the run's own"),
        (lambda run: start_cloud_run_job(run, f"{PARENT}/jobs/j", env={"RUN_ID": "mine"}), "RUN_ID is the run's own"),
        (lambda run: start_build(run, TRIGGER, substitutions={"_RUN_ID": "mine"}), "_RUN_ID is the run's own"),
        (lambda run: start_workflow_execution(run, "nightly"), "not of the form projects/PROJECT/"),
        (lambda run: start_cloud_run_job(run, f"{PARENT}/jobs/j:run"), "not of the form projects/PROJECT/"),
        (lambda run: start_cloud_run_job(run, f"{PARENT}/services/j"), "not of the form projects/PROJECT/"),
        (lambda run: start_build(run, f"{PARENT}/triggers/by-name"), r"triggers/ID \(a UUID\)"),
    ],
)
def test_what_is_called_wrongly_is_told(apis: GoogleApis, run: Run, start: Callable[[Run], str], told: str) -> None:
    """A resource's name that is none, and a token that would be overwritten, are told before anything is sent."""
    with pytest.raises(ValueError, match=told):
        start(run)
    assert apis.called == []


@pytest.mark.parametrize("answer", some(b"{}", b"", b"[]", b'{"metadata": null}', b"\xff"))
def test_an_answer_that_cant_be_read_is_unclear(
    apis: GoogleApis, kind: Kind, run: Run, answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A 200 that isn't of the documented form is no proof of a start: it is looked for."""
    real = requests.Session.request

    def garble(session: requests.Session, method: str, url: str, **how: Any) -> requests.Response:
        response = real(session, method, url, **how)
        if method == "POST":
            response._content = answer
        return response

    monkeypatch.setattr(requests.Session, "request", garble)
    assert kind.start(run) == apis.started[0].resource["name"]
    assert apis.called == [kind.look, kind.post, kind.look]


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("workflows", f"https://workflowexecutions.googleapis.com/v1/{PARENT}/workflows/nightly/executions"),
        ("run", f"https://run.googleapis.com/v2/{PARENT}/jobs/nightly:run"),
        ("build", f"https://cloudbuild.googleapis.com/v1/{TRIGGER}:run"),
    ],
)
def test_google_is_called_with_the_accounts_token(run: Run, name: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a stand-in, the API's own host is called, with the credentials that the environment has, found once."""
    asked: list[Any] = []
    sent: list[requests.PreparedRequest] = []

    def default(scopes: Any) -> tuple[Credentials, str]:
        asked.append(scopes)
        return Credentials(token="open sesame"), "prod"

    def send(adapter: Any, prepared: requests.PreparedRequest, **how: Any) -> requests.Response:
        sent.append(prepared)
        assert 0 < how["timeout"] <= forward.START_SECONDS
        raise requests.ConnectionError("no network in a test")

    monkeypatch.setattr(forward, "_made_credentials", [])
    monkeypatch.setattr("google.auth.default", default)
    monkeypatch.setattr("requests.adapters.HTTPAdapter.send", send)
    for _ in range(2):
        with pytest.raises(StartFailed):
            KINDS[name].start(run, look_first=False)
    posted = [one for one in sent if one.method == "POST"]
    assert [(one.url, one.headers["Authorization"]) for one in posted] == [(url, "Bearer open sesame")] * 2
    assert asked == [("https://www.googleapis.com/auth/cloud-platform",)]
