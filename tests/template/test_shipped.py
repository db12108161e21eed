"""What a fork owns, as the template ships it. Run where SHIPPED=1 is set: in the template's own CI."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.template import ROOT
from tests.template.e2e.fork import DIVIDED, SHIPPED_FILES, divided

PINNED = {line for line in (ROOT / "requirements.txt").read_text().splitlines() if line and not line.startswith("#")}


def test_main_py_is_short() -> None:
    """A fork reads main.py first: it stays under 40 lines."""
    assert len((ROOT / "main.py").read_text().splitlines()) < 40


@pytest.mark.parametrize("check", [["ruff", "check", "--config", ".ci/ruff.toml"], ["mypy", "--strict"]], ids=" ".join)
def test_main_py_is_held_to_the_templates_own_style(check: list[str]) -> None:
    """What a fork begins with is written as strictly as the rest."""
    command = [sys.executable, "-m", *check, "main.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_is_deployed_is_pinned() -> None:
    """The three packages of the template are pinned, and no other is there."""
    assert sorted(line.split("==")[0] for line in PINNED) == ["flask", "functions-framework", "google-cloud-firestore"]


def test_the_job_and_dedup_are_deployed() -> None:
    """The lines of .gcloudignore that are shipped let through the job, its packages and dedup/."""
    lines = [line for line in (ROOT / ".gcloudignore").read_text().splitlines() if not line.startswith("#")]
    assert lines == ["/*", "!/main.py", "!/requirements.txt", "!/dedup/", "__pycache__/"]


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*/requirements.txt")), ids=lambda path: path.parent.name)
def test_an_example_pins_what_the_template_pins(path: Path) -> None:
    """An example is deployed with the template's own versions."""
    assert set(path.read_text().split()) == PINNED


@pytest.mark.parametrize("name", DIVIDED)
def test_a_fork_has_its_place_at_the_end(name: str) -> None:
    """Below the three lines that nobody changes there is nothing yet: that is where a fork's own lines go."""
    above, three, below = divided(name)
    assert above
    assert [line[0] for line in three.splitlines()] == ["#"] * 3
    assert below == ""


@pytest.mark.parametrize("name", ["main.py", "tests/test_job.py"])
def test_the_tests_take_for_shipped_what_is_shipped(name: str) -> None:
    """Tests of the template use copies of what a fork owns, which are what is shipped."""
    assert (ROOT / name).read_text() == (SHIPPED_FILES / Path(name).name).read_text()


def test_the_tests_take_for_shipped_settings_what_is_shipped() -> None:
    """The same for the part of pyproject.toml that is a fork's."""
    assert divided("pyproject.toml")[0] == (SHIPPED_FILES / "pyproject.toml").read_text()
