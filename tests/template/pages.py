"""What README and docs say, taken apart, beside what there is."""

from __future__ import annotations

import re
import runpy
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.template import ROOT

_TERRAFORM = "\n".join(file.read_text() for file in sorted((ROOT / "terraform").glob("*.tf")))
VARIABLES = set(re.findall(r'^variable "(\w+)"', _TERRAFORM, flags=re.MULTILINE))
OUTPUTS = set(re.findall(r'^output "(\w+)"', _TERRAFORM, flags=re.MULTILINE))
RESOURCES = set(re.findall(r'^resource "(\w+)"', _TERRAFORM, flags=re.MULTILINE))
BLOCKS = set(re.findall(r"^ +(\w+) {$", _TERRAFORM, flags=re.MULTILINE))


def section(page: str, title: str) -> str:
    """The text under a heading, up to the next heading."""
    return page.split(f"# {title}\n", 1)[1].split("\n#", 1)[0]


def guarantees(text: str) -> list[str]:
    """The numbered promises of a text."""
    return re.split(r"^\d+\. ", text, flags=re.MULTILINE)[1:]


def named_tests(text: str) -> list[tuple[str, str]]:
    """The tests that a text names, each by its file and its function."""
    return sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)))


def set_in_terraform(text: str) -> set[str]:
    """The variables that a text sets, in a block of HCL or within a sentence."""
    files = re.findall(r"```hcl\n(.*?)```", text, flags=re.DOTALL)
    return {name for file in files for name in re.findall(r"^(\w+) *=", file, flags=re.MULTILINE)} | set(
        re.findall(r"`([a-z_]+) = [^`]+`", text)
    )


def named_like_terraform(text: str) -> set[str]:
    """What looks like a name out of terraform/."""
    return set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", text))


def shown_by_terraform(text: str) -> set[str]:
    """What a text asks `terraform output` for."""
    return set(re.findall(r"terraform \S+ output (?:-raw )?(\w+)", text))


def gcloud_commands(text: str) -> list[str]:
    """The gcloud commands of a text that have a flag, without the word gcloud."""
    return re.findall(r"\bgcloud ([a-z].*? --[^`\n]*)", text.replace("\\\n", " "))


def flags_that_gcloud_lacks(commands: list[str]) -> Iterator[tuple[str, set[str]]]:
    """Each command with a flag that gcloud doesn't know for it."""
    gcloud = shutil.which("gcloud")
    known = Path(gcloud).resolve().parent.parent / "data/cli/gcloud_completions.py" if gcloud else None
    if known is None or not known.exists():
        pytest.skip("no gcloud with its list of commands: install google-cloud-cli")
    everything = runpy.run_path(str(known))["STATIC_COMPLETION_CLI_TREE"]
    for command in commands:
        node, flags = everything, set(everything["flags"])
        for word in command.split():
            if word not in node.get("commands", {}):
                break
            node = node["commands"][word]
            flags |= set(node.get("flags", {}))
        used = {f"--{flag.removeprefix('no-')}" for flag in re.findall(r"(?<=\s)--([a-z0-9-]+)", command)}
        if used - flags:
            yield command, used - flags
