"""One copy of the repository, initialised once, and one plan of all the deployments that tests look at."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.template.terraform.deployments import DEPLOYMENTS, Planned
from tests.template.terraform.workspace import OLDEST, Terraform, TerraformMissing, copy_repository, terraform_version


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keeps these tests on one worker: they share a workspace that takes long to make."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("terraform"))


@pytest.fixture(scope="session")
def terraform(tmp_path_factory: pytest.TempPathFactory) -> Terraform:
    """Terraform in terraform/ of a copy, initialised."""
    try:
        version = terraform_version()
        if version < OLDEST:
            raise TerraformMissing(f"the tests of terraform/ need Terraform {'.'.join(map(str, OLDEST))} or newer")
        copy = copy_repository(tmp_path_factory.mktemp("repository"))
        initialised = Terraform(copy / "terraform")
        initialised.init()
    except TerraformMissing as missing:
        pytest.skip(str(missing))
    return initialised


@pytest.fixture(scope="session")
def planned(terraform: Terraform) -> Planned:
    """The plan of all DEPLOYMENTS, which are one configuration: a provider that is slow to start is started once."""
    folder = terraform.folder.parent / "deployments"
    folder.mkdir()
    configuration = {
        "module": {name: {"source": "../terraform"} | variables for name, variables in DEPLOYMENTS.items()},
        "output": {"timings": {"value": {name: f"${{module.{name}.timings}}" for name in DEPLOYMENTS}}},
    }
    folder.joinpath("main.tf.json").write_text(json.dumps(configuration))
    deployments = Terraform(folder)
    deployments.init(terraform.providers)
    return Planned(deployments.plan(), folder)


@pytest.fixture
def workspace(terraform: Terraform, tmp_path: Path) -> Terraform:
    """Terraform in a copy of its own, initialised."""
    own = Terraform(copy_repository(tmp_path) / "terraform")
    own.init(terraform.providers)
    return own
