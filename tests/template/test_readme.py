"""The README says what is so."""

from __future__ import annotations

import math
import re
import runpy
import shutil
from pathlib import Path

import pytest

from dedup.settings import Settings
from tests.template import ROOT

README = (ROOT / "README.md").read_text()
DEPLOY_MD = (ROOT / "docs" / "deploy.md").read_text()
DEPLOYING = README.split("\n## Deploy\n", 1)[1].split("\n## ", 1)[0] + DEPLOY_MD
TERRAFORM = "\n".join(file.read_text() for file in sorted((ROOT / "terraform").glob("*.tf")))
VARIABLES = set(re.findall(r'^variable "(\w+)"', TERRAFORM, flags=re.MULTILINE))
OUTPUTS = set(re.findall(r'^output "(\w+)"', TERRAFORM, flags=re.MULTILINE))
TARGETS_MD = (ROOT / "docs" / "targets.md").read_text()
NAMED_TESTS = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", README + TARGETS_MD)))


@pytest.mark.parametrize(("file", "test"), NAMED_TESTS, ids=lambda name: name)
def test_a_guarantee_names_a_test_that_exists(file: str, test: str) -> None:
    """Each test that holds a guarantee is where the README says."""
    assert f"\ndef {test}(" in (ROOT / file).read_text()


def test_every_guarantee_names_its_test() -> None:
    """No guarantee stands without a test that holds it."""
    promised = section("Guarantees") + TARGETS_MD.split("## What holds\n", 1)[1]
    guarantees = re.split(r"^\d+\. ", promised, flags=re.MULTILINE)[1:]
    assert len(guarantees) == 17
    assert [guarantee for guarantee in guarantees if "`tests/" not in guarantee] == []


def test_every_setting_is_described() -> None:
    """The table of settings has a row for each field of Settings, and no other."""
    described = re.findall(r"^\| `(DEDUP_\w+)`", section("Settings"), flags=re.MULTILINE)
    assert described == [f"DEDUP_{name.upper()}" for name in Settings.__dataclass_fields__]


def test_what_is_set_is_a_variable_of_terraform() -> None:
    """What the text on deploying sets is a variable of terraform/."""
    files = re.findall(r"```hcl\n(.*?)```", DEPLOYING, flags=re.DOTALL)
    assigned = {name for file in files for name in re.findall(r"^(\w+) *=", file, flags=re.MULTILINE)}
    assigned |= set(re.findall(r"`([a-z_]+) = [^`]+`", DEPLOYING))
    assert {"project_id", "region", "schedule"} <= assigned
    assert assigned - VARIABLES == set()


def test_what_is_named_is_in_terraform() -> None:
    """What looks like a name out of terraform/ is one of its variables, outputs, resources or blocks."""
    resources = set(re.findall(r'^resource "(\w+)"', TERRAFORM, flags=re.MULTILINE))
    blocks = set(re.findall(r"^ +(\w+) {$", TERRAFORM, flags=re.MULTILINE))
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", DEPLOYING))
    assert {"timeout_seconds", "function_uri"} <= named
    assert named - VARIABLES - OUTPUTS - resources - blocks == set()


def test_what_is_shown_is_an_output_of_terraform() -> None:
    """Each `terraform output` asks for one that there is."""
    shown = set(re.findall(r"terraform \S+ output (?:-raw )?(\w+)", DEPLOYING))
    assert {"force_run_command", "logs_command", "timings"} <= shown
    assert shown - OUTPUTS == set()


def test_the_table_of_timings() -> None:
    """Each row of timings is what follows from its timeout: 5 retries, the fourth after the lease, the fifth after both."""
    rows = [row.strip("| ").split(" | ") for row in re.findall(r"^\| \d.*$", section("Timings"), flags=re.MULTILINE)]
    assert [row[0] for row in rows] == ["15", "120", "540", "1800"]
    for row in rows:
        timeout = lease = int(row[0])
        backoff = math.ceil(max(lease / 15 + 2, (timeout + lease + 11) / 31))
        retries = [backoff * (2**n - 1) for n in range(1, 6)]
        recovered = timeout + next(retry for retry in retries if retry > lease)
        assert row[1:] == [str(lease), str(backoff), ", ".join(map(str, retries)), str(recovered)]


def test_the_sums_of_the_costs() -> None:
    """Each sum of the costs comes out, and so does what the first two rows come to."""
    costs = section("What a million runs cost")
    sums = re.findall(r"\| ([\d,.$ \N{MULTIPLICATION SIGN}/]+) = \$([\d.]+) \|", costs)
    assert len(sums) == len(re.findall(r"^\| [CF]", costs, flags=re.MULTILINE)) == 7
    for factors, result in sums:
        assert f"{product(factors):.2f}" == result, factors
    assert f'what "once" costs: ${sum(float(result) for _, result in sums[:2]):.2f}.' in costs


def test_a_gcloud_command_has_such_flags() -> None:
    """Each flag of each gcloud command is one that gcloud knows for it."""
    gcloud = shutil.which("gcloud")
    known = Path(gcloud).resolve().parent.parent / "data/cli/gcloud_completions.py" if gcloud else None
    if known is None or not known.exists():
        pytest.skip("no gcloud with its list of commands: install google-cloud-cli")
    everything = runpy.run_path(str(known))["STATIC_COMPLETION_CLI_TREE"]
    commands = re.findall(r"\bgcloud ([a-z].*? --[^`\n]*)", (README + DEPLOY_MD).replace("\\\n", " "))
    assert len(commands) > 20
    for command in commands:
        node, flags = everything, set(everything["flags"])
        for word in command.split():
            if word not in node.get("commands", {}):
                break
            node = node["commands"][word]
            flags |= set(node.get("flags", {}))
        used = {f"--{flag.removeprefix('no-')}" for flag in re.findall(r"(?<=\s)--([a-z0-9-]+)", command)}
        assert used - flags == set(), command


def product(factors: str) -> float:
    """Multiplies and divides the figures of a sum, from left to right."""
    first, *rest = factors.replace(",", "").replace("$", "").split()
    result = float(first)
    for sign, factor in zip(rest[::2], rest[1::2], strict=True):
        result = result * float(factor) if sign == "\N{MULTIPLICATION SIGN}" else result / float(factor)
    return result


def section(title: str) -> str:
    """The text under a heading, up to the next heading."""
    return (README + DEPLOY_MD).split(f"# {title}\n", 1)[1].split("\n#", 1)[0]
