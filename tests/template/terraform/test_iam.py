"""Who may do what: the roles that are granted, all of them."""

from __future__ import annotations

import re

import pytest

from tests.template.terraform.deployments import Planned

GRANTS = re.compile(r"_iam_|_iam$|_acl$|access_control|service_account_key|hmac_key|_access_")
"""Types of resources that let somebody do something."""

PROJECT = "google_project_iam_member"
SERVICE = "google_cloud_run_v2_service_iam_member"
REPOSITORY = "google_artifact_registry_repository_iam_member"
SECRET = "google_secret_manager_secret_iam_member"
SPANNER = "google_spanner_database_iam_member"

FUNCTION = "google_service_account.runtime.member"
DATABASE_ONLY = 'resource.name == "projects/my-project/databases/(default)"'
INSTANCE_ONLY = 'resource.name == "projects/my-project/locations/us-central1/instances/the-runs"'

ON_THE_STORE: dict[str, set[tuple[str, str, str, str | None]]] = {
    "everything_said": {
        (PROJECT, "roles/datastore.user", FUNCTION, DATABASE_ONLY),
        (SECRET, "roles/secretmanager.secretAccessor", FUNCTION, None),
    },
    "spanner": {(SPANNER, "roles/spanner.databaseUser", FUNCTION, None)},
    "memorystore": {(PROJECT, "roles/memorystore.dbConnectionUser", FUNCTION, INSTANCE_ONLY)},
    "redis_that_is_there": set(),
}
"""What the function's account may do in its store, and with its secrets."""


@pytest.mark.parametrize("deployment", ON_THE_STORE)
def test_nobody_has_another_role(deployment: str, planned: Planned) -> None:
    """Each account has the roles that are listed here, and no resource grants any other."""
    own = f"projects/_/buckets/my-project-{deployment.replace('_', '-')}-source"
    copies = 'resource.name.startsWith("projects/_/buckets/gcf-v2-sources-")'
    source_only = f'resource.name == "{own}" || resource.name.startsWith("{own}/") || {copies}'

    assert granted(planned, deployment) == ON_THE_STORE[deployment] | {
        (SERVICE, "roles/run.invoker", "google_service_account.scheduler.member", None),
        (PROJECT, "roles/cloudtrace.agent", FUNCTION, None),
        (PROJECT, "roles/logging.logWriter", FUNCTION, None),
        (PROJECT, "roles/monitoring.metricWriter", FUNCTION, None),
        (PROJECT, "roles/logging.logWriter", "google_service_account.build.member", None),
        (PROJECT, "roles/storage.objectViewer", "google_service_account.build.member", source_only),
        (REPOSITORY, "roles/artifactregistry.writer", "google_service_account.build.member", None),
    }


def test_the_role_on_spanner_is_on_the_one_database(planned: Planned) -> None:
    """The function's account gets at the database of the runs, and at no other of the instance."""
    (grant,) = planned.resources("spanner", SPANNER)

    assert (grant["values"]["instance"], grant["values"]["database"]) == ("main", "runs")


def test_without_secrets_there_is_no_grant_on_any(planned: Planned) -> None:
    """The function's account may read secrets only where there are some."""
    assert SECRET not in {kind for kind, *_ in granted(planned, "timeout_120")}


def test_accounts_are_the_deployments_own(planned: Planned) -> None:
    """Function, build and Scheduler each run as an account that is made here; the project's default accounts do nothing."""
    made = {resource["address"].split(".", 2)[2] for resource in planned.resources("timeout_120", "google_service_account")}
    configured = planned.configured("timeout_120")
    function = configured["google_cloudfunctions2_function.job"]

    assert made == {"google_service_account.runtime", "google_service_account.scheduler", "google_service_account.build"}
    assert function["service_config"][0]["service_account_email"]["references"][0] == "google_service_account.runtime.email"
    assert function["build_config"][0]["service_account"]["references"][0] == "google_service_account.build.id"
    token = configured["google_cloud_scheduler_job.job"]["http_target"][0]["oidc_token"][0]
    assert token["service_account_email"]["references"][0] == "google_service_account.scheduler.email"


def test_the_token_is_for_what_is_called(planned: Planned) -> None:
    """Audience and target come from one attribute: the URI of the function's service."""
    target = planned.configured("timeout_120")["google_cloud_scheduler_job.job"]["http_target"][0]
    uri = "google_cloudfunctions2_function.job.service_config[0].uri"

    assert target["uri"]["references"][0] == uri
    assert target["oidc_token"][0]["audience"]["references"][0] == uri


def granted(planned: Planned, deployment: str) -> set[tuple[str, str, str, str | None]]:
    """Each grant of a deployment: by what resource, which role, to whom, under what condition."""
    configured = planned.configured(deployment)
    return {
        (
            resource["type"],
            resource["values"].get("role"),
            configured[f"{resource['type']}.{resource['name']}"].get("member", {}).get("references", ["?"])[0],
            next((condition["expression"] for condition in resource["values"].get("condition") or ()), None),
        )
        for resource in planned.resources(deployment)
        if GRANTS.search(resource["type"])
    }
