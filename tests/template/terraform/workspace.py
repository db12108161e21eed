"""Terraform in a copy of this repository, with no way to any cloud."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.template import ROOT

OF_THE_TEMPLATE = ("terraform", "examples", "dedup")
"""What Terraform reads and no fork changes; a fork may have no examples."""
OF_A_FORK = {
    "main.py": '"""A job of the tests\' own."""\n',
    "requirements.txt": "# What it needs.\nfunctions-framework==3.10.2\n",
    ".gcloudignore": "# What is deployed.\n/*\n!/main.py\n!/requirements.txt\n!/dedup/\n__pycache__/\n",
}
"""What a fork writes itself: the tests have their own, so that they say the same in each."""
OLDEST = (1, 11)
"""The module itself takes Terraform 1.9; mocks that the plan knows came with 1.11."""
REQUIRED = {"project_id": "my-project", "region": "us-central1", "schedule": "30 2 * * *"}
"""The three variables without a default."""

_NOWHERE = "http://127.0.0.1:9"
"""A proxy that isn't there: whatever a provider is, it reaches nothing beyond this machine."""


class TerraformMissing(Exception):
    """Terraform or its providers can't be had here."""


class TerraformFailed(Exception):
    """Terraform ended with an error; the message is all that it said."""


@dataclass(frozen=True)
class Terraform:
    """Terraform in one folder."""

    folder: Path

    def __call__(self, *arguments: str, timeout: float = 280, **env: str) -> str:
        """Runs a command, and returns what it printed.

        Args:
            arguments: the command's.
            timeout: in seconds.
            env: more environment variables.

        Raises:
            TerraformFailed: it ended with an error.
        """
        ran = self.run(*arguments, timeout=timeout, **env)
        if ran.returncode != 0:
            raise TerraformFailed(f"terraform {' '.join(arguments)}\n{ran.stdout}{ran.stderr}")
        return ran.stdout

    def run(self, *arguments: str, timeout: float = 280, **env: str) -> subprocess.CompletedProcess[str]:
        """The same, for a command that may end with an error."""
        command = ["terraform", *arguments]
        return subprocess.run(
            command, cwd=self.folder, env=_environment() | env, capture_output=True, text=True, timeout=timeout, check=False
        )

    def init(self, providers: Path | None = None) -> None:
        """Fetches providers and modules.

        Args:
            providers: the folder of another workspace's providers; None: wherever the configuration of Terraform says.

        Raises:
            TerraformMissing: the registry can't be reached, and nothing else was configured.
            TerraformFailed: what was configured doesn't work.
        """
        arguments = ["init", "-input=false", "-no-color", *([f"-plugin-dir={providers}"] if providers is not None else [])]
        quick = {"TF_REGISTRY_CLIENT_TIMEOUT": "2", "TF_REGISTRY_DISCOVERY_RETRY": "0"}
        ran = self.run(*arguments, HTTPS_PROXY=os.environ.get("HTTPS_PROXY", ""), timeout=600, **quick)
        if ran.returncode == 0:
            return
        out_of_reach = any(told in ran.stderr for told in ("could not connect to", "Failed to install provider"))
        if providers is None and "TF_CLI_CONFIG_FILE" not in _environment() and out_of_reach:
            raise TerraformMissing(
                "Terraform's providers can't be had: registry.terraform.io is out of reach, and TF_CLI_CONFIG_FILE names no "
                "configuration with a mirror (see terraform providers mirror)"
            )
        raise TerraformFailed(f"terraform init in {self.folder}\n{ran.stdout}{ran.stderr}")

    @property
    def providers(self) -> Path:
        """Where init puts them."""
        return self.folder / ".terraform" / "providers"

    @property
    def invents(self) -> bool:
        """Whether each provider is a script that invents what it makes. Google's is a program, and isn't let make anything."""
        programs = list(self.providers.glob("*/*/*/*/*/terraform-provider-*"))
        return programs != [] and all(program.read_bytes()[:2] == b"#!" for program in programs)

    def plan(self, *arguments: str) -> dict[str, Any]:
        """What `terraform show -json` says of a plan."""
        self("plan", "-input=false", "-lock=false", "-out=tfplan", *arguments)
        plan: dict[str, Any] = json.loads(self("show", "-json", "tfplan"))
        return plan

    def refusals(self, **variables: object) -> dict[str, list[str]]:
        """What a plan is refused for, or warned of: messages, by the variable, check or Scheduler job that they are about.

        Args:
            variables: beside the required ones, or in place of them.
        """
        given = [
            f"-var={name}={value if isinstance(value, str) else json.dumps(value)}"
            for name, value in (REQUIRED | variables).items()
        ]
        ran = self.run("plan", "-json", "-input=false", "-lock=false", *given)
        refused: dict[str, list[str]] = {}
        for line in map(json.loads, ran.stdout.splitlines()):
            if line["type"] == "diagnostic":
                told = line["diagnostic"]
                kind, name = re.findall(r'(\w+) "(\w+)"', told["snippet"]["context"] or told["snippet"]["code"])[0]
                message = told["detail"].split("\n\nThis was checked by")[0]
                # A resource's conditions say of themselves which job they are about; Terraform doesn't.
                about = message.split(":")[0] if kind == "resource" else f"{kind}.{name}"
                refused.setdefault(about, []).append(message)
        return refused


def copy_repository(to: Path) -> Path:
    """Copies what Terraform reads, and leaves there what a working copy also has; returns the copy."""
    others = (".terraform*", "*.tfstate*", "*.tfplan", "*.tfvars", "*.tfvars.json", "backend.tf", "__pycache__")
    for name in OF_THE_TEMPLATE:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, to / name, ignore=shutil.ignore_patterns(*others))
    for name, text in OF_A_FORK.items():
        (to / name).write_text(text)
    for leftover in (
        "dedup/__pycache__/run.cpython-311.pyc",
        "dedup/stores/__pycache__/x.pyc",
        "tests/template/test_main.py",
        ".env",
        "notes.txt",
    ):
        path = to / leftover
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("not deployed")
    return to


def terraform_version() -> tuple[int, int]:
    """Of the terraform on the PATH.

    Raises:
        TerraformMissing: there is none.
    """
    if shutil.which("terraform") is None:
        raise TerraformMissing("terraform isn't on the PATH (https://developer.hashicorp.com/terraform/install)")
    told = subprocess.run(["terraform", "version", "-json"], env=_environment(), capture_output=True, check=True, timeout=20)
    major, minor, *_ = json.loads(told.stdout)["terraform_version"].split(".")
    return int(major), int(minor)


def _environment() -> dict[str, str]:
    """This process's environment, less what would change a plan, and without any credentials."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TF_", "GOOGLE_", "CLOUDSDK_"))}
    for name in ("TF_CLI_CONFIG_FILE", "TF_PLUGIN_CACHE_DIR"):
        if os.path.exists(os.environ.get(name, "")):  # noqa: PTH110 - of an empty path, Path makes "."
            kept[name] = os.environ[name]  # one that names nothing is as good as none
    return kept | {
        "CHECKPOINT_DISABLE": "1",
        "TF_IN_AUTOMATION": "1",
        "NO_COLOR": "1",
        "HTTPS_PROXY": _NOWHERE,
        "HTTP_PROXY": _NOWHERE,
        "NO_PROXY": "",
        "GOOGLE_OAUTH_ACCESS_TOKEN": "none",  # Google's provider wants one before it plans
    }
