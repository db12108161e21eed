"""What `check` finds."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from typing import Any

import pytest
from google.cloud import firestore_admin_v1 as admin

import dedup
from dedup.cli.check import _ttl_findings
from dedup.stores import StoreUnavailable
from dedup.stores.firestore import FirestoreRunStore, sees_ttl_policy
from dedup.stores.sqlite import SQLiteRunStore
from tests.template.cli.conftest import House


def findings(house: House, *options: str, code: int = 0) -> dict[str, dict[str, Any]]:
    """What is found, the last of each kind."""
    done = house("check", *options, "--json")
    assert (done.exit_code, done.stderr) == (code, "")
    return {line["check"]: line for line in map(json.loads, done.stdout.splitlines())}


def test_a_good_environment_is_good(house: House) -> None:
    """Version, settings, store, permissions, clock and listing are looked at, and nothing is left behind in the store."""
    found = findings(house)
    assert {name: line["finding"] for name, line in found.items() if name != "ttl"} == dict.fromkeys(
        ("version", "settings", "store", "permissions", "clock", "listing"), "ok"
    )
    assert found["ttl"]["finding"] in ("ok", "unknown")
    assert house("runs").stderr == "no runs\n"
    assert house("check").exit_code == 0


def test_the_version_comes_first(local: House) -> None:
    """The version is the first finding, in the table and in JSON, even where the settings are wrong."""
    for environ in (local.environ, {"DEDUP_LEASE_SECONDS": "soon"}):
        local.environ = environ
        assert local("check").stdout.splitlines()[1].split() == ["version", "ok", dedup.__version__]
        first = json.loads(local("check", "--json").stdout.splitlines()[0])
        assert (first["check"], first["what"]) == ("version", dedup.__version__)


def test_each_wrong_setting_is_a_fault(local: House) -> None:
    """Every setting that is wrong is a fault of its own, and stops the runs: exit code 1."""
    local.environ = {"DEDUP_LEASE_SECONDS": "soon", "DEDUP_LEASE": "5"}
    done = local("check")
    assert done.exit_code == 1
    assert done.stdout.count("fault") == 2
    assert "DEDUP_LEASE_SECONDS" in done.stdout


def test_a_store_out_of_reach_is_a_fault(local: House) -> None:
    """A store that can't be reached stops the runs, and the fault says what to look at."""
    found = findings(local, "--store", "sqlite:////proc/nowhere/runs.db", code=1)
    assert found["store"]["finding"] == "fault"
    assert "writable" in found["store"]["what"]


def test_a_slow_store_is_no_fault(local: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that takes more than a second is told, with a question that leads on."""
    finish = SQLiteRunStore.finish_run
    monkeypatch.setattr("dedup.cli.check.SLOW_SECONDS", 0.01)
    monkeypatch.setattr(SQLiteRunStore, "finish_run", lambda *a, **k: time.sleep(0.02) or finish(*a, **k))
    assert findings(local)["store"]["finding"] == "warning"


def test_a_wrong_clock_is_no_fault(local: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that is off is a warning, which says what goes by it."""
    look_up = SQLiteRunStore.look_up

    def an_hour_ago(self: SQLiteRunStore, run_id: str) -> Any:
        record, now = look_up(self, run_id)
        return record, now - timedelta(hours=1)

    monkeypatch.setattr(SQLiteRunStore, "look_up", an_hour_ago)
    found = findings(local)["clock"]
    assert found["finding"] == "warning"
    assert "3600" in found["what"]
    assert "NTP" in found["remedy"]
    local.environ = {**local.environ, "DEDUP_MANUAL_RUNS": "separate"}
    assert "separate" in findings(local)["clock"]["remedy"]


@pytest.mark.parametrize("password", ["secret", "sec@ret"])
def test_a_password_is_not_told(local: House, password: str) -> None:
    """A store's URL is told without what is in front of its host."""
    local.environ = {"DEDUP_STORE": f"redis://:{password}@127.0.0.1:1/0?prefix=x"}
    told = local("check", "--json").output
    assert "redis://127.0.0.1:1/0?prefix=x" in told
    assert "secret" not in told
    assert "ret@" not in told


def test_a_listing_without_an_index_is_not_tried(local: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a listing reads every run, `check` reads none."""

    def read(*_: object, **__: object) -> Any:
        raise AssertionError("it was read")

    monkeypatch.setattr(SQLiteRunStore, "list_runs", read)
    monkeypatch.setattr(SQLiteRunStore, "lists_by_index", False)
    assert findings(local)["listing"]["finding"] == "ok"


def test_a_missing_index_is_no_fault(local: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing that is refused, as for want of an index, stops no run."""

    def refuse(*_: object, **__: object) -> Any:
        raise StoreUnavailable("requires an index")

    monkeypatch.setattr(SQLiteRunStore, "list_runs", refuse)
    assert findings(local)["listing"]["finding"] == "warning"


@pytest.mark.parametrize(("seen", "finding"), [(True, "ok"), (False, "warning"), (None, "unknown")])
@pytest.mark.store("firestore")
def test_the_ttl_policy_is_looked_for(local: House, monkeypatch: pytest.MonkeyPatch, seen: bool | None, finding: str) -> None:
    """A TTL policy that isn't there is a warning; one that we may not see is unknown."""

    def sees(url: str) -> bool:
        if seen is None:
            raise StoreUnavailable("403")
        return seen

    monkeypatch.setattr("dedup.stores.firestore.sees_ttl_policy", sees)
    monkeypatch.delenv("FIRESTORE_EMULATOR_HOST", raising=False)
    [found] = _ttl_findings("firestore://prod")
    assert found.finding == finding


def test_the_ttl_policy_is_asked_of_the_admin_api(monkeypatch: pytest.MonkeyPatch) -> None:
    """The field is named in full, the call is bounded, and only a policy that is there or on its way counts."""
    asked: list[dict[str, Any]] = []
    state = admin.Field.TtlConfig.State.ACTIVE

    class Client:
        def get_field(self, **what: Any) -> admin.Field:
            asked.append(what)
            return admin.Field(ttl_config=admin.Field.TtlConfig(state=state))

    class Project:
        project = "prod"

    monkeypatch.setattr(admin, "FirestoreAdminClient", Client)
    monkeypatch.setattr(FirestoreRunStore, "_connected", lambda self: Project())
    assert sees_ttl_policy("firestore://prod/runs-db?collection=mine")
    state = admin.Field.TtlConfig.State.NEEDS_REPAIR
    assert not sees_ttl_policy("firestore://prod/runs-db?collection=mine")
    assert asked[0]["name"] == "projects/prod/databases/runs-db/collectionGroups/mine/fields/expire_at"
    assert asked[0]["timeout"] <= 10
    assert asked[0]["retry"] is None


def test_a_short_retention_is_told(local: House) -> None:
    """Records that are kept for less than a day are a warning."""
    local.environ = {**local.environ, "DEDUP_RETENTION_SECONDS": "600"}
    assert findings(local)["settings"]["finding"] == "warning"


def test_the_schema_is_made(local: House) -> None:
    """`store create` makes what the store needs, twice without harm, and says what it was."""
    path = local.environ["DEDUP_STORE"].replace("runs.db", "other.db")
    for _ in range(2):
        done = local("store", "create", "--store", path)
        assert (done.exit_code, done.stderr) == (0, "")
        assert "scheduler_runs" in done.stdout
    assert local("runs", "--store", path).stderr == "no runs\n"
    assert "ttls update expire_at" in local("store", "create", "--store", "firestore://prod/runs-db").stdout
