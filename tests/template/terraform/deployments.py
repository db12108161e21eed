"""Deployments of many kinds, planned together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.template import ROOT
from tests.template.size import WHOLE
from tests.template.terraform.workspace import REQUIRED

ANOTHER_JOB = {"source_dir": str(ROOT / "terraform" / "tests" / "another_job")}
"""A folder without dedup/."""
OTHER_STORES = {"source_dir": str(ROOT / "terraform" / "tests" / "other_stores")}
"""A job whose requirements.txt lists the libraries of all stores."""

TIMEOUTS = (15, 120, 540, 1800) if WHOLE else (120,)

DEPLOYMENTS: dict[str, dict[str, Any]] = {
    # The database's name is said, so that all of the environment is known in the plan.
    **{
        f"timeout_{seconds}": REQUIRED | {"name": f"timeout-{seconds}", "timeout_seconds": seconds, "database_id": "the-runs"}
        for seconds in TIMEOUTS
    },
    "everything_said": REQUIRED
    | ANOTHER_JOB
    | {
        "name": "everything-said",
        "timeout_seconds": 300,
        "renew_lease": False,
        "lease_seconds": 400,
        "retention_seconds": 604800,
        "scope": "header:X-Tenant,query:part,path",
        "manual_runs": "separate",
        "log_level": "DEBUG",
        "create_database": False,
        "database_id": "(default)",
        "secret_environment_variables": {"API_KEY": {"secret": "api-key"}},
        "jobs": {"hourly": {"schedule": "5 * * * *", "max_doublings": 2}},
    },
    # What is created has its name said, so that the roles on it are known in the plan.
    "spanner": REQUIRED
    | OTHER_STORES
    | {"name": "spanner", "store": "spanner", "spanner_instance": "main", "database_id": "runs"},
    "memorystore": REQUIRED
    | OTHER_STORES
    | {"name": "memorystore", "store": "memorystore", "network": "default", "database_id": "the-runs"},
    "redis_that_is_there": REQUIRED
    | OTHER_STORES
    | {
        "name": "redis-that-is-there",
        "store": "memorystore",
        "create_database": False,
        "memorystore": {"host": "10.0.0.3"},
        "network": "default",
    },
}


@dataclass(frozen=True)
class Planned:
    """The plan of all deployments, and the folder that it was made in."""

    plan: dict[str, Any]
    folder: Path

    def resources(self, deployment: str, kind: str = "") -> Iterator[dict[str, Any]]:
        """What is planned: each with `address`, `type`, `name` and `values`, those that aren't known yet left out."""
        for module in self.plan["planned_values"]["root_module"]["child_modules"]:
            if module["address"] == f"module.{deployment}":
                yield from (resource for resource in module["resources"] if resource["type"].startswith(kind))

    def configured(self, deployment: str) -> dict[str, dict[str, Any]]:
        """The expressions of each resource, by its address without an index."""
        module = self.plan["configuration"]["root_module"]["module_calls"][deployment]["module"]
        return {resource["address"]: resource["expressions"] for resource in module["resources"]}

    def timings(self, deployment: str) -> dict[str, dict[str, Any]]:
        """The output `timings`: of each job."""
        timings: dict[str, dict[str, Any]] = self.plan["planned_values"]["outputs"]["timings"]["value"][deployment]
        return timings

    def environment(self, deployment: str) -> dict[str, str]:
        """The function's environment variables."""
        (function,) = self.resources(deployment, "google_cloudfunctions2_function")
        environment: dict[str, str] = function["values"]["service_config"][0]["environment_variables"]
        return environment

    def archive(self, deployment: str) -> Path:
        """The archive that is deployed."""
        return self.folder / ".terraform" / f"{deployment.replace('_', '-')}-source.zip"
