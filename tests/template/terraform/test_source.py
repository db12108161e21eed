"""What is deployed: what .gcloudignore lets through."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.template import ROOT
from tests.template.size import WHOLE
from tests.template.terraform.deployments import DEPLOYMENTS, Planned
from tests.template.terraform.workspace import copy_repository


def test_the_archive_is_the_job_and_dedup(planned: Planned) -> None:
    """It holds main.py, requirements.txt and dedup/, byte for byte, and nothing else that lies about."""
    expected = {path: ROOT.joinpath(path).read_bytes() for path in deployed()}

    with zipfile.ZipFile(planned.archive("timeout_120")) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == expected


def test_another_functions_folder_gets_this_dedup(planned: Planned) -> None:
    """main.py and requirements.txt are that folder's, dedup/ is this repository's."""
    folder = Path(DEPLOYMENTS["everything_said"]["source_dir"])
    expected = {path: ROOT.joinpath(path).read_bytes() for path in deployed()}
    expected |= {name: folder.joinpath(name).read_bytes() for name in ("main.py", "requirements.txt")}

    with zipfile.ZipFile(planned.archive("everything_said")) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == expected


@pytest.mark.long
@pytest.mark.skipif(not WHOLE, reason="takes long: WHOLE=0")
@pytest.mark.skipif(
    shutil.which("gcloud") is None, reason="gcloud isn't on the PATH (https://cloud.google.com/sdk/docs/install)"
)
def test_gcloud_uploads_the_same(tmp_path: Path) -> None:
    """`gcloud functions deploy` would upload the same files as Terraform."""
    copy = copy_repository(tmp_path / "copy")
    environment = os.environ | {"CLOUDSDK_CONFIG": str(tmp_path / "gcloud"), "CLOUDSDK_CORE_DISABLE_PROMPTS": "1"}

    command = ["gcloud", "meta", "list-files-for-upload", str(copy)]
    listed = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)

    assert set(listed.stdout.splitlines()) == deployed()


def deployed() -> set[str]:
    """The files that a function needs, as this repository holds them."""
    modules = {path.relative_to(ROOT).as_posix() for path in ROOT.joinpath("dedup").rglob("*") if path.is_file()}
    return {"main.py", "requirements.txt"} | {module for module in modules if "__pycache__" not in module}
