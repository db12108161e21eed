"""terraform/ is formatted and valid, and its own tests pass."""

from __future__ import annotations

import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.template import ROOT
from tests.template.size import WHOLE
from tests.template.terraform.workspace import Terraform, TerraformMissing, copy_repository, terraform_version

TESTS = sorted(path.name for path in (ROOT / "terraform" / "tests").glob("*.tftest.hcl"))


def test_every_file_is_formatted(tmp_path: Path) -> None:
    """`terraform fmt` has nothing to change, in what isn't a fork's."""
    try:
        terraform_version()
    except TerraformMissing as missing:
        pytest.skip(str(missing))
    ran = Terraform(copy_repository(tmp_path) / "terraform").run("fmt", "-check", "-diff", "-recursive")
    assert (ran.returncode, ran.stdout) == (0, "")


@pytest.mark.long
@pytest.mark.skipif(not WHOLE, reason="takes long: WHOLE=0")
def test_the_configuration_is_valid(terraform: Terraform) -> None:
    """`terraform validate` accepts the configuration without a warning."""
    assert terraform("validate", "-no-color") == "Success! The configuration is valid.\n\n"


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.skipif(not WHOLE, reason="takes long: WHOLE=0")
@pytest.mark.parametrize("file", TESTS)
def test_terraforms_own_tests_pass(file: str, terraform: Terraform) -> None:
    """`terraform test` passes each file of terraform/tests."""
    told = terraform("test", "-no-color", f"-filter=tests/{file}")
    print(told)
    assert re.search(r"^Success! [1-9]\d* passed, 0 failed\.$", told, re.MULTILINE)


@pytest.mark.long
@pytest.mark.skipif(not WHOLE, reason="takes long: WHOLE=0")
def test_the_graph_has_no_cycle(terraform: Terraform) -> None:
    """What depends on what can be put in an order, as `terraform graph` shows it."""
    edges = re.findall(r'^\s*"(.+?)" -> "(.+?)";?$', terraform("graph"), re.MULTILINE)
    needed: dict[str, set[str]] = {}
    for dependent, dependency in edges:
        needed.setdefault(dependent, set()).add(dependency)

    order = list(TopologicalSorter(needed).static_order())  # raises CycleError

    assert order.index("google_cloudfunctions2_function.job") < order.index("google_cloud_scheduler_job.job")
    assert order.index("google_project_service.api") < order.index("google_cloudfunctions2_function.job")
