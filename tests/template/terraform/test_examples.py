"""The examples can be planned as they are. A fork may have deleted some, or all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.template import ROOT
from tests.template.size import WHOLE
from tests.template.terraform.workspace import Terraform


def there_are(folder: Path) -> list[object]:
    """The names of the examples in a folder."""
    found: list[object] = sorted(path.parent.name for path in folder.glob("*/main.tf"))
    return found or [pytest.param("", marks=pytest.mark.skip(reason=f"there is no example in {folder.relative_to(ROOT)}/"))]


pytestmark = [pytest.mark.long, pytest.mark.timeout(300), pytest.mark.skipif(not WHOLE, reason="takes long: WHOLE=0")]


@pytest.mark.parametrize("example", there_are(ROOT / "terraform" / "examples"))
def test_an_example_is_planned(example: str, terraform: Terraform) -> None:
    """An example needs only a project to be planned, and no check fails."""
    own = Terraform(terraform.folder / "examples" / example)
    own.init(terraform.providers)

    told = own("plan", "-input=false", "-lock=false", "-no-color", "-var=project_id=my-project")

    assert re.search(r"^Plan: [1-9]\d+ to add, 0 to change, 0 to destroy\.$", told, re.MULTILINE)
    assert "Warning" not in told


@pytest.mark.parametrize("target", there_are(ROOT / "examples"))
def test_a_targets_example_is_valid(target: str, terraform: Terraform) -> None:
    """The Terraform beside an example of a target is as the providers and terraform/ want it."""
    own = Terraform(terraform.folder.parent / "examples" / target)
    own.init(terraform.providers)

    assert "The configuration is valid" in own("validate", "-no-color")
