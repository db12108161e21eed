"""Deletes each line of a resource once, and sees that terraform's own tests notice.

    python -m tests.template.terraform.mutants [FILE.tf ...]

It takes ten seconds a line, and is run by hand when terraform/ or its tests change. What is deleted and goes unnoticed is
listed; what may go unnoticed is in UNNOTICED, with the reason.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.template import ROOT
from tests.template.terraform.workspace import Terraform, copy_repository

NOTICED_BY = {
    "apis.tf": ("function",),
    "dashboard.tf": ("monitoring",),
    "firestore.tf": ("firestore",),
    "function.tf": ("function", "stores"),
    "iam.tf": ("iam", "stores", "function"),
    "memorystore.tf": ("stores",),
    "monitoring.tf": ("monitoring",),
    "scheduler.tf": ("scheduler", "timings"),
    "source.tf": ("source", "function"),
    "spanner.tf": ("stores",),
    "store.tf": ("firestore",),
}
"""Which of terraform/tests are asked, in this order, until one fails."""

UNNOTICED = (
    (r"^(description|display_name|title|displayName|content|mime_type) ", "a text for people"),
    (r"^(depends_on|google_\w+\.\w+,?$|time_sleep\.)", "an order, which the mocks don't need; the graph's test looks at it"),
    (r"^(xPos|yPos|width|height|columns|plotType|alignmentPeriod|perSeriesAligner|crossSeriesReducer|groupByFields) ", "looks"),
    (r"^id +=", "a name of a clean-up policy"),
    (r"^(replace_triggered_by|ignore_changes) ", "only a second apply shows it"),
)


class Mutant(NamedTuple):
    """A line that is deleted."""

    file: str
    number: int
    text: str


def mutants(files: list[str]) -> Iterator[Mutant]:
    """Each attribute of each resource and data source that is one line."""
    for file in files:
        resource = False
        for number, text in enumerate(ROOT.joinpath("terraform", file).read_text().splitlines()):
            if re.match(r"(resource|data|locals|check|output) ?", text):
                resource = text.startswith(("resource", "data"))
            line = text.strip()
            whole = re.match(r'"?[\w.-]+"? += [^#]*[^\s({\[?]( *#.*)?$', line) and line.count("{") == line.count("}")
            checked = line.startswith(("condition ", "error_message ", "for_each ", "count "))
            if resource and whole and not checked and not any(re.match(pattern, line) for pattern, _ in UNNOTICED):
                yield Mutant(file, number, line)


def is_noticed(mutant: Mutant, providers: Path) -> bool:
    """Whether one of terraform's tests fails without the line."""
    with tempfile.TemporaryDirectory() as folder:
        terraform = Terraform(copy_repository(Path(folder)) / "terraform")
        lines = (terraform.folder / mutant.file).read_text().splitlines()
        del lines[mutant.number]
        (terraform.folder / mutant.file).write_text("\n".join(lines) + "\n")
        terraform.init(providers)
        tests = NOTICED_BY[mutant.file]
        return any(terraform.run("test", f"-filter=tests/{test}.tftest.hcl", timeout=900).returncode != 0 for test in tests)


def main() -> int:
    """Deletes and asks, two at a time, once nothing fails without that; returns how many lines went unnoticed."""
    sown = list(mutants(sys.argv[1:] or list(NOTICED_BY)))
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        first = Terraform(copy_repository(Path(folder)) / "terraform")
        first.init()
        first("test", *(f"-filter=tests/{test}.tftest.hcl" for test in sorted(set().union(*NOTICED_BY.values()))), timeout=1800)
        providers = Path(shutil.copytree(first.providers, Path(folder) / "providers", symlinks=True))
        unnoticed = 0
        for mutant, noticed in zip(sown, pool.map(lambda mutant: is_noticed(mutant, providers), sown), strict=True):
            print(f"{'noticed' if noticed else 'UNNOTICED':10}{mutant.file}:{mutant.number + 1}: {mutant.text}", flush=True)
            unnoticed += not noticed
    print(f"{len(sown)} lines deleted, {unnoticed} unnoticed")
    return unnoticed


if __name__ == "__main__":
    sys.exit(min(main(), 1))
