"""What a first apply, another one and a destroy leave, against providers that invent what they make."""

from __future__ import annotations

import json

import pytest

from tests.template.size import WHOLE
from tests.template.terraform.deployments import OTHER_STORES
from tests.template.terraform.workspace import REQUIRED, Terraform

pytestmark = [pytest.mark.long, pytest.mark.timeout(300), pytest.mark.skipif(not WHOLE, reason="takes long: WHOLE=0")]


@pytest.mark.parametrize("store", [{}, {"store": "spanner"} | OTHER_STORES], ids=["firestore", "spanner"])
def test_apply_twice_destroy_and_apply_again(store: dict[str, str], workspace: Terraform) -> None:
    """The second plan changes nothing, destroy leaves nothing in the state, and an apply right after it makes it all again.

    The Scheduler's account, which the function takes by a name that is known before it is made, is made by that name.
    """
    if not workspace.invents:
        pytest.skip("an apply is tried only with providers that invent what they make, and these are Google's")
    workspace.folder.joinpath("terraform.tfvars.json").write_text(
        json.dumps(
            REQUIRED | store | {"secret_environment_variables": {"API_KEY": {"secret": "api-key"}}, "delete_database": True}
        )
    )

    workspace("apply", "-auto-approve", "-input=false")
    made = workspace("state", "list")
    state = json.loads(workspace("show", "-json"))["values"]
    again = workspace.run("plan", "-input=false", "-detailed-exitcode")
    workspace("destroy", "-auto-approve", "-input=false")
    left = workspace("state", "list")
    workspace("apply", "-auto-approve", "-input=false")

    (function,) = (one for one in state["root_module"]["resources"] if one["type"] == "google_cloudfunctions2_function")
    callers = function["values"]["service_config"][0]["environment_variables"]["DEDUP_CALLERS"]
    assert callers == state["outputs"]["service_accounts"]["value"]["scheduler"]
    assert again.returncode == 0, again.stdout  # 2: there would be changes
    assert "No changes." in again.stdout
    assert "google_cloudfunctions2_function.job" in made
    assert left == ""
    assert workspace("state", "list") == made
