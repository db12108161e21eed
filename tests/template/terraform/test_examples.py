"""The examples and the files of variables can be planned as they are."""

from __future__ import annotations

import re

import pytest

from tests.template import ROOT
from tests.template.size import WHOLE
from tests.template.terraform.workspace import Terraform

EXAMPLES = sorted(path.parent.name for path in ROOT.joinpath("terraform", "examples").glob("*/main.tf"))
TARGETS = sorted(path.parent.name for path in ROOT.joinpath("examples").glob("*/main.tf"))
ENVIRONMENTS = sorted(path.name for path in ROOT.joinpath("terraform").glob("*.tfvars"))

pytestmark = [pytest.mark.long, pytest.mark.timeout(300), pytest.mark.skipif(not WHOLE, reason="takes long: WHOLE=0")]


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_planned(example: str, terraform: Terraform) -> None:
    """An example needs only a project to be planned, and no check fails."""
    own = Terraform(terraform.folder / "examples" / example)
    own.init(terraform.providers)

    told = own("plan", "-input=false", "-lock=false", "-no-color", "-var=project_id=my-project")

    assert re.search(r"^Plan: [1-9]\d+ to add, 0 to change, 0 to destroy\.$", told, re.MULTILINE)
    assert "Warning" not in told


@pytest.mark.parametrize("target", TARGETS)
def test_a_targets_example_is_valid(target: str, terraform: Terraform) -> None:
    """The Terraform beside an example of a target is as the providers and terraform/ want it."""
    own = Terraform(terraform.folder.parent / "examples" / target)
    own.init(terraform.providers)

    assert "The configuration is valid" in own("validate", "-no-color")


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_an_environment_is_planned(environment: str, terraform: Terraform) -> None:
    """An environment's file says all that a plan needs, and no check fails."""
    told = terraform("plan", "-input=false", "-lock=false", "-no-color", f"-var-file={environment}")

    assert re.search(r"^Plan: [1-9]\d+ to add, 0 to change, 0 to destroy\.$", told, re.MULTILINE)
    assert "Warning" not in told


def test_there_are_examples_and_environments() -> None:
    """None of them is left out here because it isn't found."""
    assert EXAMPLES == ["existing_database", "module", "over_documented_example", "second_region"]
    assert len(TARGETS) == 7
    assert ENVIRONMENTS == ["production.tfvars", "staging.tfvars"]
