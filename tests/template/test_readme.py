"""README says what is so, and what docs/ says at length."""

from __future__ import annotations

import re

from dedup.settings import Settings
from tests.template import ROOT, pages

README = (ROOT / "README.md").read_text()
DOCS = ROOT / "docs"
GUARANTEES_MD = (DOCS / "guarantees.md").read_text()
DEPLOYING = README.split("\n## Deploy\n", 1)[1].split("\n## ", 1)[0]


def test_it_is_read_in_ten_minutes() -> None:
    """README stays under 200 lines."""
    assert len(README.splitlines()) < 200


def test_each_guarantee_is_one_line() -> None:
    """README has each guarantee of docs/guarantees.md in one line, by the same number and with the same bold words."""
    at_length = pages.guarantees(pages.section(GUARANTEES_MD, "What is guaranteed"))
    lines = re.findall(r"^\d+\. (.*)$", pages.section(README, "Guarantees"), flags=re.MULTILINE)
    assert len(lines) == 13
    assert [bold(line) for line in lines] == [bold(guarantee) for guarantee in at_length]


def test_the_tests_of_a_guarantee_are_named_elsewhere() -> None:
    """README leaves the tests that hold a guarantee to docs/guarantees.md, where it is seen that they exist."""
    assert pages.named_tests(README) == []
    assert "](docs/guarantees.md)" in pages.section(README, "Guarantees")


def test_a_setting_that_is_named_is_one() -> None:
    """Each DEDUP_ variable of README is a field of Settings."""
    named = set(re.findall(r"DEDUP_[A-Z_]+", README))
    assert len(named) >= 3
    assert named - {f"DEDUP_{name.upper()}" for name in Settings.__dataclass_fields__} == set()


def test_what_is_set_is_a_variable_of_terraform() -> None:
    """What README sets is a variable of terraform/."""
    assigned = pages.set_in_terraform(README)
    assert {"project_id", "region", "schedule", "timeout_seconds", "manual_runs"} <= assigned
    assert assigned - pages.VARIABLES == set()


def test_what_is_named_is_in_terraform() -> None:
    """What looks like a name out of terraform/, where README tells how to deploy, is there."""
    named = pages.named_like_terraform(DEPLOYING)
    assert named - pages.VARIABLES - pages.OUTPUTS - pages.RESOURCES - pages.BLOCKS == set()


def test_what_is_shown_is_an_output_of_terraform() -> None:
    """Each `terraform output` asks for one that there is."""
    shown = pages.shown_by_terraform(README)
    assert {"force_run_command", "logs_command"} <= shown
    assert shown - pages.OUTPUTS == set()


def test_a_gcloud_command_has_such_flags() -> None:
    """Each flag of each gcloud command is one that gcloud knows for it."""
    assert list(pages.flags_that_gcloud_lacks(pages.gcloud_commands(README))) == []


def test_once_costs_what_the_sums_say() -> None:
    """What a million runs cost once is what docs/deploy.md reckons."""
    [said] = re.findall(r"\((\$[\d.]+) a million runs", README)
    assert f'what "once" costs: {said}.' in (DOCS / "deploy.md").read_text()


def test_what_is_whose_is_said_once() -> None:
    """The table of what is yours and what is ours is that of docs/upgrade.md."""
    assert table(README, "Where things are") == table((DOCS / "upgrade.md").read_text(), "What is yours, what is ours")


def test_what_is_yours_or_ours_is_there() -> None:
    """Each path that the table names is in the repository, but for what a fork adds."""
    paths = re.findall(r"`([\w./*-]+)`", "\n".join(row.split(" | ")[1] for row in table(README, "Where things are")[2:]))
    missing = [path for path in paths if not list(ROOT.glob(path.rstrip("/")))]
    assert missing == ["terraform/backend.tf"]


def bold(text: str) -> str:
    """The words with which a guarantee begins."""
    return text.split("**")[1].rstrip(".,")


def table(page: str, title: str) -> list[str]:
    """The lines of the table under a heading."""
    lines = [line for line in pages.section(page, title).splitlines() if line.startswith("|")]
    assert lines
    return lines
