"""What docs/ states is so: tests, settings, timings, costs, names out of terraform/, flags of gcloud."""

from __future__ import annotations

import math
import re

import pytest

from dedup.settings import Settings
from tests.template import ROOT, pages
from tests.template.test_cloudbuild import BUILD

DOCS = ROOT / "docs"
GUARANTEES_MD = (DOCS / "guarantees.md").read_text()
TARGETS_MD = (DOCS / "targets.md").read_text()
DEPLOY_MD = (DOCS / "deploy.md").read_text()
PROMISED = pages.section(GUARANTEES_MD, "What is guaranteed") + pages.section(TARGETS_MD, "What holds")
EVERYTHING = "\n".join(page.read_text() for page in sorted(DOCS.rglob("*.md")))


@pytest.mark.parametrize(("file", "test"), pages.named_tests(EVERYTHING), ids=lambda name: name)
def test_a_test_that_is_named_exists(file: str, test: str) -> None:
    """Each test that docs/ names, to hold a guarantee, is where it says."""
    assert f"\ndef {test}(" in (ROOT / file).read_text()


def test_every_guarantee_names_its_test() -> None:
    """No guarantee stands without a test that holds it."""
    promised = pages.guarantees(PROMISED)
    assert len(promised) == 17
    assert [guarantee for guarantee in promised if not pages.named_tests(guarantee)] == []


def test_every_setting_is_described() -> None:
    """The table of settings has a row for each field of Settings, and no other."""
    described = re.findall(r"^\| `(DEDUP_\w+)`", (DOCS / "settings.md").read_text(), flags=re.MULTILINE)
    assert described == [f"DEDUP_{name.upper()}" for name in Settings.__dataclass_fields__]


def test_every_substitution_is_described() -> None:
    """The table of Cloud Build's substitutions has a row for each one of cloudbuild.yaml, with its default."""
    rows = re.findall(r"^\| `(_[A-Z_]+)` \| (\S+) \|", pages.section(DEPLOY_MD, "With Cloud Build"), flags=re.MULTILINE)
    described = {name: "" if default == "none" else default.strip("`") for name, default in rows}
    assert described == BUILD["substitutions"]


@pytest.mark.parametrize("page", ["deploy.md", "job.md"])
def test_what_is_set_is_a_variable_of_terraform(page: str) -> None:
    """What the text on deploying sets, and that on several jobs, is a variable of terraform/."""
    assigned = pages.set_in_terraform((DOCS / page).read_text())
    assert {"deploy.md": {"store", "delete_database"}, "job.md": {"name", "schedule", "jobs"}}[page] <= assigned
    assert assigned - pages.VARIABLES == set()


def test_what_is_named_is_in_terraform() -> None:
    """What looks like a name out of terraform/ is one of its variables, outputs, resources or blocks."""
    named = pages.named_like_terraform(DEPLOY_MD)
    assert {"timeout_seconds", "function_uri"} <= named
    assert named - pages.VARIABLES - pages.OUTPUTS - pages.RESOURCES - pages.BLOCKS == set()


def test_what_is_shown_is_an_output_of_terraform() -> None:
    """Each `terraform output` asks for one that there is."""
    shown = pages.shown_by_terraform(DEPLOY_MD)
    assert {"timings"} <= shown
    assert shown - pages.OUTPUTS == set()


def test_the_table_of_timings() -> None:
    """Each row of timings is what follows from its timeout: 5 retries, the fourth after the lease, the fifth after both."""
    timings = pages.section(DEPLOY_MD, "Timings")
    rows = [row.strip("| ").split(" | ") for row in re.findall(r"^\| \d.*$", timings, flags=re.MULTILINE)]
    assert [row[0] for row in rows] == ["15", "120", "540", "1800"]
    for row in rows:
        timeout = lease = int(row[0])
        backoff = math.ceil(max(lease / 15 + 2, (timeout + lease + 11) / 31))
        retries = [backoff * (2**n - 1) for n in range(1, 6)]
        recovered = timeout + next(retry for retry in retries if retry > lease)
        assert row[1:] == [str(lease), str(backoff), ", ".join(map(str, retries)), str(recovered)]


def test_the_sums_of_the_costs() -> None:
    """Each sum of the costs comes out, and so does what the first two rows come to."""
    costs = pages.section(DEPLOY_MD, "What a million runs cost")
    sums = re.findall(r"\| ([\d,.$ \N{MULTIPLICATION SIGN}/]+) = \$([\d.]+) \|", costs)
    assert len(sums) == len(re.findall(r"^\| [CF]", costs, flags=re.MULTILINE)) == 7
    for factors, result in sums:
        assert f"{product(factors):.2f}" == result, factors
    assert f'what "once" costs: ${sum(float(result) for _, result in sums[:2]):.2f}.' in costs


def test_a_gcloud_command_has_such_flags() -> None:
    """Each flag of each gcloud command in docs/ is one that gcloud knows for it."""
    commands = pages.gcloud_commands(EVERYTHING)
    assert len(pages.gcloud_commands(DEPLOY_MD)) > 20
    assert list(pages.flags_that_gcloud_lacks(commands)) == []


def product(factors: str) -> float:
    """Multiplies and divides the figures of a sum, from left to right."""
    first, *rest = factors.replace(",", "").replace("$", "").split()
    result = float(first)
    for sign, factor in zip(rest[::2], rest[1::2], strict=True):
        result = result * float(factor) if sign == "\N{MULTIPLICATION SIGN}" else result / float(factor)
    return result
