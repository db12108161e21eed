"""Docs say what is so: their commands run, their links lead somewhere, their examples are tests."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import click
import flask
import pytest

import dedup
from dedup.cli import cli
from dedup.cli.scheduler import Heard
from dedup.settings import Settings
from dedup.stores.sqlite import SQLiteRunStore
from tests.template import ROOT
from tests.template.cli.conftest import House, environ_of
from tests.template.cli.test_scheduler import StillClock
from tests.template.contract.harness import SQLiteHarness
from tests.template.shipped import MAIN_PY, SHIPPED
from tests.template.size import WHOLE

OWN = [ROOT / "README.md", ROOT / "CHANGELOG.md"] if SHIPPED else []
PAGES = [*OWN, *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^ *```{language}\n(.*?)^ *```$", text, flags=re.MULTILINE | re.DOTALL)


def commands(text: str) -> list[str]:
    """The command lines of a page: of its `sh` blocks, and of its indented ones that begin as a command of ours does."""
    indented = [line[4:] for line in text.splitlines() if re.match(r" {4}(python|make|[A-Z_]+=\S+ .*make) ", line)]
    return [*indented, *"".join(blocks(text, "sh")).splitlines()]


ALL = [(name, command) for name, page in zip(NAMES, PAGES, strict=True) for command in commands(page.read_text())]
OURS = [(name, command) for name, command in ALL if command.startswith("python -m dedup")]
MADE = [(name, command) for name, command in ALL if re.search(r"(^|\s)make\s", command)]


def test_there_are_commands() -> None:
    """The commands are found: each of the command line's own is shown somewhere."""
    shown = {shlex.split(command)[3] for _, command in OURS}
    assert set(cli.commands) - {"store"} <= shown


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_commands_are_as_a_shell_reads_them(page: Path) -> None:
    """Each block of commands can be read by bash, those too that need a project, or a server that runs."""
    for block in blocks(page.read_text(), "sh"):
        done = subprocess.run(["bash", "-n", "-c", block], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@pytest.fixture
def house(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> House:
    """A store with the runs that the docs speak of, and a function that `simulate` reaches, whatever the URL."""
    harness = SQLiteHarness(request)
    house = House(harness, environ_of(harness))
    house.finished()
    house.abandoned("stuck")
    app, store = flask.Flask(__name__), SQLiteRunStore(tmp_path / "served.db")

    def sent(url: str, headers: Mapping[str, str], body: bytes, deadline: float) -> Heard:
        assert urlsplit(url).port == 8080
        with app.test_request_context(method="POST", headers=dict(headers), data=body):
            answer = dedup.handle(flask.request, lambda run: None, settings=Settings(), store=store)
        return Heard(answer.status_code, answer.get_data(as_text=True))

    monkeypatch.setattr("dedup.cli.simulate.send", sent)
    monkeypatch.setattr("dedup.cli.simulate.Clock", lambda fast: StillClock())
    monkeypatch.chdir(tmp_path)
    return house


@pytest.mark.parametrize(("name", "command"), OURS, ids=lambda value: value[:70])
def test_each_command_of_ours_runs_as_written(house: House, name: str, command: str) -> None:
    """Every `python -m dedup` of README and docs does what it is shown for: exit code 0, or the 1 that --fail is there for."""
    arguments = shlex.split(command.split(" | ")[0])[3:]
    done = house(*arguments, typed="y\n")
    assert done.exit_code == (1 if "--fail" in arguments else 0), done.output


@pytest.mark.parametrize(("name", "command"), MADE, ids=lambda value: value[:70])
def test_each_verb_is_in_the_makefile(name: str, command: str) -> None:
    """Every `make` of README and docs is a verb, or a file, that the Makefile knows; make itself is asked, and does nothing."""
    words = shlex.split(command, comments=True)
    asked = ["make", "--dry-run", "--no-print-directory", *words[words.index("make") + 1 :]]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_lead_somewhere(page: Path) -> None:
    """Each link to a file of the repository, or to a heading, has it there."""
    text = page.read_text()
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        parts = urlsplit(link)
        if parts.scheme:
            continue
        target = (page.parent / parts.path).resolve() if parts.path else page
        top = ROOT / target.relative_to(ROOT).parts[0]
        if not SHIPPED and (top.suffix == ".md" or not top.exists()):
            continue  # a fork's own, or deleted by it
        assert target.exists(), link
        if parts.fragment:
            assert parts.fragment in anchors(target.read_text()), link


def anchors(text: str) -> set[str]:
    """The headings of a page, as a link names them."""
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_python_is_python(page: Path) -> None:
    """Each block of Python can be read as such."""
    for block in blocks(page.read_text(), "python"):
        ast.parse(block)


@pytest.mark.skipif(not WHOLE, reason="a pytest within pytest; runs whole")
def test_the_example_of_a_forks_test_is_a_test(tmp_path: Path) -> None:
    """The example in docs/testing.md passes as it stands, in a project that is nothing but a fork's file."""
    [example] = blocks((ROOT / "docs" / "testing.md").read_text(), "python")
    (tmp_path / "test_job.py").write_text(example)
    (tmp_path / "main.py").write_text(MAIN_PY.read_text())
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_job.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "DEDUP_STORE": "sqlite:///unused.db"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_every_outcome_is_in_the_docs() -> None:
    """The table of log fields names each outcome that the handler knows."""
    from dedup import handler

    outcomes = [value for value in vars(handler).values() if isinstance(value, handler.Outcome)]
    names = {outcome.name for outcome in [*outcomes, *handler.NOT_RUN.values()]}
    [row] = [line for line in (ROOT / "docs" / "telemetry.md").read_text().splitlines() if line.startswith("| `outcome` |")]
    assert set(re.findall(r"`(\w+)`", row)) - {"outcome"} == names


def test_every_exit_code_is_in_the_docs() -> None:
    """The table of exit codes has each code that the command line knows."""
    from dedup.cli import output

    codes = {value for name, value in vars(output).items() if name in ("NO", "UNREACHABLE", "REFUSED")}
    table = (ROOT / "docs" / "operations.md").read_text()
    assert [code for code in (0, click.UsageError.exit_code, *codes) if f"\n| {code} | " not in table] == []
    assert f"| {output.INTERRUPTED}, {output.CLOSED_PIPE} |" in table
