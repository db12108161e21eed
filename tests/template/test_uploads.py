"""What leaves this machine: .gcloudignore for a deployment, .gcloudignore-build for a build; as gcloud itself reads them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.template import ROOT
from tests.template.e2e.fork import OURS, divided
from tests.template.terraform.workspace import OF_A_FORK

FUNCTION = {"main.py", "requirements.txt"} | {
    str(file.relative_to(ROOT)) for file in (ROOT / "dedup").rglob("*") if file.is_file() and "__pycache__" not in file.parts
}
NOT_OF_THE_FUNCTION = [
    ".ci/run", ".gcloudignore-build", "Makefile", "README.md", "cloudbuild.yaml", "docs/deploy.md", "pyproject.toml",
    "requirements-dev.txt", "terraform/function.tf", "terraform/production.tfvars", "tests/test_job.py",
    "tests/template/conftest.py",
]  # fmt: skip
LEFT_BEHIND = [
    ".git/config",
    ".hypothesis/unicode_data/codec",
    ".local/runs.db",
    ".venv/bin/python",
    "dedup/__pycache__/record.cpython-313.pyc",
    "dedup/stores/__pycache__/sqlite.cpython-313.pyc",
    "terraform/.terraform/providers/provider",
    "terraform/staging.tfplan",
    "terraform/terraform.tfstate",
    "terraform/terraform.tfstate.backup",
]
"""What lies about in a working copy, and must not leave it."""

Uploads = Callable[[str, Iterable[str]], set[str]]


@pytest.fixture
def uploads(tmp_path: Path) -> Uploads:
    """Says which of these files gcloud uploads by the text of an ignore file, from a folder that has them all."""
    gcloud = shutil.which("gcloud")
    if gcloud is None:
        pytest.skip("no gcloud, which says what it uploads: install google-cloud-cli")

    def listed(ignored: str, files: Iterable[str]) -> set[str]:
        folder = tmp_path / "folder"
        for file in files:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).touch()
        (folder / ".gitignore").write_text(divided(".gitignore")[0])
        (folder / ".gcloudignore").write_text(ignored)  # meta list-files-for-upload takes no --ignore-file
        quiet = {"CLOUDSDK_CONFIG": str(tmp_path / "config"), "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "1"}
        command = [gcloud, "meta", "list-files-for-upload", str(folder)]
        listing = subprocess.run(command, env=os.environ | quiet, capture_output=True, text=True, check=False)
        assert listing.returncode == 0, listing.stderr
        return set(listing.stdout.splitlines())

    return listed


@pytest.fixture
def repository() -> set[str]:
    """The template's files, those that git keeps, or would."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", *OURS]
    try:
        listing = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("no git, which says what belongs to the repository")
    if listing.returncode:
        pytest.skip("not a working copy of git, which says what belongs to the repository")
    return {file for file in listing.stdout.splitlines() if (ROOT / file).exists()}


def test_a_deployment_uploads_the_function(uploads: Uploads) -> None:
    """A deployment by gcloud uploads main.py, requirements.txt and dedup/, and nothing else, if no line lets through more."""
    assert uploads(OF_A_FORK[".gcloudignore"], [*FUNCTION, *NOT_OF_THE_FUNCTION, *LEFT_BEHIND]) == FUNCTION


def test_a_build_uploads_the_repository(uploads: Uploads, repository: set[str]) -> None:
    """A build by gcloud that names .gcloudignore-build uploads all that git keeps, and nothing else."""
    uploaded = uploads((ROOT / ".gcloudignore-build").read_text(), [*repository, *LEFT_BEHIND])
    assert uploaded - {".gcloudignore", ".gitignore"} == repository
    assert not uploaded & set(LEFT_BEHIND)
    assert {"Makefile", "terraform/function.tf", "tests/template/conftest.py", ".ci/upgrade"} <= uploaded
