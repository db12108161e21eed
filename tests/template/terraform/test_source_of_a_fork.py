"""What a fork deploys by its own .gcloudignore: binary files, any names, the same by Terraform and by gcloud."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.template.size import WHOLE
from tests.template.terraform.workspace import REQUIRED, Terraform

pytestmark = [pytest.mark.long, pytest.mark.timeout(300), pytest.mark.skipif(not WHOLE, reason="takes long: WHOLE=0")]

IGNORED = """\
# What a fork deploys.

/*
!/main.py
!/requirements.txt
!/dedup/
__pycache__/
*.tmp  \x20
/reports/raw/
drafts/old/
/reports/?.csv
!/reports/
!/Übersicht 2026/
!/a-b
!/a-^!
!/a.b
!/xe
!/x\u0301y
!/folder_that_is_a_file/
!/left_out_again/
/left_out_again
!/not_there/
"""
DEPLOYED = {
    "main.py": b'"""The job."""\n',
    "requirements.txt": b"functions-framework==3.10.2\n",
    "dedup/__init__.py": b"",
    "dedup/stores/lua/claim.lua": b"return 1\n",
    "reports/__init__.py": b"",
    "reports/templates/deep/page.html": "<p>e\u0301</p>\n".encode(),  # Terraform's own text would be composed
    "reports/templates/logo.png": b"\x89PNG\r\n\x1a\n\x00\xff\xfe",
    "reports/templates/raw/kept.txt": b"raw/ is left out in reports/ alone",
    "reports/templates/zwölf Sätze.txt": b"blanks, and letters beyond ASCII",
    "reports/10.csv": b"two digits",
    "reports/tmp": b"no .tmp",
    "reports/old/drafts/kept.txt": b"the other way round",
    "Übersicht 2026/März.csv": b"\xff\xfe",
    "a-b": b"a hyphen makes ranges in patterns",
    "a-^!/x.py": b"",
    "a.b": b"a letter beside the hyphen",
    "xe": b"a letter with which the next accent would be one",
    "x\u0301y": b"",
}
LEFT_OUT = [
    ".env", ".git/config", ".gcloudignore-build", "notes.txt", "mai", "main", "main.pyc", "main.py.bak", "main.py~",
    "dedup_old/__init__.py", "dedu/x.py", "dedup.py", "d", "r/x", "requirements.txt.orig", "requirements-dev.txt",
    "reports_old/x.py", "Übersicht 2025/März.csv", "Übersicht 2026.zip", "Ü/x", "U\u0308bersicht 2026/x", "a", "a-", "a-c",
    "a-bc", "a-^", "a-^!x", "ab", "x", "xz", "x\u00e9", "x\u0301", "xey",
    "folder_that_is_a_file", "left_out_again/x.py", "dedup/__pycache__/run.pyc",
    "reports/__pycache__/x.pyc", "reports/templates/__pycache__/deep/x.pyc", "reports/x.tmp",
    "reports/templates/x.tmp/x.txt", "reports/raw/x.csv", "reports/raw/deep/x.csv", "reports/drafts/old/x.txt",
    "reports/templates/drafts/old/x.txt", "reports/1.csv", ".venv/bin/python", "terraform/terraform.tfstate",
]  # fmt: skip
"""What lies beside it, some of it all but called as what is deployed."""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A fork with all kinds of files."""
    return grown(tmp_path / "fork")


def test_gcloud_uploads_what_is_let_through(tree: Path, tmp_path: Path) -> None:
    """`gcloud functions deploy` uploads what a fork lets through, and nothing of what lies beside it."""
    if shutil.which("gcloud") is None:
        pytest.skip("gcloud isn't on the PATH (https://cloud.google.com/sdk/docs/install)")
    quiet = {"CLOUDSDK_CONFIG": str(tmp_path / "gcloud"), "CLOUDSDK_CORE_DISABLE_PROMPTS": "1"}
    command = ["gcloud", "meta", "list-files-for-upload", str(tree)]

    listed = subprocess.run(command, env=os.environ | quiet, capture_output=True, text=True, timeout=60, check=True)

    assert set(listed.stdout.splitlines()) == set(DEPLOYED)


def test_terraform_archives_the_same(tree: Path, terraform: Terraform) -> None:
    """Terraform's archive holds the same files, byte for byte, whatever links lie beside them."""
    assert contents(archived(terraform, tree)[0]) == DEPLOYED


def test_the_archive_is_the_same_whoever_makes_it(tree: Path, tmp_path: Path, terraform: Terraform) -> None:
    """Another copy, with other times, modes and ends of lines, and without the leftovers, has the same archive."""
    copy = grown(tmp_path / "elsewhere" / "copy", leftovers=())
    (copy / ".gcloudignore").write_bytes(IGNORED.replace("\n", "\r\n").encode())
    for path in copy.rglob("*"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
        path.chmod(0o777 if path.is_dir() else 0o600)

    first, second = (archived(terraform, folder)[0].read_bytes() for folder in (tree, copy))

    assert first == second


def test_the_patterns_mean_the_same_to_the_provider(tree: Path, terraform: Terraform) -> None:
    """By the provider's own rules, which are stricter than the ones of a stand-in, the patterns leave the same files."""
    _, patterns = archived(terraform, tree)

    assert set(walked(tree, patterns)) == set(DEPLOYED)


def grown(folder: Path, leftovers: Iterable[str] = LEFT_OUT) -> Path:
    """Makes a fork with what is deployed and what isn't."""
    files = dict.fromkeys(leftovers, b"not deployed") | DEPLOYED | {".gcloudignore": IGNORED.encode()}
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    if leftovers:
        for link, target in {".venv/lost": "nowhere", ".venv/round": "..", "round": "."}.items():
            (folder / link).symlink_to(target)
    return folder


def archived(terraform: Terraform, folder: Path) -> tuple[Path, list[str]]:
    """Plans a deployment of a folder; gives the archive, and the patterns that it was made by."""
    variables = [f"-var={name}={value}" for name, value in (REQUIRED | {"source_dir": str(folder)}).items()]
    plan = terraform.plan(*variables)
    (source,) = (
        resource["values"]
        for resource in plan["prior_state"]["values"]["root_module"]["resources"]
        if resource["type"] == "archive_file"
    )
    kept = folder.with_name(f"{folder.name}.zip")  # the next plan writes over it
    shutil.copy(terraform.folder / source["output_path"], kept)
    return kept, source["excludes"]


def walked(folder: Path, patterns: Iterable[str], name: str = ".") -> Iterator[str]:
    """The files that hashicorp/archive would find: a folder that a pattern matches, the first one too, isn't entered."""
    path = folder / name
    if any(re.fullmatch(as_regex(pattern), name) for pattern in patterns):
        return
    if path.is_dir() and not path.is_symlink():
        for child in path.iterdir():
            yield from walked(folder, patterns, child.relative_to(folder).as_posix())
    else:
        yield name


def as_regex(pattern: str) -> str:
    """What the provider's globs mean: no star but two, with a slash after them, goes beyond a slash."""
    parts = re.findall(r"\*\*/|\[!(?:[^\]]+)\]|.", pattern, re.DOTALL)
    meant = {"**/": "(?:.*/)?", "*": "[^/]*"}
    return "".join(
        meant.get(part) or (f"[^{re.escape(part[2:-1])}]" if part.startswith("[!") else re.escape(part)) for part in parts
    )


def contents(archive: Path) -> dict[str, bytes]:
    """All files of an archive."""
    with zipfile.ZipFile(archive) as opened:
        return {name: opened.read(name) for name in opened.namelist()}
