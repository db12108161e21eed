"""What terraform sets is what the function reads."""

from __future__ import annotations

import pytest

from dedup.delivery import ManualRuns, ScopePart
from dedup.settings import Settings
from dedup.stores import open_store, redis, spanner
from dedup.stores.firestore import FirestoreRunStore
from tests.template.terraform.deployments import TIMEOUTS, Planned


@pytest.mark.parametrize("timeout", TIMEOUTS)
def test_the_function_reads_what_was_derived(timeout: int, planned: Planned) -> None:
    """For each timeout, the function starts with the timings of the plan."""
    timings = planned.timings(f"timeout_{timeout}")[f"timeout-{timeout}"]

    settings = Settings.from_environment(planned.environment(f"timeout_{timeout}"))

    assert settings == Settings(
        store="firestore://my-project/the-runs?collection=scheduler_runs",
        lease_seconds=timings["lease"],
        renew=True,
        timeout_seconds=timeout,
        retention_seconds=timings["retention"],
        scope=(ScopePart.parse("header:X-Job-Project"), ScopePart.parse("header:X-Job-Location")),
        manual_runs=ManualRuns.SHARE,
        callers=(f"timeout-{timeout}-scheduler@my-project.iam.gserviceaccount.com",),
        log_level="INFO",
    )


def test_the_function_reads_what_was_said(planned: Planned) -> None:
    """Whatever a variable says, the function does."""
    assert Settings.from_environment(planned.environment("everything_said")) == Settings(
        store="firestore://my-project/(default)?collection=scheduler_runs",
        lease_seconds=400,
        renew=False,
        timeout_seconds=300,
        retention_seconds=604800,
        scope=(ScopePart.parse("header:X-Tenant"), ScopePart.parse("query:part"), ScopePart.parse("path")),
        manual_runs=ManualRuns.SEPARATE,
        callers=("everything-said-scheduler@my-project.iam.gserviceaccount.com",),
        log_level="DEBUG",
    )


def test_every_setting_has_its_variable(planned: Planned) -> None:
    """Terraform sets each DEDUP_* variable that the function reads: a new one needs its place here."""
    elsewhere = {"DEDUP_AUDIENCE"}  # of `oidc` alone
    assert {name for name in planned.environment("everything_said") if name.startswith("DEDUP_")} == {
        f"DEDUP_{name.upper()}" for name in Settings.__dataclass_fields__
    } - elsewhere


def test_the_store_is_where_the_roles_and_indexes_are(planned: Planned) -> None:
    """The function opens the database and the collection that have the role, the TTL policy and the indexes."""
    store = open_store(planned.environment("timeout_120")["DEDUP_STORE"])

    assert isinstance(store, FirestoreRunStore)
    (role,) = (
        resource["values"]
        for resource in planned.resources("timeout_120", "google_project_iam_member")
        if resource["values"]["role"] == "roles/datastore.user"
    )
    assert role["condition"][0]["expression"] == f'resource.name == "projects/{store.project}/databases/{store.database}"'
    assert {
        (resource["values"]["database"], resource["values"]["collection"])
        for kind in ("google_firestore_field", "google_firestore_index")
        for resource in planned.resources("timeout_120", kind)
    } == {(store.database, store.collection)}


def test_the_function_opens_the_spanner_database_that_it_has_a_role_on(planned: Planned) -> None:
    """The store that DEDUP_STORE names is the database of the role, and its table the one that is created."""
    store = open_store(planned.environment("spanner")["DEDUP_STORE"])

    assert isinstance(store, spanner.SpannerRunStore)
    (role,) = planned.resources("spanner", "google_spanner_database_iam_member")
    (created,) = (one for one in planned.resources("spanner") if one["type"] == "google_spanner_database")
    assert store.project == role["values"]["project"]
    assert (store.instance, store.database) == (role["values"]["instance"], role["values"]["database"])
    assert without_blanks(created["values"]["ddl"]) == without_blanks([spanner.schema(store.table)])


def test_the_function_opens_the_redis_server_that_is_there(planned: Planned) -> None:
    """The store that DEDUP_STORE names is the server that the variables name."""
    store = open_store(planned.environment("redis_that_is_there")["DEDUP_STORE"])

    assert isinstance(store, redis.RedisRunStore)
    assert store.server == redis.Server(host="10.0.0.3", port=6379)


def without_blanks(statements: list[str]) -> list[list[str]]:
    """DDL, word by word."""
    return [statement.split() for statement in statements]
