"""The environment, read once."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from dedup.auth import Kind
from dedup.delivery import ManualRuns, ScopePart
from dedup.settings import Settings, SettingsError
from dedup.stores import create_schema, open_store
from dedup.stores.firestore import FirestoreRunStore
from dedup.stores.redis import RedisRunStore
from dedup.stores.redis_client import Server
from dedup.stores.spanner import SpannerRunStore
from dedup.stores.sqlite import SQLiteRunStore
from tests.template import ROOT

SCOPE = (ScopePart("header", "X-Job-Project"), ScopePart("query", "region"), ScopePart("path"))
LONGEST = 10**9


def faults(**environ: str) -> list[str]:
    """What is said of an environment that is refused."""
    with pytest.raises(SettingsError) as refusal:
        Settings.from_environment(environ)
    return refusal.value.faults


def test_defaults() -> None:
    """An empty environment is a good one: Firestore, five minutes' lease, renewed for an hour, kept for a day."""
    settings = Settings.from_environment({})
    assert settings == Settings()
    assert settings == Settings(
        store="firestore",
        lease_seconds=300,
        renew=True,
        timeout_seconds=3600,
        retention_seconds=86400,
        scope=(),
        manual_runs=ManualRuns.SHARE,
        log_level="INFO",
    )


def test_reads_this_process_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an environment of its own, the process's is read."""
    monkeypatch.setenv("DEDUP_LEASE_SECONDS", "77")
    assert Settings.from_environment().lease_seconds == 77


@pytest.mark.parametrize(
    ("variable", "text", "field", "value"),
    [
        ("DEDUP_STORE", "sqlite:///runs.db", "store", "sqlite:///runs.db"),
        ("DEDUP_STORE", "firestore://p/runs?collection=c", "store", "firestore://p/runs?collection=c"),
        ("DEDUP_LEASE_SECONDS", "1", "lease_seconds", 1),
        ("DEDUP_LEASE_SECONDS", " 120 ", "lease_seconds", 120),
        ("DEDUP_LEASE_SECONDS", "86400", "lease_seconds", 86400),
        ("DEDUP_RENEW", "false", "renew", False),
        ("DEDUP_RENEW", "True", "renew", True),
        ("DEDUP_TIMEOUT_SECONDS", "1800", "timeout_seconds", 1800),
        ("CLOUD_RUN_TIMEOUT_SECONDS", "540", "timeout_seconds", 540),
        ("DEDUP_RETENTION_SECONDS", str(LONGEST), "retention_seconds", LONGEST),
        ("DEDUP_RETENTION_SECONDS", "300", "retention_seconds", 300),
        ("DEDUP_SCOPE", "header:X-Job-Project,query:region,path", "scope", SCOPE),
        ("DEDUP_SCOPE", " header:X-Job-Project , query:region , path ", "scope", SCOPE),
        *(("DEDUP_MANUAL_RUNS", manual.value, "manual_runs", manual) for manual in ManualRuns),
        *(("DEDUP_LOG_LEVEL", level.lower(), "log_level", level) for level in ("DEBUG", "INFO", "WARNING", "ERROR")),
    ],
)
def test_a_good_value_is_taken(variable: str, text: str, field: str, value: Any) -> None:
    """Each variable sets its field, blanks around it aside, and no other."""
    assert Settings.from_environment({variable: text}) == Settings(**{field: value})


@pytest.mark.parametrize("blank", ["", "  "])
def test_blank_is_unset(blank: str) -> None:
    """A variable that is there and says nothing, as deployment tools leave them, is as good as none."""
    variables = [f"DEDUP_{field.upper()}" for field in Settings.__dataclass_fields__]
    assert Settings.from_environment(dict.fromkeys([*variables, "CLOUD_RUN_TIMEOUT_SECONDS"], blank)) == Settings()


def test_dedup_timeout_overrules_the_platforms() -> None:
    """Where both timeouts are given, ours rules."""
    environ = {"CLOUD_RUN_TIMEOUT_SECONDS": "60", "DEDUP_TIMEOUT_SECONDS": "90"}
    assert Settings.from_environment(environ).timeout_seconds == 90


NOT_SECONDS = ["0", "-1", "+5", "5s", "300.5", "1e3", "1_000", "five", "\u0663\u0660\u0660", str(LONGEST + 1), "9" * 5000]


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        *(
            (variable, text)
            for variable in (
                "DEDUP_LEASE_SECONDS",
                "DEDUP_TIMEOUT_SECONDS",
                "DEDUP_RETENTION_SECONDS",
                "CLOUD_RUN_TIMEOUT_SECONDS",
            )
            for text in NOT_SECONDS
        ),
        *(("DEDUP_RENEW", text) for text in ("yes", "1", "on", "off", "truth")),
        *(("DEDUP_SCOPE", text) for text in ("region", "header:", "header:A,", ",", "path:/x", "header:A B", "header:A;path")),
        *(("DEDUP_MANUAL_RUNS", text) for text in ("Share", "allow", "share,refuse")),
        *(("DEDUP_LOG_LEVEL", text) for text in ("TRACE", "10", "CRITICAL")),
        *(
            ("DEDUP_STORE", text)
            for text in (
                "mysql://h/d",
                "Firestore",
                "firestore:/p",
                "firestore:p",
                "firestore://P/runs",
                "firestore://prod/Runs",
                "firestore://prod/runs/e",
                "firestore://prod/abc",
                "firestore://prod/runs?collection=",
                "firestore://prod/runs?collection=a/b",
                "firestore://prod/runs?table=t",
                "firestore://prod/runs#f",
                "firestore://[prod/runs",
                "sqlite",
                "sqlite:",
                "sqlite://runs.db",
                "sqlite:///",
                "sqlite:///folder/",
                "sqlite:///runs.db?mode=ro",
                "sqlite:///runs%00.db",
                "spanner",
                "spanner:",
                "spanner://prod/runs",
                "spanner://prod/runs/",
                "spanner://prod/runs/runs/more",
                "spanner://Prod/runs/runs",
                "spanner://prod/Runs/runs",
                "spanner://prod/runs/r",
                "spanner://prod/runs/runs?table=",
                "spanner://prod/runs/runs?table=a-b",
                "spanner://prod/runs/runs?collection=a",
                "spanner://prod/runs/runs#f",
                "redis",
                "redis:",
                "redis:10.0.0.3",
                "redis:///0",
                "redis://10.0.0.3:port",
                "redis://10.0.0.3:70000",
                "redis://10.0.0.3:0",
                "redis://10.0.0.3/zero",
                "redis://10.0.0.3/0/1",
                "redis://10.0.0.3#f",
                "redis://[10.0.0.3",
                "redis://10.0.0.3?prefix=",
                "redis://10.0.0.3?socket_timeout=99",
                "redis://10.0.0.3?auth=password",
                "redis://:secret@10.0.0.3?auth=iam",
                "redis://10.0.0.3?ca=ca.pem",
                "rediss://10.0.0.3?ca=",
                "rediss://10.0.0.3?ca=env:",
                "redis://10.0.0.3?ca=env:REDIS_CA",
            )
        ),
    ],
    ids=lambda value: ascii(value)[:40].replace("\\", "|"),
)
def test_a_bad_value_is_a_fault(variable: str, text: str) -> None:
    """A value that can't be used stops the start, with one fault that begins with the variable."""
    [fault] = faults(**{variable: text})
    assert fault.startswith(f"{variable}: ")


def test_a_bad_firestore_url_is_told_the_form() -> None:
    """Who writes a Firestore URL wrong is shown a right one."""
    [fault] = faults(DEDUP_STORE="firestore:p")
    assert fault.endswith(" firestore://PROJECT/DATABASE?collection=scheduler_runs")


def test_every_fault_is_named_in_one_error() -> None:
    """Who deploys mends everything at once: one error has a line for each variable that is wrong."""
    environ = {
        "DEDUP_STORE": "mysql://h",
        "DEDUP_LEASE_SECONDS": "0",
        "DEDUP_RENEW": "maybe",
        "DEDUP_TIMEOUT_SECONDS": "x",
        "DEDUP_RETENTION_SECONDS": "-5",
        "DEDUP_SCOPE": "region",
        "DEDUP_MANUAL_RUNS": "never",
        "DEDUP_LOG_LEVEL": "LOUD",
        "CLOUD_RUN_TIMEOUT_SECONDS": "?",
        "DEDUP_LEASE": "5",
    }
    with pytest.raises(SettingsError) as refusal:
        Settings.from_environment(environ)
    first, *lines = str(refusal.value).splitlines()
    assert first == "the environment is wrong:"
    assert sorted(line.split()[0].rstrip(":") for line in lines) == sorted(environ)


def test_a_lease_longer_than_the_retention_is_a_fault() -> None:
    """A record that TTL may delete while its lease lives would be claimed twice."""
    [fault] = faults(DEDUP_LEASE_SECONDS="301", DEDUP_RETENTION_SECONDS="300")
    assert "DEDUP_RETENTION_SECONDS=300 is shorter than a lease of 301 s" in fault
    [fault] = faults(DEDUP_LEASE_SECONDS="86401")
    assert "DEDUP_RETENTION_SECONDS=86400" in fault


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("DEDUP_LEASE_SECOND", "DEDUP_LEASE_SECONDS"),
        ("DEDUP_LEASE_SECS", "DEDUP_LEASE_SECONDS"),
        ("DEDUP_STROE", "DEDUP_STORE"),
        ("DEDUP_MANUAL_RUN", "DEDUP_MANUAL_RUNS"),
        ("DEDUP_SCOPES", "DEDUP_SCOPE"),
    ],
)
def test_a_misspelt_variable_is_a_fault_with_a_suggestion(misspelt: str, meant: str) -> None:
    """A DEDUP_ name that is no setting would be passed over without a word: it is refused, and the likely one named."""
    assert faults(**{misspelt: "300"}) == [f"{misspelt} is no setting: did you mean {meant}?"]


def test_an_unknown_variable_that_resembles_none_lists_all() -> None:
    """Where no name is near, all are listed."""
    [fault] = faults(DEDUP_QQQQQQQQQQ="x")
    assert all(f"DEDUP_{field.upper()}" in fault for field in Settings.__dataclass_fields__)


def test_other_peoples_variables_are_left_alone() -> None:
    """Only names that begin with DEDUP_ are ours to judge."""
    assert Settings.from_environment({"MY_DEDUP_X": "1", "DEDUPE": "1", "dedup_store": "x", "PATH": "/bin"}) == Settings()


@pytest.mark.parametrize("where", ["K_SERVICE", "CLOUD_RUN_JOB", "GAE_ENV"])
def test_sqlite_is_refused_where_instances_come_and_go(where: str) -> None:
    """On Cloud Run, Cloud Functions and App Engine an instance's own disk deduplicates nothing; Firestore does."""
    auth = Kind.APP_ENGINE if where == "GAE_ENV" else Kind.IAM
    [fault] = faults(**{where: "nightly", "DEDUP_AUTH": auth, "DEDUP_STORE": "sqlite:///runs.db"})
    assert fault.startswith("DEDUP_STORE=sqlite:///runs.db")
    assert where in fault
    assert Settings.from_environment({where: "nightly", "DEDUP_AUTH": auth}) == Settings(auth=auth)


OIDC = {"DEDUP_AUTH": "oidc", "DEDUP_AUDIENCE": "https://a.run.app", "DEDUP_CALLERS": "a@b.com, c@d.com"}


def test_who_may_call() -> None:
    """The three means, and of oidc the audience and the callers, are read."""
    assert Settings.from_environment({}).auth is Kind.IAM
    assert Settings.from_environment({"DEDUP_CALLERS": "a@b.com"}).callers == ("a@b.com",)
    read = Settings.from_environment(OIDC)
    assert (read.auth, read.audience, read.callers) == (Kind.OIDC, "https://a.run.app", ("a@b.com", "c@d.com"))


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        ({"DEDUP_AUTH": "basic"}, "'basic' is not one of iam, oidc, app-engine"),
        ({"DEDUP_CALLERS": "a@b.com,scheduler"}, "'scheduler' is no e-mail address"),
        ({"DEDUP_CALLERS": "a@b.com,"}, "'' is no e-mail address"),
        ({**OIDC, "DEDUP_AUDIENCE": ""}, "DEDUP_AUTH=oidc needs DEDUP_AUDIENCE"),
        ({**OIDC, "DEDUP_CALLERS": ""}, "DEDUP_AUTH=oidc needs DEDUP_CALLERS"),
        ({"DEDUP_AUDIENCE": "https://a.run.app"}, "DEDUP_AUDIENCE says nothing with DEDUP_AUTH=iam"),
        ({"DEDUP_AUTH": "app-engine", "DEDUP_CALLERS": "a@b.com"}, "DEDUP_CALLERS says nothing with DEDUP_AUTH=app-engine"),
        ({"DEDUP_AUTH": "app-engine", "K_SERVICE": "nightly"}, "DEDUP_AUTH=app-engine proves nothing where K_SERVICE is set"),
        ({"GAE_ENV": "standard"}, "DEDUP_AUTH=iam proves nothing where GAE_ENV is set"),
    ],
)
def test_what_would_let_anybody_in_is_refused(environ: dict[str, str], told: str) -> None:
    """A means that proves nothing where it is used, and half a means, stop the start."""
    [fault] = faults(**environ)
    assert told in fault


@pytest.mark.parametrize(
    ("url", "project", "database", "collection"),
    [
        ("firestore", None, "(default)", "scheduler_runs"),
        ("firestore:", None, "(default)", "scheduler_runs"),
        ("firestore://", None, "(default)", "scheduler_runs"),
        ("firestore://prod", "prod", "(default)", "scheduler_runs"),
        ("firestore://prod/", "prod", "(default)", "scheduler_runs"),
        ("firestore:///runs", None, "runs", "scheduler_runs"),
        ("firestore://prod/(default)", "prod", "(default)", "scheduler_runs"),
        ("firestore://example.com:prod/scheduler-runs?collection=runs", "example.com:prod", "scheduler-runs", "runs"),
        ("firestore://?collection=runs_2", None, "(default)", "runs_2"),
    ],
)
def test_a_firestore_url_is_read(url: str, project: str | None, database: str, collection: str) -> None:
    """Every part of a Firestore URL may be left out; nothing is connected to."""
    store = open_store(url)
    assert isinstance(store, FirestoreRunStore)
    assert (store.project, store.database, store.collection) == (project, database, collection)


def test_what_is_made_before_the_first_run() -> None:
    """Nothing is, in Redis; for Firestore, the policy that Terraform makes is told as the command that makes it by hand."""
    assert create_schema("redis://127.0.0.1") == "this store needs nothing made before its first run"
    told = "gcloud firestore fields ttls update expire_at --enable-ttl --collection-group=scheduler_runs --database='(default)'"
    assert create_schema("firestore").endswith(told)
    assert create_schema("firestore://prod").endswith(f"{told} --project=prod")


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("spanner://prod/runs/jobs", ("prod", "runs", "jobs", "scheduler_runs")),
        ("spanner:///runs/jobs-1_a", (None, "runs", "jobs-1_a", "scheduler_runs")),
        ("spanner://example.com:prod/runs/jobs?table=my_runs", ("example.com:prod", "runs", "jobs", "my_runs")),
    ],
)
def test_a_spanner_url_is_read(url: str, place: tuple[str | None, ...]) -> None:
    """A Spanner URL names an instance and a database; the project and the table may be left out."""
    store = open_store(url)
    assert isinstance(store, SpannerRunStore)
    assert (store.project, store.instance, store.database, store.table) == place


@pytest.mark.parametrize(
    ("url", "server", "prefix"),
    [
        ("redis://10.0.0.3", Server(host="10.0.0.3"), "scheduler_runs"),
        ("redis://10.0.0.3:6380/2?prefix=jobs", Server(host="10.0.0.3", port=6380, db=2), "jobs"),
        ("redis://:s%40crt@cache", Server(host="cache", password="s@crt"), "scheduler_runs"),
        ("redis://me:it@cache/", Server(host="cache", username="me", password="it"), "scheduler_runs"),
        ("rediss://[fd00::3]?auth=iam&ca=ca.pem", Server(host="fd00::3", tls=True, ca="ca.pem", iam=True), "scheduler_runs"),
    ],
)
def test_a_redis_url_is_read(url: str, server: Server, prefix: str) -> None:
    """A Redis URL names a host; everything else may be left out, and `rediss` is TLS."""
    store = open_store(url)
    assert isinstance(store, RedisRunStore)
    assert (store.server, store.prefix) == (server, prefix)


@pytest.mark.parametrize(
    ("pem", "told"),
    [
        (None, "is missing or empty"),
        (" ", "is missing or empty"),
        ("-----BEGIN", "holds no certificate as PEM"),
        ("é", "holds no certificate as PEM"),
    ],
    ids=["missing", "blank", "cut off", "not ASCII"],
)
def test_an_authority_that_isnt_in_its_variable(monkeypatch: pytest.MonkeyPatch, pem: str | None, told: str) -> None:
    """A variable that should hold the certificate authority and doesn't stops the start, with its name."""
    monkeypatch.delenv("REDIS_CA", raising=False)
    if pem is not None:
        monkeypatch.setenv("REDIS_CA", pem)
    [fault] = faults(DEDUP_STORE="rediss://10.0.0.3?ca=env:REDIS_CA")
    assert fault.startswith("DEDUP_STORE: ")
    assert "'REDIS_CA'" in fault
    assert told in fault


@pytest.mark.parametrize(
    ("url", "package", "file"),
    [
        ("spanner://p/runs/runs", "google.cloud.spanner", "dedup/stores/requirements-spanner.txt"),
        ("redis://10.0.0.3", "redis", "dedup/stores/requirements-redis.txt"),
        ("rediss://10.0.0.3", "redis", "dedup/stores/requirements-redis.txt"),
    ],
)
def test_a_store_whose_package_is_missing(monkeypatch: pytest.MonkeyPatch, url: str, package: str, file: str) -> None:
    """A store whose library isn't installed is a fault that names it, and the line to add; the file is there."""
    if package == "google.cloud.spanner":
        monkeypatch.delattr("google.cloud.spanner")
    for module in ("dedup.stores.spanner", "dedup.stores.redis"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, package, None)  # type: ignore[arg-type]
    [fault] = faults(DEDUP_STORE=url)
    assert package in fault
    assert f"add the line -r {file} to requirements.txt" in fault
    assert (ROOT / file).exists()


def test_a_redis_password_is_not_shown() -> None:
    """The error goes to a log: of a Redis URL that can't be used, nothing is told that may be a secret."""
    for wrong in ("redis://u:hunter2@h/x", "redis://u:hunter2@h:x", "redis://u:hunter2@h?auth=iam", "redis://u:hunter2@[h"):
        [fault] = faults(DEDUP_STORE=wrong)
        assert "hunter2" not in fault
    assert "hunter2" not in repr(Server(host="h", password="hunter2"))


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///runs.db", "runs.db"),
        ("sqlite:///data/my%20runs.db", "data/my runs.db"),
        ("sqlite:////nowhere/runs.db", "/nowhere/runs.db"),
    ],
)
def test_a_sqlite_url_is_read(url: str, path: str) -> None:
    """Three slashes begin a relative path, four an absolute one; no file is made yet."""
    store = open_store(url)
    assert isinstance(store, SQLiteRunStore)
    assert str(store.path) == path
    assert not store.path.exists()


def test_a_password_in_an_unknown_url_is_not_shown() -> None:
    """The error goes to a log: of a URL that names no store, only the name is told."""
    [fault] = faults(DEDUP_STORE="postgres://user:hunter2@host/db")
    assert "hunter2" not in fault
    assert "'postgres'" in fault
    assert "firestore:" in fault
    assert "sqlite:" in fault
