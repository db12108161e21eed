"""What is deployed: what .gcloudignore lets through."""

from __future__ import annotations

import zipfile
from pathlib import Path

from tests.template import ROOT
from tests.template.terraform.deployments import DEPLOYMENTS, Planned
from tests.template.terraform.workspace import OF_A_FORK


def test_the_archive_is_the_job_and_dedup(planned: Planned) -> None:
    """It holds main.py, requirements.txt and dedup/, byte for byte, and nothing else that lies about."""
    assert contents(planned.archive("timeout_120")) == dedup() | {
        name: OF_A_FORK[name].encode() for name in ("main.py", "requirements.txt")
    }


def test_another_functions_folder_gets_this_dedup(planned: Planned) -> None:
    """main.py and requirements.txt are that folder's, dedup/ is this repository's, and nothing else is there."""
    folder = Path(DEPLOYMENTS["everything_said"]["source_dir"])

    assert contents(planned.archive("everything_said")) == dedup() | {
        name: folder.joinpath(name).read_bytes() for name in ("main.py", "requirements.txt")
    }


def contents(archive: Path) -> dict[str, bytes]:
    """All files of an archive."""
    with zipfile.ZipFile(archive) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def dedup() -> dict[str, bytes]:
    """dedup/, as this repository holds it."""
    files = (path for path in ROOT.joinpath("dedup").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in files}
