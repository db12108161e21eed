"""What cloudbuild.yaml has Cloud Build do: its scripts run here, with a terraform that only notes how it is called."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.template import ROOT

BUILD: dict[str, Any] = YAML(typ="safe").load(ROOT / "cloudbuild.yaml")
STEPS: dict[str, dict[str, Any]] = {step["id"]: step for step in BUILD["steps"]}
TERRAFORM_STEPS = [name for name, step in STEPS.items() if step["name"].startswith("hashicorp/terraform:")]
OF_ENVIRONMENT = ["plan-the-environment", "apply-the-plan-if-asked-to"]


@dataclass(frozen=True)
class Submitted:
    """What came of a build: the terraform steps that ran, what they said, and how they called terraform."""

    failed: bool
    output: str
    calls: list[str]


@dataclass(frozen=True)
class CloudBuild:
    """Runs the steps that need terraform alone, one after the other, up to the first that fails.

    Args:
        workspace: a folder with what the scripts look at.
    """

    workspace: Path

    def submit(self, *, steps: list[str] = TERRAFORM_STEPS, terraform_exits: int = 0, **substitutions: str) -> Submitted:
        """Submits a build with these substitutions over the file's own."""
        calls = self.workspace / "calls.txt"
        calls.write_text("")
        terraform = self._script("bin/terraform", f'#!/bin/sh\necho "$*" >>{calls}\nexit {terraform_exits}\n')
        environment = {"PATH": f"{terraform.parent}:/usr/bin:/bin"}
        if BUILD["options"].get("automapSubstitutions"):
            environment |= BUILD["substitutions"] | substitutions
        output, failed = "", False
        for name in steps:
            script = self._script(f"scripts/{name}", STEPS[name]["script"])
            done = subprocess.run([script], cwd=self.workspace, env=environment, capture_output=True, text=True, check=False)
            output += done.stdout + done.stderr
            if done.returncode:
                failed = True
                break
        return Submitted(failed, output, calls.read_text().splitlines())

    def _script(self, path: str, text: str) -> Path:
        script = self.workspace / path
        script.parent.mkdir(exist_ok=True)
        script.write_text(text)
        script.chmod(0o755)
        return script


@pytest.fixture
def cloud_build(tmp_path: Path) -> CloudBuild:
    """A build of a repository with two environments."""
    (tmp_path / "terraform").mkdir()
    (tmp_path / "terraform" / "staging.tfvars").touch()
    (tmp_path / "terraform" / "production.tfvars").touch()
    return CloudBuild(tmp_path)


def test_cloud_build_takes_the_file() -> None:
    """The file has the form that Cloud Build's schema asks for."""
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.cloudbuild", str(ROOT / "cloudbuild.yaml")]
    checked = subprocess.run(check, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("step", STEPS)
def test_a_script_is_understood_by_its_shell(step: str, tmp_path: Path) -> None:
    """Each script starts with the shell that it is for, which can read it to its end."""
    script = tmp_path / "script"
    script.write_text(STEPS[step]["script"])
    shell = script.read_text().splitlines()[0].removeprefix("#!").split()
    assert shell in (["/bin/sh"], ["/usr/bin/env", "bash"])
    checked = subprocess.run([*shell, "-n", str(script)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_a_build_may_run_as_an_account_of_its_own() -> None:
    """The log goes to Cloud Logging: Cloud Build refuses an account of one's own that doesn't say where else."""
    assert BUILD["options"]["logging"] == "CLOUD_LOGGING_ONLY"


@pytest.mark.parametrize("step", STEPS)
def test_an_image_is_pinned(step: str) -> None:
    """Each step names a version of its image: the build of today is the build of tomorrow."""
    assert re.search(r":\d+\.\d+\.\d+(-|$)", STEPS[step]["name"])


def test_the_build_knows_verbs_of_the_makefile() -> None:
    """What the build makes are targets of the Makefile."""
    made = re.findall(
        r"(?:^ *|; then )(?:\S*/)?make ([^\s;]+)", "\n".join(step["script"] for step in STEPS.values()), flags=re.MULTILINE
    )
    assert made == [".venv/dev-installed", "lint", "test-job", "test"]
    for target in made:
        asked = subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=False)
        assert asked.returncode == 0, asked.stderr


def test_a_build_without_substitutions_plans_staging(cloud_build: CloudBuild) -> None:
    """A build that asks for nothing checks, plans staging with no state, and applies nothing."""
    build = cloud_build.submit()
    assert not build.failed
    assert build.calls == [
        "-chdir=terraform init -backend=false -input=false",
        "-chdir=terraform validate",
        "-chdir=terraform plan -input=false -lock-timeout=5m -var-file=staging.tfvars -out=staging.tfplan",
    ]
    assert "planned as if nothing were there yet" in build.output
    assert "Not applied. To apply it, add _APPLY=true and _STATE_BUCKET" in build.output
    assert not (cloud_build.workspace / "terraform" / "backend.tf").exists()


def test_the_whole_suite_is_asked_for(cloud_build: CloudBuild) -> None:
    """With _TESTS=all the template's own tests run before anything is planned, terraform's among them."""
    build = cloud_build.submit(_TESTS="all")
    assert not build.failed
    assert build.calls[:3] == [
        "-chdir=terraform init -backend=false -input=false",
        "-chdir=terraform validate",
        "-chdir=terraform test",
    ]


@pytest.mark.parametrize(("tests", "made"), [("job", ["test-job"]), ("all", ["test-job", "test"])])
def test_what_is_made(cloud_build: CloudBuild, tests: str, made: list[str]) -> None:
    """A build makes the fork's tests, and the whole suite only where it is asked to."""
    venv = cloud_build.workspace / ".venv" / "bin"
    venv.mkdir(parents=True)
    (venv / "make").write_text('#!/bin/sh\necho "$*" >>made.txt\n')
    (venv / "make").chmod(0o755)
    build = cloud_build.submit(steps=["test-the-job", "test-the-template-if-asked-to"], _TESTS=tests)
    assert not build.failed
    assert (cloud_build.workspace / "made.txt").read_text().split() == made


def test_an_apply_that_is_asked_for(cloud_build: CloudBuild) -> None:
    """With _APPLY and a bucket the plan is applied, and the state is kept in the bucket under the environment's name."""
    build = cloud_build.submit(steps=OF_ENVIRONMENT, _ENVIRONMENT="production", _STATE_BUCKET="my-state", _APPLY="true")
    assert not build.failed
    assert build.calls == [
        "-chdir=terraform init -reconfigure -input=false -backend-config=bucket=my-state -backend-config=prefix=production",
        "-chdir=terraform plan -input=false -lock-timeout=5m -var-file=production.tfvars -out=production.tfplan",
        "-chdir=terraform apply -input=false -lock-timeout=5m production.tfplan",
    ]
    assert (cloud_build.workspace / "terraform" / "backend.tf").read_text() == 'terraform {\n  backend "gcs" {}\n}\n'


def test_a_plan_against_the_state_is_not_applied(cloud_build: CloudBuild) -> None:
    """With a bucket alone the plan is made against the state that is kept there, and nothing is applied."""
    build = cloud_build.submit(steps=OF_ENVIRONMENT, _STATE_BUCKET="my-state")
    assert not build.failed
    assert [call.split()[1] for call in build.calls] == ["init", "plan"]
    assert "Not applied." in build.output


@pytest.mark.parametrize(
    ("substitutions", "reason"),
    [
        ({"_APPLY": "true"}, "_APPLY=true needs _STATE_BUCKET"),
        ({"_APPLY": "true", "_ENVIRONMENT": "production"}, "_APPLY=true needs _STATE_BUCKET"),
        ({"_APPLY": "yes", "_STATE_BUCKET": "my-state"}, '_APPLY is "yes". It is true or false.'),
        ({"_APPLY": "", "_STATE_BUCKET": "my-state"}, '_APPLY is "". It is true or false.'),
        ({"_STATE_BUCKET": "gs://my-state"}, "a bucket's bare name"),
        ({"_STATE_BUCKET": "my-state/folder"}, "a bucket's bare name"),
        ({"_TESTS": "none"}, '_TESTS is "none". It is job or all.'),
        ({"_ENVIRONMENT": "nowhere"}, "there is no terraform/nowhere.tfvars"),
        ({"_ENVIRONMENT": "../terraform/staging"}, "It names an environment"),
        ({"_ENVIRONMENT": ""}, "It names an environment"),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_refused(cloud_build: CloudBuild, substitutions: dict[str, str], reason: str) -> None:
    """The first step ends a build whose substitutions make no sense, with what to set, before anything else is done."""
    build = cloud_build.submit(**substitutions)
    assert build.failed
    assert build.output.startswith("Refused: ")
    assert reason in build.output
    assert build.calls == []
    assert next(iter(STEPS)) == "refuse-what-cannot-be-done"


@pytest.mark.parametrize("step", TERRAFORM_STEPS[1:])
def test_a_failure_of_terraform_ends_the_build(cloud_build: CloudBuild, step: str) -> None:
    """A command of terraform that fails fails its step, and no other command of the step is run."""
    build = cloud_build.submit(steps=[step], terraform_exits=1, _STATE_BUCKET="my-state", _APPLY="true", _TESTS="all")
    assert build.failed
    assert len(build.calls) == 1
