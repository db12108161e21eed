"""Forks acted out: the template's files out of this working copy, and a fork's own as a test writes them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.template import ROOT

SHIPPED_FILES = ROOT / "tests" / "template" / "shipped"
OURS = (
    ".ci", ".gcloudignore-build", "Makefile", "benchmarks", "cloudbuild.yaml", "dedup", "docs", "examples",
    "requirements-workflows.txt", "terraform", "tests/__init__.py", "tests/template",
)  # fmt: skip
"""What docs/upgrade.md calls ours, less what is divided."""
DIVIDED = ("requirements.txt", "requirements-dev.txt", ".gcloudignore", ".gitignore", ".gitattributes")
"""Ours above three lines that nobody changes, a fork's below them. In pyproject.toml a fork's stands above."""

_THREE_LINES = "Leave these three lines as they are"
_OF_THIS_RUN = ("PYTEST_", "MAKE", "MFLAGS", "GIT_", "DEDUP_", "SHIPPED", "WHOLE", "COVERAGE_", "PYTHONPATH")


def divided(name: str) -> tuple[str, str, str]:
    """What of a file stands above the three lines that nobody changes, these, and what stands below."""
    lines = (ROOT / name).read_text().splitlines(keepends=True)
    places = [number for number, line in enumerate(lines) if _THREE_LINES in line]
    if len(places) != 1:
        pytest.skip(f"{name} has lost the three lines that keep a fork's apart from the template's: see docs/upgrade.md")
    place = places[0]
    return "".join(lines[:place]), "".join(lines[place : place + 3]), "".join(lines[place + 3 :])


@dataclass(frozen=True)
class Fork:
    """A fork's working copy, a repository of its own."""

    folder: Path

    def write(self, path: str, content: str | bytes) -> None:
        """Writes a file of the fork's."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)

    def append(self, path: str, line: str) -> None:
        """Adds a line at the end, where a fork's lines go."""
        with (self.folder / path).open("a") as file:
            file.write(f"{line}\n")

    def replace(self, path: str, old: str, new: str) -> None:
        """Changes a file that is there."""
        text = (self.folder / path).read_text()
        assert text.count(old) == 1, f"{old!r} is {text.count(old)} times in {path}"
        self.write(path, text.replace(old, new))

    def delete(self, *paths: str) -> None:
        """Deletes files and folders."""
        for path in paths:
            file = self.folder / path
            if file.is_dir():
                shutil.rmtree(file)
            else:
                file.unlink(missing_ok=True)

    def run(self, *command: str, timeout: float = 100, **environ: str) -> subprocess.CompletedProcess[str]:
        """Runs a command as somebody would who has just cloned the fork."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_OF_THIS_RUN)}
        git = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        names = {f"GIT_{role}_{key}": "somebody@example.com" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
        return subprocess.run(
            command,
            cwd=self.folder,
            env={**kept, **git, **names, "MYPY_CACHE_DIR": str(ROOT / ".mypy_cache"), **environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def succeeds(self, *command: str, timeout: float = 100, **environ: str) -> str:
        """Runs a command that must end well, and gives what it printed."""
        done = self.run(*command, timeout=timeout, **environ)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
        return done.stdout

    def git(self, *arguments: str) -> str:
        """Runs git."""
        return self.succeeds("git", *arguments).strip()

    def commit(self, message: str) -> None:
        """Commits all that there is."""
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", message)

    def lend_packages(self, *, newer: bool = True) -> None:
        """Lends it this environment's packages and tools, as if `make` had installed them.

        Args:
            newer: than the lists of packages, so that make installs nothing. Else it asks pip, which finds all there.
        """
        venv = self.folder / ".venv"
        venv.mkdir()
        (venv / "bin").symlink_to(Path(sys.executable).parent)
        for name in ("run-installed", "dev-installed"):
            (venv / name).touch()
            if newer:
                os.utime(venv / name, (time.time() + 3600,) * 2)


def template(folder: Path) -> Fork:
    """The template as this working copy has it, committed, with what a fork owns as it is shipped."""
    for tool in ("git", "make"):
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool}, which a fork is worked on with")
    listing = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", *OURS],
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode:
        pytest.skip("not a working copy of git, which says what belongs to the template")
    template = Fork(folder)
    for path in listing.stdout.splitlines():
        if (ROOT / path).is_file() and not path.endswith(".tfvars") and path != "terraform/backend.tf":
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, folder / path)
    for path in DIVIDED:
        template.write(path, "".join(divided(path)[:2]))
    template.write(
        "pyproject.toml", SHIPPED_FILES.joinpath("pyproject.toml").read_text() + "".join(divided("pyproject.toml")[1:])
    )
    template.write("main.py", SHIPPED_FILES.joinpath("main.py").read_text())
    template.write("tests/test_job.py", SHIPPED_FILES.joinpath("test_job.py").read_text())
    template.write("README.md", "# Scheduled jobs that run once\n")
    template.write("CHANGELOG.md", "# Changelog\n")
    template.git("init", "--quiet", "--initial-branch=main")
    template.commit("The template")
    return template


def fork_of(template: Fork, folder: Path) -> Fork:
    """A clone that knows the template as its upstream, ready for `make`."""
    template.git("clone", "--quiet", "--origin=upstream", str(template.folder), str(folder))
    fork = Fork(folder)
    fork.lend_packages()
    return fork
